"""A baseline: the statistics of a dump alone, which a later dump is compared with.

It is a tree of ``statistic.csv`` files with the graphs that they are of: readers of dumps read it, and a
version control keeps it as text.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product
from typing import Final

from msdump import dtypes
from msdump.encode import statistic_csv
from msdump.errors import FormatError, ToolError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.judge import reports
from msdump.judge.compare import categories as categories_of
from msdump.judge.compare import measure_tensors, read_rows
from msdump.judge.pair import label_folders
from msdump.plan import StatisticSpec
from msdump.read import Folder, MeasuredRecord, TensorlessFile, open_dump, read_bytes
from msdump.return_codes import ReturnCode
from msdump.statistics import BY_CATEGORY
from msdump.store import STATISTICS as TABLE
from msdump.store import PathKind


@dataclass(slots=True)
class Baseline:
    """The statistics that were kept of a dump.

    Attributes:
        path: Directory of the baseline.
        directories: Number of directories with statistics in it.
        rows: Number of tensors with kept statistics.
        unreadable: Tensors with a file that cannot be read, and why.
    """

    path: str
    directories: int = 0
    rows: int = 0
    unreadable: list[str] = field(default_factory=list)


def write(
    root: str,
    folder: str,
    categories: Sequence[str],
    *,
    execution: int | None = None,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Baseline:
    """Write the statistics of a dump into an empty folder: rows where it has them, else measured ones.

    Args:
        root: The dump.
        folder: Directory of the baseline.
        categories: The statistics to measure; rows keep their own.
        execution: Number of the execution, or of the run; None: the last one.
        executor: Measures the tensors.
        progress: Called with the bytes of each directory that was measured.

    Raises:
        ToolError: The dump has nothing to measure, or the directory cannot be written to.
        DumpReadError: The dump cannot be read.
    """
    reports.check_empty(folder)
    baseline = Baseline(folder)
    directories, execution = label_folders(root, execution)
    everything = map_items(
        partial(_measured, StatisticSpec(tuple(categories)), execution),
        directories.values(),
        size=directory_size,
        executor=executor,
        paths=(root,),
        progress=progress,
    )
    for (label, path), measured in zip(directories.items(), everything, strict=True):
        rows = [each for each in measured.tensors if isinstance(each, MeasuredRecord) and each.cells]
        baseline.unreadable += (
            f"{path}: {each.op_name} {each.io} {each.slot}: {each.fault}"
            for each in measured.tensors
            if isinstance(each, TensorlessFile)
        )
        if rows:
            rows.sort(key=lambda row: row.timestamp)
            known = categories_of(measured)
            titles = statistic_csv.header(BY_CATEGORY[name].title for name in known).decode()
            lines = reports.csv_lines(_cells(row, known) for row in rows)
            reports.write(folder, f"{label}/{TABLE}", chain((titles,), lines))
            baseline.directories += 1
            baseline.rows += len(rows)
    if not baseline.rows:
        raise ToolError(ReturnCode.NO_DUMP_FILE, f"{root}: no tensor that has statistics")
    _keep_graphs(os.path.realpath(root), folder)
    return baseline


def _keep_graphs(root: str, folder: str) -> None:
    """Copy graph files and lists of execution: they align other operator names, and separate executions."""
    for rank in open_dump(root).ranks.values():
        for number, kind in product(rank.compiled_graphs, _KEPT):
            path = rank.graph_file(kind, number)
            place = "" if path is None else os.path.relpath(os.path.realpath(path), root)
            if path is not None and not place.startswith(os.pardir):
                lines = read_bytes(path).splitlines(keepends=True)
                # the rows are of one execution, so that each iteration ran once
                once = dict.fromkeys(lines) if kind is PathKind.ITERATIONS_RUN else lines
                reports.write_bytes(folder, place, once)


_KEPT: Final = (PathKind.IR, PathKind.EXECUTION_ORDER, PathKind.ITERATIONS_RUN)


def _measured(spec: StatisticSpec, execution: int | None, path: str) -> Folder:
    rows = read_rows(path, execution)
    return rows if rows.operators else measure_tensors(path, execution, spec)


def _cells(row: MeasuredRecord, categories: Sequence[str]) -> tuple[object, ...]:
    """Return the cells of a row; a statistic that it lacks is ``null``."""
    cells, shape = row.cells, f"({','.join(map(str, row.shape))})"
    try:
        size = dtypes.from_name(row.dtype).packed_size(math.prod(row.shape))
    except FormatError:
        size = 0
    return (
        *(row.op_type, row.op_name, 0, 0, row.timestamp, row.io, row.slot, size, row.dtype, shape),
        *(statistic_csv.text(cells.get(category)) for category in categories),
    )
