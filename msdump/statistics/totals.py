"""Statistics of a tensor that one pass over its elements finds: which are needed, and their values."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np


@dataclass(frozen=True, slots=True)
class StatisticNeed:
    """The statistics that a pass has to measure.

    The compiled pass measures a need if it supports all fields (``compiled.finds``), else numpy does.
    """

    extremes: bool = False  # the largest and the smallest element
    counts: bool = False  # the numbers of negative, positive, NaN and infinite elements
    total: bool = False  # the sum
    squares: bool = False  # the sum of squares

    def __or__(self, other: StatisticNeed) -> StatisticNeed:
        """Return the union of two needs."""
        return StatisticNeed(*map(operator.or_, astuple(self), astuple(other)))


NOTHING: Final = StatisticNeed()


@dataclass(slots=True)
class Totals:
    """The statistics of the elements seen so far."""

    count: int  # number of elements of the whole tensor
    high: float = -math.inf  # the largest element; NaN if an element is NaN
    low: float = math.inf  # the smallest element; NaN if an element is NaN
    negative: int = 0  # elements below zero, -inf included
    positive: int = 0  # elements above zero, inf included
    nan: int = 0  # elements that are NaN
    negative_inf: int = 0  # elements that are -inf
    positive_inf: int = 0  # elements that are inf
    total: float = 0.0  # sum of the elements
    squares: float = 0.0  # sum of their squares

    @property
    def zero(self) -> int:
        """Elements that are zero, of either sign."""
        return self.count - self.negative - self.positive - self.nan

    @property
    def mean(self) -> float:
        """The sum divided by the number of elements."""
        return self.total / self.count

    @property
    def norm(self) -> float:
        """Square root of the sum of squares."""
        return math.sqrt(self.squares)

    def join(self, other: Totals) -> None:
        """Add the statistics of further elements of the tensor; ``count`` includes them already."""
        self.stretch(other.high, other.low)
        self.negative += other.negative
        self.positive += other.positive
        self.nan += other.nan
        self.negative_inf += other.negative_inf
        self.positive_inf += other.positive_inf
        self.total += other.total
        self.squares += other.squares

    def stretch(self, high: float, low: float) -> None:
        """Update the extremes with the extremes of a block; NaN is kept."""
        if high > self.high or math.isnan(high):
            self.high = high
        if low < self.low or math.isnan(low):
            self.low = low


class TotalsArray(Totals):
    """Totals of several tensors: each field is an array with an element for each tensor.

    >>> several = TotalsArray.of([Totals(2, squares=4.0), Totals(3, squares=9.0)])
    >>> several.norm.tolist(), several.at([1]).squares.tolist()
    ([2.0, 3.0], [9.0])
    """

    __slots__ = ()

    def __init__(self, *fields: Any) -> None:
        """Take an array for each field of ``Totals``, in their order."""
        super().__init__(*fields)

    @classmethod
    def of(cls, totals: Sequence[Totals]) -> TotalsArray:
        """Combine the totals of single tensors."""
        return cls(*(np.array([getattr(each, name) for each in totals]) for name in Totals.__slots__))

    @property
    def norm(self) -> Any:
        """Square root of each sum of squares."""
        return np.sqrt(self.squares)

    def at(self, places: Sequence[int]) -> TotalsArray:
        """Return the totals of the tensors at some indices."""
        return TotalsArray(*(getattr(self, name)[places] for name in Totals.__slots__))
