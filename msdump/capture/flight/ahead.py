"""What one pass over the tensors of several operators finds, before rules look at them one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.statistics import compiled, passes
from msdump.statistics.totals import StatisticNeed, Totals

SQUARES: Final = StatisticNeed(squares=True)
"""What screens need."""

Wanted = tuple[np.ndarray, StatisticNeed]
"""A tensor in its own type, and what a pass over its elements has to find out."""


class MeasuredAhead:
    """Statistics of tensors that wait to be looked at; the caller keeps the tensors alive meanwhile."""

    __slots__ = ("_squares", "_totals")

    def __init__(self, wanted: Iterable[Wanted] = ()) -> None:
        """Measure tensors together, on all threads.

        Nothing is measured without the compiled pass: numpy is faster at what screens need by itself.

        Args:
            wanted: The tensors.
        """
        self._squares: dict[int, float] = {}
        self._totals: dict[tuple[int, StatisticNeed], Totals] = {}
        if compiled.KERNEL is None:
            return
        screened: dict[int, np.ndarray] = {}
        others: dict[StatisticNeed, list[np.ndarray]] = {}
        for array, need in wanted:
            if need is SQUARES:
                screened[id(array)] = array
            else:
                others.setdefault(need, []).append(array)
        self._squares = passes.squares_of([*screened.values()])
        for need, arrays in others.items():
            self._measure(arrays, need)

    def _measure(self, arrays: Iterable[np.ndarray], need: StatisticNeed) -> None:
        typed = ((array, dtypes.from_numpy(array.dtype)) for array in arrays)
        tensors = [(array, dtype) for array, dtype in typed if array.size and passes.is_measurable(dtype)]
        if not tensors:
            return
        for (array, _), totals in zip(tensors, passes.measure_all(tensors, need), strict=True):
            self._totals[id(array), need] = totals
            if need.squares:
                self._squares[id(array)] = totals.squares

    def squares(self, array: np.ndarray) -> float | None:
        """Return the sum of the squares of a tensor's elements, None where it was not measured."""
        return self._squares.get(id(array))

    def totals(self, array: np.ndarray, need: StatisticNeed) -> Totals | None:
        """Return what ``passes.measure`` finds of a tensor, None where it was not measured for that need."""
        return self._totals.get((id(array), need))


NOTHING_AHEAD: Final = MeasuredAhead()
"""Of an operator that is looked at by itself nothing is known before."""
