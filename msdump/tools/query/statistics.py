"""The view ``statistics``: the rows of all files of statistics, and what tensors without a row measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msdump.errors import DumpReadError
from msdump.statistics.table import STATISTICS
from msdump.store.operator_names import OperatorName
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


def measured(opened: OpenedDump) -> Iterator[dict[str, Any]]:
    """Yield a row for each tensor without a row of statistics, which reads its file."""
    for directory in opened.iterations():
        place = opened.place(directory)
        for execution in tensors.executions(opened, directory):
            for record in execution.records:
                try:
                    if directory.row_of(record) is None:
                        told = tensors.row(record, opened.fault)
                        numbers = {column_of(each): record.stats.get(each.category) for each in STATISTICS}
                        yield place | told | numbers
                except DumpReadError as error:
                    opened.fault(str(error))
