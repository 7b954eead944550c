"""Files of statistics that are no plain tables: other titles further down, rows that do not fit.

DuckDB's reader stops at the first such row. The file is then read line by line, and written anew in memory:
a table for the rows of each line of titles, without the rows and cells that cannot be read, each of which is
told.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from msdump import reading
from msdump.tools.query import engine, tables
from msdump.tools.query.columns import NUMBER, REAL
from msdump.tools.query.tables import Table


def plain(
    table: Table, connection: Any, memory: engine.MemoryFiles, fault: Callable[[str], None]
) -> Iterator[Table]:
    """Yield a table that DuckDB can read, or what takes its place.

    Args:
        table: The table.
        connection: The database.
        memory: Holds what takes its place.
        fault: Gets a line for each row and cell that is left out.
    """
    if _is_readable(table, connection):
        yield table
        return
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    try:
        with reading.open_file(table.readable) as file:
            for titles, cells in _rows(table, file, fault):
                rows.setdefault(titles, []).append(cells)
    except OSError as error:
        fault(f"{table.path}: cannot be read: {error.strerror or error}")
    for titles, each in rows.items():
        path = memory.hold(_text([[*titles], *each]))
        yield replace(table, readable=path, titles=titles)


def _is_readable(table: Table, connection: Any) -> bool:
    """Tell whether every cell of a table can be read."""
    places = engine.literal(table.readable)
    text = tables.select([table], f"(select {places} as readable)")
    try:
        connection.execute(f"select count(columns(*)) from ({text})").fetchall()
    except engine.library().Error:
        return False
    return True


def _rows(
    table: Table, lines: Any, fault: Callable[[str], None]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the rows that can be read, each with the titles that hold for it."""
    titles: tuple[str, ...] = ()
    offset = 0
    for line in io.BufferedReader(lines):
        start, offset = offset, offset + len(line)
        if not line.endswith(b"\n"):
            fault(f"{table.path}: the last row has no line feed yet and is left out")
            return
        if not line.strip():
            continue
        told = tables.titles_of(line)
        if told is not None:
            titles = told
            continue
        try:
            cells = _cells(line, len(titles))
        except ValueError as error:
            fault(f"{table.path} at byte {start}: {error}; the row is left out")
            continue
        for number, (title, cell) in enumerate(zip(titles, cells, strict=True)):
            if not _fits(tables.type_of(title), cell):
                fault(f"{table.path} at byte {start}: {title} is {cell[:40]!r}, no number; it is left out")
                cells[number] = ""
        yield titles, cells


def _cells(line: bytes, count: int) -> list[str]:
    """Return the cells of a row.

    Raises:
        ValueError: The line is no row of so many cells.
    """
    try:
        cells = next(csv.reader([line.decode().rstrip("\r\n")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"no row of comma-separated UTF-8 text: {error}") from error
    if len(cells) == count + 1 and not cells[-1]:
        cells = cells[:-1]  # vendor: the reference ends every row, but not the header, with a comma
    if len(cells) != count:
        raise ValueError(f"a row has {len(cells)} cells, the header has {count}")
    return cells


def _fits(kind: str, cell: str) -> bool:
    if cell in tables.NOTHING or (kind == REAL and cell in {"True", "False"}):
        return True
    try:
        if kind == NUMBER:
            return abs(int(float(cell))) < 1 << 63
        return kind != REAL or float(cell) is not None
    except (ValueError, OverflowError):
        return False


def _text(rows: Sequence[Sequence[str]]) -> Iterator[bytes]:
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        yield line.getvalue().encode()
