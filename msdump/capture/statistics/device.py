"""Statistics as the emulated device computes them: in float32, or in the tensor's own type.

A device adds a vector by folding it: its second half onto its first, until one
element is left. Each step is rounded to the type that is added in, so that sums
in float16 overflow to inf, and sums of integers wrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msdump.record import TensorRecord
from msdump.statistics.passes import measure
from msdump.statistics.table import Cell
from msdump.statistics.totals import StatisticNeed, Totals

_EXTREMES = StatisticNeed(extremes=True)


@dataclass(frozen=True)
class DeviceMeasure:
    """The device's statistics of a tensor; each is computed when it is read.

    Float16 loses what float32 keeps: 2048 + 1 is 2048 there, and 2048 * 2048 is infinite.

    >>> from msdump import dtypes
    >>> from msdump.record import IO, OperatorRef
    >>> array = np.array([[2048, 0], [1, 0]], np.float16)
    >>> operator = OperatorRef("Add", "Default/Add-op0")
    >>> record = TensorRecord(operator, IO.OUTPUT, 0, dtypes.from_name("float16"), array, 0)
    >>> high, low = DeviceMeasure(record, np.dtype(np.float32)), DeviceMeasure(record, np.dtype(np.float16))
    >>> high.mean, low.mean, low.norm, low.largest
    (512.25, 512.0, inf, 2048.0)

    Attributes:
        record: The tensor.
        adds_in: The type that sums are in.
    """

    record: TensorRecord
    adds_in: np.dtype

    @property
    def largest(self) -> Cell:
        """The largest element; NaN where one is NaN."""
        return self._as_cell(self._extremes.high)

    @property
    def smallest(self) -> Cell:
        """The smallest element; NaN where one is NaN."""
        return self._as_cell(self._extremes.low)

    @property
    def mean(self) -> Cell:
        """The folded sum divided by the number of elements, rounded to the type of the sum."""
        quotient = _fold(self._terms()) / self.record.array.size
        if self.adds_in.kind in "iu":  # the mean of integers is an integer, cut off towards zero
            return float(math.trunc(quotient))
        return _rounded(quotient, self.adds_in)

    @property
    def norm(self) -> Cell:
        """The square root of the folded sum of squares."""
        terms = self._terms()
        with np.errstate(all="ignore"):
            np.multiply(terms, terms, out=terms)
        return _rounded(math.sqrt(_fold(terms)), self.adds_in)

    @cached_property
    def _extremes(self) -> Totals:
        return measure(self.record.array, self.record.dtype, _EXTREMES)

    def _terms(self) -> np.ndarray:
        """Return the elements in the type that they are added in: a copy, which may be overwritten."""
        with np.errstate(all="ignore"):
            return self.record.array.reshape(-1).astype(self.adds_in)

    def _as_cell(self, extreme: float) -> Cell:
        return bool(extreme) if self.record.dtype.name == "bool" else extreme


def _fold(terms: np.ndarray) -> float:
    """Return the sum of a vector, which is destroyed: the second half is added onto the first, and so on.

    >>> _fold(np.array([1, 2, 3], np.float32))  # (1 + 3) + 2
    6.0
    >>> _fold(np.array([100, 100], np.int8))
    -56.0
    """
    left = len(terms)
    with np.errstate(all="ignore"):
        while left > 1:
            half = (left + 1) // 2  # of an odd number the middle one waits for the next step
            np.add(terms[: left - half], terms[half:left], out=terms[: left - half])
            left = half
    return float(terms[0])


def _rounded(value: float, dtype: np.dtype) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype))
