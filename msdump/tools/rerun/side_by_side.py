"""Operators that run again side by side, in as many threads as one operator has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from msdump.threads import thread_count

_MOST: Final = 4  # operators have threads of their own, too
_LEAST_SIZE: Final = 1 << 17  # of tensors, on average: smaller ones leave Python's lock free too rarely
_R = TypeVar("_R")


def each(work: Callable[[int], _R], count: int, size: float) -> Iterator[_R]:
    """Yield the results of some work for the numbers from 0, in their order.

    Python's lock is free while kernels run, files are read and tensors are compared. Where these are so small
    that each call is over at once, threads mostly wait for the lock and wake each other: one alone is faster.

    Args:
        work: Is called from several threads at the same time where the tensors are large.
        count: How many numbers there are.
        size: Elements of the tensors that the work reads, on average.

    Raises:
        Exception: What the work raised; what has begun has ended then, and nothing else begins.
    """
    threads = min(thread_count(), _MOST, count)
    if threads <= 1 or size < _LEAST_SIZE:
        yield from map(work, range(count))
        return
    with ThreadPoolExecutor(threads, "msdump-rerun") as pool:
        # its generator cancels what has not begun when it ends early
        yield from pool.map(work, range(count))
