"""Statistics in place of an operator's tensors, as CANN computes them (acl.json's ``dump_data`` stats)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from msdump.capture.compiled.held import Held
from msdump.capture.compiled.operator_writer import described
from msdump.capture.statistics.passes import measure
from msdump.dtypes import DType
from msdump.encode import operator_csv
from msdump.record import Artifact, OperatorRef
from msdump.statistics.totals import StatisticNeed, Totals
from msdump.store.operator_names import OperatorFileKind, OperatorName
from msdump.store.write.sinks import Sink

_NEED: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_MEASURED: Final = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16"),
    }
)
"""Element types that have statistics."""


class StatisticsWriter:
    """Writes the csv file of an operator instead of its tensors; padding of the device's format counts."""

    def __init__(self, sink: Sink, chosen: Sequence[str]) -> None:
        """Write into a sink.

        Args:
            sink: Where files go.
            chosen: Names of ``dump_stats``.
        """
        self._sink = sink
        self._chosen = tuple(chosen)

    def write(
        self, directory: str, operator: OperatorRef, name: OperatorName, tensors: Sequence[Held]
    ) -> None:
        """Write the file of an operator."""
        del operator
        lines = [operator_csv.header(self._chosen)]
        counts = dict.fromkeys((held.io for held in tensors), 0)
        for held in tensors:
            lines.append(self._row(held, counts[held.io]))
            counts[held.io] += 1
        self._sink.write(Artifact(directory, name.file_name(OperatorFileKind.STATISTICS), (b"".join(lines),)))

    def _row(self, held: Held, index: int) -> bytes:
        info, array = described(held)
        cells = _cells(array, held.dtype) if held.dtype.name in _MEASURED and array.size else None
        return operator_csv.row(held.io, index, info, cells, self._chosen)


def _cells(array: np.ndarray, dtype: DType) -> operator_csv.Cells:
    totals = measure(array, dtype, _NEED)
    high, low = _extremes(array, dtype, totals)
    return {
        operator_csv.COUNT: totals.count,
        "Max": high,
        "Min": low,
        "Avg": totals.mean,
        "Nan": totals.nan,
        "Negative Inf": totals.negative_inf,
        "Positive Inf": totals.positive_inf,
        "L2norm": math.sqrt(totals.squares),
    }


def _extremes(array: np.ndarray, dtype: DType, totals: Totals) -> tuple[float, float]:
    """Return the largest and the smallest element as comparisons from the first element on find them.

    vendor: NaN counts only where it comes first, and then nothing else does.
    """
    if not totals.nan:
        return totals.high, totals.low
    values = array.reshape(-1).astype(dtype.saved)
    if np.isnan(values[0]):
        return math.nan, math.nan
    return float(np.fmax.reduce(values)), float(np.fmin.reduce(values))
