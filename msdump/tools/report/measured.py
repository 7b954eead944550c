"""What is known of the tensors of one directory: rows of statistics, and what files without one measure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from msdump.errors import DumpReadError, FormatError
from msdump.store.layouts import STATISTICS as TABLE
from msdump.store.read.cells import Cell
from msdump.store.read.measured.records import without_file
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools import trend
from msdump.tools.report import columns
from msdump.tools.report.columns import Fault, MeasuredColumns, MeasuredName

_Row = tuple[MeasuredName, int, tuple[str, str], Mapping[str, Cell]]

_DAMAGED: Final = "{}; what can be read of it is shown"


def of_directory(directory: Iteration, fault: Fault) -> MeasuredColumns:
    """Return the tensors of a directory, of its last execution that is whole.

    A table of statistics in which every tensor stands once is taken as it is. Where tensors come again,
    the reader tells passes of loops and executions apart.

    Args:
        directory: The directory.
        fault: Gets what cannot be read.
    """
    path = f"{directory.path}/{TABLE}"
    table = columns.read(path, fault) if os.path.isfile(path) else MeasuredColumns()
    try:
        if table.names and not table.has_repeats:
            rows = {*table.names}
            filed = [each for each in directory.tensor_files if _name(each) not in rows]
            return columns.joined([table, columns.of_cells(_measured(filed, fault))])
        everything = [*_measured(directory.tensors, fault), *_of_operators(directory)]
    except DumpReadError as error:
        fault(_DAMAGED.format(error))
        return table
    return columns.of_cells(everything) if everything else table


def _name(record: Record) -> MeasuredName:
    return (record.op_type, record.op_name, str(record.io), record.slot)


def _measured(records: list[Record] | tuple[Record, ...], fault: Fault) -> Iterator[_Row]:
    for record in records:
        form, statistics = ("", ""), {}
        try:
            form = (record.dtype, "x".join(map(str, record.shape)))
            measurements = record.stats
            # what a row of statistics lacks was not asked for, and is not measured either
            names = measurements.saved or columns.CATEGORIES
            statistics = {name: measurements[name] for name in names}
        except (DumpReadError, FormatError) as error:
            fault(str(error))
        yield _name(record), record.timestamp, form, statistics


def _of_operators(directory: Iteration) -> Iterator[_Row]:
    """Yield the rows that stand in for operators' tensors (acl)."""
    rows = [*trend.operator_rows(directory)]
    for record in without_file((), rows, directory, directory.path):
        form = (record.dtype, "x".join(map(str, record.shape)))
        yield _name(record), record.timestamp, form, record.stats.saved
