"""Threads of this process, for work on large items that leaves the interpreter to others.

They take neither the start of processes nor the import of what processes need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD: Final = 4  # items for each thread that are given out at a time


def results(
    work: Callable[[_Item], _Result], sized: Iterable[tuple[_Item, int]], count: int
) -> Iterator[tuple[_Result, int]]:
    """Yield the result for each item with the item's size, in their order.

    Args:
        work: A function that several threads may call; what it raises is raised here.
        sized: The items and their sizes.
        count: Number of threads.
    """
    pool = ThreadPoolExecutor(count)
    given: deque[tuple[Future[_Result], int]] = deque()
    try:
        for item, size in sized:
            given.append((pool.submit(work, item), size))
            if len(given) == count * _AHEAD:
                yield _taken(given)
        while given:
            yield _taken(given)
    finally:  # an error or Ctrl-C must not wait for items that nobody wants any more
        pool.shutdown(cancel_futures=True)


def _taken(given: deque[tuple[Future[_Result], int]]) -> tuple[_Result, int]:
    future, size = given.popleft()
    return future.result(), size
