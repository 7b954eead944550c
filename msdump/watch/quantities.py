"""Quantities of a tensor that watch rules limit, such as the share of zeros.

Statistics that are known already give bounds of a quantity. Its exact value is computed from the elements,
block by block, only if a limit lies between the bounds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from msdump.dtypes import DType
from msdump.statistics import NOTHING, StatisticNeed, is_measurable, measure


class Bounds(NamedTuple):
    """Lower and upper bound of a quantity; both NaN if the quantity is NaN.

    Attributes:
        low: Lower bound of the quantity.
        high: Upper bound of the quantity.
    """

    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        """Whether the quantity is known exactly."""
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


_BLOCK: Final = 1 << 17  # elements of one block
_PLAIN: Final = frozenset({"f4", "f8"})  # types in which numpy computes without conversion
_MOST_DIMENSIONS_IN_ROWS: Final = 3  # up to 3 dimensions the last one indexes units, else dimension 1
FLOAT16_LIMIT: Final = 65504.0

Settings = Mapping[str, float]
"""Parameters of a condition that are no limits, such as ``range_start_inclusive``."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor in one check: its statistics and, if available, its elements.

    Attributes:
        dtype: MindSpore's lower-case name of its element type.
        values: Its known statistics by category (``statistics.Statistic``).
        digest: A hash of the elements' bytes, "" if unknown.
        elements: Returns its elements in their own type; None if only statistics are known.
        overflows: Returns the number of the device's overflow records of the operator that wrote the tensor,
            or None if the device wrote no records; None if the run cannot have such records.
    """

    dtype: str
    values: Mapping[str, float]
    digest: str = ""
    elements: Callable[[], np.ndarray] | None = None
    overflows: Callable[[], int | None] | None = None

    @classmethod
    def of(
        cls,
        array: np.ndarray,
        dtype: DType,
        need: StatisticNeed,
        overflows: Callable[[], int | None] | None = None,
    ) -> Seen:
        """Measure the needed statistics of an array; text, empty and complex arrays have only a count."""
        values: dict[str, float] = {"count": array.size}
        if not array.size or not is_measurable(dtype):
            return cls(dtype.name, values, overflows=overflows)
        totals = measure(array, dtype, need)
        if need != NOTHING:  # every pass measures the extremes, too
            values["max"], values["min"] = totals.high, totals.low
        if need.total:
            values["avg"] = totals.mean
        if need.squares:
            values["l2norm"] = totals.norm
        return cls(dtype.name, values, "", lambda: array, overflows)

    @property
    def largest(self) -> Bounds:
        """The largest absolute value."""
        known = self.values
        if "max" in known and "min" in known:
            return exactly(max(abs(known["max"]), abs(known["min"])))
        return Bounds(0, known.get("l2norm", math.inf))

    @property
    def nonfinite(self) -> Bounds:
        """How many elements are NaN or infinite."""
        known = self.values
        if known.keys() >= {"nan count", "negative inf count", "positive inf count"}:
            return exactly(known["nan count"] + known["negative inf count"] + known["positive inf count"])
        most = known.get("count", math.inf)
        if "max" in known and "min" in known:
            is_finite = math.isfinite(known["max"]) and math.isfinite(known["min"])
            return exactly(0) if is_finite else Bounds(1, most)
        if any(math.isnan(known.get(name, 0)) for name in ("max", "min", "avg", "l2norm")):
            return Bounds(1, most)
        # an infinite sum of squares may come from finite elements
        return exactly(0) if math.isfinite(known.get("l2norm", math.inf)) else Bounds(0, most)

    @property
    def absolute_mean(self) -> Bounds:
        """The mean of the absolute values."""
        known, mean = self.values, self.values.get("avg")
        if mean is not None and "max" in known and "min" in known:
            if known["min"] >= 0 or known["max"] <= 0:
                return exactly(abs(mean))
            if math.isnan(mean):
                return exactly(math.nan)
        least = 0.0 if mean is None else abs(mean)
        most = self.largest.high
        if "l2norm" in known and known.get("count"):
            # rounded up: for constant elements the bound is exact, but its last bits may not be
            most = min(most, known["l2norm"] / math.sqrt(known["count"]) * (1 + 1e-6))
        return Bounds(least, max(least, most))

    @property
    def zero_share(self) -> Bounds:
        """The share of the elements that are zero, in percent."""
        known, count = self.values, self.values.get("count")
        if count and "zero count" in known:
            return exactly(100 * known["zero count"] / count)
        low, high, norm = known.get("min"), known.get("max"), known.get("l2norm")
        if (low is not None and low > 0) or (high is not None and high < 0):
            return exactly(0)
        if norm == 0 or (low == 0 and high == 0):
            return exactly(100)
        # an extreme that is not zero: at least one element is not zero
        return Bounds(0, 100 * (count - 1) / count if count and (low or high or norm) else 100)

    def share_within(self, settings: Settings) -> Bounds:
        """Return the share of the elements in the range that a rule's settings give, in percent."""
        start, end = _range(settings)
        low, high = self.values.get("min"), self.values.get("max")
        if low is None or high is None:
            return Bounds(0, 100)
        if start <= low and high <= end:
            return exactly(100)
        return exactly(0) if low > end or high < start else Bounds(0, 100)


def _range(settings: Settings) -> tuple[float, float]:
    return settings["range_start_inclusive"], settings["range_end_inclusive"]


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks of the elements in a type that represents all values and sums accurately."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        yield block if block.dtype.str[1:] in _PLAIN else block.astype(np.float64)


def _pairs(array: np.ndarray, before: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    assert before is not None, "checked only where the step before is there"
    return zip(_blocks(array), _blocks(before), strict=True)


def _number(array: np.ndarray, is_counted: Callable[[np.ndarray], np.ndarray]) -> int:
    return sum(int(np.count_nonzero(is_counted(block))) for block in _blocks(array))


def _absolute_sum(block: np.ndarray) -> float:
    return float(np.abs(block).sum(dtype=np.float64))


def _exact_absolute_mean(array: np.ndarray, *_: object) -> float:
    return sum(_absolute_sum(block) for block in _blocks(array)) / array.size


def _exact_nonfinite(array: np.ndarray, *_: object) -> float:
    return float(_number(array, lambda block: ~np.isfinite(block)))


def _exact_zero_share(array: np.ndarray, *_: object) -> float:
    return 100 * (array.size - int(np.count_nonzero(array))) / array.size


def _exact_saturated_share(array: np.ndarray, *_: object) -> float:
    return 100 * _number(array, lambda block: np.abs(block) == FLOAT16_LIMIT) / array.size


def _exact_share_within(array: np.ndarray, _: np.ndarray | None, settings: Settings) -> float:
    start, end = _range(settings)
    return 100 * _number(array, lambda block: (block >= start) & (block <= end)) / array.size


def _exact_dead_share(array: np.ndarray, *_: object) -> float:
    """Return the percentage of units that are all zero: channels (dimension 1) of images, else the last."""
    if not array.ndim:
        return _exact_zero_share(array)
    unit = 1 if array.ndim > _MOST_DIMENSIONS_IN_ROWS else array.ndim - 1
    others = tuple(axis for axis in range(array.ndim) if axis != unit)
    return _exact_zero_share(np.any(array, axis=others) if others else array)


def _exact_update_ratio(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    sums = [(_absolute_sum(new - old), _absolute_sum(old)) for new, old in _pairs(array, before)]
    apart, old = map(sum, zip(*sums, strict=True))
    return float(apart / array.size / (settings["epsilon"] + old / array.size))


def _exact_step_ratio(array: np.ndarray, before: np.ndarray | None, _: Settings) -> float:
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        difference, wide = np.subtract(new, previous, dtype=np.float64), previous.astype(np.float64)
        apart += float(np.dot(difference, difference))
        old += float(np.dot(wide, wide))
    return math.sqrt(apart) / math.sqrt(old) if old else (math.inf if apart else 0.0)


def _exact_changed_share(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    rtol, atol, equal_nan = settings["rtol"], settings["atol"], bool(settings["equal_nan"])
    same = sum(int(np.isclose(*pair, rtol, atol, equal_nan).sum()) for pair in _pairs(array, before))
    return 100 * (array.size - same) / array.size


class Past(enum.Enum):
    """Data of earlier steps that a quantity needs."""

    NOTHING = enum.auto()
    TENSOR = enum.auto()
    """The same tensor in the step before."""
    VALUES = enum.auto()
    """The quantity itself in the last steps; their median divides it."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that rules limit, such as the largest element of a tensor.

    Attributes:
        text: Name of the quantity in messages.
        need: Statistics that ``bounds`` reads.
        bounds: Bounds from the statistics of the tensor, and of the same tensor in the step before.
        exact: Value from the elements of both; None: elements give no more than ``bounds``.
        past: Data of earlier steps that it needs.
        columns: Names of ``statistic_category`` from which it is known without elements.
        source: Source of the exact value, for messages.
        below: Bounds, given the elements' largest magnitude (0: all zeros); None: no bounds follow from it.
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
_TOTAL: Final = StatisticNeed(total=True)
_SQUARES: Final = StatisticNeed(squares=True)


def _statistic(category: str) -> Callable[..., Bounds]:
    """Return a ``bounds`` function for a quantity that is a statistic: exact, or UNKNOWN if missing."""

    def bounds(seen: Seen, *_: object) -> Bounds:
        value = seen.values.get(category)
        return UNKNOWN if value is None else exactly(float(value))

    return bounds


def _overflows(seen: Seen, *_: object) -> Bounds:
    count = None if seen.overflows is None else seen.overflows()
    return UNKNOWN if count is None else exactly(float(count))


def _spread(seen: Seen, *_: object) -> Bounds:
    high, low = seen.values.get("max"), seen.values.get("min")
    return UNKNOWN if high is None or low is None else exactly(high - low)


def _dead(seen: Seen, *_: object) -> Bounds:
    zeros = seen.zero_share
    return Bounds(100 if zeros.low == 100 else 0, zeros.high)  # noqa: PLR2004 - percent


def _saturated(seen: Seen, *_: object) -> Bounds:
    largest = seen.largest
    if seen.dtype != "float16" or largest.high < FLOAT16_LIMIT:
        return exactly(0)
    return Bounds(math.ulp(0.0) if largest.low == FLOAT16_LIMIT else 0, 100)


def _of_change(
    bound: Callable[[Seen, Seen, Settings], Bounds],
) -> Callable[[Seen, Seen | None, Settings], Bounds]:
    """Wrap a ``bounds`` function of a change since the last step: 0 if both tensors have the same digest."""

    def bounds(seen: Seen, before: Seen | None, settings: Settings) -> Bounds:
        if before is None:
            return UNKNOWN
        return exactly(0) if seen.digest and seen.digest == before.digest else bound(seen, before, settings)

    return bounds


@_of_change
def _update_ratio(seen: Seen, before: Seen, settings: Settings) -> Bounds:
    if "avg" not in seen.values or "avg" not in before.values:
        return Bounds(0, math.inf)
    apart = abs(seen.values["avg"] - before.values["avg"])
    return Bounds(apart / (settings["epsilon"] + before.absolute_mean.high), math.inf)


@_of_change
def _step_ratio(seen: Seen, before: Seen, _settings: Settings) -> Bounds:
    new, old = seen.values.get("l2norm"), before.values.get("l2norm")
    if new is None or not old:
        return Bounds(0, math.inf)
    return Bounds(abs(new - old) / old, (new + old) / old)


@_of_change
def _changed(seen: Seen, before: Seen, settings: Settings) -> Bounds:
    allowed = settings["atol"] + settings["rtol"] * before.largest.high
    # if an extreme moved by more than allowed, some element did
    extremes = [name for name in ("max", "min") if name in seen.values and name in before.values]
    moved = any(abs(seen.values[name] - before.values[name]) > allowed for name in extremes)
    return Bounds(math.ulp(0.0) if moved else 0, 100)


def _either_sign(most: float, _settings: Settings) -> Bounds:
    return Bounds(-most, most)


def _within_below(most: float, settings: Settings) -> Bounds:
    start, end = _range(settings)
    return exactly(100) if start <= -most and most <= end else Bounds(0, 100)


LARGEST: Final = Quantity(
    "the largest element",
    _EXTREMES,
    _statistic("max"),
    columns=("max",),
    below=_either_sign,
)
SMALLEST: Final = Quantity(
    "the smallest element",
    _EXTREMES,
    _statistic("min"),
    columns=("min",),
    below=_either_sign,
)
MEAN: Final = Quantity("the mean", _TOTAL, _statistic("avg"), columns=("avg",), below=_either_sign)
SPREAD: Final = Quantity(
    "the largest element less the smallest",
    _EXTREMES,
    _spread,
    columns=("max", "min"),
    below=lambda most, _: Bounds(0, 2 * most),
)
NORM: Final = Quantity("the norm", _SQUARES, _statistic("l2norm"), columns=("l2norm",))
ABSOLUTE_MEAN: Final = Quantity(
    "the mean of the absolute values",
    _TOTAL | _EXTREMES,
    lambda seen, *_: seen.absolute_mean,
    _exact_absolute_mean,
    below=lambda most, _: Bounds(0, most),
)
NONFINITE: Final = Quantity(
    "the number of elements that are NaN or infinite",
    _EXTREMES,
    lambda seen, *_: seen.nonfinite,
    _exact_nonfinite,
    columns=("max", "min"),
    below=lambda *_: exactly(0),
)
ZERO_SHARE: Final = Quantity(
    "the share of zeros in percent",
    _EXTREMES,
    lambda seen, *_: seen.zero_share,
    _exact_zero_share,
    columns=("zero count", "count"),
    below=lambda most, _: Bounds(0, math.nextafter(100, 0)) if most else exactly(100),
)
DEAD_SHARE: Final = Quantity(
    "the share of the units that are zero throughout, in percent",
    _EXTREMES,
    _dead,
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
    lambda seen, _, settings: seen.share_within(settings),
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
    "the number of ranks with other bits", NOTHING, lambda *_: UNKNOWN, past=Past.NOTHING
)
OVERFLOWS: Final = Quantity(
    "the number of the operator's overflows in the device's records",
    NOTHING,
    _overflows,
    source="the device's overflow records, which op_debug_mode writes",
)
