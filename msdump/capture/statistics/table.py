"""The statistics: what each is called, what it means, how host and device get it.

The only definition of each; the columns of ``statistic.csv``, the checks of
devices and the reference page derive from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.capture.statistics import device as statistic_device
from msdump.capture.statistics.passes import NOTHING, StatisticNeed, Totals
from msdump.dtypes import widen
from msdump.encode.statistic_csv import COLUMNS, Cell
from msdump.plan import StatisticSpec
from msdump.record import TensorRecord

_MSPROBE_COLUMNS: Final = 13

_FLOATS: Final = frozenset({"bfloat16", "float16", "float32"})
_NUMBERS: Final = _FLOATS | {"float64", "int8", "uint8", "int16", "int32", "int64"}


@dataclass(frozen=True, slots=True)
class DeviceStatistic:
    """How the emulated device computes a statistic.

    Attributes:
        value: Of a tensor, given the type that is added in.
        high: Types that it is computed for where sums are float32.
        low: Types that it is computed for where sums are in the tensor's type.
    """

    value: Callable[[TensorRecord, np.dtype], Cell]
    high: frozenset[str]
    low: frozenset[str]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic.

    Attributes:
        category: Its name in ``statistic_category``.
        title: Title of its column.
        definition: One sentence.
        need: What has to be known of the elements.
        value: The cell, from that and the tensor.
        device: None where only the host computes it.
    """

    category: str
    title: str
    definition: str
    need: StatisticNeed
    value: Callable[[Totals, TensorRecord], Cell]
    device: DeviceStatistic | None = None


def octets(record: TensorRecord) -> memoryview:
    """Return the bytes that are hashed: little endian, of packed types those of the unpacked elements."""
    array = record.array if record.dtype.per_byte == 1 else widen(record.array, record.dtype)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _md5(_: Totals, record: TensorRecord) -> Cell:
    return hashlib.md5(octets(record), usedforsecurity=False).hexdigest()


def _sha1(_: Totals, record: TensorRecord) -> Cell:
    return hashlib.sha1(octets(record), usedforsecurity=False).hexdigest()


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
        DeviceStatistic(statistic_device.largest, _NUMBERS | {"bool"}, _NUMBERS),
    ),
    Statistic(
        "min",
        "Min Value",
        "The smallest element, NaN where one is NaN.",
        _EXTREMES,
        lambda totals, _: totals.low,
        DeviceStatistic(statistic_device.smallest, _NUMBERS | {"bool"}, _NUMBERS),
    ),
    Statistic(
        "avg",
        "Avg Value",
        "The sum of all elements divided by their number, NaN and infinities included.",
        _TOTAL,
        lambda totals, _: totals.mean,
        DeviceStatistic(statistic_device.mean, _NUMBERS, _NUMBERS),
    ),
    Statistic(
        "count",
        "Count",
        "The number of elements.",
        NOTHING,
        lambda totals, _: totals.count,
    ),
    Statistic(
        "negative zero count",
        "Negative Zero Count",
        "The number of elements below zero, -inf included.",
        _COUNTS,
        lambda totals, _: totals.negative,
    ),
    Statistic(
        "positive zero count",
        "Positive Zero Count",
        "The number of elements above zero, inf included.",
        _COUNTS,
        lambda totals, _: totals.positive,
    ),
    Statistic(
        "nan count",
        "NaN Count",
        "The number of elements that are NaN.",
        _COUNTS,
        lambda totals, _: totals.nan,
    ),
    Statistic(
        "negative inf count",
        "Negative Inf Count",
        "The number of elements that are -inf.",
        _COUNTS,
        lambda totals, _: totals.negative_inf,
    ),
    Statistic(
        "positive inf count",
        "Positive Inf Count",
        "The number of elements that are inf.",
        _COUNTS,
        lambda totals, _: totals.positive_inf,
    ),
    Statistic(
        "zero count",
        "Zero Count",
        "The number of elements that are zero, of either sign.",
        _COUNTS,
        lambda totals, _: totals.zero,
    ),
    Statistic(
        "md5",
        "MD5",
        "The MD5 of the elements' bytes, in lower-case hexadecimal digits.",
        NOTHING,
        _md5,
    ),
    Statistic(
        "sha1",
        "SHA1",
        'The SHA-1 of the elements\' bytes, in lower-case hexadecimal digits; what "hash" stands for.',
        NOTHING,
        _sha1,
    ),
    Statistic(
        "l2norm",
        "L2Norm Value",
        "The square root of the sum of squares, NaN and infinities included.",
        _SQUARES,
        lambda totals, _: totals.norm,
        DeviceStatistic(statistic_device.norm, _FLOATS, _FLOATS),
    ),
)

BY_CATEGORY: Final = {statistic.category: statistic for statistic in STATISTICS}


def chosen(spec: StatisticSpec) -> tuple[Statistic, ...]:
    """Return the statistics of a plan, in the user's order."""
    return tuple(BY_CATEGORY[category] for category in spec.categories)


def advice(spec: StatisticSpec) -> str | None:
    """Return a warning where msprobe refuses the files that a plan makes, else None."""
    columns = len(COLUMNS) + len(spec.categories)
    if columns >= _MSPROBE_COLUMNS:
        return None
    return (
        f"statistic.csv will have {columns} columns, msprobe refuses files with fewer than "
        f"{_MSPROBE_COLUMNS}: choose at least {_MSPROBE_COLUMNS - len(COLUMNS)} statistics"
    )


def reference() -> str:
    """Return the table of all statistics in Markdown, for the reference page."""
    lines = ["| category | column | meaning | computed by |", "| --- | --- | --- | --- |"]
    for each in STATISTICS:
        where = "host and device" if each.device else "host"
        lines.append(f"| `{each.category}` | {each.title} | {each.definition} | {where} |")
    return "".join(f"{line}\n" for line in lines)
