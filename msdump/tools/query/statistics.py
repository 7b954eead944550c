"""The view ``statistics``: the rows of all files of statistics, and what tensors without a row measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msdump.errors import DumpReadError
from msdump.statistics.table import STATISTICS
from msdump.store.operator_names import OperatorName
from msdump.store.read.reader import open_iteration
from msdump.tools.mapping import mapper
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.mapping.sizes import directory_size
from msdump.tools.query import engine, tensors
from msdump.tools.query.columns import column_of
from msdump.tools.query.places import OpenedDump
from msdump.tools.query.tables import Table, tables_of


def tables(opened: OpenedDump, memory: engine.MemoryFiles) -> Iterator[Table]:
    """Yield the files of statistics of a dump."""
    for directory in opened.iterations():
        place = opened.place(directory)
        try:
            paths = directory.statistic_files
        except DumpReadError as error:
            opened.fault(str(error))
            continue
        for operator, path in paths.items():
            told = place | {"path": path} | ({} if operator is None else _named(operator))
            yield from tables_of(path, told, memory, opened.fault)


def _named(operator: OperatorName) -> dict[str, Any]:
    return {
        "op_type": operator.op_type,
        "op_name": operator.op_name,
        "task_id": operator.task_id,
        "stream_id": operator.stream_id,
        "timestamp": operator.timestamp,
    }


@dataclass(frozen=True, slots=True)
class _MeasuredRows:
    """What the tensors of a directory measure.

    Attributes:
        rows: A row for each tensor, without the columns of its place.
        faults: What could not be read, in words.
    """

    rows: tuple[dict[str, Any], ...]
    faults: tuple[str, ...]


def measured(
    opened: OpenedDump,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each tensor without a row of statistics, which reads its file.

    Args:
        opened: The dump.
        executor: Who measures.
        progress: Called with the bytes of each directory that was measured.
    """
    directories = {
        (directory.path, directory.run): opened.place(directory) for directory in opened.iterations()
    }
    everything = mapper.each(
        _measured,
        directories,
        size=lambda each: directory_size(each[0]),
        executor=executor,
        paths=(opened.path,),
        progress=progress,
    )
    for place, directory in zip(directories.values(), everything, strict=True):
        for fault in directory.faults:
            opened.fault(fault)
        yield from (place | row for row in directory.rows)


def _measured(place: tuple[str, int]) -> _MeasuredRows:
    """Return what the tensors of a directory measure; runs in a process of its own."""
    rows: list[dict[str, Any]] = []
    faults: dict[str, None] = {}
    directory = open_iteration(*place)
    for execution in () if directory is None else tensors.executions(directory, faults.setdefault):
        for record in execution.records:
            try:
                if directory is not None and directory.row_of(record) is None:
                    numbers = {column_of(each): record.stats.get(each.category) for each in STATISTICS}
                    rows.append(tensors.row(record, faults.setdefault) | numbers)
            except DumpReadError as error:
                faults.setdefault(str(error))
    return _MeasuredRows(tuple(rows), tuple(faults))
