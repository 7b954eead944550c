"""Quantities of a tensor that watch rules limit, such as the share of zeros.

A quantity comes from the row of the tensor's statistics, or from its elements, block by block.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.statistics import (
    BY_CATEGORY,
    NOTHING,
    STATISTICS,
    Nature,
    Statistic,
    StatisticNeed,
    is_measurable,
    measure,
)

_BLOCK: Final = 1 << 17  # elements of one block
_PLAIN: Final = frozenset({"f4", "f8"})  # types in which numpy computes without conversion
_MOST_DIMENSIONS_IN_ROWS: Final = 3  # up to 3 dimensions the last one indexes units, else dimension 1
FLOAT16_LIMIT: Final = 65504.0

Row = Mapping[str, float]
"""Known statistics of a tensor by category; ``overflows``: overflow records of its operator."""

Elements = Callable[[], np.ndarray]
"""Returns the elements of a tensor in their own type."""

Settings = Mapping[str, float]
"""Parameters of a condition that are no limits, such as ``range_start_inclusive``."""

OVERFLOW_COUNT: Final = "overflows"
_NONFINITE: Final = ("nan count", "negative inf count", "positive inf count")


class LowerBound(float):
    """A number of which only a lower bound is known."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        """Return the bound in words.

        >>> f"{LowerBound(1):.6g}"
        'at least 1'
        """
        return f"at least {float(self):{spec}}"


def measured_row(array: np.ndarray, dtype: DType, need: StatisticNeed) -> dict[str, float]:
    """Return the needed statistics of an array; text, empty and complex arrays have only a count."""
    if not array.size or not is_measurable(dtype):
        return {"count": array.size}
    totals = measure(array, dtype, need)
    return {each.category: each.value(totals, memoryview) for each in _measured_by(need)}  # type: ignore[arg-type, misc]


@functools.cache
def _measured_by(need: StatisticNeed) -> tuple[Statistic, ...]:
    """Return the statistics that a pass for a need measures."""
    return tuple(each for each in STATISTICS if each.need | need == need and each.nature is not Nature.DIGEST)


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks of the elements in a type that represents all values and sums accurately."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        yield block if block.dtype.str[1:] in _PLAIN else block.astype(np.float64)


def _pairs(array: np.ndarray, before: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    assert before is not None, "checked only where the step before is there"
    return zip(_blocks(array), _blocks(before), strict=True)


def _absolute_sum(block: np.ndarray) -> float:
    return float(np.abs(block).sum(dtype=np.float64))


def _share(array: np.ndarray, is_counted: Callable[[np.ndarray], np.ndarray]) -> float:
    return 100 * sum(int(np.count_nonzero(is_counted(block))) for block in _blocks(array)) / array.size


def _absolute_mean(array: np.ndarray, *_: object) -> float:
    return sum(map(_absolute_sum, _blocks(array))) / array.size


def _saturated_share(array: np.ndarray, *_: object) -> float:
    is_float16 = array.dtype == np.float16
    return _share(array, lambda block: np.abs(block) == FLOAT16_LIMIT) if is_float16 else 0.0


def _share_within(array: np.ndarray, _: np.ndarray | None, settings: Settings) -> float:
    start, end = settings["range_start_inclusive"], settings["range_end_inclusive"]
    return _share(array, lambda block: (block >= start) & (block <= end))


def _dead_share(array: np.ndarray, *_: object) -> float:
    """Return the percentage of units that are all zero: channels (dimension 1) of images, else the last."""
    unit = 1 if array.ndim > _MOST_DIMENSIONS_IN_ROWS else array.ndim - 1
    live = np.any(array, axis=tuple(axis for axis in range(array.ndim) if axis != unit))
    return float(100 * (live.size - np.count_nonzero(live)) / live.size)


def _update_ratio(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    sums = [(_absolute_sum(new - old), _absolute_sum(old)) for new, old in _pairs(array, before)]
    apart, old = map(sum, zip(*sums, strict=True))
    return float(apart / array.size / (settings["epsilon"] + old / array.size))


def _step_ratio(array: np.ndarray, before: np.ndarray | None, _: Settings) -> float:
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        difference, wide = np.subtract(new, previous, dtype=np.float64), previous.astype(np.float64)
        apart += float(np.dot(difference, difference))
        old += float(np.dot(wide, wide))
    return math.sqrt(apart) / math.sqrt(old) if old else (math.inf if apart else 0.0)


def _changed_share(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    rtol, atol, equal_nan = settings["rtol"], settings["atol"], bool(settings["equal_nan"])
    same = sum(int(np.isclose(*pair, rtol, atol, equal_nan).sum()) for pair in _pairs(array, before))
    return 100 * (array.size - same) / array.size


class Past(enum.Enum):
    """Data of earlier steps that a quantity needs."""

    NOTHING = enum.auto()
    TENSOR = enum.auto()
    """The elements of the same tensor in the step before."""
    VALUES = enum.auto()
    """The quantity itself in the last steps; their median divides it."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that rules limit, such as the largest element of a tensor.

    Attributes:
        text: Name of the quantity in messages.
    """

    text: str
    columns: tuple[str, ...] = ()  # the statistics from which it is computed; empty: it needs the elements
    # value from the row; a KeyError where the row lacks a statistic
    of_row: Callable[[Row], float] | None = None
    # value from the elements, and from the elements of the step before
    of_elements: Callable[[np.ndarray, np.ndarray | None, Settings], float] | None = None
    past: Past = Past.NOTHING  # data of earlier steps that it needs
    source: str = "the elements"  # where it comes from, for messages
    # its extremes, given the elements' largest magnitude (0: all zeros); None: unknown
    range_below: Callable[[float, Settings], tuple[float, float]] | None = None

    def __reduce__(self) -> tuple[Callable[[str], Quantity], tuple[str]]:
        """Pickle by name: lambdas cannot be pickled."""
        return _named, (next(name for name, value in globals().items() if value is self),)


def _named(name: str) -> Quantity:
    return globals()[name]  # type: ignore[no-any-return]


def need_of(quantities: Iterable[Quantity]) -> StatisticNeed:
    """Return the statistics that quantities need."""
    need = NOTHING
    for column in {column for each in quantities for column in each.columns} - {OVERFLOW_COUNT}:
        need |= BY_CATEGORY[column].need
    return need


def _statistic(text: str, column: str, **further: object) -> Quantity:
    return Quantity(text, (column,), lambda row: row[column], **further)  # type: ignore[arg-type]


def _nonfinite(row: Row) -> float:
    if row.keys() >= {*_NONFINITE}:
        return sum(row[name] for name in _NONFINITE)
    # a NaN or infinity is in an extreme, and in no finite norm
    is_finite = math.isfinite(row["max"]) and math.isfinite(row["min"])
    return 0.0 if is_finite else LowerBound(1)


def _either_sign(most: float, _: Settings) -> tuple[float, float]:
    return -most, most


def _within_below(most: float, settings: Settings) -> tuple[float, float]:
    is_within = settings["range_start_inclusive"] <= -most and most <= settings["range_end_inclusive"]
    return (100, 100) if is_within else (0, 100)


LARGEST: Final = _statistic("the largest element", "max", range_below=_either_sign)
SMALLEST: Final = _statistic("the smallest element", "min", range_below=_either_sign)
MEAN: Final = _statistic("the mean", "avg", range_below=_either_sign)
NORM: Final = _statistic("the norm", "l2norm")
SPREAD: Final = Quantity(
    "the largest element less the smallest",
    ("max", "min"),
    lambda row: row["max"] - row["min"],
    range_below=lambda most, _: (0, 2 * most),
)
ABSOLUTE_MEAN: Final = Quantity(
    "the mean of the absolute values", of_elements=_absolute_mean, range_below=lambda most, _: (0, most)
)
NONFINITE: Final = Quantity(
    "the number of elements that are NaN or infinite", _NONFINITE, _nonfinite, range_below=lambda *_: (0, 0)
)
ZERO_SHARE: Final = Quantity(
    "the share of zeros in percent",
    ("zero count", "count"),
    lambda row: 100 * row["zero count"] / row["count"],
    range_below=lambda most, _: (0, math.nextafter(100, 0)) if most else (100, 100),
)
DEAD_SHARE: Final = Quantity(
    "the share of the units that are zero throughout, in percent", of_elements=_dead_share
)
SATURATED_SHARE: Final = Quantity(
    "the share of the elements at float16's limit of 65504, in percent",
    of_elements=_saturated_share,
    range_below=lambda most, _: (0, 0 if most < FLOAT16_LIMIT else 100),
)
SHARE_WITHIN: Final = Quantity(
    "the share of the elements in the range, in percent", of_elements=_share_within, range_below=_within_below
)
UPDATE_RATIO: Final = Quantity(
    "the mean change since the step before, as a share of the mean of the absolute values",
    of_elements=_update_ratio,
    past=Past.TENSOR,
)
STEP_RATIO: Final = Quantity(
    "the norm of the change since the step before, as a share of the norm",
    of_elements=_step_ratio,
    past=Past.TENSOR,
)
CHANGED_SHARE: Final = Quantity(
    "the share of the elements that changed since the step before, in percent",
    of_elements=_changed_share,
    past=Past.TENSOR,
)
MEAN_GROWTH: Final = _statistic("the mean, by the median of the last steps", "avg", past=Past.VALUES)
NORM_GROWTH: Final = _statistic("the norm, by the median of the last steps", "l2norm", past=Past.VALUES)
RANKS_APART: Final = Quantity("the number of ranks with other statistics", ("max", "min", "avg", "l2norm"))
OVERFLOWS: Final = _statistic(
    "the number of the operator's overflows in the device's records",
    OVERFLOW_COUNT,
    source="the device's overflow records, which op_debug_mode writes",
)
