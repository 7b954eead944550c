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

    Attributes:
        extremes: The largest and the smallest element.
        counts: The numbers of negative, positive, NaN and infinite elements.
        total: The sum.
        squares: The sum of squares.
    """

    extremes: bool = False
    counts: bool = False
    total: bool = False
    squares: bool = False

    def __or__(self, other: StatisticNeed) -> StatisticNeed:
        """Return the union of two needs."""
        return StatisticNeed(*map(operator.or_, astuple(self), astuple(other)))


NOTHING: Final = StatisticNeed()


@dataclass(slots=True)
class Totals:
    """The statistics of the elements seen so far.

    Attributes:
        count: Number of elements of the whole tensor.
        high: The largest element; NaN if an element is NaN.
        low: The smallest element; NaN if an element is NaN.
        negative: Elements below zero, -inf included.
        positive: Elements above zero, inf included.
        nan: Elements that are NaN.
        negative_inf: Elements that are -inf.
        positive_inf: Elements that are inf.
        total: Sum of the elements.
        squares: Sum of their squares.
    """

    count: int
    high: float = -math.inf
    low: float = math.inf
    negative: int = 0
    positive: int = 0
    nan: int = 0
    negative_inf: int = 0
    positive_inf: int = 0
    total: float = 0.0
    squares: float = 0.0

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
