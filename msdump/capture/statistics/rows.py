"""The statistics of a plan: from a tensor to its row of ``statistic.csv``."""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np

from msdump.capture.statistics.device import DeviceMeasure
from msdump.capture.statistics.sheets import RowSheet
from msdump.device.tasks import Task
from msdump.dtypes import DType, widen
from msdump.encode import statistic_csv
from msdump.encode.statistic_csv import COLUMNS
from msdump.plan import StatisticSpec
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import passes
from msdump.statistics.digests import Message
from msdump.statistics.table import BY_CATEGORY, Cell, Nature, Statistic
from msdump.statistics.totals import NOTHING, StatisticNeed, Totals
from msdump.store import names
from msdump.store.names import Style

_log = logging.getLogger("msdump.capture")

_PLATFORM: Final = "Ascend"  # the only one that computes statistics itself
_SINGLE: Final = np.dtype(np.float32)
_MSPROBE_COLUMNS: Final = 13  # msprobe refuses files with fewer

_CONVERSIONS: Final = {
    Nature.VALUE: statistic_csv.NUMBER,
    Nature.AMOUNT: statistic_csv.NUMBER,
    Nature.COUNT: statistic_csv.WHOLE,
    Nature.SIGN_COUNT: statistic_csv.WHOLE,
    Nature.DIGEST: statistic_csv.TEXT,
}
"""How the host's statistics are written: real numbers, whole ones and digits."""

_Described = tuple[OperatorRef, DType, tuple[int, ...], int, Task]
"""What a row tells of a tensor beside its slot and its statistics: operator, type, shape, bytes, task."""

Cells = tuple[Cell, ...]


class Begun(NamedTuple):
    """A tensor that is measured but for its hashes.

    Attributes:
        finish: Computes these and gives all cells.
        message: What it finds the MD5 of, unless that is found before; None where no MD5 is asked for.
    """

    finish: Callable[[], Cells]
    message: Message | None = None


class Statistics:
    r"""Measures tensors and formats their rows.

    >>> from msdump import dtypes
    >>> from msdump.plan import DeviceTarget, Naming
    >>> from msdump.record import IO
    >>> style = names.STYLES[Naming.V2_5, DeviceTarget.ASCEND]
    >>> statistics = Statistics(StatisticSpec(("max", "l2norm", "count")), style)
    >>> array = np.array([[1, -2], [0, 2]], np.float32)
    >>> operator_ref = OperatorRef("Add", "Default/Add-op0")
    >>> record = TensorRecord(operator_ref, IO.OUTPUT, 0, dtypes.from_name("float32"), array, 1700)
    >>> cells = statistics.measure(record)
    >>> cells
    (2.0, 3.0, 4)
    >>> statistics.row(record, cells)
    b'Add,Default_Add-op0,0,0,1700,output,0,16,float32,"(2,2)",2,3,4\n'

    ``measure`` may run in any thread, and has to run before the elements are
    widened to what .npy files hold: bfloat16 is hashed and sized as it is.

    Attributes:
        header: First line of the file.
        has_hashes: Whether what ``begin`` returns has to read the elements, and for long.
    """

    def __init__(self, spec: StatisticSpec, style: Style) -> None:
        """Choose how the statistics of a plan are computed.

        Args:
            spec: What is computed, and where.
            style: How names are spelled, in the file names and in the rows alike.
        """
        statistics = self._statistics = chosen(spec)
        self.header = statistic_csv.header(statistic.title for statistic in statistics)
        self.has_hashes = has_hashes(spec)
        self._measure: _Measure = (
            _OnDevice(statistics, high_precision=spec.high_precision)
            if spec.on_device
            else _OnHost(statistics)
        )
        self._style = style
        self._conversions = tuple(
            statistic_csv.TEXT if spec.on_device else _CONVERSIONS[statistic.nature]
            for statistic in statistics
        )
        self._are_texts = spec.on_device
        self._need = need_of(statistics)
        self._templates: dict[tuple[str, IO, int], tuple[_Described, str]] = {}

    def measure(self, record: TensorRecord) -> Cells | None:
        """Return the statistics of a tensor in the order of the header; None as for ``begin``."""
        begun = self.begin(record)
        return None if begun is None else begun.finish()

    def begin(self, record: TensorRecord) -> Begun | None:
        """Find all statistics of a tensor but the hashes.

        None where it gets no row: no elements, text, complex numbers. The hashes may be computed later and
        in another thread, while the elements stay as they are.
        """
        return self._measure.begin(record) if _has_row(record) else None

    def measure_all(self, records: Sequence[TensorRecord]) -> list[Cells | None]:
        """Return what ``measure`` does for each of several tensors, in less time."""
        measured = [record for record in records if _has_row(record)]
        cells = self._measure.all(measured)
        if len(measured) == len(records):
            return [*cells]
        each = iter(cells)
        return [next(each) if _has_row(record) else None for record in records]

    def row(self, record: TensorRecord, cells: Cells, task_id: int = 0, stream_id: int = 0) -> bytes:
        """Return the row of a tensor that was measured.

        Args:
            record: The tensor as it was measured.
            cells: What ``measure`` returned.
            task_id: Task of the operator under Ascend O2.
            stream_id: Stream of the emulated device.
        """
        return self.rows(((record, cells, Task(task_id, stream_id)),))

    def rows(self, measured: Iterable[tuple[TensorRecord, Cells, Task]]) -> bytes:
        """Return the rows of several tensors, with what ``measure`` returned and the task of each."""
        templates: list[str] = []
        values: list[Cell] = []
        for record, cells, task in measured:
            templates.append(self._template(record, task))
            values.append(record.timestamp)
            values += map(statistic_csv.text, cells) if self._are_texts else cells
        return ("".join(templates) % tuple(values)).encode()

    @property
    def need(self) -> StatisticNeed | None:
        """What rows tell of elements, None where they take more than a pass over the elements of the host."""
        return None if self._are_texts or self.has_hashes else self._need

    def sheet(self, records: Sequence[TensorRecord]) -> RowSheet | None:
        """Return what is the same in every step of the rows of tensors with the types and shapes of these.

        None where one has no row, or where rows take more than a pass over the elements of the host.
        """
        need = self.need
        if need is None or not all(map(_has_row, records)):
            return None
        template = "".join(self._template(record, Task(0, 0)) for record in records)
        return RowSheet(template, [record.dtype for record in records], need, self._statistics)

    def _template(self, record: TensorRecord, task: Task) -> str:
        """Return the row of a tensor but for timestamp and statistics."""
        # spelled once, character by character: the tensors of a slot have equal cells in every step of a run
        operator_ref, array = record.operator, record.array
        key = (operator_ref.full_name, record.io, record.slot)  # of an operator a hash would be computed
        described = (operator_ref, record.dtype, array.shape, array.nbytes, task)
        known = self._templates.get(key)
        if known is not None and known[0] == described:
            return known[1]
        op_type, op_name = names.sanitize(operator_ref.op_type), names.op_name(operator_ref, self._style)
        template = statistic_csv.template(
            record, self._conversions, op_type, op_name, task.task_id, task.stream_id
        )
        self._templates[key] = described, template
        return template


def _has_row(record: TensorRecord) -> bool:
    return bool(record.array.size) and passes.is_measurable(record.dtype)


def need_of(statistics: Iterable[Statistic]) -> StatisticNeed:
    """Return what a pass over the elements has to find out for some statistics."""
    return functools.reduce(operator.or_, (statistic.need for statistic in statistics), NOTHING)


def chosen(spec: StatisticSpec) -> tuple[Statistic, ...]:
    """Return the statistics of a plan, in the user's order."""
    return tuple(BY_CATEGORY[category] for category in spec.categories)


def has_hashes(spec: StatisticSpec) -> bool:
    """Tell whether hashes are computed: the emulated device computes none."""
    return not spec.on_device and any(statistic.nature is Nature.DIGEST for statistic in chosen(spec))


def advice(spec: StatisticSpec) -> str | None:
    """Return a warning where msprobe refuses the files that a plan makes, else None."""
    columns = len(COLUMNS) + len(spec.categories)
    if columns >= _MSPROBE_COLUMNS:
        return None
    return (
        f"statistic.csv will have {columns} columns, msprobe refuses files with fewer than "
        f"{_MSPROBE_COLUMNS}: choose at least {_MSPROBE_COLUMNS - len(COLUMNS)} statistics"
    )


def octets_of(record: TensorRecord) -> memoryview:
    """Return the bytes that are hashed: little endian, of packed types those of the unpacked elements.

    The array's own memory where it is contiguous, so that nothing is copied.
    """
    array = record.array if record.dtype.per_byte == 1 else widen(record.array, record.dtype)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


class _Measure(Protocol):
    """Finds the statistics of tensors that have some."""

    def begin(self, record: TensorRecord) -> Begun:
        """Find all statistics but the hashes."""

    def all(self, records: Sequence[TensorRecord]) -> Sequence[Cells]:
        """Return the cells of several tensors."""


class _OnHost:
    """Finds out in one pass what all statistics need; hashes read the bytes again."""

    def __init__(self, statistics: Sequence[Statistic]) -> None:
        self._need = need_of(statistics)
        self._values = tuple(statistic.value for statistic in statistics)
        self._has_md5 = BY_CATEGORY["md5"] in statistics

    def begin(self, record: TensorRecord) -> Begun:
        message = _message(record)
        totals = passes.measure(record.array, record.dtype, self._need)
        return Begun(partial(self._cells, totals, message), message if self._has_md5 else None)

    def all(self, records: Sequence[TensorRecord]) -> Sequence[Cells]:
        measured = passes.measure_all([(record.array, record.dtype) for record in records], self._need)
        return [*map(self._cells, measured, map(_message, records))]

    def _cells(self, totals: Totals, message: Message) -> Cells:
        return tuple([value(totals, message) for value in self._values])


def _message(record: TensorRecord) -> Message:
    return Message(partial(octets_of, record))


class _OnDevice:
    """Leaves a cell empty, and warns once, where the emulated device lacks a type."""

    def __init__(self, statistics: Sequence[Statistic], *, high_precision: bool) -> None:
        self._statistics = statistics
        self._high_precision = high_precision
        self._warned: set[tuple[str, str]] = set()

    def begin(self, record: TensorRecord) -> Begun:
        measured = DeviceMeasure(record, _SINGLE if self._high_precision else record.dtype.numpy)
        cells = tuple(self._cell(statistic, measured) for statistic in self._statistics)
        return Begun(lambda: cells)

    def all(self, records: Sequence[TensorRecord]) -> Sequence[Cells]:
        return [self.begin(record).finish() for record in records]

    def _cell(self, statistic: Statistic, measured: DeviceMeasure) -> Cell:
        name, device = measured.record.dtype.name, statistic.device
        if device is not None and name in (device.high if self._high_precision else device.low):
            return device.value(measured)
        if (name, statistic.category) not in self._warned:
            self._warned.add((name, statistic.category))
            _log.warning(
                "in the '%s' platform, '%s' is not supported for '%s' statistic dump",
                *(_PLATFORM, name, statistic.category),
            )
        return None
