"""The statistics of the tensors in a directory: rows of ``statistic.csv`` and of acl's csv files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msdump import dtypes
from msdump.encode import dump_enums
from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.statistics.table import STATISTICS
from msdump.store.layouts import STATISTICS as TABLE
from msdump.store.operator_names import OperatorName
from msdump.store.read.cells import Cell, Row
from msdump.store.read.reader import Dump, open_dump
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.rerun.dumped import INPUTS

Place = tuple[str, IO, int, int]
"""The tensor of a row: operator as files spell it, input or output, its number, the operator's pass."""

# vendor: acl's csv files name some of the statistics otherwise.
_CATEGORIES: Final = {
    **{statistic.title: statistic.category for statistic in STATISTICS},
    "Nan Count": "nan count",
    "l2norm": "l2norm",
}


@dataclass(frozen=True, slots=True)
class StatisticRow:
    """The statistics of a tensor.

    Attributes:
        place: The tensor.
        op_type: Type of its operator.
        time: Microseconds since the epoch, 0 where it is not known.
        dtype: Element type, in this package's name where it has one.
        shape: Shape, None where it is not told.
        cells: The statistics by category, those that were computed.
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
        execution: Number of the execution whose rows these are.
        executions: Number of executions that left something in the directory.
        is_of_tensors: Whether tensors were measured for them, as the directory has no rows.
        is_compiled: Whether they are of a graph that was compiled as a whole.
    """

    rows: Mapping[Place, StatisticRow] = field(default_factory=dict)
    execution: int = 0
    executions: int = 1
    is_of_tensors: bool = False
    is_compiled: bool = False

    @property
    def categories(self) -> tuple[str, ...]:
        """The statistics of its rows, in the order of their definitions."""
        present = {category for row in self.rows.values() for category in row.cells}
        return tuple(each.category for each in STATISTICS if each.category in present)


def read(path: str, execution: int | None = None) -> RowSide:
    """Return the rows of a directory, those of one execution; none where it holds tensors alone.

    Args:
        path: A directory of an iteration, or a copy of one.
        execution: Number of the execution, None: the last one that is whole.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    try:
        dump = open_dump(path)
    except DumpReadError:
        if os.path.exists(file := f"{path}/{TABLE}"):
            raise DumpReadError(file, "no rows: nothing was measured") from None
        raise
    iteration = directory(dump)
    if iteration is None:
        return RowSide()
    number = iteration.timeline.last_whole if execution is None else execution
    found = [_of_table(row) for row in iteration.execution(number).statistics]
    for name, table in iteration.operator_statistics.items():
        found += (_of_operator(name, row) for row in table)
    count = max(len(iteration.timeline.spans), 1)
    return RowSide(dict(_placed(found)), number, count, is_compiled=iteration.key.model is not None)


def directory(dump: Dump) -> Iteration | None:
    """Return the directory of tensors that was opened, None where something else was."""
    folders = (*dump.iterations, *dump.constants)
    return next((each for each in folders if each.path == dump.path), None)


def numbered(rows: Iterable[StatisticRow]) -> dict[Place, StatisticRow]:
    """Return rows by their tensor, each with the number of its operator's pass."""
    return dict(_placed(rows))


def _placed(rows: Iterable[StatisticRow]) -> Iterator[tuple[Place, StatisticRow]]:
    counts: Counter[tuple[str, IO, int]] = Counter()
    for row in sorted(rows, key=lambda row: row.time):
        tensor = row.place[:3]
        place = (*tensor, counts[tensor])
        counts[tensor] += 1
        yield place, replace(row, place=place)


def _of_table(row: Row) -> StatisticRow:
    return StatisticRow(
        (str(row.get("Op Name")), _side(row.get("IO")), _number(row.get("Slot")), 0),
        str(row.get("Op Type")),
        _number(row.get("Timestamp")),
        _dtype(row.get("Data Type")),
        shape(row.get("Shape")),
        _cells(row),
    )


def _of_operator(name: OperatorName, row: Row) -> StatisticRow:
    return StatisticRow(
        (name.op_name, _side(row.get("Input/Output")), _number(row.get("Index")), 0),
        name.op_type,
        name.timestamp,
        _dtype(row.get("Data Type")),
        shape(row.get("Shape")),
        _cells(row),
    )


def _cells(row: Row) -> dict[str, Cell]:
    """Return the statistics that were computed, by category."""
    named = ((_CATEGORIES.get(title), cell) for title, cell in row.items())
    return {category: cell for category, cell in named if category is not None and cell is not None}


def _side(cell: Cell) -> IO:
    return IO.INPUT if str(cell).lower() == IO.INPUT else IO.OUTPUT


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0


def shape(cell: Cell) -> tuple[int, ...] | None:
    """Return the shape in a cell, None where it holds none.

    >>> shape("(2,3)"), shape("2x3"), shape("-"), shape("()")
    ((2, 3), (2, 3), (), ())
    """
    sizes = str(cell).strip("()-").replace("x", ",").split(",")
    if cell is None or not all(size.strip().isdecimal() or not size.strip() for size in sizes):
        return None
    return tuple(int(size) for size in sizes if size.strip())


def _dtype(cell: Cell) -> str:
    """Return the name of an element type, also of one that acl calls ``DT_FLOAT``."""
    name = str(cell)
    try:
        if name.startswith(_DUMP_PREFIX):
            return dtypes.from_dump(dump_enums.DATA_TYPES[name.removeprefix(_DUMP_PREFIX)]).name
        return dtypes.from_name(name).name
    except (FormatError, KeyError):
        return name.lower()


_DUMP_PREFIX: Final = "DT_"
