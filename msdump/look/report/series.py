"""Statistics of all tensors over the iterations, losses and gradient norms among them; histograms."""

from __future__ import annotations

import enum
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.graph import written_inputs
from msdump.look import DumpedFolder, watching
from msdump.look.query import NOTHING, sections
from msdump.look.report.operators import OperatorKey, ReportedOperator
from msdump.read import Cell, Iteration, MeasuredRecord, OperatorGraph, Record, SourceKind, check_whole
from msdump.record import IO
from msdump.selector import IterationSet
from msdump.statistics import STATISTICS, Nature
from msdump.store import STATISTICS as TABLE
from msdump.watch import Role, subject

Fault = Callable[[str], None]
"""Receives a message for each file that cannot be read."""

MeasuredName = tuple[str, str, str, int]
"""Key of a tensor in files: operator type and name, input or output, slot."""

CATEGORIES: Final = tuple(each.category for each in STATISTICS if each.nature is not Nature.DIGEST)
"""The statistics that are numbers, by the names of ``statistic_category``."""

_CATEGORY: Final = {each.title: each.category for each in STATISTICS if each.nature is not Nature.DIGEST}
_NAMES: Final = ("Op Type", "Op Name", "IO", "Slot")
_TRUTHS: Final[Mapping[Cell, float]] = {"True": 1.0, "False": 0.0}


class TensorState(enum.IntFlag):
    """Special contents of a tensor."""

    THERE = 1
    """It was dumped."""
    NAN = 2
    INF = 4
    NEGATIVE_INF = 8

    @property
    def words(self) -> list[str]:
        """The special values of the tensor: "NaN", "inf", "-inf"."""
        words = {TensorState.NAN: "NaN", TensorState.INF: "inf", TensorState.NEGATIVE_INF: "-inf"}
        return [word for flag, word in words.items() if flag in self]


STRUCK: Final = int(TensorState.NAN | TensorState.INF)
"""Bits of states that count as faulty: NaN and inf, not -inf, with which attention is masked."""

_HAS_FLAG: Final[Mapping[str, tuple[TensorState, Callable[[np.ndarray], np.ndarray]]]] = {
    **dict.fromkeys(("max", "min", "avg", "l2norm"), (TensorState.NAN, np.isnan)),
    "nan count": (TensorState.NAN, lambda counts: counts > 0),
    "positive inf count": (TensorState.INF, lambda counts: counts > 0),
    "negative inf count": (TensorState.NEGATIVE_INF, lambda counts: counts > 0),
}
"""By category: a state, and the test of the statistic's numbers for it."""

_INFINITE: Final = {"max": (TensorState.INF, np.inf), "min": (TensorState.NEGATIVE_INF, -np.inf)}


@dataclass(frozen=True, slots=True)
class MeasuredColumns:
    """Tensors of one directory and their statistics, column by column."""

    names: Sequence[MeasuredName]  # keys of the tensors
    times: Sequence[int]  # microseconds since the epoch, 0 where it is not known
    forms: Sequence[tuple[str, str]]  # element type and shape of each, ("float32", "2x3")
    # the statistics by category, float64; NaN also for a statistic that was not computed
    numbers: Mapping[str, np.ndarray]
    states: np.ndarray  # TensorState of each, uint8


def _measured_columns(
    names: Sequence[MeasuredName],
    times: Sequence[int],
    forms: Sequence[tuple[str, str]],
    cells: Mapping[str, Sequence[Cell]],
    fault: Fault = lambda _: None,
) -> MeasuredColumns:
    """Return columns of tensors; ``cells`` are the statistics by category, as numbers or texts of numbers.

    ``fault`` gets a message for each other text.
    """
    numbers = {}
    states = np.full(len(names), TensorState.THERE, np.uint8)
    for category, column in cells.items():
        numbers[category], is_known = _numbers(column)
        for cell in dict.fromkeys(column[each] for each in np.flatnonzero(~is_known).tolist()):
            if isinstance(cell, str) and cell not in NOTHING:
                fault(f"{category} is {cell[:40]!r}, no number; it is left out")
        if category in _HAS_FLAG:
            flag, has_flag = _HAS_FLAG[category]
            states[has_flag(numbers[category]) & is_known] |= np.uint8(flag)
        if category in _INFINITE:
            flag, infinity = _INFINITE[category]
            states[numbers[category] == infinity] |= np.uint8(flag)
    return MeasuredColumns(names, times, forms, numbers, states)


def _numbers(column: Sequence[Cell]) -> tuple[np.ndarray, np.ndarray]:
    """Return cells as float64, NaN for cells that are not numbers, and a mask of the cells that are."""
    try:
        return np.fromiter(map(float, column), np.float64, len(column)), np.ones(len(column), np.bool_)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        numbers = [*map(_number, column)]
    values = [np.nan if number is None else number for number in numbers]
    return np.array(values), np.array([number is not None for number in numbers])


def _number(cell: Cell) -> float | None:
    try:
        return float(_TRUTHS.get(cell, cell))  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond float64
        return math.copysign(math.inf, int(cell))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # null, or another text
        return None


def read_table(path: str, fault: Fault) -> list[MeasuredColumns]:
    """Return the rows of a ``statistic.csv``; rows that do not fit their titles are reported and left out.

    Rows below other titles, of a later run with other statistics, are columns of their own.
    """
    return [part for titles, rows in sections(path, fault) for part in _columns(titles, rows, path, fault)]


def _columns(
    titles: Sequence[str], rows: Sequence[list[str]], path: str, fault: Fault
) -> Iterator[MeasuredColumns]:
    """Yield the tensors of the rows below a line of titles; nothing if a required column is missing."""
    columns = dict(zip(titles, zip(*rows, strict=True), strict=True))
    if any(title not in columns for title in _NAMES):
        fault(f"{path}: lacks a column of {', '.join(_NAMES)}; its rows are left out")
        return
    nothing = ("",) * len(rows)
    shape_column = columns.get("Shape", nothing)
    shown = {shape: shape.strip("()").replace(",", "x") for shape in {*shape_column}}
    sides, types = (map(str.lower, columns.get(title, nothing)) for title in ("IO", "Data Type"))
    yield _measured_columns(
        [*zip(columns["Op Type"], columns["Op Name"], sides, map(_whole, columns["Slot"]), strict=True)],
        [*map(_whole, columns.get("Timestamp", nothing))],
        [*zip(types, map(shown.__getitem__, shape_column), strict=True)],
        {_CATEGORY[title]: column for title, column in columns.items() if title in _CATEGORY},
        lambda message: fault(f"{path}: {message}"),
    )


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(1 << 63)) else 0


_Row = tuple[MeasuredName, int, tuple[str, str], Mapping[str, Cell]]


def _columns_of_rows(rows: Iterable[_Row]) -> list[MeasuredColumns]:
    """Return tensors as columns, in a list; nothing where there are none."""
    given = [*rows]
    if not given:
        return []
    names, times, forms, statistics = (list(each) for each in zip(*given, strict=True))
    cells = {category: [row.get(category) for row in statistics] for category in CATEGORIES}
    known = {
        category: column
        for category, column in cells.items()
        if any(isinstance(cell, int | float) for cell in column)
    }
    return [_measured_columns(names, times, forms, known)]


DirectoryContent = tuple[list[MeasuredColumns], tuple[str, ...]]
"""Tensors of a directory in tables, and messages about files that cannot be read."""


def read_directories(
    root: str, directories: Iterable[Iteration], executor: ExecutorChoice
) -> Iterator[DirectoryContent]:
    """Yield the tensors of each directory, of its last complete execution."""
    return map_items(
        _read_directory,
        map(replace, directories),  # copies, to free their cached lists with them
        size=lambda each: directory_size(each.path),
        executor=executor,
        name=lambda each: each.path,
        paths=(root,),
    )


def _read_directory(directory: Iteration) -> DirectoryContent:
    """Return the tensors of a directory.

    A table of statistics with one row for each tensor is taken unchanged. If tensors have several rows,
    passes of loops and executions are separated first.
    """
    faults: dict[str, None] = {}
    path = f"{directory.path}/{TABLE}"
    table = read_table(path, faults.setdefault) if os.path.isfile(path) else []
    listed = [name for part in table for name in part.names]
    names = {*listed}
    try:
        if names and len(names) == len(listed):
            check_whole(directory.tensor_files, names, directory.path)
            filed = [each for each in directory.tensor_files if _measured_name(each) not in names]
            table = [*table, *_columns_of_rows(_measured(filed, faults.setdefault))]
        else:  # acl: operators may have rows of statistics in place of tensor files
            of_operators = (
                (_measured_name(each), each.timestamp, _form(each), each.stats.saved)
                for each in directory.measured_operators
            )
            rows = [*_measured(directory.tensors, faults.setdefault), *of_operators]
            table = _columns_of_rows(rows) or table
    except DumpReadError as error:
        faults[f"{error}; the readable part is shown"] = None
    return table, tuple(faults)


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
            # of a row only the saved statistics: others were not requested, and are not measured
            names = measurements.saved or CATEGORIES
            statistics = {name: measurements[name] for name in names}
        except (DumpReadError, FormatError) as error:
            fault(str(error))
        yield _measured_name(record), record.timestamp, form, statistics


_Key = tuple[OperatorKey, str, int]
"""Key of a tensor: operator, input or output, slot."""


@dataclass(frozen=True, slots=True)
class ReportedTensor:
    """An input or output of an operator."""

    operator: int  # place of its operator in the list
    io: IO
    slot: int
    dtype: str  # element type, "" where it is not known
    shape: str  # its shape, 2x3; "" of a scalar
    is_shown: bool  # whether it is listed: outputs, and inputs that are not another operator's dumped output


@dataclass(frozen=True)
class StatisticSeries:
    """The statistics of tensors over iterations.

    Attributes:
        iterations: Numbers of the iterations, the columns of the tables.
        tensors: The tensors, the rows of the tables: operator by operator in the order of execution.
        states: ``TensorState`` of each tensor in each iteration, uint8.
        numbers: The statistics by category, float64; NaN for none. If an operator ran several times in an
            iteration: the smallest ``min``, sums of counts, the largest of all others.
    """

    iterations: tuple[int, ...]
    tensors: tuple[ReportedTensor, ...]
    states: np.ndarray = field(repr=False)
    numbers: Mapping[str, np.ndarray] = field(repr=False)

    def of_operators(self, count: int) -> np.ndarray:
        """Return the state of each operator (rows) in each iteration: of its outputs, else of its inputs."""
        states = np.zeros((count, len(self.iterations)), np.uint8)
        for number, tensor in enumerate(self.tensors):
            if tensor.is_shown and (tensor.io is IO.OUTPUT or not states[tensor.operator].any()):
                states[tensor.operator] |= self.states[number]
        return states


def spans(numbers: Iterable[int]) -> str:
    """Return numbers in words.

    >>> spans([0, 1, 2, 5])
    '0-2, 5'
    """
    return str(IterationSet.of_numbers(numbers)).replace("|", ", ")


class SeriesTable:
    """Statistics as the directories of a dump give them, one after the other."""

    def __init__(self) -> None:
        """Begin without tensors."""
        self._numbers: dict[_Key, int] = {}
        self._forms: list[tuple[str, str]] = []
        self._columns: dict[int, int] = {}
        self._parts: list[tuple[int, np.ndarray, Mapping[str, np.ndarray], np.ndarray]] = []

    def add(self, folder: DumpedFolder, parts: Iterable[MeasuredColumns]) -> None:
        """Add the tensors of a directory."""
        column = self._columns.setdefault(folder.number, len(self._columns))
        for part in parts:
            rows = []
            for (op_type, op_name, io, slot), form in zip(part.names, part.forms, strict=True):
                key = ((folder.rank, folder.place, op_type, op_name), io, slot)
                row = self._numbers.setdefault(key, len(self._numbers))
                if row == len(self._forms):
                    self._forms.append(form)
                elif not self._forms[row][0]:
                    self._forms[row] = form
                rows.append(row)
            self._parts.append((column, np.array(rows, np.int64), part.numbers, part.states))

    def of(self, operators: Sequence[ReportedOperator]) -> StatisticSeries:
        """Return the series of the tensors of some operators."""
        places = {operator.key: number for number, operator in enumerate(operators)}
        written = {(places[key], slot) for key, io, slot in self._numbers if io == IO.OUTPUT}
        writers = {operator for operator, _ in written}
        tensors, old = [], []
        for (key, io, slot), number in self._numbers.items():
            place = places[key]
            # listed inputs: weights, overwritten ones, and inputs of operators without outputs
            described = operators[place].described
            sources = () if described is None else described.inputs
            is_read = slot < len(sources) and sources[slot].kind is not SourceKind.OPERATOR
            is_written = slot in written_inputs(operators[place].op_type)
            is_shown = io == IO.OUTPUT or place not in writers or is_written or is_read
            tensors.append(ReportedTensor(place, IO(io), slot, *self._forms[number], is_shown))
            old.append(number)
        order = sorted(
            range(len(tensors)),
            key=lambda each: (tensors[each].operator, tensors[each].io is IO.INPUT, tensors[each].slot),
        )
        rows = np.empty(len(order), np.int64)  # new ones by old ones
        rows[[old[each] for each in order]] = np.arange(len(order))
        iterations = sorted(self._columns)
        columns = {self._columns[number]: place for place, number in enumerate(iterations)}
        states = np.zeros((len(tensors), len(iterations)), np.uint8)
        there = {category for _, _, numbers, _ in self._parts for category in numbers}
        tables = {category: np.full(states.shape, np.nan) for category in CATEGORIES if category in there}
        for column, old_rows, numbers, part_states in self._parts:
            place, new_rows = columns[column], rows[old_rows]
            np.bitwise_or.at(states[:, place], new_rows, part_states)
            for category, values in numbers.items():
                table = tables[category][:, place]  # of several values of a row: smallest, sum or largest
                if category.endswith("count"):
                    is_known = ~np.isnan(values)
                    known = new_rows[is_known]
                    table[known[np.isnan(table[known])]] = 0
                    np.add.at(table, known, values[is_known])
                else:
                    (np.fmin if category == "min" else np.fmax).at(table, new_rows, values)
        return StatisticSeries(tuple(iterations), tuple(tensors[each] for each in order), states, tables)


_MOST_INPUTS: Final = 16  # inputs of an optimizer that are searched for the gradient


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """A curve of a training, such as the loss, over its iterations.

    Attributes:
        name: "loss" or "gradient norm".
        rank: Number of the rank.
        of: The operator of the loss; how many gradients the norm is of.
        values: By iteration; NaN where nothing was dumped.
    """

    name: str
    rank: int
    of: str
    values: tuple[float, ...]


def training_curves(
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    graphs: Mapping[tuple[int, str], OperatorGraph],
) -> Iterator[TrainingCurve]:
    """Yield the losses, then by rank the norm of all gradients that optimizers read."""
    table = next((series.numbers[name] for name in ("avg", "max", "min") if name in series.numbers), None)
    for row, tensor in enumerate(series.tensors):
        operator = operators[tensor.operator]
        if table is None or tensor.io is not IO.OUTPUT:
            continue
        graph = graphs.get((operator.rank, operator.place))
        is_loss = watching.is_loss_output(graph, operator.described, tensor.slot)
        roles = subject(operator.op_type, operator.name, tensor.io, tensor.slot, is_loss=is_loss).roles
        # without a graph file only the shape distinguishes the loss from the second output, a gradient
        if Role.LOSS in roles and (is_loss or tensor.shape in {"", "1"}):
            yield TrainingCurve("loss", operator.rank, operator.name, tuple(table[row].tolist()))
    if "l2norm" not in series.numbers:
        return
    rows = {(each.operator, each.io, each.slot): row for row, each in enumerate(series.tensors)}
    by_rank: dict[int, list[int]] = {}
    for place, operator in enumerate(operators):
        slot = _gradient_slot(operator.op_type)
        if slot is None:
            continue
        gradient = rows.get((place, IO.INPUT, slot))  # else the output of the operator that writes it
        sources = () if operator.described is None else operator.described.inputs
        if gradient is None and slot < len(sources) and sources[slot].kind is SourceKind.OPERATOR:
            writers = (each for each in operator.reads if operators[each].name == sources[slot].name)
            gradient = next((rows.get((each, IO.OUTPUT, sources[slot].slot)) for each in writers), None)
        if gradient is not None:
            by_rank.setdefault(operator.rank, []).append(gradient)
    for rank, members in by_rank.items():
        known = series.numbers["l2norm"][members]
        sums = np.sqrt(np.nansum(known**2, axis=0))
        is_unknown = np.isnan(known)  # of a dumped tensor: NaN
        sums[is_unknown.all(axis=0) | (is_unknown & (series.states[members] > 0)).any(axis=0)] = np.nan
        yield TrainingCurve("gradient norm", rank, f"{len(members)} gradients", tuple(sums.tolist()))


@functools.cache
def _gradient_slot(op_type: str) -> int | None:
    slots = range(_MOST_INPUTS)
    return next((slot for slot in slots if Role.GRADIENT in subject(op_type, "", IO.INPUT, slot).roles), None)


_BINS: Final = 48
_SAMPLED: Final = 1 << 20  # elements of a tensor that are counted at most


@dataclass(frozen=True, slots=True)
class TensorHistogram:
    """The elements of a tensor in bins of equal width.

    Attributes:
        operator: Place of its operator in the list.
        tensor: Which, ``output:0``.
        iteration: Number of the iteration.
        low: Where the first bin begins.
        high: Where the last bin ends.
        counts: Number of elements in each bin, of the finite ones.
        golden: The same of golden's tensor, in the same bins; none where there is none.
        sampled: Number of elements that were counted.
        size: Number of elements that there are.
        nonfinite: Number of counted elements that are NaN or infinite.
    """

    operator: int
    tensor: str
    iteration: int
    low: float
    high: float
    counts: tuple[int, ...]
    golden: tuple[int, ...]
    sampled: int
    size: int
    nonfinite: int


def operator_histograms(
    operator: int, names: tuple[str, ...], directory: Iteration, golden: Iteration | None, fault: Fault
) -> Iterator[TensorHistogram]:
    """Yield the histograms of an operator's outputs in an iteration; none where only statistics were saved.

    Names are full and as files spell them; ``golden`` is the same iteration of the golden dump.
    """
    try:
        records = _outputs(directory, names)
        others = {} if golden is None else {each.slot: each for each in _outputs(golden, names)}
        for record in records:
            mine = _elements(record)
            if mine is None:
                continue
            values, size = mine
            finite = values[np.isfinite(values)]
            other = None if record.slot not in others else _elements(others[record.slot])
            golden_finite = np.empty(0) if other is None else other[0][np.isfinite(other[0])]
            both = np.concatenate((finite, golden_finite))
            low, high = (float(both.min()), float(both.max())) if both.size else (0.0, 0.0)
            span = (low, high) if np.isfinite(high - low) else (low / 2, high / 2)
            counts, in_golden = (
                tuple(np.histogram(each, _BINS, span)[0].tolist()) if both.size else (0,) * _BINS
                for each in (finite, golden_finite)
            )
            yield TensorHistogram(
                operator,
                f"{record.io}:{record.slot}",
                directory.number,
                *span,
                counts,
                () if other is None else in_golden,
                values.size,
                size,
                values.size - finite.size,
            )
    except (DumpReadError, FormatError) as error:
        fault(str(error))


def _outputs(directory: Iteration, names: tuple[str, ...]) -> list[Record]:
    records = next(filter(None, (directory.tensors_of(name) for name in names)), ())
    kept = [each for each in records if not isinstance(each, MeasuredRecord)]
    last = {(each.io, each.slot): each for each in kept}  # the last pass of a loop replaces earlier ones
    outputs = [each for (io, _), each in last.items() if io == "output"]
    return outputs or [*last.values()]


def _elements(record: Record) -> tuple[np.ndarray, int] | None:
    """Return a sample of a tensor's elements as float64, and their number; None if empty, text or complex."""
    array = watching.elements(record)
    is_small_float = dtypes.from_numpy(array.dtype).name.startswith(("bfloat", "float", "hifloat"))
    if not array.size or (array.dtype.kind in "SUOcV" and not is_small_float):
        return None
    step = -(-array.size // _SAMPLED)
    sample = array.reshape(-1)[::step]
    return dtypes.widen(sample, dtypes.from_numpy(sample.dtype)).astype(np.float64), array.size
