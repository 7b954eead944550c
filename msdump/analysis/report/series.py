"""Statistics of all tensors over the iterations, from tables of statistics or measured from files."""

from __future__ import annotations

import csv
import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump import reading
from msdump.analysis import DumpedFolder
from msdump.analysis.report.operators import OperatorKey, ReportedOperator
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.graph import written_inputs
from msdump.read import Cell, Iteration, Record, SourceKind, check_whole
from msdump.record import IO
from msdump.selector import IterationSet
from msdump.statistics import STATISTICS, Nature
from msdump.store import STATISTICS as TABLE

Fault = Callable[[str], None]
"""Receives a message for each file that cannot be read."""

MeasuredName = tuple[str, str, str, int]
"""Key of a tensor in files: operator type and name, input or output, slot."""

CATEGORIES: Final = tuple(each.category for each in STATISTICS if each.nature is not Nature.DIGEST)
"""The statistics that are numbers, by the names of ``statistic_category``."""

_CATEGORY: Final = {each.title: each.category for each in STATISTICS if each.nature is not Nature.DIGEST}
_NAMES: Final = ("Op Type", "Op Name", "IO", "Slot")
_FIRST_TITLE: Final = _NAMES[0]
_TRUTHS: Final = {"True": 1.0, "False": 0.0}


@dataclass(frozen=True, slots=True)
class MeasuredColumns:
    """The tensors of one directory and their statistics, column by column.

    Attributes:
        names: Which tensors they are.
        times: Microseconds since the epoch, 0 where it is not known.
        forms: Element type and shape of each, ``("float32", "2x3")``.
        numbers: The statistics by category, float64; NaN also where one was not computed, which
            ``known`` distinguishes.
        known: By category, which of them were computed.
    """

    names: list[MeasuredName] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    forms: list[tuple[str, str]] = field(default_factory=list)
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    known: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def has_repeats(self) -> bool:
        """Whether a tensor stands in several rows: of passes of a loop, or of several executions."""
        return len({*self.names}) < len(self.names)


def read_table(path: str, fault: Fault) -> MeasuredColumns:
    """Return the rows of a ``statistic.csv``; rows that do not fit their titles are reported and left out.

    A last row without a line feed is no row: a run goes on, or was killed, while it was written.
    """
    try:
        data = reading.read_bytes(path)
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return MeasuredColumns()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        fault(f"{path}: the last row has no line feed yet and is left out")
    text = data[:end].decode(errors="replace")
    parts = [_table_columns(titles, rows, path, fault) for titles, rows in _tables(_rows(text), path, fault)]
    return parts[0] if len(parts) == 1 else join_columns(parts)


def _rows(text: str) -> list[list[str]]:
    lines = text.split("\n")
    try:
        reader = csv.reader(lines)
        rows = [*reader]
        if len(rows) == len(lines):
            return rows
    except csv.Error:
        pass
    # a quote that is never closed swallows the lines behind it: one line at a time
    return [_cells(line) for line in lines]


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",") if line else []
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell beyond the module's limit
        return [line]


def _tables(
    rows: Sequence[list[str]], path: str, fault: Fault
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the rows below each line of titles; a later run may have other statistics."""
    starts = [number for number, row in enumerate(rows) if row and row[0] == _FIRST_TITLE]
    if not starts or any(rows[: starts[0]]):
        fault_text = "the first line has no titles of statistics; what stands before some is left out"
        if any(rows):
            fault(f"{path}: {fault_text}")
    if not starts:
        return
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        titles = rows[start]
        width, below = len(titles), rows[start + 1 : stop]
        # vendor: the reference ends every row, but not the titles, with a comma
        fitting = [
            row[:width] for row in below if len(row) == width or (len(row) == width + 1 and not row[-1])
        ]
        unfit = sum(map(bool, below)) - len(fitting)
        if unfit:
            fault(f"{path}: {unfit} row{'s' * (unfit > 1)} with another number of cells than titles left out")
        yield titles, fitting


def _table_columns(
    titles: Sequence[str], rows: Sequence[list[str]], path: str, fault: Fault
) -> MeasuredColumns:
    if not rows:
        return MeasuredColumns()
    columns = dict(zip(titles, zip(*rows, strict=True), strict=False))
    if any(title not in columns for title in _NAMES):
        fault(f"{path}: lacks a column of {', '.join(_NAMES)}; its rows are left out")
        return MeasuredColumns()
    slots = _wholes(columns["Slot"])
    sides = map(str.lower, columns["IO"])
    size, nothing = len(rows), ("",) * len(rows)
    shape_column = columns.get("Shape", nothing)
    shown = {shape: shape.strip("()").replace(",", "x") for shape in {*shape_column}}
    shapes = map(shown.__getitem__, shape_column)
    times = columns.get("Timestamp")
    numbers = {_CATEGORY[title]: _numbers(column) for title, column in columns.items() if title in _CATEGORY}
    return MeasuredColumns(
        [*zip(columns["Op Type"], columns["Op Name"], sides, slots, strict=True)],
        [0] * size if times is None else _wholes(times),
        [*zip(map(str.lower, columns.get("Data Type", nothing)), shapes, strict=True)],
        {category: values for category, (values, _) in numbers.items()},
        {category: known for category, (_, known) in numbers.items()},
    )


def _wholes(column: Sequence[str]) -> list[int]:
    try:
        whole = [*map(int, column)]
        if 0 <= min(whole) <= max(whole) < 1 << 63:
            return whole
    except ValueError:
        pass
    return [*map(_whole, column)]


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(1 << 63)) else 0


def _numbers(column: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    try:
        values = np.fromiter(map(float, column), np.float64, len(column))
    except ValueError:
        values = np.fromiter((_number(cell) for cell in column), np.float64, len(column))
        is_known = (cell.lower().lstrip("+-") == "nan" for cell in column)
        return values, ~np.isnan(values) | np.fromiter(is_known, np.bool_, len(column))
    return values, np.ones(len(column), np.bool_)


def _number(cell: str) -> float:
    try:
        return _TRUTHS[cell] if cell in _TRUTHS else float(cell)
    except ValueError:  # null, or no number at all
        return np.nan


def columns_of_cells(
    rows: Iterable[tuple[MeasuredName, int, tuple[str, str], Mapping[str, Cell]]],
) -> MeasuredColumns:
    """Return tensors as columns: names, times, element types and shapes, statistics by category."""
    given = [*rows]
    if not given:
        return MeasuredColumns()
    names, times, forms, statistics = (list(each) for each in zip(*given, strict=True))
    numbers, known = {}, {}
    for category in CATEGORIES:
        values = [row.get(category) for row in statistics]
        is_known = np.array([isinstance(value, int | float) for value in values], np.bool_)
        if is_known.any():
            numbers[category] = np.array(
                [_as_float(value) if isinstance(value, int | float) else np.nan for value in values]
            )
            known[category] = is_known
    return MeasuredColumns(names, times, forms, numbers, known)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond float64
        return np.inf if value > 0 else -np.inf


def join_columns(parts: Sequence[MeasuredColumns]) -> MeasuredColumns:
    """Return the rows of several tables in one."""
    parts = [part for part in parts if part.names]
    if not parts:
        return MeasuredColumns()
    categories = dict.fromkeys(category for part in parts for category in part.numbers)
    return MeasuredColumns(
        [name for part in parts for name in part.names],
        [time for part in parts for time in part.times],
        [form for part in parts for form in part.forms],
        {
            category: np.concatenate(
                [part.numbers.get(category, np.full(len(part.names), np.nan)) for part in parts]
            )
            for category in categories
        },
        {
            category: np.concatenate(
                [part.known.get(category, np.zeros(len(part.names), np.bool_)) for part in parts]
            )
            for category in categories
        },
    )


_Row = tuple[MeasuredName, int, tuple[str, str], Mapping[str, Cell]]

_DAMAGED: Final = "{}; what can be read of it is shown"


Stamp = tuple[int, int, int]
"""Change times of a directory and of its statistics table, and the size of the table."""

DirectoryContent = tuple[MeasuredColumns, tuple[str, ...]]
"""Tensors of a directory, and messages about files that cannot be read."""

KnownDirectories = dict[str, tuple[Stamp, DirectoryContent]]
"""Cache of the contents of directories by path."""


def stamp(path: str) -> Stamp:
    """Return the stamp of a directory of tensors, which changes when something is written into it."""
    try:
        table = os.stat(f"{path}/{TABLE}")  # noqa: PTH116 - a text
        size, written = table.st_size, table.st_mtime_ns
    except OSError:
        size = written = 0
    try:
        return os.stat(path).st_mtime_ns, written, size  # noqa: PTH116 - a text
    except OSError:  # gone
        return 0, 0, 0


def read_directories(
    root: str,
    directories: Sequence[Iteration],
    known: KnownDirectories | None,
    executor: ExecutorChoice,
) -> Iterator[DirectoryContent]:
    """Yield the tensors of each directory, of its last complete execution.

    A directory that has not changed since ``known`` took it in is not read again.
    """
    if known is None:
        yield from _contents(root, directories, executor)
        return
    stamps = {each.path: stamp(each.path) for each in directories}
    changed = [each for each in directories if known.get(each.path, (None,))[0] != stamps[each.path]]
    for each, content in zip(changed, _contents(root, changed, executor), strict=True):
        known[each.path] = (stamps[each.path], content)
    yield from (known[each.path][1] for each in directories)


def _contents(
    root: str, directories: Iterable[Iteration], executor: ExecutorChoice
) -> Iterator[DirectoryContent]:
    return map_items(
        _content,
        map(replace, directories),  # copies: the lists that they cache are freed with them
        size=lambda each: directory_size(each.path),
        executor=executor,
        name=lambda each: each.path,
        paths=(root,),
    )


def _content(directory: Iteration) -> DirectoryContent:
    faults: dict[str, None] = {}
    return _read_directory(directory, faults.setdefault), tuple(faults)


def _read_directory(directory: Iteration, fault: Fault) -> MeasuredColumns:
    """Return the tensors of a directory.

    A table of statistics in which every tensor stands once is taken as it is. Where tensors come again, the
    reader separates passes of loops and executions.
    """
    path = f"{directory.path}/{TABLE}"
    table = read_table(path, fault) if os.path.isfile(path) else MeasuredColumns()
    try:
        if table.names and not table.has_repeats:
            rows = {*table.names}
            check_whole(directory.tensor_files, rows, directory.path)
            filed = [each for each in directory.tensor_files if _measured_name(each) not in rows]
            return join_columns([table, columns_of_cells(_measured(filed, fault))])
        # acl: rows of statistics stand in for operators' tensors
        of_operators = (
            (_measured_name(each), each.timestamp, _form(each), each.stats.saved)
            for each in directory.measured_operators
        )
        everything = [*_measured(directory.tensors, fault), *of_operators]
    except DumpReadError as error:
        fault(_DAMAGED.format(error))
        return table
    return columns_of_cells(everything) if everything else table


def _measured_name(record: Record) -> MeasuredName:
    return (record.op_type, record.op_name, str(record.io), record.slot)


def _form(record: Record) -> tuple[str, str]:
    return record.dtype, "x".join(map(str, record.shape))


def _measured(records: list[Record] | tuple[Record, ...], fault: Fault) -> Iterator[_Row]:
    for record in records:
        form, statistics = ("", ""), {}
        try:
            form = _form(record)
            measurements = record.stats
            # statistics that a row lacks were not requested, and are not measured either
            names = measurements.saved or CATEGORIES
            statistics = {name: measurements[name] for name in names}
        except (DumpReadError, FormatError) as error:
            fault(str(error))
        yield _measured_name(record), record.timestamp, form, statistics


_Key = tuple[OperatorKey, str, int]
"""Key of a tensor: operator, input or output, slot."""

_SMALLEST: Final = frozenset({"min"})
_REAL: Final = ("max", "min", "avg", "l2norm")
_NAN, _INF, _NEGATIVE_INF = "nan count", "positive inf count", "negative inf count"


class TensorState(enum.IntFlag):
    """Special contents of a tensor."""

    THERE = 1
    """It was dumped."""
    NAN = 2
    INF = 4
    NEGATIVE_INF = 8


STRUCK: Final = int(TensorState.NAN | TensorState.INF)
"""The states of a tensor that counts as struck; -inf alone, with which attention is masked, does not."""


@dataclass(frozen=True, slots=True)
class ReportedTensor:
    """An input or output of an operator.

    Attributes:
        operator: Place of its operator in the list.
        io: Input or output.
        slot: Its number.
        dtype: Element type, "" where it is not known.
        shape: Its shape, ``2x3``; "" of a scalar.
        is_shown: Whether it stands for itself: outputs, and inputs that no operator of the dump wrote.
    """

    operator: int
    io: IO
    slot: int
    dtype: str
    shape: str
    is_shown: bool


@dataclass(frozen=True)
class StatisticSeries:
    """The statistics of tensors over iterations.

    Attributes:
        iterations: Numbers of the iterations, the columns of the tables.
        tensors: The tensors, the rows of the tables: operator by operator in the order of execution.
        states: ``TensorState`` of each tensor in each iteration, uint8.
        numbers: The statistics by category, float64; NaN where there is none. Of an operator that ran
            several times in an iteration the largest, for ``min`` the smallest, counts are added.
    """

    iterations: tuple[int, ...]
    tensors: tuple[ReportedTensor, ...]
    states: np.ndarray = field(repr=False)
    numbers: Mapping[str, np.ndarray] = field(repr=False)

    def of_operators(self, count: int) -> np.ndarray:
        """Return the states of operators by their outputs, or by their inputs if no output was dumped."""
        states = np.zeros((count, len(self.iterations)), np.uint8)
        for number, tensor in enumerate(self.tensors):
            if tensor.is_shown and (tensor.io is IO.OUTPUT or not states[tensor.operator].any()):
                states[tensor.operator] |= self.states[number]
        return states


def spans(numbers: Sequence[int]) -> str:
    """Return numbers in words.

    >>> spans([0, 1, 2, 5])
    '0-2, 5'
    """
    return str(IterationSet.of_numbers(numbers)).replace("|", ", ")


class SeriesTable:
    """Statistics as the directories of a dump give them, one after the other."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[_Key, int] = {}
        self._forms: list[tuple[str, str]] = []
        self._columns: dict[int, int] = {}
        self._parts: list[tuple[int, np.ndarray, Mapping[str, np.ndarray], np.ndarray]] = []

    def add(self, folder: DumpedFolder, measured: MeasuredColumns) -> None:
        """Take in the tensors of a directory."""
        column = self._columns.setdefault(folder.number, len(self._columns))
        keys = (
            ((folder.rank, folder.place, op_type, op_name), io, slot)
            for op_type, op_name, io, slot in measured.names
        )
        rows = np.fromiter(map(self._number, keys), np.int64, len(measured.names))
        known = len(self._forms)
        self._forms += [("", "")] * (len(self._numbers) - known)
        if known < len(self._forms) or not all(self._forms[row][0] for row in rows.tolist()):
            for row, form in zip(rows.tolist(), measured.forms, strict=True):
                if not self._forms[row][0]:
                    self._forms[row] = form
        self._parts.append((column, rows, measured.numbers, _states(measured)))

    def _number(self, key: _Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def of(self, operators: Sequence[ReportedOperator]) -> StatisticSeries:
        """Return the series of the tensors of some operators."""
        places = {operator.key: number for number, operator in enumerate(operators)}
        written = {(places[key], slot) for key, io, slot in self._numbers if io == IO.OUTPUT}
        writers = {operator for operator, _ in written}
        tensors, old = [], []
        for (key, io, slot), number in self._numbers.items():
            place = places[key]
            is_shown = io == IO.OUTPUT or _is_own(operators[place], slot, has_output=place in writers)
            tensors.append(ReportedTensor(place, IO(io), slot, *self._forms[number], is_shown))
            old.append(number)
        order = sorted(
            range(len(tensors)),
            key=lambda each: (tensors[each].operator, tensors[each].io is IO.INPUT, tensors[each].slot),
        )
        new_of_old = np.empty(len(order), np.int64)
        new_of_old[[old[each] for each in order]] = np.arange(len(order))
        return self._assembled(tuple(tensors[each] for each in order), new_of_old)

    def _assembled(self, tensors: tuple[ReportedTensor, ...], rows: np.ndarray) -> StatisticSeries:
        iterations = sorted(self._columns)
        places = {self._columns[number]: place for place, number in enumerate(iterations)}
        states = np.zeros((len(tensors), len(iterations)), np.uint8)
        there = {category for _, _, numbers, _ in self._parts for category in numbers}
        tables = {category: np.full(states.shape, np.nan) for category in CATEGORIES if category in there}
        for column, old_rows, numbers, part_states in self._parts:
            place, new_rows = places[column], rows[old_rows]
            np.bitwise_or.at(states[:, place], new_rows, part_states)
            for category, values in numbers.items():
                _put(category, tables[category][:, place], new_rows, values)
        return StatisticSeries(tuple(iterations), tensors, states, tables)


def _is_own(operator: ReportedOperator, slot: int, *, has_output: bool) -> bool:
    """Return whether an input is shown nowhere else: a weight, overwritten in place, or the only tensor."""
    if not has_output or slot in written_inputs(operator.op_type):
        return True
    sources = () if operator.described is None else operator.described.inputs
    return slot < len(sources) and sources[slot].kind is not SourceKind.OPERATOR


def _put(category: str, table: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Put values into a column; of one row several are joined, and a number stays beside no number."""
    if category in _SMALLEST:
        np.fmin.at(table, rows, values)
    elif category.endswith("count"):
        is_known = ~np.isnan(values)
        rows, values = rows[is_known], values[is_known]
        table[rows[np.isnan(table[rows])]] = 0
        np.add.at(table, rows, values)
    else:
        np.fmax.at(table, rows, values)


def _states(measured: MeasuredColumns) -> np.ndarray:
    states = np.full(len(measured.names), TensorState.THERE, np.uint8)
    numbers, known = measured.numbers, measured.known

    def mark(flag: TensorState, is_so: np.ndarray) -> None:
        states[is_so] |= np.uint8(flag)

    for category in _REAL:
        if category in numbers:
            mark(TensorState.NAN, np.isnan(numbers[category]) & known[category])
    if "max" in numbers:
        mark(TensorState.INF, numbers["max"] == np.inf)
    if "min" in numbers:
        mark(TensorState.NEGATIVE_INF, numbers["min"] == -np.inf)
    counted = ((_NAN, TensorState.NAN), (_INF, TensorState.INF), (_NEGATIVE_INF, TensorState.NEGATIVE_INF))
    for category, flag in counted:
        if category in numbers:
            mark(flag, np.nan_to_num(numbers[category]) > 0)
    return states
