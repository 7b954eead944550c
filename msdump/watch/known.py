"""What is known of a tensor without its elements: statistics, and bounds that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from msdump.statistics.totals import NOTHING, StatisticNeed, Totals


class Bounds(NamedTuple):
    """Between which numbers a quantity lies; NaN twice where it is not a number.

    Attributes:
        low: At least this.
        high: At most this.
    """

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Whether the quantity is known."""
        return self.low == self.high or math.isnan(self.low)

    def __str__(self) -> str:
        """Return the number, or what it is at least or at most.

        >>> print(Bounds(2, 2), Bounds(1, math.inf), Bounds(-math.inf, 3), Bounds(1, 2))
        2 at least 1 at most 3 between 1 and 2
        """
        if self.is_exact:
            return f"{self.low:.6g}"
        if math.isinf(self.high):
            return f"at least {self.low:.6g}"
        return (
            f"at most {self.high:.6g}"
            if math.isinf(self.low)
            else f"between {self.low:.6g} and {self.high:.6g}"
        )


UNKNOWN: Final = Bounds(-math.inf, math.inf)


def exactly(value: float) -> Bounds:
    """Return the bounds of a number that is known."""
    return Bounds(value, value)


@dataclass(frozen=True, slots=True)
class Known:
    """Statistics of a tensor, each None where it is not known.

    Attributes:
        count: Number of elements.
        high: The largest element; NaN where one is NaN.
        low: The smallest element; NaN where one is NaN.
        mean: The sum divided by the number of elements.
        norm: The square root of the sum of squares.
        negative: Elements below zero.
        positive: Elements above zero.
        zero: Elements that are zero.
        nan: Elements that are NaN.
        negative_inf: Elements that are -inf.
        positive_inf: Elements that are inf.
        digest: A hash of the elements' bytes, "" where there is none.
    """

    count: int | None = None
    high: float | None = None
    low: float | None = None
    mean: float | None = None
    norm: float | None = None
    negative: int | None = None
    positive: int | None = None
    zero: int | None = None
    nan: int | None = None
    negative_inf: int | None = None
    positive_inf: int | None = None
    digest: str = ""

    @classmethod
    def of(cls, totals: Totals, need: StatisticNeed) -> Known:
        """Return what a pass over the elements has found.

        Args:
            totals: The result of the pass.
            need: What it was to find out.
        """
        counts = need.counts
        return cls(
            totals.count,
            None if need == NOTHING else totals.high,  # a pass finds the extremes whatever else it is for
            None if need == NOTHING else totals.low,
            totals.mean if need.total else None,
            totals.norm if need.squares else None,
            totals.negative if counts else None,
            totals.positive if counts else None,
            totals.zero if counts else None,
            totals.nan if counts else None,
            totals.negative_inf if counts else None,
            totals.positive_inf if counts else None,
        )

    @property
    def largest(self) -> Bounds:
        """The largest absolute value."""
        if self.high is not None and self.low is not None:
            return exactly(max(abs(self.high), abs(self.low)))
        return Bounds(0, math.inf if self.norm is None else self.norm)

    @property
    def nonfinite(self) -> Bounds:
        """How many elements are NaN or infinite."""
        if self.nan is not None and self.negative_inf is not None and self.positive_inf is not None:
            return exactly(self.nan + self.negative_inf + self.positive_inf)
        most = math.inf if self.count is None else self.count
        if self.high is not None and self.low is not None:
            is_finite = math.isfinite(self.high) and math.isfinite(self.low)
            return exactly(0) if is_finite else Bounds(1, most)
        if any(each is not None and math.isnan(each) for each in (self.high, self.low, self.mean, self.norm)):
            return Bounds(1, most)
        # an infinite sum may be one of finite elements: only a finite one tells
        is_finite = self.norm is not None and math.isfinite(self.norm)
        return exactly(0) if is_finite else Bounds(0, most)

    @property
    def absolute_mean(self) -> Bounds:
        """The mean of the absolute values."""
        if self.low is not None and self.high is not None and self.mean is not None:
            if self.low >= 0 or self.high <= 0:
                return exactly(abs(self.mean))
            if math.isnan(self.mean):
                return exactly(math.nan)
        least = 0.0 if self.mean is None else abs(self.mean)
        most = self.largest.high
        if self.norm is not None and self.count:
            # rounded up: both sides are equal for a constant, and their last bits are not
            most = min(most, self.norm / math.sqrt(self.count) * (1 + 1e-6))
        return Bounds(least, max(least, most))

    @property
    def zero_share(self) -> Bounds:
        """The share of the elements that are zero, in percent."""
        if self.count and self.zero is not None:
            return exactly(100 * self.zero / self.count)
        if (self.low is not None and self.low > 0) or (self.high is not None and self.high < 0):
            return exactly(0)
        if self.norm == 0 or (self.low == 0 and self.high == 0):
            return exactly(100)
        # one extreme that is not zero is an element that is not
        is_mixed = bool(self.low or self.high or self.norm) and self.count is not None
        return Bounds(0, 100 * (self.count - 1) / self.count if is_mixed and self.count else 100)

    def share_within(self, start: float, end: float) -> Bounds:
        """Return the share of the elements from ``start`` to ``end``, both included, in percent."""
        if self.low is None or self.high is None:
            return Bounds(0, 100)
        if start <= self.low and self.high <= end:
            return exactly(100)
        return exactly(0) if self.low > end or self.high < start else Bounds(0, 100)
