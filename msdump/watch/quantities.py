"""The quantities that conditions limit: what each needs of a tensor, and how it is found.

Each is first bounded by statistics alone, at no further cost; only where a limit lies between the bounds are
the elements looked at, where they are there.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.statistics.totals import NOTHING, StatisticNeed
from msdump.watch import elements
from msdump.watch.known import UNKNOWN, Bounds, Known, exactly

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
    if seen.dtype != "float16" or seen.known.largest.high < elements.FLOAT16_LIMIT:
        return exactly(0)
    finite = seen.known.largest
    return Bounds(math.ulp(0.0) if finite.low == elements.FLOAT16_LIMIT else 0, 100)


def _update_ratio(seen: Seen, before: Seen | None, settings: Settings) -> Bounds:
    if before is None:
        return UNKNOWN
    if seen.known.digest and seen.known.digest == before.known.digest:
        return exactly(0)
    if seen.known.mean is None or before.known.mean is None:
        return Bounds(0, math.inf)
    apart = abs(seen.known.mean - before.known.mean)
    return Bounds(apart / (settings["epsilon"] + before.known.absolute_mean.high), math.inf)


def _exact_update_ratio(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    apart, old = elements.change(array, _given(before))
    return apart / (settings["epsilon"] + old)


def _step_ratio(seen: Seen, before: Seen | None, _settings: Settings) -> Bounds:
    if before is None:
        return UNKNOWN
    if seen.known.digest and seen.known.digest == before.known.digest:
        return exactly(0)
    new, old = seen.known.norm, before.known.norm
    if new is None or old is None or not old:
        return Bounds(0, math.inf)
    return Bounds(abs(new - old) / old, (new + old) / old)


def _exact_step_ratio(array: np.ndarray, before: np.ndarray | None, _settings: Settings) -> float:
    apart, old = elements.step_length(array, _given(before))
    return apart / old if old else (math.inf if apart else 0.0)


def _changed(seen: Seen, before: Seen | None, settings: Settings) -> Bounds:
    if before is None:
        return UNKNOWN
    if seen.known.digest and seen.known.digest == before.known.digest:
        return exactly(0)
    allowed = settings["atol"] + settings["rtol"] * before.known.largest.high
    extremes = ((seen.known.high, before.known.high), (seen.known.low, before.known.low))
    # no element may differ by more than is allowed where the extremes do not
    moved = any(new is not None and old is not None and abs(new - old) > allowed for new, old in extremes)
    return Bounds(math.ulp(0.0) if moved else 0, 100)


def _exact_changed(array: np.ndarray, before: np.ndarray | None, settings: Settings) -> float:
    return elements.changed_share(
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


def _saturated_below(most: float, _settings: Settings) -> Bounds:
    return Bounds(0, 0 if most < elements.FLOAT16_LIMIT else 100)


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
    lambda array, *_: elements.absolute_mean(array),
    below=lambda most, _: Bounds(0, most),
)
NONFINITE: Final = Quantity(
    "the number of elements that are NaN or infinite",
    _EXTREMES,
    lambda seen, *_: seen.known.nonfinite,
    lambda array, *_: elements.nonfinite(array),
    columns=("max", "min"),
    below=lambda *_: exactly(0),
)
ZERO_SHARE: Final = Quantity(
    "the share of zeros in percent",
    _EXTREMES,
    lambda seen, *_: seen.known.zero_share,
    lambda array, *_: elements.zero_share(array),
    columns=("zero count", "count"),
    below=lambda *_: Bounds(0, math.nextafter(100, 0)),
)
DEAD_SHARE: Final = Quantity(
    "the share of the units that are zero throughout, in percent",
    _EXTREMES,
    lambda seen, *_: Bounds(100 if seen.known.zero_share.low == 100 else 0, seen.known.zero_share.high),  # noqa: PLR2004
    lambda array, *_: elements.dead_share(array),
)
SATURATED_SHARE: Final = Quantity(
    "the share of the elements at float16's limit of 65504, in percent",
    _EXTREMES,
    _saturated,
    lambda array, *_: elements.saturated_share(array),
    below=_saturated_below,
)
SHARE_WITHIN: Final = Quantity(
    "the share of the elements in the range, in percent",
    _EXTREMES,
    _within,
    lambda array, _, settings: elements.share_within(
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
