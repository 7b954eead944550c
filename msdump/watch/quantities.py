"""Quantities of a tensor that watch rules limit, such as the share of zeros.

Statistics bound a quantity at no further cost. Its exact value is computed from the elements, block by block,
only where a limit lies between the bounds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from msdump.statistics import NOTHING, StatisticNeed, Totals


class Bounds(NamedTuple):
    """Between which numbers a quantity lies; NaN twice where it is not a number.

    Attributes:
        low: Lower bound of the quantity.
        high: Upper bound of the quantity.
    """

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Whether the quantity is known."""
        return self.low == self.high or math.isnan(self.low)

    def __str__(self) -> str:
        """Return the number, or its bounds.

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
        """Return the statistics that a pass over the elements was to find."""
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
        # an infinite sum may be one of finite elements
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


_BLOCK: Final = 1 << 17  # elements of one block
_PLAIN: Final = frozenset({"f4", "f8"})  # numpy computes in these types without a wider copy
_MOST_DIMENSIONS_IN_ROWS: Final = 3  # up to these the last dimension holds the units, beyond them the second
FLOAT16_LIMIT: Final = 65504.0

Settings = Mapping[str, float]
"""Parameters of a condition that are no limits, such as ``range_start_inclusive``."""


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the elements in a type that holds all their values and in which sums are right."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        yield block if block.dtype.str[1:] in _PLAIN else block.astype(np.float64)


def _pairs(array: np.ndarray, before: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    assert before is not None, "checked only where the step before is there"
    return zip(_blocks(array), _blocks(before), strict=True)


def _percentage(array: np.ndarray, is_counted: Callable[[np.ndarray], np.ndarray]) -> float:
    return 100 * sum(int(np.count_nonzero(is_counted(block))) for block in _blocks(array)) / array.size


def _exact_absolute_mean(array: np.ndarray, *_: object) -> float:
    return sum(float(np.abs(block).sum(dtype=np.float64)) for block in _blocks(array)) / array.size


def _exact_share_within(array: np.ndarray, _: np.ndarray | None, settings: Settings) -> float:
    start, end = settings["range_start_inclusive"], settings["range_end_inclusive"]
    return _percentage(array, lambda block: (block >= start) & (block <= end))


def _exact_saturated_share(array: np.ndarray, *_: object) -> float:
    return _percentage(array, lambda block: np.abs(block) == FLOAT16_LIMIT)


def _exact_zero_share(array: np.ndarray, *_: object) -> float:
    return 100 * (array.size - int(np.count_nonzero(array))) / array.size


def _exact_nonfinite(array: np.ndarray, *_: object) -> float:
    return float(sum(int(np.count_nonzero(~np.isfinite(block))) for block in _blocks(array)))


def _exact_dead_share(array: np.ndarray, *_: object) -> float:
    """Return the percentage of units that are all zero: channels (dimension 1) of images, else the last."""
    if not array.ndim:
        return _exact_zero_share(array)
    unit = 1 if array.ndim > _MOST_DIMENSIONS_IN_ROWS else array.ndim - 1
    others = tuple(axis for axis in range(array.ndim) if axis != unit)
    alive = np.any(array, axis=others) if others else array != 0
    return float(100 * (alive.size - np.count_nonzero(alive)) / alive.size)


def _exact_update_ratio(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        apart += float(np.abs(new - previous).sum(dtype=np.float64))
        old += float(np.abs(previous).sum(dtype=np.float64))
    return apart / array.size / (settings["epsilon"] + old / array.size)


def _exact_step_ratio(array: np.ndarray, before: np.ndarray | None, _: Settings) -> float:
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        difference = np.subtract(new, previous, dtype=np.float64).reshape(-1)
        wide = np.asarray(previous, np.float64).reshape(-1)
        apart += float(np.dot(difference, difference))
        old += float(np.dot(wide, wide))
    return math.sqrt(apart) / math.sqrt(old) if old else (math.inf if apart else 0.0)


def _exact_changed_share(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    rtol, atol, equal_nan = settings["rtol"], settings["atol"], bool(settings["equal_nan"])
    same = sum(
        int(np.count_nonzero(np.isclose(new, previous, rtol=rtol, atol=atol, equal_nan=equal_nan)))
        for new, previous in _pairs(array, before)
    )
    return 100 * (array.size - same) / array.size


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor at one moment.

    Attributes:
        dtype: MindSpore's lower-case name of its element type.
        known: Its statistics.
        elements: Returns its elements in their own type, None where only statistics are there.
        overflows: Returns how often the device recorded that its operator overflowed when it wrote the
            tensor, None where it left no records; None where there can be none.
    """

    dtype: str
    known: Known
    elements: Callable[[], np.ndarray] | None = None
    overflows: Callable[[], int | None] | None = None


class Past(enum.Enum):
    """Needs of a quantity in the steps before."""

    NOTHING = enum.auto()
    TENSOR = enum.auto()
    """The same tensor in the step before."""
    VALUES = enum.auto()
    """The quantity itself in the last steps, whose median it is divided by."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that rules limit, such as the largest element of a tensor.

    Attributes:
        text: Name, for messages.
        need: Statistics that ``bounds`` reads.
        bounds: Bounds by the statistics of the tensor and of the same one in the step before.
        exact: Value by the elements of both; None: ``bounds`` are exact, or undecidable.
        past: Needs in the steps before.
        columns: Names of ``statistic_category`` that decide it without elements.
        source: Source of the exact value, for messages.
        below: Bounds for a given largest magnitude (0: all zeros); None: unbounded.
    """

    text: str
    need: StatisticNeed
    bounds: Callable[[Seen, Seen | None, Settings], Bounds]
    exact: Callable[[np.ndarray, np.ndarray | None, Settings], float] | None = None
    past: Past = Past.NOTHING
    columns: tuple[str, ...] = ()
    source: str = "the elements"
    below: Callable[[float, Settings], Bounds] | None = None

    def __reduce__(self) -> tuple[Callable[[str], Quantity], tuple[str]]:
        """Pickle by name: lambdas cannot be pickled."""
        return _named, (next(name for name, value in globals().items() if value is self),)

    @property
    def needs_elements_before(self) -> bool:
        """Whether the elements of the step before are needed."""
        return self.past is Past.TENSOR and self.exact is not None


def _named(name: str) -> Quantity:
    quantity: Quantity = globals()[name]
    return quantity


_EXTREMES: Final = StatisticNeed(extremes=True)
_COUNTS: Final = StatisticNeed(counts=True)
_TOTAL: Final = StatisticNeed(total=True)
_SQUARES: Final = StatisticNeed(squares=True)


def _known(value: float | None) -> Bounds:
    return UNKNOWN if value is None else exactly(float(value))


def _overflows(seen: Seen, _before: Seen | None, _settings: Settings) -> Bounds:
    return _known(None if seen.overflows is None else seen.overflows())


def _spread(seen: Seen, _before: Seen | None, _settings: Settings) -> Bounds:
    high, low = seen.known.high, seen.known.low
    return UNKNOWN if high is None or low is None else exactly(high - low)


def _saturated(seen: Seen, _before: Seen | None, _settings: Settings) -> Bounds:
    if seen.dtype != "float16" or seen.known.largest.high < FLOAT16_LIMIT:
        return exactly(0)
    finite = seen.known.largest
    return Bounds(math.ulp(0.0) if finite.low == FLOAT16_LIMIT else 0, 100)


def _of_change(
    bound: Callable[[Known, Known, Settings], Bounds],
) -> Callable[[Seen, Seen | None, Settings], Bounds]:
    """Bound a quantity of the change since the step before: 0 where both have the same digest."""

    def bounds(seen: Seen, before: Seen | None, settings: Settings) -> Bounds:
        if before is None:
            return UNKNOWN
        if seen.known.digest and seen.known.digest == before.known.digest:
            return exactly(0)
        return bound(seen.known, before.known, settings)

    return bounds


@_of_change
def _update_ratio(seen: Known, before: Known, settings: Settings) -> Bounds:
    if seen.mean is None or before.mean is None:
        return Bounds(0, math.inf)
    apart = abs(seen.mean - before.mean)
    return Bounds(apart / (settings["epsilon"] + before.absolute_mean.high), math.inf)


@_of_change
def _step_ratio(seen: Known, before: Known, _settings: Settings) -> Bounds:
    new, old = seen.norm, before.norm
    if new is None or old is None or not old:
        return Bounds(0, math.inf)
    return Bounds(abs(new - old) / old, (new + old) / old)


@_of_change
def _changed(seen: Known, before: Known, settings: Settings) -> Bounds:
    allowed = settings["atol"] + settings["rtol"] * before.largest.high
    extremes = ((seen.high, before.high), (seen.low, before.low))
    # extremes that moved by more than is allowed are elements that did
    moved = any(new is not None and old is not None and abs(new - old) > allowed for new, old in extremes)
    return Bounds(math.ulp(0.0) if moved else 0, 100)


def _within(seen: Seen, _before: Seen | None, settings: Settings) -> Bounds:
    return seen.known.share_within(settings["range_start_inclusive"], settings["range_end_inclusive"])


def _either_sign(most: float, _settings: Settings) -> Bounds:
    return Bounds(-most, most)


def _within_below(most: float, settings: Settings) -> Bounds:
    is_whole = settings["range_start_inclusive"] <= -most and most <= settings["range_end_inclusive"]
    return exactly(100) if is_whole else Bounds(0, 100)


LARGEST: Final = Quantity(
    "the largest element",
    _EXTREMES,
    lambda seen, *_: _known(seen.known.high),
    columns=("max",),
    below=_either_sign,
)
SMALLEST: Final = Quantity(
    "the smallest element",
    _EXTREMES,
    lambda seen, *_: _known(seen.known.low),
    columns=("min",),
    below=_either_sign,
)
MEAN: Final = Quantity(
    "the mean", _TOTAL, lambda seen, *_: _known(seen.known.mean), columns=("avg",), below=_either_sign
)
SPREAD: Final = Quantity(
    "the largest element less the smallest",
    _EXTREMES,
    _spread,
    columns=("max", "min"),
    below=lambda most, _: Bounds(0, 2 * most),
)
NORM: Final = Quantity("the norm", _SQUARES, lambda seen, *_: _known(seen.known.norm), columns=("l2norm",))
ABSOLUTE_MEAN: Final = Quantity(
    "the mean of the absolute values",
    _TOTAL | _EXTREMES,
    lambda seen, *_: seen.known.absolute_mean,
    _exact_absolute_mean,
    below=lambda most, _: Bounds(0, most),
)
NONFINITE: Final = Quantity(
    "the number of elements that are NaN or infinite",
    _EXTREMES,
    lambda seen, *_: seen.known.nonfinite,
    _exact_nonfinite,
    columns=("max", "min"),
    below=lambda *_: exactly(0),
)
ZERO_SHARE: Final = Quantity(
    "the share of zeros in percent",
    _EXTREMES,
    lambda seen, *_: seen.known.zero_share,
    _exact_zero_share,
    columns=("zero count", "count"),
    below=lambda most, _: Bounds(0, math.nextafter(100, 0)) if most else exactly(100),
)
DEAD_SHARE: Final = Quantity(
    "the share of the units that are zero throughout, in percent",
    _EXTREMES,
    lambda seen, *_: Bounds(100 if seen.known.zero_share.low == 100 else 0, seen.known.zero_share.high),  # noqa: PLR2004
    _exact_dead_share,
)
SATURATED_SHARE: Final = Quantity(
    "the share of the elements at float16's limit of 65504, in percent",
    _EXTREMES,
    _saturated,
    _exact_saturated_share,
    below=lambda most, _: Bounds(0, 0 if most < FLOAT16_LIMIT else 100),
)
SHARE_WITHIN: Final = Quantity(
    "the share of the elements in the range, in percent",
    _EXTREMES,
    _within,
    _exact_share_within,
    below=_within_below,
)
UPDATE_RATIO: Final = Quantity(
    "the mean change since the step before, as a share of the mean of the absolute values",
    _TOTAL,
    _update_ratio,
    _exact_update_ratio,
    Past.TENSOR,
)
STEP_RATIO: Final = Quantity(
    "the norm of the change since the step before, as a share of the norm",
    _SQUARES,
    _step_ratio,
    _exact_step_ratio,
    Past.TENSOR,
)
CHANGED_SHARE: Final = Quantity(
    "the share of the elements that changed since the step before, in percent",
    _EXTREMES,
    _changed,
    _exact_changed_share,
    Past.TENSOR,
)
MEAN_GROWTH: Final = Quantity(
    "the mean, by the median of the last steps", _TOTAL, MEAN.bounds, None, Past.VALUES, ("avg",)
)
NORM_GROWTH: Final = Quantity(
    "the norm, by the median of the last steps", _SQUARES, NORM.bounds, None, Past.VALUES, ("l2norm",)
)
RANKS_APART: Final = Quantity(
    "the number of ranks that hold something else", NOTHING, lambda *_: UNKNOWN, past=Past.NOTHING
)
OVERFLOWS: Final = Quantity(
    "the number of overflows that the device recorded of the operator",
    NOTHING,
    _overflows,
    source="the device's overflow records, which op_debug_mode writes",
)
