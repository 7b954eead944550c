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


Stamp = tuple[int, int, int]
"""When a directory and its table of statistics changed last, and the size of the table."""

KnownDirectories = dict[str, tuple[Stamp, MeasuredColumns, tuple[str, ...]]]
"""What directories held when they were read, by path, and what could not be read."""


def stamp(path: str) -> Stamp:
    """Return what changes when something is written into a directory of tensors."""
    try:
        table = os.stat(f"{path}/{TABLE}")  # noqa: PTH116 - a text
        size, written = table.st_size, table.st_mtime_ns
    except OSError:
        size = written = 0
    try:
        return os.stat(path).st_mtime_ns, written, size  # noqa: PTH116 - a text
    except OSError:  # gone
        return 0, 0, 0


def of_directory(
    directory: Iteration, fault: Fault, known: KnownDirectories | None = None
) -> MeasuredColumns:
    """Return the tensors of a directory, of its last execution that is whole.

    Args:
        directory: The directory.
        fault: Gets what cannot be read.
        known: What directories held before: one that has not changed since is not read again.
    """
    if known is None:
        return _read(directory, fault)
    now = stamp(directory.path)
    before = known.get(directory.path)
    if before is None or before[0] != now:
        faults: list[str] = []
        before = known[directory.path] = (now, _read(directory, faults.append), tuple(faults))
    _, table, told = before
    for message in told:
        fault(message)
    return table


def _read(directory: Iteration, fault: Fault) -> MeasuredColumns:
    """Return the tensors of a directory.

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
