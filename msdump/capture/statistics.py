"""Rows of statistic.csv: measured on the host or as the device does, and hashed."""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from msdump.device import Task
from msdump.dtypes import DType, widen
from msdump.encode import COLUMNS, statistic_csv
from msdump.plan import StatisticSpec
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import (
    BY_CATEGORY,
    NOTHING,
    Cell,
    Nature,
    ReadOctets,
    Statistic,
    StatisticNeed,
    Totals,
    TotalsArray,
    measure,
    passes,
)
from msdump.store import Clock, Style, names

_EXTREMES = StatisticNeed(extremes=True)


@dataclass(frozen=True)
class DeviceMeasure:
    """The device's statistics of a tensor; each is computed when it is read.

    Float16 is less exact than float32: 2048 + 1 is 2048 there, and 2048 * 2048 is infinite.

    >>> from msdump import dtypes
    >>> from msdump.record import IO, OperatorRef
    >>> array = np.array([[2048, 0], [1, 0]], np.float16)
    >>> operator = OperatorRef("Add", "Default/Add-op0")
    >>> record = TensorRecord(operator, IO.OUTPUT, 0, dtypes.from_name("float16"), array, 0)
    >>> high, low = DeviceMeasure(record, np.dtype(np.float32)), DeviceMeasure(record, np.dtype(np.float16))
    >>> high.mean, low.mean, low.norm, low.largest
    (512.25, 512.0, inf, 2048.0)
    """

    record: TensorRecord
    adds_in: np.dtype  # the type that sums are in

    @property
    def largest(self) -> Cell:
        """The largest element; NaN where one is NaN."""
        return self._as_cell(self._extremes.high)

    @property
    def smallest(self) -> Cell:
        """The smallest element; NaN where one is NaN."""
        return self._as_cell(self._extremes.low)

    @property
    def mean(self) -> Cell:
        """The folded sum divided by the number of elements, rounded to the type of the sum."""
        quotient = _fold(self._terms()) / self.record.array.size
        if self.adds_in.kind in "iu":  # the mean of integers is an integer, cut off towards zero
            return float(math.trunc(quotient))
        return _rounded(quotient, self.adds_in)

    @property
    def norm(self) -> Cell:
        """The square root of the folded sum of squares."""
        terms = self._terms()
        with np.errstate(all="ignore"):
            np.multiply(terms, terms, out=terms)
        return _rounded(math.sqrt(_fold(terms)), self.adds_in)

    @cached_property
    def _extremes(self) -> Totals:
        return measure(self.record.array, self.record.dtype, _EXTREMES)

    def _terms(self) -> np.ndarray:
        """Return the elements in the type that they are added in: a copy, which may be overwritten."""
        with np.errstate(all="ignore"):
            return self.record.array.reshape(-1).astype(self.adds_in)

    def _as_cell(self, extreme: float) -> Cell:
        return bool(extreme) if self.record.dtype.name == "bool" else extreme


def _fold(terms: np.ndarray) -> float:
    """Return the sum of a vector, which is destroyed: the second half is added onto the first, and so on.

    Each step is rounded to the type that is added in, so that sums in float16 overflow to inf, and sums of
    integers wrap.

    >>> _fold(np.array([1, 2, 3], np.float32))  # (1 + 3) + 2
    6.0
    >>> _fold(np.array([100, 100], np.int8))
    -56.0
    """
    left = len(terms)
    with np.errstate(all="ignore"):
        while left > 1:
            half = (left + 1) // 2  # of an odd number the middle one waits for the next step
            np.add(terms[: left - half], terms[half:left], out=terms[: left - half])
            left = half
    return float(terms[0])


def _rounded(value: float, dtype: np.dtype) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype))


_log = logging.getLogger("msdump.capture")

_PLATFORM: Final = "Ascend"  # the only platform with statistics computed on the device
_SINGLE: Final = np.dtype(np.float32)
_MSPROBE_COLUMNS: Final = 13  # msprobe refuses files with fewer columns

_CONVERSIONS: Final = {
    Nature.VALUE: statistic_csv.NUMBER,
    Nature.AMOUNT: statistic_csv.NUMBER,
    Nature.COUNT: statistic_csv.WHOLE,
    Nature.SIGN_COUNT: statistic_csv.WHOLE,
    Nature.DIGEST: statistic_csv.TEXT,
}
"""How the host's statistics are written: real numbers, whole ones and digits."""

_Described = tuple[OperatorRef, DType, tuple[int, ...], int, Task]
"""The cells of a row beside slot and statistics: operator, type, shape, bytes, task."""

Cells = tuple[Cell, ...]


Finish = Callable[[], Cells]
"""Computes the hashes of a tensor that is measured otherwise, and returns all cells."""


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
    >>> statistics.rows([(record, cells, Task(0, 0))])
    b'Add,Default_Add-op0,0,0,1700,output,0,16,float32,"(2,2)",2,3,4\n'

    ``measure`` may run in any thread, and has to run before the elements are
    widened for .npy files: bfloat16 is hashed and sized as it is.
    """

    def __init__(self, spec: StatisticSpec, style: Style) -> None:
        """Choose how a plan's statistics are computed, and how names are spelled, as in files."""
        statistics = self._statistics = chosen(spec)
        # first line of the file
        self.header = statistic_csv.header(statistic.title for statistic in statistics)
        # whether the function that ``begin`` returns hashes elements, which takes long
        self.has_hashes = has_hashes(spec)
        self._measure = (
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
        return None if begun is None else begun()

    def begin(self, record: TensorRecord) -> Finish | None:
        """Compute all statistics but hashes; return a function that adds the hashes and returns all.

        None for a tensor without a row: no elements, text, complex numbers. The function may be called later
        and in another thread, as long as the elements stay unchanged.
        """
        return self._measure.begin(record) if _has_row(record) else None

    def measure_all(self, records: Sequence[TensorRecord]) -> list[Cells | None]:
        """Return the statistics of several tensors, as ``measure`` does of each, in less time."""
        measured = [record for record in records if _has_row(record)]
        cells = self._measure.all(measured)
        if len(measured) == len(records):
            return [*cells]
        each = iter(cells)
        return [next(each) if _has_row(record) else None for record in records]

    def rows(self, measured: Iterable[tuple[TensorRecord, Cells, Task]]) -> bytes:
        """Return the rows of several tensors, with the result of ``measure`` and the task of each."""
        templates: list[str] = []
        values: list[Cell] = []
        for record, cells, task in measured:
            templates.append(self._template(record, task))
            values.append(record.timestamp)
            values += [statistic_csv.text(cell) for cell in cells] if self._are_texts else cells
        return ("".join(templates) % tuple(values)).encode()

    @property
    def need(self) -> StatisticNeed | None:
        """Statistics that rows need; None if one pass over the host's elements is not enough."""
        return None if self._are_texts or self.has_hashes else self._need

    def sheet(self, records: Sequence[TensorRecord]) -> RowSheet | None:
        """Return the part of rows that is the same in all iterations, for tensors of these types and shapes.

        None if a tensor has no row, or if ``need`` is None.
        """
        need = self.need
        if need is None or not all(_has_row(record) for record in records):
            return None
        template = "".join(self._template(record, Task(0, 0)) for record in records)
        return RowSheet(self.header, template, [record.dtype for record in records], need, self._statistics)

    def _template(self, record: TensorRecord, task: Task) -> str:
        """Return a tensor's row as a ``%`` template for timestamp and statistics."""
        # spelled once, character by character: the tensors of a slot have equal cells in every step of a run
        operator_ref, array = record.operator, record.array
        key = (operator_ref.full_name, record.io, record.slot)  # an OperatorRef is slower to hash
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
    """Return the sums, extremes and counts from which some statistics follow."""
    return functools.reduce(operator.or_, (statistic.need for statistic in statistics), NOTHING)


def chosen(spec: StatisticSpec) -> tuple[Statistic, ...]:
    """Return the statistics of a plan, in the user's order."""
    return tuple(BY_CATEGORY[category] for category in spec.categories)


def has_hashes(spec: StatisticSpec) -> bool:
    """Return whether hashes are computed: the emulated device computes none."""
    return not spec.on_device and any(statistic.nature is Nature.DIGEST for statistic in chosen(spec))


def advice(spec: StatisticSpec) -> str | None:
    """Return a warning where msprobe refuses the files that a plan makes, else None."""
    columns = len(COLUMNS) + len(spec.categories)
    if columns >= _MSPROBE_COLUMNS:
        return None
    return (
        f"statistic.csv will have {columns} columns, but msprobe needs at least "
        f"{_MSPROBE_COLUMNS}: choose at least {_MSPROBE_COLUMNS - len(COLUMNS)} statistics"
    )


def octets_of(record: TensorRecord) -> memoryview:
    """Return the bytes that are hashed: little endian; packed elements are unpacked.

    The array's own memory where it is contiguous, so that nothing is copied.
    """
    array = record.array if record.dtype.per_byte == 1 else widen(record.array, record.dtype)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


class _OnHost:
    """Finds all statistics in one pass but hashes, which read the bytes again."""

    def __init__(self, statistics: Sequence[Statistic]) -> None:
        self._need = need_of(statistics)
        self._values = tuple(statistic.value for statistic in statistics)

    def begin(self, record: TensorRecord) -> Finish:
        return partial(self._cells, passes.measure(record.array, record.dtype, self._need), record)

    def all(self, records: Sequence[TensorRecord]) -> Sequence[Cells]:
        measured = passes.measure_all([(record.array, record.dtype) for record in records], self._need)
        return [self._cells(totals, record) for totals, record in zip(measured, records, strict=True)]

    def _cells(self, totals: Totals, record: TensorRecord) -> Cells:
        octets = partial(octets_of, record)
        return tuple([value(totals, octets) for value in self._values])


class _OnDevice:
    """Computes statistics as the device does: warns once, and leaves cells empty, if it lacks a type."""

    def __init__(self, statistics: Sequence[Statistic], *, high_precision: bool) -> None:
        self._statistics = statistics
        self._high_precision = high_precision
        self._warned: set[tuple[str, str]] = set()

    def begin(self, record: TensorRecord) -> Finish:
        measured = DeviceMeasure(record, _SINGLE if self._high_precision else record.dtype.numpy)
        cells = tuple(self._cell(statistic, measured) for statistic in self._statistics)
        return lambda: cells

    def all(self, records: Sequence[TensorRecord]) -> Sequence[Cells]:
        return [self.begin(record)() for record in records]

    def _cell(self, statistic: Statistic, measured: DeviceMeasure) -> Cell:
        name, device = measured.record.dtype.name, statistic.device
        if device is not None and name in (device.high if self._high_precision else device.low):
            return device.value(measured)
        if (name, statistic.category) not in self._warned:
            self._warned.add((name, statistic.category))
            _log.warning(
                "in the '%s' platform, '%s' is not supported for '%s' statistic dump",
                _PLATFORM,
                name,
                statistic.category,
            )
        return None


class RowSheet:
    """Row templates of some tensors, to be filled with timestamps and statistics other than hashes."""

    def __init__(
        self,
        header: bytes,
        template: str,
        dtypes: Sequence[DType],
        need: StatisticNeed,
        statistics: Sequence[Statistic],
    ) -> None:
        self.header = header  # first line of the file
        self._template = template
        self._dtypes = tuple(dtypes)
        self._need = need
        self._values = tuple(statistic.value for statistic in statistics)

    def rows(self, arrays: Sequence[np.ndarray], clock: Clock) -> bytes:
        """Measure tensors of the sheet's types and shapes together and return their rows."""
        times = clock.several(len(arrays))
        cells: list[Cell] = []
        measured = passes.measure_all([*zip(arrays, self._dtypes, strict=True)], self._need)
        for time, totals in zip(times, measured, strict=True):
            cells.append(time)
            cells += [value(totals, _no_octets) for value in self._values]
        return (self._template % tuple(cells)).encode()

    def rows_of(self, found: TotalsArray, clock: Clock) -> bytes:
        """Return the rows of tensors that were measured; each gets a timestamp."""
        times = clock.several(len(self._dtypes))
        columns = [_column(value, found) for value in self._values]
        cells: list[Cell] = [None] * (len(times) * (1 + len(columns)))
        for place, column in enumerate((times, *columns)):
            cells[place :: 1 + len(columns)] = column
        return (self._template % tuple(cells)).encode()


def _column(value: Callable[[Totals, ReadOctets], Cell], found: TotalsArray) -> list[Cell]:
    """Return a statistic of several tensors; the statistic's function accepts arrays and numbers."""
    with np.errstate(all="ignore"):
        column: list[Cell] = np.asarray(value(found, _no_octets)).tolist()
    return column


def _no_octets() -> memoryview:
    raise AssertionError("hashes are computed for each tensor separately")
