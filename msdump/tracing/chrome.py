"""The format of Chrome's tracing, which Perfetto reads: a JSON object with an event for each span of time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any, Final

from msdump.tracing.recording import Span, Trace

_NANOSECONDS: Final = 1000  # of a microsecond, the format's unit
_BATCH: Final = 1000  # events of a piece


def pieces(trace: Trace, process_name: str) -> Iterator[bytes]:
    """Yield the file: complete events (``ph`` "X"), in microseconds from the beginning of the trace.

    Args:
        trace: The trace.
        process_name: What is shown of the process.
    """
    pid = os.getpid()
    numbers = {thread: number for number, thread in enumerate(trace.threads)}
    named = [_name_of("process_name", pid, 0, process_name)]
    named += [_name_of("thread_name", pid, numbers[thread], name) for thread, name in trace.threads.items()]
    yield b'{"displayTimeUnit": "ns", "traceEvents": [\n' + ",\n".join(map(json.dumps, named)).encode()
    for start in range(0, len(trace.spans), _BATCH):
        events = (_event(span, trace.began, pid, numbers) for span in trace.spans[start : start + _BATCH])
        yield "".join(f",\n{json.dumps(event)}" for event in events).encode()
    yield b"\n]}\n"


def _event(span: Span, began: int, pid: int, numbers: Mapping[Thread, int]) -> dict[str, Any]:
    return {
        "name": span.name,
        "cat": span.category,
        "ph": "X",
        "ts": (span.started - began) / _NANOSECONDS,
        "dur": (span.ended - span.started) / _NANOSECONDS,
        "pid": pid,
        "tid": numbers[span.thread],
        "args": span.arguments,
    }


def _name_of(kind: str, pid: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": thread, "args": {"name": name}}
