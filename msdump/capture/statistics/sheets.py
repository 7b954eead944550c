"""Rows of operators that run together: what of them is the same in every step is kept from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.observer import Array
from msdump.statistics import passes
from msdump.statistics.digests import Message
from msdump.statistics.table import Cell, Statistic
from msdump.statistics.totals import SeveralTotals, StatisticNeed, Totals
from msdump.store.clock import Clock

_Kinds = list[tuple[np.dtype, tuple[int, ...]] | None]
"""Types and shapes of the tensors of operators, None for what is no tensor."""


class RowSheet:
    """The rows of some tensors but for timestamps and statistics; no statistic of them is a hash."""

    __slots__ = ("_dtypes", "_need", "_template", "_values")

    def __init__(
        self, template: str, dtypes: Sequence[DType], need: StatisticNeed, statistics: Sequence[Statistic]
    ) -> None:
        """Set what is the same in every step.

        Args:
            template: What ``%`` makes the rows of, given timestamp and statistics of each tensor.
            dtypes: The type of each tensor.
            need: What a pass over the elements has to find out.
            statistics: What each row tells.
        """
        self._template = template
        self._dtypes = tuple(dtypes)
        self._need = need
        self._values = tuple(statistic.value for statistic in statistics)

    def rows(self, arrays: Sequence[np.ndarray], clock: Clock) -> bytes:
        """Measure tensors together and return their rows.

        Args:
            arrays: The tensors, of the types and shapes that the template tells.
            clock: Gives each its timestamp.
        """
        times = clock.several(len(arrays))
        cells: list[Cell] = []
        measured = passes.measure_all([*zip(arrays, self._dtypes, strict=True)], self._need)
        for time, totals in zip(times, measured, strict=True):
            cells.append(time)
            cells += [value(totals, _NO_MESSAGE) for value in self._values]
        return (self._template % tuple(cells)).encode()

    def rows_of(self, found: SeveralTotals, clock: Clock) -> bytes:
        """Return the rows of tensors that were measured; see ``rows``."""
        times = clock.several(len(self._dtypes))
        columns = [_column(value, found) for value in self._values]
        cells: list[Cell] = [None] * (len(times) * (1 + len(columns)))
        for place, column in enumerate((times, *columns)):
            cells[place :: 1 + len(columns)] = column
        return (self._template % tuple(cells)).encode()


def _column(value: Callable[[Totals, Message], Cell], found: SeveralTotals) -> list[Cell]:
    """Return a statistic of several tensors: what it does to numbers it does to arrays of them."""
    with np.errstate(all="ignore"):
        column: list[Cell] = np.asarray(value(found, _NO_MESSAGE)).tolist()
    return column


def _no_octets() -> memoryview:
    raise AssertionError("hashes are made of each tensor by itself")


_NO_MESSAGE: Final = Message(_no_octets)


@dataclass(slots=True)
class _Page:
    kinds: _Kinds
    sheet: RowSheet | None = None
    is_made: bool = False


class RowSheets:
    """The sheets of the operators of one graph; each lasts until its tensors have other types or shapes."""

    def __init__(self) -> None:
        """Start without a sheet."""
        self._pages: dict[tuple[int, ...], _Page] = {}

    def find(
        self,
        positions: tuple[int, ...],
        arrays: Sequence[Array],
        make: Callable[[], RowSheet | None],
    ) -> RowSheet | None:
        """Return the sheet of operators that have run together, None where they have none.

        It is made when types and shapes are those of the last time: where they always change, it never is.

        Args:
            positions: Places of the operators in the graph's execution order.
            arrays: All their inputs and outputs, absent ones included.
            make: Makes the sheet, None where a row does not depend on type and shape alone.
        """
        kinds: _Kinds = [None if array is None else (array.dtype, array.shape) for array in arrays]
        page = self._pages.get(positions)
        if page is None or page.kinds != kinds:
            self._pages[positions] = _Page(kinds)
            return None
        if not page.is_made:
            page.sheet, page.is_made = make(), True
        return page.sheet
