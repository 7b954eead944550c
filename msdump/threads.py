"""Threads for work on large arrays: the calling one and helpers.

Locks that a fork renews, too, and weak sets that do not lose Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

from msdump import env
from msdump.errors import InputError, is_foreign

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

MOST_THREADS: Final = 1024
"""Threads of one operator that may be asked for: beyond it the system refuses them sooner or later."""

_SHOWN: Final = 40  # characters of a value that a message shows
_NICENESS: Final = 10
_MOST: Final = 8  # every session of the runtime has a pool: more cores would mean thousands of threads


class SignalSafeWeakSet(Generic[T]):
    """A WeakSet without Python callbacks, in which a KeyboardInterrupt would be lost.

    ``weakref.WeakSet`` runs Python code when an object is freed: a pending Ctrl-C is raised in that callback,
    where Python only prints the exception, and the run goes on.

    >>> class Thing: pass
    >>> thing, things = Thing(), SignalSafeWeakSet()
    >>> things.add(thing)
    >>> thing in things, len(things)
    (True, 1)
    >>> del thing
    >>> list(things)
    []
    """

    def __init__(self) -> None:
        self._refs: set[weakref.ref[T]] = set()

    def add(self, item: T) -> None:
        """Add an object; it leaves the set when it is freed."""
        self._refs.add(weakref.ref(item, self._refs.discard))

    def __contains__(self, item: T) -> bool:
        """Return whether an object was added."""
        return weakref.ref(item) in self._refs

    def __iter__(self) -> Iterator[T]:
        """Iterate over the objects that are alive now; others may be added meanwhile."""
        return iter([item for ref in [*self._refs] if (item := ref()) is not None])

    def __len__(self) -> int:
        """Return how many objects are alive."""
        return len(self._refs)


class SignalSafeWeakValues(Generic[K, T]):
    """A WeakValueDictionary without Python callbacks, as ``SignalSafeWeakSet``."""

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[T]] = {}

    def get(self, key: K) -> T | None:
        """Return the object of a key, None if there is none or it was freed."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def put(self, key: K, item: T) -> None:
        """Set the object of a key; the entry ends when the object is freed."""
        self._refs[key] = weakref.ref(item, partial(self._refs.pop, key))

    def clear(self) -> None:
        """Remove all entries."""
        self._refs.clear()

    def __len__(self) -> int:
        """Return how many objects are alive."""
        return len(self._refs)


_LOCKS: Final = SignalSafeWeakSet[threading.RLock]()

REENTRANT: Final = type(threading.RLock())
"""The class of the locks that ``new_lock`` makes, for others to derive from."""


def new_lock(kind: Callable[[], threading.RLock] = REENTRANT) -> threading.RLock:
    """Return a lock that a forked child finds free, unless the thread that forked holds it.

    A thread that holds a lock while another one forks is not there in the child, and would never give it
    back. Reentrant: a signal handler may do the same as the frame below it.
    """
    lock = kind()
    _LOCKS.add(lock)
    return lock


def _renew_locks() -> None:
    for lock in _LOCKS:
        if lock.acquire(blocking=False):
            lock.release()
        else:  # as ``logging`` does with its locks
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001


def thread_count() -> int:
    """Return the threads of one operator: MSDUMP_THREADS, or the cores that the process may use up to 8.

    Raises:
        InputError: The variable is no number of threads that a process can have.
    """
    text = env.read(env.THREADS)
    if text is None:
        return min(cores(), _MOST)
    count = env.number(text, MOST_THREADS)
    if not count:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise InputError(f"{env.THREADS} = {shown!r}: must be a number from 1 to {MOST_THREADS}")
    return count


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_threads(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return the results of a function for some parts: the first in this thread, the others in helpers.

    The work must not map threads itself. It pays where a part takes some
    hundred microseconds and leaves Python's lock alone, as numpy does.

    Raises:
        Exception: The work raised it; all of it has ended then.
    """
    first, *others = parts
    futures = [_HELPERS.submit(work, part) for part in others]
    try:
        results = [work(first)]
    finally:
        for future in futures:  # no helper may still write into an array that the caller gets back
            future.exception()
    return results + [future.result() for future in futures]


def split_by_size(items: Sequence[T], size: Callable[[T], int], least: int) -> list[list[T]]:
    """Return items in their order, divided among threads so that each has about as much to do.

    >>> split_by_size(["aa", "b", "c"], len, 3)
    [['aa', 'b', 'c']]

    There is one list for each thread that pays, at least one; some may be empty. A thread pays for
    ``least`` or more: as much as keeps it busy for longer than it takes to wake.
    """
    total = sum(size(item) for item in items)
    count = max(1, min(thread_count(), total // least))
    if count == 1:
        return [[*items]]
    parts: list[list[T]] = [[] for _ in range(count)]
    before = 0
    for item in items:
        # by its middle, so that one which lies across a bound goes where more of it is
        parts[min(count - 1, (2 * before + size(item)) * count // (2 * total))].append(item)
        before += size(item)
    return parts


def lower_priority() -> None:
    """Let the threads of operators run before the calling one (Linux, where each has its own priority)."""
    # an operator waits, spinning, for the slowest of its threads: nothing may take a core from it
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + _NICENESS)


class _Helpers:
    """A pool of threads, started when it is first needed and again in a forked process."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = new_lock()

    def submit(self, work: Callable[[T], R], part: T) -> Future[R]:
        with self._lock:
            if self._pool is None:
                # the calling thread does a part itself
                self._pool = ThreadPoolExecutor(max(1, thread_count() - 1), "msdump-helper")
            pool = self._pool
        try:
            return pool.submit(work, part)
        except RuntimeError as error:
            if is_foreign(error):
                raise
            future: Future[R] = Future()
            try:
                future.set_result(work(part))
            except Exception as error:  # result() raises it in the caller
                if is_foreign(error):
                    raise
                future.set_exception(error)
            return future  # the interpreter is shutting down: no helper takes work any more

    def forget(self) -> None:
        self._pool = None


_HELPERS: Final = _Helpers()

if hasattr(os, "register_at_fork"):
    # threads do not survive a fork
    os.register_at_fork(after_in_child=_renew_locks)
    os.register_at_fork(after_in_child=_HELPERS.forget)
