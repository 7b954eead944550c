"""The documents of ``msdump query --json`` and ``msdump pack --json``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, time
from decimal import Decimal
from typing import Any, Final

from msdump.cli.documents.document import JsonDocument, Part
from msdump.tools.query.packs import Pack
from msdump.tools.query.session import Answer

_BATCH: Final = 10_000
_NONFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class AnswerColumn(Part):
    """A column of an answer."""

    name: str
    """Its name; no two columns of an answer have the same one."""

    type: str
    """Its type, as DuckDB calls it."""


class QueryDocument(JsonDocument):
    """The answer to a question."""

    question: str
    """The question."""

    columns: list[AnswerColumn]
    """The columns of the answer."""

    rows: list[dict[str, Any]]
    """All rows: cells by the names of their columns; NaN and infinities are texts, times ISO 8601 in UTC."""

    warnings: list[str]
    """What could not be read of the sources."""


class PackDocument(JsonDocument):
    """What was packed."""

    path: str
    """Directory of the pack."""

    rows: dict[str, int]
    """Number of rows of each view that has some."""

    warnings: list[str]
    """What could not be read of the sources."""


def document(question: str, answer: Answer, faults: Iterable[str]) -> QueryDocument:
    """Return the document of an answer."""
    names = [name for name, _ in answer.columns]
    rows: list[dict[str, Any]] = []
    while batch := answer.fetch(_BATCH):
        rows += (dict(zip(names, map(_value, row), strict=True)) for row in batch)
    columns = [AnswerColumn(name=name, type=kind) for name, kind in answer.columns]
    return QueryDocument(question=question, columns=columns, rows=rows, warnings=[*faults])


def document_of_pack(pack: Pack, faults: Iterable[str]) -> PackDocument:
    """Return the document of a pack."""
    return PackDocument(path=pack.path, rows=dict(pack.rows), warnings=[*faults])


def _value(cell: object) -> object:
    """Return a cell of an answer as JSON has it."""
    value: object
    match cell:
        case None | bool() | int() | str():
            value = cell
        case float():
            value = cell if math.isfinite(cell) else _NONFINITE[str(cell)]
        case Decimal():
            value = float(cell)
        case date() | time():
            value = cell.isoformat()
        case list() | tuple():
            value = [_value(each) for each in cell]
        case dict():
            value = {str(key): _value(each) for key, each in cell.items()}
        case _:
            value = str(cell)
    return value
