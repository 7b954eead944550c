"""Tensors and expectations that the tests of statistics share."""

import math

import numpy as np

from msdump import dtypes
from msdump.capture import Statistics
from msdump.encode import statistic_csv
from msdump.plan import DeviceTarget, Naming, StatisticSpec
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.store import STYLES

STYLE = STYLES[Naming.V2_5, DeviceTarget.ASCEND]
ADD = OperatorRef("Add", "Default/Add-op0")
TIME = 1795217009720246
HOST = (
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "l2norm"),
)


def record(array, dtype=None):
    """Return an operator's first input."""
    array = np.asarray(array)
    return TensorRecord(ADD, IO.INPUT, 0, dtype or dtypes.from_numpy(array.dtype), array, TIME)


def cells(array, *categories, **spec):
    """Return the cells of a tensor as they are written."""
    statistics = Statistics(StatisticSpec(categories, **spec), STYLE)
    return [statistic_csv.text(cell) for cell in statistics.measure(record(array))]


def literal(values):
    """Return the statistics of Python floats by their definitions, one element after the other."""
    high, low = -math.inf, math.inf
    for value in values:
        high, low = max(high, value), min(low, value)
    if any(map(math.isnan, values)):
        high = low = math.nan
    return {
        "max": high,
        "min": low,
        "avg": _sum(values) / len(values),
        "count": len(values),
        "negative zero count": sum(value < 0 for value in values),
        "positive zero count": sum(value > 0 for value in values),
        "nan count": sum(value != value for value in values),  # noqa: PLR0124 - the definition of NaN
        "negative inf count": values.count(-math.inf),
        "positive inf count": values.count(math.inf),
        "zero count": values.count(0.0),
        "l2norm": math.sqrt(_sum([value * value for value in values])),
    }


def _sum(values):
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
