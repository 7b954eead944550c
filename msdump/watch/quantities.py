"""Quantities that watch conditions limit, and the statistics that each needs.

Each is first bounded by statistics alone, at no further cost; only where a limit lies between the bounds are
the elements looked at, where they are there.

Bounds that follow from a tensor's statistics, without its elements.

Quantities that need a tensor's elements are computed block by block, so that copies stay small.
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


_BLOCK: Final = 1 << 17  # elements that are looked at together
_PLAIN: Final = frozenset({"f4", "f8"})  # as numpy computes with them, without a wider copy
_MOST_DIMENSIONS_IN_ROWS: Final = 3  # up to these the last dimension holds the units, beyond them the second
FLOAT16_LIMIT: Final = 65504.0


def absolute_mean(array: np.ndarray) -> float:
    """Return the mean of the absolute values.

    >>> absolute_mean(np.array([-2, 4], np.float16))
    3.0
    """
    with np.errstate(all="ignore"):
        return sum(float(np.abs(block).sum(dtype=np.float64)) for block in _blocks(array)) / array.size


def share_within(array: np.ndarray, start: float, end: float) -> float:
    """Return the share of the elements from ``start`` to ``end``, both included, in percent.

    >>> share_within(np.array([-2, 0, 1, 4]), 0, 1)
    50.0
    """
    counts = (int(np.count_nonzero((block >= start) & (block <= end))) for block in _blocks(array))
    return 100 * sum(counts) / array.size


def saturated_share(array: np.ndarray) -> float:
    """Return the share of the elements that are float16's largest or smallest number, in percent.

    >>> saturated_share(np.array([65504, -65504, 1, np.inf], np.float16))
    50.0
    """
    counts = (int(np.count_nonzero(np.abs(block) == FLOAT16_LIMIT)) for block in _blocks(array))
    return 100 * sum(counts) / array.size


def zero_share(array: np.ndarray) -> float:
    """Return the share of the elements that are zero, in percent."""
    return 100 * (array.size - int(np.count_nonzero(array))) / array.size


def nonfinite(array: np.ndarray) -> float:
    """Return how many elements are NaN or infinite."""
    return float(sum(int(np.count_nonzero(~np.isfinite(block))) for block in _blocks(array)))


def dead_share(array: np.ndarray) -> float:
    """Return the share of the units that are zero throughout, in percent.

    A unit is a channel of an image (the second dimension), or else a place of the last dimension.

    >>> dead_share(np.array([[0, 1, 0, 0], [0, 0, 2, 0]]))
    50.0

    Args:
        array: At least one element.
    """
    if not array.ndim:
        return zero_share(array)
    unit = 1 if array.ndim > _MOST_DIMENSIONS_IN_ROWS else array.ndim - 1
    others = tuple(axis for axis in range(array.ndim) if axis != unit)
    alive = np.any(array, axis=others) if others else array != 0
    units = int(alive.size)
    return 100 * (units - int(np.count_nonzero(alive))) / units


def change(array: np.ndarray, before: np.ndarray) -> tuple[float, float]:
    """Return the mean of the absolute differences, and that of the absolute values before.

    >>> change(np.array([1.0, 3.0]), np.array([1.0, -1.0]))
    (2.0, 1.0)
    """
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        apart += float(np.abs(new - previous).sum(dtype=np.float64))
        old += float(np.abs(previous).sum(dtype=np.float64))
    return float(apart / array.size), float(old / array.size)


def step_length(array: np.ndarray, before: np.ndarray) -> tuple[float, float]:
    """Return the norm of the difference, and that of the values before.

    >>> step_length(np.array([3.0, 4.0]), np.array([0.0, 8.0]))
    (5.0, 8.0)
    """
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        difference = np.subtract(new, previous, dtype=np.float64).reshape(-1)
        wide = np.asarray(previous, np.float64).reshape(-1)
        apart += float(np.dot(difference, difference))
        old += float(np.dot(wide, wide))
    return math.sqrt(apart), math.sqrt(old)


def changed_share(
    array: np.ndarray, before: np.ndarray, *, rtol: float, atol: float, equal_nan: bool
) -> float:
    """Return the share of the elements that differ by more than ``atol + rtol * |before|``, in percent.

    >>> changed_share(np.array([1.0, 2.0]), np.array([1.0, 2.1]), rtol=1e-5, atol=0, equal_nan=False)
    50.0
    """
    same = sum(
        int(np.count_nonzero(np.isclose(new, previous, rtol=rtol, atol=atol, equal_nan=equal_nan)))
        for new, previous in _pairs(array, before)
    )
    return 100 * (array.size - same) / array.size


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the elements in a type that holds all their values and in which sums are right."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        yield _wide(flat[start : start + _BLOCK])


def _pairs(array: np.ndarray, before: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with np.errstate(all="ignore"):
        yield from zip(_blocks(array), _blocks(before), strict=True)


def _wide(block: np.ndarray) -> np.ndarray:
    return block if block.dtype.str[1:] in _PLAIN else block.astype(np.float64)


Settings = Mapping[str, float]
"""Parameters of a condition that are no limits themselves, such as ``range_start_inclusive``."""


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
    """What a quantity needs of the steps before."""

    NOTHING = enum.auto()
    TENSOR = enum.auto()
    """The same tensor in the step before."""
    VALUES = enum.auto()
    """The quantity itself in the last steps, whose median it is divided by."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that is measured of a tensor.

    Attributes:
        text: What it is, for messages.
        need: What a pass over the elements finds out for it.
        bounds: Bounds it by statistics; of the tensor, and of the same one in the step before.
        exact: Finds it from the elements of both; None: statistics are all that it takes.
        past: What it needs of the steps before.
        columns: Names of ``statistic_category`` that decide it without elements, none: only elements do.
        source: What it is found by, for messages.
        below: Bounds it for tensors with an element that is not zero and none larger than a magnitude; None:
            a magnitude tells nothing of it.
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
        """Travel to another process by name: functions that stand in a table have none."""
        return _named, (next(name for name, value in globals().items() if value is self),)

    @property
    def needs_elements_before(self) -> bool:
        """Whether the elements of the step before are asked for."""
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


def _exact_update_ratio(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    apart, old = change(array, _given(before))
    return apart / (settings["epsilon"] + old)


@_of_change
def _step_ratio(seen: Known, before: Known, _settings: Settings) -> Bounds:
    new, old = seen.norm, before.norm
    if new is None or old is None or not old:
        return Bounds(0, math.inf)
    return Bounds(abs(new - old) / old, (new + old) / old)


def _exact_step_ratio(array: np.ndarray, before: np.ndarray | None, _settings: Settings) -> float:
    apart, old = step_length(array, _given(before))
    return apart / old if old else (math.inf if apart else 0.0)


@_of_change
def _changed(seen: Known, before: Known, settings: Settings) -> Bounds:
    allowed = settings["atol"] + settings["rtol"] * before.largest.high
    extremes = ((seen.high, before.high), (seen.low, before.low))
    # no element may differ by more than is allowed where the extremes do not
    moved = any(new is not None and old is not None and abs(new - old) > allowed for new, old in extremes)
    return Bounds(math.ulp(0.0) if moved else 0, 100)


def _exact_changed(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    return changed_share(
        array,
        _given(before),
        rtol=settings["rtol"],
        atol=settings["atol"],
        equal_nan=bool(settings["equal_nan"]),
    )


def _given(before: np.ndarray | None) -> np.ndarray:
    assert before is not None, "checked only where the step before is there"
    return before


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
    lambda array, *_: absolute_mean(array),
    below=lambda most, _: Bounds(0, most),
)
NONFINITE: Final = Quantity(
    "the number of elements that are NaN or infinite",
    _EXTREMES,
    lambda seen, *_: seen.known.nonfinite,
    lambda array, *_: nonfinite(array),
    columns=("max", "min"),
    below=lambda *_: exactly(0),
)
ZERO_SHARE: Final = Quantity(
    "the share of zeros in percent",
    _EXTREMES,
    lambda seen, *_: seen.known.zero_share,
    lambda array, *_: zero_share(array),
    columns=("zero count", "count"),
    below=lambda most, _: Bounds(0, math.nextafter(100, 0)) if most else exactly(100),
)
DEAD_SHARE: Final = Quantity(
    "the share of the units that are zero throughout, in percent",
    _EXTREMES,
    lambda seen, *_: Bounds(100 if seen.known.zero_share.low == 100 else 0, seen.known.zero_share.high),  # noqa: PLR2004
    lambda array, *_: dead_share(array),
)
SATURATED_SHARE: Final = Quantity(
    "the share of the elements at float16's limit of 65504, in percent",
    _EXTREMES,
    _saturated,
    lambda array, *_: saturated_share(array),
    below=lambda most, _: Bounds(0, 0 if most < FLOAT16_LIMIT else 100),
)
SHARE_WITHIN: Final = Quantity(
    "the share of the elements in the range, in percent",
    _EXTREMES,
    _within,
    lambda array, _, settings: share_within(
        array, settings["range_start_inclusive"], settings["range_end_inclusive"]
    ),
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
    _exact_changed,
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
