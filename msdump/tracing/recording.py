"""Records when operators ran, were compiled, and files were written, in all threads of a process.

Nothing is traced, and nothing costs anything, before ``begin``: what is timed asks once whether a trace is
made, when it is compiled or opened, and stays as it is where none is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Span(NamedTuple):
    """A time that something took.

    Attributes:
        category: What it is: ``operator``, ``segment``, ``compile``, ``write``, ``iteration``.
        name: What is shown of it.
        thread: The thread; its number may be that of a later one, too.
        started: When it began, in nanoseconds of ``time.perf_counter_ns``.
        ended: When it ended.
        arguments: What is told of it besides.
    """

    category: str
    name: str
    thread: threading.Thread
    started: int
    ended: int
    arguments: dict[str, Any]


class Trace:
    """Spans of time, each of one thread; any thread may add some.

    Attributes:
        began: When the trace began, as spans have it.
        spans: The spans, in the order in which they ended.
        threads: Names of the threads that have spans.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.began = time.perf_counter_ns()
        self.spans: list[Span] = []
        self.threads: dict[threading.Thread, str] = {}

    @contextmanager
    def span(self, category: str, name: str, **arguments: Any) -> Iterator[None]:
        """Add a span of the calling thread, from here to the end of the block.

        Args:
            category: As ``Span`` has it.
            name: The same.
            arguments: The same.
        """
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
    """Trace nothing any more of what is compiled or opened from now on."""
    global _active  # noqa: PLW0603 - the same
    _active = None


def active() -> Trace | None:
    """Return the trace that is being made, None for none."""
    return _active


def timed(function: _Function, category: str, name: str, **arguments: Any) -> _Function:
    """Return a function whose calls are spans of the trace; the same function where none is made.

    Args:
        function: The function.
        category: As ``Span`` has it.
        name: The same.
        arguments: The same.
    """
    trace = _active
    if trace is None:
        return function

    def call(*positional: Any, **named: Any) -> Any:
        with trace.span(category, name, **arguments):
            return function(*positional, **named)

    return call  # type: ignore[return-value]  # of the same signature
