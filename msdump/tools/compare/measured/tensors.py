"""The statistics of tensors that were dumped: measured as a dump measures them, with its tables' digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture.statistics.rows import Statistics
from msdump.dtypes import DType
from msdump.encode import statistic_csv
from msdump.errors import DumpReadError, FormatError
from msdump.plan import DeviceTarget, Naming, StatisticSpec
from msdump.record import OperatorRef, TensorRecord
from msdump.statistics.table import BY_CATEGORY
from msdump.store.names import STYLES
from msdump.store.read import cells
from msdump.store.read.executions import timeline
from msdump.store.read.reader import open_dump
from msdump.store.read.records import Record
from msdump.tools.compare.measured import rows
from msdump.tools.compare.measured.rows import Place, RowSide, StatisticRow

NO_ROWS: Final[Mapping[Place, StatisticRow]] = {}

_STYLE: Final = STYLES[Naming.V2_5, DeviceTarget.ASCEND]  # names of the rows are those of the files anyway


@dataclass(frozen=True, slots=True)
class MeasuredSide:
    """The tensors of one directory, measured.

    Attributes:
        side: Their statistics.
        unreadable: Tensors whose file cannot be read, and why.
    """

    side: RowSide
    unreadable: dict[Place, str]


def measure(
    path: str, execution: int | None, spec: StatisticSpec, like: Mapping[Place, StatisticRow] = NO_ROWS
) -> MeasuredSide:
    """Return the statistics of the tensors in a directory.

    Args:
        path: A directory of an iteration, or a copy of one.
        execution: Number of the execution, None: the last one that is whole.
        spec: The statistics, where and how they are computed.
        like: Rows of the same tensors. What acl measures in the device's layout is measured in it here, too.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    iteration = rows.directory(open_dump(path))
    if iteration is None:
        return MeasuredSide(RowSide(), {})
    number = iteration.timeline.last_whole if execution is None else execution
    measured: dict[Place, StatisticRow] = {}
    unreadable: dict[Place, str] = {}
    meter = RecordMeter(spec)
    for place, record in _placed(iteration.execution(number).records):
        shape = like[place].shape if place in like else None
        try:
            row = meter.row(record, shape)
        except (DumpReadError, FormatError) as error:
            row, unreadable[place] = _row(record, "", None), str(error)
        if row is not None:
            measured[place] = replace(row, place=place)
    count = max(len(iteration.timeline.spans), 1)
    is_compiled = iteration.key.model is not None
    side = RowSide(measured, number, count, is_of_tensors=True, is_compiled=is_compiled)
    return MeasuredSide(side, unreadable)


def _placed(records: Sequence[Record]) -> Iterator[tuple[Place, Record]]:
    tensors = [(record.op_name, record.io, record.slot) for record in records]
    for tensor, number, record in zip(tensors, timeline.ordinals(tensors), records, strict=True):
        yield (*tensor, number), record


class RecordMeter:
    """Measures tensors that were dumped."""

    def __init__(self, spec: StatisticSpec) -> None:
        """Choose statistics, and how they are computed."""
        self._categories = spec.categories
        self._titles = [BY_CATEGORY[category].title for category in spec.categories]
        self._statistics = Statistics(spec, _STYLE)

    def row(self, record: Record, shape: tuple[int, ...] | None = None) -> StatisticRow | None:
        """Return the statistics of a tensor; None where it has none: no elements, text, complex numbers.

        Args:
            record: The tensor.
            shape: Shape of the elements to measure, None: that on the host.

        Raises:
            DumpReadError: Its file cannot be read.
            FormatError: Its memory format cannot be, or an element type is not known.
        """
        array, dtype = _elements(record, shape)
        operator = OperatorRef(record.op_type, record.op_name)
        tensor = TensorRecord(operator, record.io, record.slot, dtype, array, record.timestamp)
        numbers = self._statistics.measure(tensor)
        if numbers is None:
            return None
        printed = (
            cells.read(title, statistic_csv.text(number))
            for title, number in zip(self._titles, numbers, strict=True)
        )
        found = {
            category: cell
            for category, cell in zip(self._categories, printed, strict=True)
            if cell is not None
        }
        return replace(_row(record, dtype.name, array.shape), cells=found)


def _row(record: Record, dtype: str, shape: tuple[int, ...] | None) -> StatisticRow:
    place = (record.op_name, record.io, record.slot, 0)
    return StatisticRow(place, record.op_type, record.timestamp, dtype, shape, {})


def _elements(record: Record, shape: tuple[int, ...] | None) -> tuple[np.ndarray, DType]:
    """Return the elements of a tensor, those on the device if they have the shape, in their original type."""
    is_of_device = shape is not None and shape == record.shape
    array = record.array if is_of_device else record.host
    saved = dtypes.from_numpy(array.dtype)
    try:
        dtype = dtypes.from_name(record.dtype)
    except FormatError:  # a type that this package lacks, in a dump of MindSpore's own
        return array, saved
    # .npy files hold bfloat16 as float32, and types below a byte in bytes
    if dtype is not saved and dtype.saved == array.dtype:
        return array.astype(dtype.numpy), dtype
    return array, saved
