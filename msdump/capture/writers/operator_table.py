"""An artifact for each operator: its csv file of statistics as CANN computes them (``dump_data`` stats)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from msdump.capture.writers import device_tensor
from msdump.device.tasks import Task
from msdump.dtypes import DType
from msdump.encode import operator_csv
from msdump.plan import OperatorStatistic
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.statistics.passes import measure
from msdump.statistics.totals import StatisticNeed, Totals
from msdump.store import operator_names
from msdump.store.names import Style
from msdump.store.operator_names import OperatorFileKind
from msdump.store.write.sinks import Sink

_NEED: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_MEASURED: Final = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16"),
    }
)
"""Element types that have statistics; the cells of others stay empty, as CANN leaves them."""


class OperatorTableWriter:
    """Writes the csv file of an operator instead of its tensors; padding of the device's format counts."""

    def __init__(self, sink: Sink, style: Style, statistics: Sequence[str]) -> None:
        """Write into a sink.

        Args:
            sink: Where files go.
            style: How names are spelled.
            statistics: Names of ``dump_stats``.
        """
        self._sink = sink
        self._style = style
        self._statistics = tuple(statistics)

    def write(
        self, directory: str, operator: OperatorRef, task: Task, tensors: Iterable[TensorRecord]
    ) -> None:
        """Write the file of an operator; nothing where it has no tensors."""
        records = list(tensors)
        if not records:
            return
        lines = [operator_csv.header(self._statistics)]
        counts: Counter[IO] = Counter()
        for record in records:
            lines.append(self._row(record, counts[record.io]))
            counts[record.io] += 1
        stem = operator_names.of(operator, self._style, task.task_id, task.stream_id, records[0].timestamp)
        self._sink.write(Artifact(directory, stem.file_name(OperatorFileKind.STATISTICS), (b"".join(lines),)))

    def _row(self, record: TensorRecord, index: int) -> bytes:
        is_measured = record.dtype.name in _MEASURED and record.array.size
        cells = _cells(record.array, record.dtype) if is_measured else None
        return operator_csv.row(record.io, index, device_tensor.info(record), cells, self._statistics)


def _cells(array: np.ndarray, dtype: DType) -> operator_csv.Cells:
    """Return the statistics of a tensor by their names in ``dump_stats``.

    >>> from msdump import dtypes
    >>> cells = _cells(np.array([[3, 4], [0, -np.inf]], np.float32), dtypes.from_name("float32"))
    >>> [cells[name] for name in ("Max", "Min", "Avg", "Negative Inf", "L2norm", operator_csv.COUNT)]
    [4.0, -inf, -inf, 1, inf, 4]
    """
    totals = measure(array, dtype, _NEED)
    high, low = _extremes(array, dtype, totals)
    return {
        operator_csv.COUNT: totals.count,
        OperatorStatistic.MAX: high,
        OperatorStatistic.MIN: low,
        OperatorStatistic.AVG: totals.mean,
        OperatorStatistic.NAN: totals.nan,
        OperatorStatistic.NEGATIVE_INF: totals.negative_inf,
        OperatorStatistic.POSITIVE_INF: totals.positive_inf,
        OperatorStatistic.L2NORM: math.sqrt(totals.squares),
    }


def _extremes(array: np.ndarray, dtype: DType, totals: Totals) -> tuple[float, float]:
    """Return the largest and the smallest element as comparisons from the first element on find them.

    >>> from msdump import dtypes
    >>> float32, need = dtypes.from_name("float32"), StatisticNeed(extremes=True, counts=True)
    >>> array = np.array([[3, np.nan], [0, 4]], np.float32)
    >>> _extremes(array, float32, measure(array, float32, need))
    (4.0, 0.0)
    >>> _extremes(array[:, ::-1], float32, measure(array, float32, need))  # now NaN comes first
    (nan, nan)
    """
    if not totals.nan:
        return totals.high, totals.low
    # vendor: no comparison with NaN holds, so that a first NaN stays, and a later one is passed over
    values = array.reshape(-1).astype(dtype.saved)
    if np.isnan(values[0]):
        return math.nan, math.nan
    return float(np.fmax.reduce(values)), float(np.fmin.reduce(values))
