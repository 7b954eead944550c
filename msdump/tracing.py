"""Traces: when operators ran and were compiled and files were written, and Chrome's format.

Nothing is traced before ``begin``, at no cost: functions are wrapped when they are compiled or opened, only
while a trace is made. Chrome's format, which Perfetto reads, is a JSON object with an event for each span
of time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Span(NamedTuple):
    """A time that something took."""

    category: str  # ``operator``, ``segment``, ``compile``, ``write`` or ``iteration``
    name: str
    thread: threading.Thread  # the thread; its number may be that of a later one, too
    started: int  # when it began, in nanoseconds of ``time.perf_counter_ns``
    ended: int
    arguments: dict[str, Any]


class Trace:
    """Spans of time, each of one thread; any thread may add some."""

    def __init__(self) -> None:
        self.began = time.perf_counter_ns()  # when the trace began, as spans have it
        self.spans: list[Span] = []
        self.threads: dict[threading.Thread, str] = {}  # names of the threads that have spans

    @contextmanager
    def span(self, category: str, name: str, **arguments: Any) -> Iterator[None]:
        """Add a span of the calling thread, from here to the end of the block; arguments as of ``Span``."""
        started = time.perf_counter_ns()
        try:
            yield
        finally:
            ended, thread = time.perf_counter_ns(), threading.current_thread()
            if thread not in self.threads:
                self.threads[thread] = thread.name
            self.spans.append(Span(category, name, thread, started, ended, arguments))


_active: Trace | None = None


def begin() -> Trace:
    """Trace everything that is compiled or opened from now on, in all threads; return the trace."""
    global _active  # noqa: PLW0603 - one trace of a process, as there is one of its counters
    _active = Trace()
    return _active


def end() -> None:
    """Stop tracing: functions that are compiled or opened from now on are not traced."""
    global _active  # noqa: PLW0603 - the same
    _active = None


def active() -> Trace | None:
    """Return the trace that is being made, None if there is none."""
    return _active


def timed(function: _Function, category: str, name: str, **arguments: Any) -> _Function:
    """Wrap a function so that each call is a span of the trace; return it unchanged if no trace is made.

    Whether a trace is made is decided once, when a function is compiled or opened: before ``begin`` nothing
    costs anything. Arguments as of ``Span``.
    """
    trace = _active
    if trace is None:
        return function

    def call(*positional: Any, **named: Any) -> Any:
        with trace.span(category, name, **arguments):
            return function(*positional, **named)

    return call  # type: ignore[return-value]  # of the same signature


_NANOSECONDS: Final = 1000  # in a microsecond, the format's unit of time
_BATCH: Final = 1000  # events in one piece of the file


def chrome_pieces(trace: Trace, process_name: str) -> Iterator[bytes]:
    """Yield the file: complete events (``ph`` "X"), in microseconds from the beginning of the trace."""
    pid = os.getpid()
    numbers = {thread: number for number, thread in enumerate(trace.threads)}
    named = [_name_of("process_name", pid, 0, process_name)]
    named += [_name_of("thread_name", pid, numbers[thread], name) for thread, name in trace.threads.items()]
    yield b'{"displayTimeUnit": "ns", "traceEvents": [\n' + ",\n".join(map(json.dumps, named)).encode()
    for start in range(0, len(trace.spans), _BATCH):
        events = (
            {
                "name": span.name,
                "cat": span.category,
                "ph": "X",
                "ts": (span.started - trace.began) / _NANOSECONDS,
                "dur": (span.ended - span.started) / _NANOSECONDS,
                "pid": pid,
                "tid": numbers[span.thread],
                "args": span.arguments,
            }
            for span in trace.spans[start : start + _BATCH]
        )
        yield "".join(f",\n{json.dumps(event)}" for event in events).encode()
    yield b"\n]}\n"


def _name_of(kind: str, pid: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": thread, "args": {"name": name}}
