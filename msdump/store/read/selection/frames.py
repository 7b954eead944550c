"""Tensors of a dump as the rows of a table: for pandas, Arrow, and what reads those."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, Final

from msdump.errors import DumpReadError
from msdump.statistics.table import STATISTICS
from msdump.store.read.records import Record

_PLACE: Final = (
    *("rank", "network", "graph", "iteration", "execution", "pass"),
    *("op_type", "op_name", "full_name", "scope", "io", "slot", "dtype", "format", "timestamp", "path"),
)
_CATEGORIES: Final = tuple(statistic.category for statistic in STATISTICS)


def columns(records: Iterable[Record], *, measures: bool) -> dict[str, list[Any]]:
    """Return the columns of a table with a row for each tensor.

    Statistics are columns by their categories ("max", "l2norm", "nan count"), None where there is none.

    Args:
        records: The tensors.
        measures: Measure what ``statistic.csv`` does not hold, which reads every file.

    Raises:
        DumpReadError: A file cannot be read.
    """
    table: dict[str, list[Any]] = {title: [] for title in (*_PLACE, *_CATEGORIES)}
    for record in records:
        for title, cell in (_place(record) | _statistics(record, measures=measures)).items():
            table[title].append(cell)
    # a digest, or any statistic, that no tensor has is no column
    return {title: cells for title, cells in table.items() if title in _PLACE or set(cells) != {None}}


def _place(record: Record) -> dict[str, Any]:
    key = record.directory.key
    name = record.name
    cells = (
        *(record.rank, key.net if key.model is None else key.model),
        *(key.graph if key.model_id is None else key.model_id, record.iteration),
        *(record.execution, record.pass_number, record.op_type, record.op_name, record.full_name),
        *(record.scope, str(record.io), record.slot, _dtype(record), name.format, name.timestamp),
        record.path,
    )
    return dict(zip(_PLACE, cells, strict=True))


def _dtype(record: Record) -> str | None:
    try:
        return record.dtype
    except DumpReadError:  # a torn file has a row all the same
        return None


def _statistics(record: Record, *, measures: bool) -> dict[str, Any]:
    stats = record.stats
    known = stats if measures else stats.saved
    return {category: known.get(category) for category in _CATEGORIES}


def to_pandas(records: Iterable[Record], *, measures: bool) -> Any:
    """Return a pandas.DataFrame of the columns.

    Raises:
        ModuleNotFoundError: pandas is not installed.
    """
    pandas = _library("pandas")
    return pandas.DataFrame(columns(records, measures=measures))


def to_arrow(records: Iterable[Record], *, measures: bool) -> Any:
    """Return a pyarrow.Table of the columns.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    pyarrow = _library("pyarrow")
    return pyarrow.table(columns(records, measures=measures))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        remedy = "install it, or msdump with its extra: pip install 'msdump[frames]'"
        raise ModuleNotFoundError(f"{name} is not installed; {remedy}", name=name) from error
