"""Work for open workers: units go to them, and come back to others where a process dies."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from msdump.tools.mapping import units
from msdump.tools.mapping.sizes import Batch, Batches
from msdump.tools.mapping.units import UnitOutcome, WorkOrigin
from msdump.tools.mapping.workers import Workers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_DEATHS: Final = 3
"""How often a unit may kill the process that works on it alone, as Dask allows it."""

_AHEAD: Final = 3  # units for each worker that are given out at a time
_KEPT: Final = 16  # units for each worker whose results may wait for those of an earlier one
_PATIENCE: Final = 1.0  # seconds between two looks at the workers


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


class Dispatch(Generic[_Item, _Result]):
    """One map over open workers."""

    def __init__(
        self,
        work: Callable[[_Item], _Result],
        batches: Batches[_Item],
        workers: Workers,
        name: Callable[[_Item], str],
        paths: tuple[str, ...],
    ) -> None:
        """Give out nothing yet.

        Args:
            work: The function.
            batches: Its arguments.
            workers: Who calls it.
            name: Returns what an argument is called in messages.
            paths: Files and directories that the workers must see.
        """
        self._work = work
        self._batches = batches
        self._workers = workers
        self._name = name
        self._origin = WorkOrigin.here(paths, is_child=workers.is_child)
        self._units: deque[_Unit[_Item]] = deque()

    def results(self, progress: Callable[[int], object]) -> Iterator[_Result]:
        """Yield the results in the order of the arguments; ToolError where workers die of one.

        Args:
            progress: Called with the size of each argument when its result is taken.
        """
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
