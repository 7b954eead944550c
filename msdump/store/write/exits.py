"""Unwritten files when a process ends, is terminated (SIGTERM, SIGHUP, SIGXCPU), or forks.

An interpreter that ends, also after an exception, and a process that gets such a
signal first finish the captured files. A handler of a signal is installed only where
the process has none, and only while something may come to be unwritten: from the first writer on,
since the threads that hand files over later may install none.

The handler runs between any two steps of the main thread. If the main thread holds the lock of a writer,
other threads may wait for the lock and never finish the work that the handler waits for. Such a signal is
therefore handled when the main thread leaves the last of these locks (``new_guard``).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Final, Protocol

from msdump.errors import DumpWriteError
from msdump.threads import REENTRANT, SignalSafeWeakSet, new_lock


class Writer(Protocol):
    """Something that may hold unwritten files."""

    def close(self) -> None:
        """Write everything; DumpWriteError where something was lost, which is logged by then."""

    def complete(self) -> None:
        """Write everything, in a signal handler too, and raise nothing about lost files."""

    def forget(self) -> None:
        """In a forked child: drop the files that the parent writes."""


_registered: Final = SignalSafeWeakSet[Any]()
_active: Final[dict[Writer, None]] = {}  # in the order in which they became active; keeps them alive
_last: list[Writer] = []  # closed after all others
_runs: Final = SignalSafeWeakSet[Any]()
_LONGEST_RUN: Final = 60  # seconds that the end of a process waits for a run that goes on
_guards: Final = SignalSafeWeakSet[Any]()
_deferred: Final[list[int]] = []  # the signal that waits until the main thread leaves its last guard
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)

heard: Final[list[str]] = []
"""Names of the signals by which the process is asked to end."""


class _Guard(REENTRANT):  # type: ignore[misc, valid-type]  # typeshed calls it final
    """A reentrant lock; a signal that comes while the lock is held is handled on release."""

    __slots__ = ()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread holds it."""
        return bool(self._is_owned())

    def __exit__(self, *error: object) -> None:
        self.release()
        if _deferred:
            _end_where_free()


def new_guard() -> threading.RLock:
    """Return a lock for ``complete``: SIGTERM waits while the main thread holds it (``with``)."""
    guard = new_lock(_Guard)
    _guards.add(guard)
    return guard


def register(writer: Writer) -> None:
    """Call a writer's ``forget`` in forked children from now on, while it lives, and listen to SIGTERM."""
    _registered.add(writer)
    listen()


def activate(writer: Writer) -> None:
    """Complete a writer before the process ends; it lives until ``deactivate``."""
    if writer in _active:
        return
    _active[writer] = None
    listen()


def close_last(writer: Writer) -> None:
    """Close or complete a writer after all others when the process ends; replaces an earlier such one."""
    _last[:] = [writer]
    listen()


def hold_runs(lock: threading.RLock) -> None:
    """Take the lock of a network when the process ends, so that a daemon thread ends its run and begins none.

    At its end, the interpreter unwinds the stack of a daemon thread that returns from onnxruntime, which
    aborts the process.
    """
    _runs.add(lock)


def _end_runs() -> None:
    for lock in _runs:
        lock.acquire(timeout=_LONGEST_RUN)


def listen() -> None:
    """Complete everything at SIGTERM and the like, unless a handler is set; only the main thread can."""
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL and _is_main_thread():
            signal.signal(number, _terminate)


def deactivate(writer: Writer) -> None:
    """No longer complete a writer when the process ends: it has nothing left to write."""
    _active.pop(writer, None)
    for number in _SIGNALS:
        if not _active and not _last and signal.getsignal(number) is _terminate and _is_main_thread():
            signal.signal(number, signal.SIG_DFL)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _terminate(number: int, frame: FrameType | None) -> None:
    """Complete everything and end as if there were no handler; a second signal ends at once."""
    del frame
    # SIGXCPU (limit of CPU time) comes again every second
    signal.signal(number, signal.SIG_IGN if number == signal.SIGXCPU else signal.SIG_DFL)
    heard.append(signal.Signals(number).name)
    _deferred.append(number)
    _end_where_free()


def _end_where_free() -> None:
    """End the process by the pending signal; no-op in other threads or while the main one holds a guard."""
    if not _is_main_thread() or any(guard.is_mine for guard in _guards):
        return
    number = _deferred.pop()
    try:
        for writer in [*_active, *_last]:
            writer.complete()
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _close_all() -> None:
    for writer in [*_active, *_last]:
        with contextlib.suppress(DumpWriteError):
            writer.close()


def _forget_all() -> None:
    for writer in _registered:
        writer.forget()
    _deferred.clear()
    for writer in _last:
        writer.forget()
    _last.clear()
    for writer in list(_active):
        deactivate(writer)


atexit.register(_close_all)
atexit.register(_end_runs)  # before the writers are closed: handlers run in the reverse order
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
