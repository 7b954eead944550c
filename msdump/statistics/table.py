"""The statistics: names, definition, and computation on host and device of each.

Names in configurations, messages, schema and reference page, the columns of ``statistic.csv``, the needed
measurements and the comparison of two statistics all derive from ``STATISTICS``. A statistic that is computed
from the totals of a pass over the elements is one row:

    Statistic(
        "range",
        "Range",
        "The largest element less the smallest.",
        _EXTREMES,
        lambda totals, _: totals.high - totals.low,
    )
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from msdump.statistics.totals import NOTHING, StatisticNeed, Totals

Cell: TypeAlias = float | int | bool | str | None
"""A statistic: a number, a truth value of a device, the digits of a hash, or none."""

ReadOctets: TypeAlias = Callable[[], memoryview]
"""Returns the bytes of a tensor's elements, contiguous and little endian; no element shares a byte."""

_FLOATS: Final = frozenset({"bfloat16", "float16", "float32"})
_NUMBERS: Final = _FLOATS | {"float64", "int8", "uint8", "int16", "int32", "int64"}


class DeviceTotals(Protocol):
    """Totals of a tensor on the emulated device, each computed when it is read."""

    @property
    def largest(self) -> Cell:
        """The largest element."""

    @property
    def smallest(self) -> Cell:
        """The smallest element."""

    @property
    def mean(self) -> Cell:
        """The sum divided by the number of elements."""

    @property
    def norm(self) -> Cell:
        """The square root of the sum of squares."""


class Nature(enum.Enum):
    """Kind of a statistic, which selects the distance of two values when dumps are compared."""

    VALUE = enum.auto()
    """About as large as a value of the tensor: the scale is the largest of them."""
    AMOUNT = enum.auto()
    """As large as it is: the scale is its own."""
    COUNT = enum.auto()
    """A number that has to be the same."""
    SIGN_COUNT = enum.auto()
    """A number that may differ, since a value beside zero may change its sign."""
    DIGEST = enum.auto()
    """Shows only whether tensors are equal."""


@dataclass(frozen=True, slots=True)
class DeviceStatistic:
    """How the emulated device computes a statistic."""

    value: Callable[[DeviceTotals], Cell]  # the cell, from the device's totals of a tensor
    high: frozenset[str]  # element types for which it is computed with high precision (sums in float32)
    # element types for which it is computed with low precision (sums in the tensor's type)
    low: frozenset[str]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic."""

    category: str  # its name in the plan
    title: str  # title of its column
    definition: str  # one sentence
    need: StatisticNeed  # the totals of the elements that it needs
    # the cell, from the totals and from the elements' bytes (hashes alone read these)
    value: Callable[[Totals, ReadOctets], Cell]
    device: DeviceStatistic | None = None  # None where only the host computes it
    nature: Nature = Nature.AMOUNT  # how two values of it are compared
    names: tuple[str, ...] = ()  # its names in ``statistic_category``; empty if the only name is the category

    @property
    def accepted(self) -> tuple[str, ...]:
        """Its names in ``statistic_category``."""
        return self.names or (self.category,)


def _digits(algorithm: str, octets: ReadOctets) -> str:
    import hashlib  # not above: loads OpenSSL, which only hashes need

    return hashlib.new(algorithm, octets(), usedforsecurity=False).hexdigest()


_EXTREMES: Final = StatisticNeed(extremes=True)
_COUNTS: Final = StatisticNeed(counts=True)
_TOTAL: Final = StatisticNeed(total=True)
_SQUARES: Final = StatisticNeed(squares=True)

# vendor: "negative zero" and "positive zero" count the elements below and above zero.
STATISTICS: Final = (
    Statistic(
        "max",
        "Max Value",
        "The largest element, NaN where one is NaN.",
        _EXTREMES,
        lambda totals, _: totals.high,
        DeviceStatistic(lambda tensor: tensor.largest, _NUMBERS | {"bool"}, _NUMBERS),
        nature=Nature.VALUE,
    ),
    Statistic(
        "min",
        "Min Value",
        "The smallest element, NaN where one is NaN.",
        _EXTREMES,
        lambda totals, _: totals.low,
        DeviceStatistic(lambda tensor: tensor.smallest, _NUMBERS | {"bool"}, _NUMBERS),
        nature=Nature.VALUE,
    ),
    Statistic(
        "avg",
        "Avg Value",
        "The sum of all elements divided by their number, NaN and infinities included.",
        _TOTAL,
        lambda totals, _: totals.mean,
        DeviceStatistic(lambda tensor: tensor.mean, _NUMBERS, _NUMBERS),
        nature=Nature.VALUE,
    ),
    Statistic(
        "l2norm",
        "L2Norm Value",
        "The square root of the sum of squares, NaN and infinities included.",
        _SQUARES,
        lambda totals, _: totals.norm,
        DeviceStatistic(lambda tensor: tensor.norm, _FLOATS, _FLOATS),
    ),
    Statistic(
        "count",
        "Count",
        "The number of elements.",
        NOTHING,
        lambda totals, _: totals.count,
        nature=Nature.COUNT,
    ),
    Statistic(
        "negative zero count",
        "Negative Zero Count",
        "The number of elements below zero, -inf included.",
        _COUNTS,
        lambda totals, _: totals.negative,
        nature=Nature.SIGN_COUNT,
    ),
    Statistic(
        "positive zero count",
        "Positive Zero Count",
        "The number of elements above zero, inf included.",
        _COUNTS,
        lambda totals, _: totals.positive,
        nature=Nature.SIGN_COUNT,
    ),
    Statistic(
        "zero count",
        "Zero Count",
        "The number of elements that are zero, of either sign.",
        _COUNTS,
        lambda totals, _: totals.zero,
        nature=Nature.SIGN_COUNT,
    ),
    Statistic(
        "nan count",
        "NaN Count",
        "The number of elements that are NaN.",
        _COUNTS,
        lambda totals, _: totals.nan,
        nature=Nature.COUNT,
    ),
    Statistic(
        "negative inf count",
        "Negative Inf Count",
        "The number of elements that are -inf.",
        _COUNTS,
        lambda totals, _: totals.negative_inf,
        nature=Nature.COUNT,
    ),
    Statistic(
        "positive inf count",
        "Positive Inf Count",
        "The number of elements that are inf.",
        _COUNTS,
        lambda totals, _: totals.positive_inf,
        nature=Nature.COUNT,
    ),
    Statistic(
        "md5",
        "MD5",
        "The MD5 of the elements' bytes, in lower-case hexadecimal digits.",
        NOTHING,
        lambda _, octets: _digits("md5", octets),
        nature=Nature.DIGEST,
        names=("md5", "hash:md5"),
    ),
    Statistic(
        "sha1",
        "SHA1",
        'The SHA-1 of the elements\' bytes, in lower-case hexadecimal digits; "hash" selects this.',
        NOTHING,
        lambda _, octets: _digits("sha1", octets),
        nature=Nature.DIGEST,
        names=("hash", "hash:sha1"),
    ),
)

BY_CATEGORY: Final = {statistic.category: statistic for statistic in STATISTICS}

CATEGORIES: Final = {each.accepted[0]: each.category for each in STATISTICS} | {
    name: each.category for each in STATISTICS for name in each.accepted[1:]
}
"""Category of each name that ``statistic_category`` takes; second names stand behind all first ones."""

ON_DEVICE: Final = tuple(statistic.category for statistic in STATISTICS if statistic.device)
"""The categories that the emulated device can compute."""
