"""The map itself: items go to workers in units, and results come back in the order of the items.

Results, errors and messages are the same, in the same order, whoever does the work.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from msdump.tools.mapping import units
from msdump.tools.mapping.executors import EXECUTORS, ExecutorChoice, ExecutorKind
from msdump.tools.mapping.sizes import Batch, Batches
from msdump.tools.mapping.units import UnitOutcome, WorkOrigin
from msdump.tools.mapping.workers import Workers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

WORTH_IT: Final = 32 << 20
"""Cost of the work, as of ``Batch``, from which on processes take less time to start than they save."""

_DEATHS: Final = 3
"""How often a unit may kill the process that works on it alone, as Dask allows it."""

_AHEAD: Final = 3  # units for each worker that are given out at a time
_KEPT: Final = 16  # units for each worker whose results may wait for those of an earlier one
_PATIENCE: Final = 1.0  # seconds between two looks at the workers


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
    workers = EXECUTORS[executor.kind](executor)
    batches.workers = workers.count
    try:
        yield from _Mapping(work, batches, workers, name, tuple(paths)).results(progress)
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


@dataclass
class _Unit(Generic[_Item]):
    """A unit on its way.

    Attributes:
        batch: Its items.
        payload: What the worker gets.
        future: Its outcome, None while it is not given out.
        is_suspect: Whether a process died while it was worked on, so that it runs alone next.
        deaths: How often a process died that worked on it alone.
    """

    batch: Batch[_Item]
    payload: bytes
    future: Future[UnitOutcome] | None = None
    is_suspect: bool = False
    deaths: int = 0

    @property
    def is_running(self) -> bool:
        return self.future is not None and not self.future.done()

    @property
    def is_done(self) -> bool:
        return self.future is not None and self.future.done()


class _Mapping(Generic[_Item, _Result]):
    """One map over open workers."""

    def __init__(
        self,
        work: Callable[[_Item], _Result],
        batches: Batches[_Item],
        workers: Workers,
        name: Callable[[_Item], str],
        paths: tuple[str, ...],
    ) -> None:
        self._work = work
        self._batches = batches
        self._workers = workers
        self._name = name
        self._origin = WorkOrigin.here(paths, is_child=workers.is_child)
        self._units: deque[_Unit[_Item]] = deque()

    def results(self, progress: Callable[[int], object]) -> Iterator[_Result]:
        """Yield the results."""
        while True:
            self._revive()
            self._give_out()
            if not self._units:
                return
            first = self._units[0]
            if first.is_done:
                outcome = self._outcome(first)
                self._units.popleft()
                self._batches.learn(first.batch, outcome.seconds)
                yield from _taken(outcome, first.batch, progress)
                continue
            running = [unit.future for unit in self._units if unit.future is not None and unit.is_running]
            wait(running, _PATIENCE, FIRST_COMPLETED)
            self._workers.check()

    def _give_out(self) -> None:
        """Give units to workers: one alone where a process died of it, or of another that ran beside it."""
        running = sum(unit.is_running for unit in self._units)
        suspects = [unit for unit in self._units if unit.is_suspect and not unit.is_done]
        if suspects:
            if not running:
                self._submit(suspects[0])
            return
        while running < self._workers.count * _AHEAD and len(self._units) < self._workers.count * _KEPT:
            batch = self._batches.next()
            if batch is None:
                return
            unit = _Unit(batch, units.packed(self._work, batch.items))
            self._units.append(unit)
            self._submit(unit)
            running += 1

    def _submit(self, unit: _Unit[_Item]) -> None:
        try:
            unit.future = self._workers.executor.submit(units.run, self._origin, unit.payload)
        except RuntimeError as error:  # a process died, and the pool takes nothing any more
            unit.future = Future()
            unit.future.set_exception(error)

    def _outcome(self, unit: _Unit[_Item]) -> UnitOutcome:
        assert unit.future is not None, "asked of units that are done"
        try:
            return unit.future.result()
        except Exception as error:
            raise self._workers.explain(error, self._called(unit)) from error

    def _revive(self) -> None:
        """Where a process died put back the units that it and the others worked on.

        Raises:
            ToolError: Processes die of one of them.
        """
        if not any(map(self._has_died, self._units)):
            return
        lost = [unit for unit in self._units if unit.is_running or self._has_died(unit)]
        if len(lost) == 1:
            lost[0].deaths += 1
            if lost[0].deaths == _DEATHS:
                self._outcome(lost[0])
        for unit in lost:
            unit.future, unit.is_suspect = None, True
        self._workers.replace()

    def _has_died(self, unit: _Unit[_Item]) -> bool:
        if unit.future is None or not unit.future.done() or unit.future.cancelled():
            return False
        error = unit.future.exception()
        return error is not None and self._workers.is_death(error)

    def _called(self, unit: _Unit[_Item]) -> str:
        first, last = self._name(unit.batch.items[0]), self._name(unit.batch.items[-1])
        return (
            first if len(unit.batch.items) == 1 else f"one of {len(unit.batch.items)} from {first} to {last}"
        )


def _taken(outcome: UnitOutcome, batch: Batch[_Item], progress: Callable[[int], object]) -> Iterator[_Result]:
    """Yield the results of a unit, each behind what was logged for it; raise what ended it."""
    messages = deque(outcome.messages)
    for number, result in enumerate(outcome.results):
        _tell(messages, number)
        progress(batch.sizes[number])
        yield result
    _tell(messages, len(batch.items))
    if outcome.error is not None:
        raise outcome.error


def _tell(messages: deque[tuple[int, str, int, str]], number: int) -> None:
    while messages and messages[0][0] <= number:
        _, logger, level, text = messages.popleft()
        logging.getLogger(logger).log(level, "%s", text)
