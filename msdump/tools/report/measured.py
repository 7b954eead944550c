"""What is known of the tensors of directories: rows of statistics, and what files without one measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.errors import DumpReadError, FormatError
from msdump.store.layouts import STATISTICS as TABLE
from msdump.store.read.cells import Cell
from msdump.store.read.measured.records import without_file
from msdump.store.read.reader import open_iteration
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools import trend
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.mapping.sizes import directory_size
from msdump.tools.report import columns
from msdump.tools.report.columns import Fault, MeasuredColumns, MeasuredName

_Row = tuple[MeasuredName, int, tuple[str, str], Mapping[str, Cell]]

_DAMAGED: Final = "{}; what can be read of it is shown"


Stamp = tuple[int, int, int]
"""When a directory and its table of statistics changed last, and the size of the table."""

DirectoryContent = tuple[MeasuredColumns, tuple[str, ...]]
"""The tensors of a directory, and what cannot be read of them."""

KnownDirectories = dict[str, tuple[Stamp, DirectoryContent]]
"""What directories held when they were read, by path."""


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


def of_directories(
    root: str,
    directories: Sequence[Iteration],
    known: KnownDirectories | None = None,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
) -> Iterator[DirectoryContent]:
    """Yield what each directory holds, of its last execution that is whole.

    Args:
        root: Path of the dump that they are of.
        directories: The directories.
        known: What directories held before: one that has not changed since is not read again.
        executor: Who reads them.
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
    return mapper.each(
        _content,
        # copies: what they list is given back with them, however many there are
        (_Directory(each.path, replace(each)) for each in directories),
        size=lambda each: directory_size(each.path),
        executor=executor,
        name=lambda each: each.path,
        paths=(root,),
    )


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory, which travels to another process with its path and is opened there.

    Attributes:
        path: Its path.
        iteration: What it is, None where it has gone.
    """

    path: str
    iteration: Iteration | None

    def __reduce__(self) -> tuple[Callable[..., _Directory], tuple[object, ...]]:
        which = () if self.iteration is None else (self.iteration.run, self.iteration.chosen)
        return _reopened, (self.path, *which)


def _reopened(path: str, run: int = 0, chosen: int | None = None) -> _Directory:
    try:
        return _Directory(path, open_iteration(path, run, chosen))
    except DumpReadError:
        return _Directory(path, None)


def _content(directory: _Directory) -> DirectoryContent:
    """Return what a directory holds; runs in a process of its own."""
    if directory.iteration is None:
        return MeasuredColumns(), (f"{directory.path}: is no directory of tensors any more",)
    faults: dict[str, None] = {}
    return _read(directory.iteration, faults.setdefault), tuple(faults)


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
