"""The map itself: items go to workers in units, and results come back in the order of the items.

Results, errors and messages are the same, in the same order, whoever does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from msdump.tools.mapping.executors import EXECUTORS, ExecutorChoice, ExecutorKind
from msdump.tools.mapping.sizes import Batches

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

WORTH_IT: Final = 32 << 20
"""Cost of the work, as of ``Batch``, from which on processes take less time to start than they save."""


def each(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    size: Callable[[_Item], int],
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    name: Callable[[_Item], str] = str,
    paths: Iterable[str] = (),
    progress: Callable[[int], object] = lambda _: None,
    in_threads: bool = False,
) -> Iterator[_Result]:
    """Yield the result of a function for each item, in the order of the items.

    Args:
        work: A function of a module, or a ``functools.partial`` of one; its arguments and results travel
            between processes. An exception that it raises is raised here.
        items: The arguments of the calls, which may be found while others are worked on.
        size: Returns the bytes that the work on an item reads; with few in all, this process does the work.
        executor: Who does the work.
        name: Returns what an item is called in messages.
        paths: Files and directories that workers on other machines must see.
        progress: Called with the size of each item when its result is taken.
        in_threads: Whether the work on a large item is mostly that of numpy and the system, so that threads
            do it as fast as processes; it must log nothing, whose order threads would not keep.

    Raises:
        ToolError: Workers died of an item, have another version, or there are none.
    """
    batches = Batches(items, size)
    if executor.kind is ExecutorKind.PROCESSES:
        is_worth_it = executor.processes > 1 and batches.holds(WORTH_IT)
        if not is_worth_it or (in_threads and batches.begin_large()):
            yield from _here(work, batches, executor.processes if is_worth_it else 1, progress)
            return
    elif not batches.holds(1):
        return
    from msdump.tools.mapping.dispatch import Dispatch  # not above: little work needs no workers

    workers = EXECUTORS[executor.kind](executor)
    batches.workers = workers.count
    try:
        yield from Dispatch(work, batches, workers, name, tuple(paths)).results(progress)
    finally:
        workers.close()


def _here(
    work: Callable[[_Item], _Result],
    batches: Batches[_Item],
    threads: int,
    progress: Callable[[int], object],
) -> Iterator[_Result]:
    """Yield the results of work in this process."""
    done: Iterator[tuple[_Result, int]]
    if threads == 1:
        done = ((work(item), count) for item, count in batches.rest())
    else:
        from msdump.tools.mapping import thread_pool  # not above: little work needs no threads

        done = thread_pool.results(work, batches.rest(), threads)
    for result, count in done:
        progress(count)
        yield result
