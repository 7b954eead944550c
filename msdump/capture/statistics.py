"""Rows of statistic.csv: measured on the host or as the device does, hashed, and collected to tables."""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from msdump.device import Task
from msdump.dtypes import DType, widen
from msdump.encode import COLUMNS, statistic_csv
from msdump.errors import is_foreign, passing_over
from msdump.observer import Array
from msdump.plan import StatisticSpec
from msdump.reasons import Reason
from msdump.record import IO, Artifact, Buffer, OperatorRef, TensorRecord
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
from msdump.store.write import Sink, Summary, exits
from msdump.threads import split_by_size, submit_background, thread_count

WAITING_BYTES: Final = 64 << 20
_MOST_ROWS: Final = 256  # that wait for one another
_BATCH_BYTES: Final = 4 << 20  # that a thread hashes: the last batch of a step is waited for
_WORTH_A_THREAD: Final = 1 << 20  # bytes that take several times as long to hash as to hand over


class _Row:
    """A row on its way.

    Attributes:
        path: Path of its file.
        header: Header line of the file.
        size: Bytes of the tensor that it holds until it is made.
        text: The row, once it is made.
        error: The exception of making it.
    """

    __slots__ = ("_make", "error", "header", "path", "size", "text")

    def __init__(self, path: str, header: bytes, size: int, make: Callable[[], bytes]) -> None:
        self.path = path
        self.header = header
        self.size = size
        self.text = b""
        self.error: Exception | None = None
        self._make: Callable[[], bytes] | None = make

    @property
    def is_made(self) -> bool:
        """Whether it is made."""
        return self._make is None

    def make(self) -> None:
        """Make it unless it is made."""
        if self._make is None:
            return
        try:
            self.text = self._make()
        except Exception as error:
            if is_foreign(error):
                raise  # it is made when its turn comes
            self.error = error
        self._make = None  # it holds the tensor

    def joins(self, first: _Row) -> bool:
        """Return whether it can be written together with a row before it."""
        return self._make is None and self.error is None and self.path == first.path


class _Batch:
    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = rows
        self._future: Future[None] | None = None

    def begin(self) -> None:
        """Have a thread make them."""
        self._future = submit_background(self._make)

    def help(self) -> None:
        """Make them here unless a thread has begun to."""
        # an interrupt may come meanwhile: what is left is made again then, since it stays cancelled
        if self._future is None or self._future.cancel():
            self._make()

    def wait(self) -> None:
        """Return when a thread that has begun to make them is done."""
        if self._future is not None and not self._future.cancelled():
            self._future.result()

    @property
    def is_made(self) -> bool:
        """Whether all of them are made."""
        return all(row.is_made for row in self._rows)

    def _make(self) -> None:
        for row in self._rows:
            row.make()


class HashingSink:
    """Takes rows that are made later, and hands everything else on at once; any thread may call it.

    A hash takes longer than most operators, and hashlib leaves Python's lock alone: tensors wait until they
    are worth a thread, which makes their rows beside the operators that run next. Rows are written in the
    order in which they came, and are on disk when the sink is flushed, which every step does at its end.
    """

    holds_buffers = True

    def __init__(self, sink: Sink, most_bytes: int = WAITING_BYTES) -> None:
        """Hold nothing yet.

        Args:
            sink: Takes files and rows.
            most_bytes: Most bytes of tensors that rows hold which are not made; one that is larger than all
                of them waits alone. Half as many are made together.
        """
        self._sink = sink
        self._most_bytes = most_bytes
        self._has_threads = thread_count() > 1
        self._lock = exits.new_guard()
        self._rows: deque[_Row] = deque()
        self._held_bytes = 0
        self._waiting: list[_Row] = []  # those of them that are in no batch yet
        self._waiting_bytes = 0
        self._batches: deque[_Batch] = deque()
        exits.register(self)

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Add a whole row to a csv file once it is made, behind those that came before it.

        Args:
            path: Absolute path of the file.
            make: Makes the row, with its line feed, in any thread; what it reads must stay as it is.
            header: Header line with its line feed.
            size: Bytes of the tensor that it holds.

        Raises:
            DumpWriteError: As for ``append``, of this row or one that came before.
        """
        row = _Row(path, header, size, make)
        mine: Sequence[_Batch] = ()
        with self._lock:
            exits.activate(self)
            self._rows.append(row)
            self._waiting.append(row)
            self._waiting_bytes += size
            self._held_bytes += size
            is_full = self._held_bytes > max(size, self._most_bytes)
            are_enough = (
                self._waiting_bytes >= min(self._most_bytes // 2, _BATCH_BYTES)
                or len(self._waiting) >= _MOST_ROWS
            )
            if is_full or (are_enough and not self._has_threads):
                mine = self._shared()
            elif are_enough:
                self._begin(self._taken())
        for batch in mine:
            # what a thread has begun is not waited for: it goes on beside the operators
            batch.help()
        self._write_made()

    def _taken(self) -> list[_Row]:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting

    def _begin(self, rows: Sequence[_Row]) -> None:
        batch = _Batch(rows)
        self._batches.append(batch)
        batch.begin()

    def _shared(self) -> Sequence[_Batch]:
        """Share the rows that wait among the caller and threads; return what is not made, the oldest last."""
        mine, *others = split_by_size(self._taken(), lambda row: row.size, _WORTH_A_THREAD)
        for rows in others:
            self._begin(rows)
        self._batches.append(_Batch(mine))
        return [*reversed(self._batches)]

    def _write_made(self) -> None:
        """Write the rows that are made, up to the first that is not."""
        with self._lock:
            while self._batches and self._batches[0].is_made:
                self._batches.popleft()
            while self._rows and self._rows[0].is_made:
                self._write_first()

    def _write_first(self) -> None:
        """Write the first row, and those behind it that are made and of the same file.

        Raises:
            Exception: What making the first one raised, or writing them.
        """
        rows = [self._rows.popleft()]
        while rows[0].error is None and self._rows and self._rows[0].joins(rows[0]):
            rows.append(self._rows.popleft())
        self._held_bytes -= sum(row.size for row in rows)
        if rows[0].error is not None:
            raise rows[0].error
        self._sink.append(rows[0].path, b"".join([row.text for row in rows]), rows[0].header)

    def _settle(self) -> None:
        """Write all rows; raise the first failure when all were tried."""
        failure: Exception | None = None
        with self._lock:
            batches = self._shared()
            for batch in batches:
                batch.help()
            for batch in batches:
                batch.wait()
            self._batches.clear()
            while self._rows:
                try:
                    self._write_first()
                except Exception as error:
                    if is_foreign(error):
                        raise
                    failure = failure or error
        if failure is not None:
            raise failure

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file, behind those that are still made."""
        with self._lock:
            if self._rows:
                row = _Row(path, header, 0, lambda: rows)
                row.make()
                self._rows.append(row)
                self._write_made()
            else:
                self._sink.append(path, rows, header)

    def write(self, artifact: Artifact) -> None:
        """Write a new file."""
        self._sink.write(artifact)

    def replace(self, artifact: Artifact) -> None:
        """Write a file in place of an older one."""
        self._sink.replace(artifact)

    def keep(self, artifact: Artifact) -> None:
        """Write a file unless it exists."""
        self._sink.keep(artifact)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people piece by piece."""
        self._sink.stream(directory, name, pieces)

    def skip(self, reason: Reason, count: int = 1) -> None:
        """Count tensors that are not written on purpose."""
        self._sink.skip(reason, count)

    @property
    def summary(self) -> Summary:
        """What was written, skipped and lost so far; rows on their way do not count yet."""
        return self._sink.summary

    def flush(self) -> None:
        """Return when every row and file is on disk; DumpWriteError as the sink behind tells."""
        try:
            self._settle()
        finally:
            self._sink.flush()

    def complete(self) -> None:
        """Write all rows, and raise nothing about what is lost, which is logged."""
        with passing_over(Exception):
            self._settle()
        exits.deactivate(self)

    def close(self) -> None:
        """Flush and close the sink behind."""
        try:
            self._settle()
        finally:
            exits.deactivate(self)
            self._sink.close()

    def forget(self) -> None:
        """Drop the rows on their way in a forked child: the parent writes them."""
        self._rows.clear()
        self._batches.clear()
        self._taken()
        self._held_bytes = 0


_EXTREMES = StatisticNeed(extremes=True)


@dataclass(frozen=True)
class DeviceMeasure:
    """The device's statistics of a tensor; each is computed when it is read.

    Float16 loses what float32 keeps: 2048 + 1 is 2048 there, and 2048 * 2048 is infinite.

    >>> from msdump import dtypes
    >>> from msdump.record import IO, OperatorRef
    >>> array = np.array([[2048, 0], [1, 0]], np.float16)
    >>> operator = OperatorRef("Add", "Default/Add-op0")
    >>> record = TensorRecord(operator, IO.OUTPUT, 0, dtypes.from_name("float16"), array, 0)
    >>> high, low = DeviceMeasure(record, np.dtype(np.float32)), DeviceMeasure(record, np.dtype(np.float16))
    >>> high.mean, low.mean, low.norm, low.largest
    (512.25, 512.0, inf, 2048.0)

    Attributes:
        record: The tensor.
        adds_in: The type that sums are in.
    """

    record: TensorRecord
    adds_in: np.dtype

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
        """The needs of rows, None where they take more than a pass over the host's elements."""
        return None if self._are_texts or self.has_hashes else self._need

    def sheet(self, records: Sequence[TensorRecord]) -> RowSheet | None:
        """Return the part of rows that stays from step to step, for tensors of these types and shapes.

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
    """Return the needs of some statistics."""
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
        f"statistic.csv will have {columns} columns, msprobe refuses files with fewer than "
        f"{_MSPROBE_COLUMNS}: choose at least {_MSPROBE_COLUMNS - len(COLUMNS)} statistics"
    )


def octets_of(record: TensorRecord) -> memoryview:
    """Return the bytes that are hashed: little endian, of packed types those of the unpacked elements.

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
        return [*map(self._cells, measured, records)]

    def _cells(self, totals: Totals, record: TensorRecord) -> Cells:
        octets = partial(octets_of, record)
        return tuple([value(totals, octets) for value in self._values])


class _OnDevice:
    """Leaves a cell empty, and warns once, where the emulated device lacks a type."""

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
                *(_PLATFORM, name, statistic.category),
            )
        return None


_Kinds = list[tuple[np.dtype, tuple[int, ...]] | None]
"""Types and shapes of the tensors of operators, None for a value that is no tensor."""


class RowSheet:
    """The rows of some tensors but for timestamps and statistics; no statistic of them is a hash."""

    __slots__ = ("_dtypes", "_need", "_template", "_values")

    def __init__(
        self, template: str, dtypes: Sequence[DType], need: StatisticNeed, statistics: Sequence[Statistic]
    ) -> None:
        """Set the part that is the same in every step.

        Args:
            template: A ``%`` template of the rows, for timestamp and statistics of each tensor.
            dtypes: The type of each tensor.
            need: The statistics that a pass over the elements has to find.
            statistics: The statistics of each row.
        """
        self._template = template
        self._dtypes = tuple(dtypes)
        self._need = need
        self._values = tuple(statistic.value for statistic in statistics)

    def rows(self, arrays: Sequence[np.ndarray], clock: Clock) -> bytes:
        """Measure tensors together and return their rows.

        Args:
            arrays: The tensors, of the types and shapes that the template tells.
            clock: Gives each its timestamp.
        """
        times = clock.several(len(arrays))
        cells: list[Cell] = []
        measured = passes.measure_all([*zip(arrays, self._dtypes, strict=True)], self._need)
        for time, totals in zip(times, measured, strict=True):
            cells.append(time)
            cells += [value(totals, _no_octets) for value in self._values]
        return (self._template % tuple(cells)).encode()

    def rows_of(self, found: TotalsArray, clock: Clock) -> bytes:
        """Return the rows of tensors that were measured; see ``rows``."""
        times = clock.several(len(self._dtypes))
        columns = [_column(value, found) for value in self._values]
        cells: list[Cell] = [None] * (len(times) * (1 + len(columns)))
        for place, column in enumerate((times, *columns)):
            cells[place :: 1 + len(columns)] = column
        return (self._template % tuple(cells)).encode()


def _column(value: Callable[[Totals, ReadOctets], Cell], found: TotalsArray) -> list[Cell]:
    """Return a statistic of several tensors: its function takes arrays as it takes numbers."""
    with np.errstate(all="ignore"):
        column: list[Cell] = np.asarray(value(found, _no_octets)).tolist()
    return column


def _no_octets() -> memoryview:
    raise AssertionError("hashes are made of each tensor by itself")


@dataclass(slots=True)
class _Page:
    kinds: _Kinds
    sheet: RowSheet | None = None
    is_made: bool = False


class RowSheets:
    """The sheets of the operators of one graph; each lasts until its tensors have other types or shapes."""

    def __init__(self) -> None:
        """Start without a sheet."""
        self._pages: dict[tuple[int, ...], _Page] = {}

    def find(
        self,
        positions: tuple[int, ...],
        arrays: Sequence[Array],
        make: Callable[[], RowSheet | None],
    ) -> RowSheet | None:
        """Return the sheet of operators that have run together, None where they have none.

        It is made when types and shapes are those of the last time: where they always change, it never is.

        Args:
            positions: Places of the operators in the graph's execution order.
            arrays: All their inputs and outputs, absent ones included.
            make: Makes the sheet, None where a row does not depend on type and shape alone.
        """
        kinds: _Kinds = [None if array is None else (array.dtype, array.shape) for array in arrays]
        page = self._pages.get(positions)
        if page is None or page.kinds != kinds:
            self._pages[positions] = _Page(kinds)
            return None
        if not page.is_made:
            page.sheet, page.is_made = make(), True
        return page.sheet
