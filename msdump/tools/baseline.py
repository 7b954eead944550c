"""A baseline: the statistics of a dump alone, which a later dump is compared with.

It is a tree of ``statistic.csv`` files with the graphs that they are of: what reads dumps reads it, and a
version control keeps it as text.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from msdump import dtypes
from msdump.encode import statistic_csv
from msdump.errors import FormatError, ToolError
from msdump.plan import StatisticSpec
from msdump.statistics.table import BY_CATEGORY
from msdump.store.layouts import STATISTICS as TABLE
from msdump.store.layouts import PathKind
from msdump.store.read import texts
from msdump.store.read.reader import open_dump
from msdump.tools import reports
from msdump.tools.compare.measured import rows, tensors
from msdump.tools.compare.measured.rows import Place, StatisticRow
from msdump.tools.compare.pairing import dump_folders
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.mapping.sizes import directory_size
from msdump.tools.return_codes import ReturnCode


@dataclass(slots=True)
class Baseline:
    """What a baseline consists of.

    Attributes:
        path: Its directory.
        directories: Number of directories with statistics in it.
        rows: Number of tensors that were measured.
        unreadable: Messages about tensors whose file cannot be read.
    """

    path: str
    directories: int = 0
    rows: int = 0
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _MeasuredDirectory:
    """The statistics of one directory.

    Attributes:
        rows: Those of its tensors.
        unreadable: Messages about tensors whose file cannot be read.
    """

    rows: tuple[StatisticRow, ...]
    unreadable: tuple[str, ...] = ()


def write(
    root: str,
    folder: str,
    categories: Sequence[str],
    *,
    execution: int | None = None,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Baseline:
    """Write the statistics of a dump: rows where it has them, else what its tensors measure.

    Args:
        root: The dump.
        folder: Directory of the baseline; it must not hold anything.
        categories: The statistics to measure; rows keep those that they have.
        execution: Number of the execution, or of the run, where several lie in one path; None: the last one.
        executor: Who measures.
        progress: Called with the bytes of each directory that was measured.

    Raises:
        ToolError: The dump has nothing to measure, or the directory cannot be written to.
        DumpReadError: The dump cannot be read.
    """
    if os.path.isdir(folder) and os.listdir(folder):  # noqa: PTH208
        raise ToolError(ReturnCode.PATH, f"{folder}: holds files already; remove them first")
    baseline = Baseline(folder)
    directories, execution = dump_folders.labelled(root, execution)
    everything = mapper.each(
        partial(_measured, StatisticSpec(tuple(categories)), execution),
        directories.values(),
        size=directory_size,
        executor=executor,
        paths=(root,),
        progress=progress,
    )
    for label, measured in zip(directories, everything, strict=True):
        baseline.unreadable += measured.unreadable
        if measured.rows:
            reports.write(os.path.join(folder, label), TABLE, _lines(measured.rows))  # noqa: PTH118
            baseline.directories += 1
            baseline.rows += len(measured.rows)
    if not baseline.rows:
        raise ToolError(ReturnCode.NO_DUMP_FILE, f"{root}: no tensor that has statistics")
    _keep_graphs(os.path.realpath(root), folder)
    return baseline


def _keep_graphs(root: str, folder: str) -> None:
    """Copy the graph files of a dump, by which operators of other names find theirs in a baseline."""
    for rank in open_dump(root).ranks.values():
        numbers = {number for network in rank.networks.values() for number in network.graphs}
        for number in sorted(numbers):
            path = rank.graph_file(PathKind.IR, number)
            place = "" if path is None else os.path.relpath(os.path.realpath(path), root)
            if path is not None and not place.startswith(os.pardir):
                directory, name = os.path.split(place)
                reports.write_bytes(os.path.join(folder, directory), name, [texts.read_bytes(path)])  # noqa: PTH118


def _measured(spec: StatisticSpec, execution: int | None, path: str) -> _MeasuredDirectory:
    told = rows.read(path, execution).rows
    if told:
        return _MeasuredDirectory(tuple(told.values()))
    side = tensors.measure(path, execution, spec)
    measured = tuple(row for row in side.side.rows.values() if row.cells)
    return _MeasuredDirectory(measured, tuple(_told(path, side.unreadable)))


def _told(path: str, unreadable: dict[Place, str]) -> Iterator[str]:
    for (name, side, slot, _), fault in unreadable.items():
        yield f"{path}: {name} {side} {slot}: {fault}"


def _lines(measured: Iterable[StatisticRow]) -> Iterator[str]:
    """Yield the table of rows; a statistic that a row lacks is ``null``."""
    each = list(measured)
    categories = [name for name in BY_CATEGORY if any(name in row.cells for row in each)]
    yield statistic_csv.header(BY_CATEGORY[name].title for name in categories).decode()
    for row in sorted(each, key=lambda row: row.time):
        line = io.StringIO()
        shape = f"({','.join(map(str, row.shape or ()))})"
        fields = (*_identity(row), _size(row), row.dtype, shape)
        texts = (statistic_csv.text(row.cells.get(name)) for name in categories)
        csv.writer(line, lineterminator="\n").writerow((*fields, *texts))
        yield line.getvalue()


def _identity(row: StatisticRow) -> tuple[object, ...]:
    name, side, slot, _ = row.place
    return (row.op_type, name, 0, 0, row.time, side, slot)


def _size(row: StatisticRow) -> int:
    """Return the bytes of a tensor, 0 where its type is not known."""
    try:
        dtype = dtypes.from_name(row.dtype)
    except FormatError:
        return 0
    return -(-math.prod(row.shape or ()) * dtype.numpy.itemsize // dtype.per_byte)
