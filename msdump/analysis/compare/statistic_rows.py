"""The statistics of the tensors in a directory, read from tables or measured, and their counterparts."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.analysis.align import (
    INPUTS,
    GraphSide,
    IdentifiedTensors,
    Identities,
    MatchedNames,
    TensorContent,
    identities_of,
)
from msdump.capture import Statistics
from msdump.dtypes import DType
from msdump.encode import statistic_csv
from msdump.errors import DumpReadError, FormatError
from msdump.plan import DeviceTarget, Naming, StatisticSpec
from msdump.read import (
    Cell,
    MeasuredRecord,
    OperatorGraph,
    Record,
    SourceKind,
    of_rows,
    open_iteration,
    ordinals,
    read_cell,
    read_shape,
)
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import BY_CATEGORY, STATISTICS
from msdump.store import STATISTICS as TABLE
from msdump.store import STYLES, sanitize

Place = tuple[str, IO, int, int]
"""The tensor of a row: operator as files spell it, input or output, its number, the operator's pass."""


@dataclass(frozen=True, slots=True)
class StatisticRow:
    """The statistics of a tensor.

    Attributes:
        place: The tensor.
        op_type: Type of its operator.
        time: Microseconds since the epoch, 0 where it is not known.
        dtype: Element type, in this package's name where it has one.
        shape: Shape, None where it is not known.
        cells: The computed statistics by category.
    """

    place: Place
    op_type: str
    time: int
    dtype: str
    shape: tuple[int, ...] | None
    cells: Mapping[str, Cell]

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight, a graph input or a constant that was dumped by itself."""
        return self.op_type in INPUTS


@dataclass(frozen=True, slots=True)
class RowSide:
    """The rows of one directory.

    Attributes:
        rows: Rows by the tensor that they measure, in the order of the execution.
        execution: Number of the execution.
        executions: Number of executions that left something in the directory.
        is_of_tensors: Whether tensors were measured for them, as the directory has no rows.
        is_compiled: Whether they are of a graph that was compiled as a whole.
        unreadable: Tensors with a file that cannot be read, and why.
    """

    rows: Mapping[Place, StatisticRow] = field(default_factory=dict)
    execution: int = 0
    executions: int = 1
    is_of_tensors: bool = False
    is_compiled: bool = False
    unreadable: Mapping[Place, str] = field(default_factory=dict)

    @property
    def faults(self) -> Iterator[str]:
        """Messages about files of tensors that cannot be read."""
        return (f"{name} {io} {slot}: {fault}" for (name, io, slot, _), fault in self.unreadable.items())

    @property
    def categories(self) -> tuple[str, ...]:
        """The statistics of its rows, in the order of their definitions."""
        present = {category for row in self.rows.values() for category in row.cells}
        return tuple(each.category for each in STATISTICS if each.category in present)


def read_rows(path: str, execution: int | None = None) -> RowSide:
    """Return the rows of a directory that are of one execution (None: the last whole one).

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    try:
        iteration = open_iteration(path)
    except DumpReadError:
        if os.path.exists(file := f"{path}/{TABLE}"):
            raise DumpReadError(file, "no rows: nothing was measured") from None
        raise
    if iteration is None:
        return RowSide()
    number = iteration.timeline.last_whole if execution is None else execution
    records = (*of_rows(iteration.execution(number).statistics, iteration), *iteration.measured_operators)
    rows = [
        replace(_row(record, record.dtype, read_shape(record.row.get("Shape"))), cells=_cells(record))
        for record in records
    ]
    count = max(len(iteration.timeline.spans), 1)
    return RowSide(_placed(rows), number, count, is_compiled=iteration.key.model is not None)


def _cells(record: MeasuredRecord) -> dict[str, Cell]:
    return {category: cell for category, cell in record.stats.saved.items() if cell is not None}


def _placed(rows: Iterable[StatisticRow]) -> dict[Place, StatisticRow]:
    rows = sorted(rows, key=lambda row: row.time)
    tensors = [row.place[:3] for row in rows]
    places = [(*tensor, number) for tensor, number in zip(tensors, ordinals(tensors), strict=True)]
    return {place: replace(row, place=place) for place, row in zip(places, rows, strict=True)}


_STYLE: Final = STYLES[Naming.V2_5, DeviceTarget.ASCEND]  # rows have the names of files anyway


def measure_tensors(
    path: str, execution: int | None, spec: StatisticSpec, like: RowSide = RowSide()
) -> RowSide:
    """Return the statistics of the tensors in a directory, in one execution (None: the last whole one).

    Tensors that have a row in ``like`` in the device's shape, as acl measures them, are measured in it
    here, too.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    iteration = open_iteration(path)
    if iteration is None:
        return RowSide()
    number = iteration.timeline.last_whole if execution is None else execution
    measured: dict[Place, StatisticRow] = {}
    unreadable: dict[Place, str] = {}
    statistics = Statistics(spec, _STYLE)
    records = iteration.execution(number).records
    tensors = [(record.op_name, record.io, record.slot) for record in records]
    for tensor, pass_number, record in zip(tensors, ordinals(tensors), records, strict=True):
        place = (*tensor, pass_number)
        try:
            row = _measured(statistics, spec, record, like.rows[place].shape if place in like.rows else None)
        except (DumpReadError, FormatError) as error:
            row, unreadable[place] = _row(record, "", None), str(error)
        if row is not None:
            measured[place] = replace(row, place=place)
    count = max(len(iteration.timeline.spans), 1)
    is_compiled = iteration.key.model is not None
    return RowSide(measured, number, count, True, is_compiled, unreadable)


def _measured(
    statistics: Statistics, spec: StatisticSpec, record: Record, shape: tuple[int, ...] | None
) -> StatisticRow | None:
    """Return the statistics of a tensor, in a shape or in that on the host.

    None where it has none: no elements, text, complex numbers.
    """
    array, dtype = _elements(record, shape)
    operator = OperatorRef(record.op_type, record.op_name)
    tensor = TensorRecord(operator, record.io, record.slot, dtype, array, record.timestamp)
    numbers = statistics.measure(tensor)
    if numbers is None:
        return None
    cells = {
        category: read_cell(BY_CATEGORY[category].title, statistic_csv.text(number))
        for category, number in zip(spec.categories, numbers, strict=True)
    }
    found = {category: cell for category, cell in cells.items() if cell is not None}
    return replace(_row(record, dtype.name, array.shape), cells=found)


def _row(record: Record, dtype: str, shape: tuple[int, ...] | None) -> StatisticRow:
    place = (record.op_name, record.io, record.slot, 0)
    return StatisticRow(place, record.op_type, record.timestamp, dtype, shape, {})


def _elements(record: Record, shape: tuple[int, ...] | None) -> tuple[np.ndarray, DType]:
    """Return a tensor's elements in their original type, in the device's layout if that has the shape."""
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


def find_counterparts(
    dumped: RowSide, golden: RowSide, mine: OperatorGraph | None, theirs: OperatorGraph | None
) -> tuple[Mapping[Place, StatisticRow], MatchedNames]:
    """Return the golden row of each row, by its place, and the operators that belong together.

    The graphs of both sides decide, or else names.
    """
    if mine is not None and theirs is not None:
        shared = tuple(each for each in dumped.categories if each in golden.categories)
        sides = _RowContents(mine, dumped, shared), _RowContents(theirs, golden, shared)
        identities = identities_of(*(each.graph_side() for each in sides))
        if identities.matched.partners is not None:
            return _paired(dumped, golden, identities), identities.matched
    return golden.rows, MatchedNames()


def _paired(dumped: RowSide, golden: RowSide, identities: Identities) -> dict[Place, StatisticRow]:
    known: IdentifiedTensors[StatisticRow] = IdentifiedTensors()
    for row in golden.rows.values():
        name, io, slot, _ = row.place
        known.add(identities.golden(sanitize(name), io, slot), io, row)
    asked = (
        (place, known.counterpart(identities.dumped, sanitize(place[0]), place[1], place[2]))
        for place in dumped.rows
    )
    return {place: row for place, row in asked if row is not None}


class _RowContents:
    """Contents of tensors as far as rows of statistics tell, for the alignment of graphs."""

    def __init__(self, graph: OperatorGraph, side: RowSide, shared: tuple[str, ...]) -> None:
        self._graph = graph
        self._shared = shared
        self._rows = {(sanitize(row.place[0]), *row.place[1:]): row for row in side.rows.values()}
        self._readers = {
            source.name: (sanitize(operator.full_name), IO.INPUT, slot, 0)
            for operator in graph.operators.values()
            for slot, source in enumerate(operator.inputs)
            if source.kind is SourceKind.WEIGHT
        }

    def graph_side(self) -> GraphSide:
        return GraphSide(self._graph, self._digest_of, self._content_of)

    def _digest_of(self, name: str) -> Hashable | None:
        """Return the statistics that stand for the elements of a weight, measured on both sides."""
        row = self._rows.get((sanitize(name), IO.OUTPUT, 0, 0)) or self._rows.get(
            self._readers.get(name, ("", IO.INPUT, 0, 0))
        )
        return None if row is None else self._digest(row)

    def _digest(self, row: StatisticRow) -> Hashable | None:
        cells = tuple(row.cells.get(category) for category in self._shared)
        is_telling = math.prod(row.shape or ()) > 1 and any(cell is not None for cell in cells)
        return (row.shape, cells) if is_telling else None

    def _content_of(self, name: str, slot: int) -> TensorContent | None:
        row = self._rows.get((sanitize(name), IO.OUTPUT, slot, 0))
        if row is None or row.shape is None:
            return None
        norm, largest, smallest = (_float(row.cells.get(each)) for each in ("l2norm", "max", "min"))
        return TensorContent(self._digest(row), math.prod(row.shape), norm, largest, smallest)


def _float(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else math.nan
