"""DuckDB, which the extra ``query`` brings: its connection, and texts, paths and rows in its words."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final

from msdump import reading
from msdump.errors import NotAvailableError
from msdump.look.query.columns import Column

Cells = Mapping[str, object]
"""A row by the names of its columns; a column that it lacks is NULL."""

_BATCH: Final = 20_000  # rows inserted at once
# no extension is fetched from a network, and Python variables cannot be queried as tables
_OPTIONS: Final = dict.fromkeys(
    ("autoinstall_known_extensions", "autoload_known_extensions", "python_enable_replacements"), "false"
)
_GLOB: Final = str.maketrans({character: f"[{character}]" for character in "*?["})


def library() -> Any:
    """Return the module duckdb."""
    try:
        return importlib.import_module("duckdb")
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        remedy = "install it, or msdump with its extra: pip install 'msdump[query]'"
        raise NotAvailableError(f"duckdb is not installed; {remedy}") from error


def connect() -> Any:
    """Return a connection to an empty database in memory."""
    return library().connect(config=_OPTIONS)


def literal(text: str) -> str:
    """Return a text as a literal of SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'{}'".format(printable(text).replace("'", "''"))


def pattern(path: str) -> str:
    """Return a path as the readers of files take it, which would search for others that fit ``*``.

    >>> pattern("a[1]*.csv")
    "'a[[]1][*].csv'"
    """
    return literal(path.translate(_GLOB))


def printable(text: str) -> str:
    r"""Return a text in valid UTF-8: other bytes of a file's name are written as ``\xff``."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def fault(connection: Any, select: str) -> str:
    """Return why the rows of a SELECT cannot be read, in DuckDB's words; "" where every cell can."""
    try:
        # a count is in the statistics of a Parquet file: it would read no cell
        connection.execute(f"select bit_xor(hash(columns(*))) from ({select})").fetchall()
    except library().Error as error:
        return message(error)
    return ""


def message(error: Exception) -> str:
    """Return the message of an error of DuckDB, without the line of SQL that it ran."""
    return str(error).partition("\n\nLINE ")[0]


def struct(types: Mapping[str, str]) -> str:
    """Return the types of columns by their names, as the readers of files take them."""
    return "{" + ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items()) + "}"


class MemoryFiles:
    """Paths for DuckDB's readers: of contents in memory, and of files with names that are not UTF-8."""

    def __init__(self) -> None:
        """Begin without files."""
        self._open = ExitStack()

    def hold(self, parts: Iterable[bytes]) -> str:
        """Return the path of a new file with these contents."""
        fd = os.memfd_create("msdump", os.MFD_CLOEXEC)
        self._open.callback(os.close, fd)
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(fd, rest) :]
        return f"/proc/self/fd/{fd}"

    def path_of(self, path: str) -> str:
        """Return a path to a file that is UTF-8."""
        if printable(path) == path:
            return path
        file = self._open.enter_context(reading.open_file(path))
        return f"/proc/self/fd/{file.fileno()}"

    def close(self) -> None:
        """Close the files, which frees their memory."""
        self._open.close()


def insert(connection: Any, table: str, columns: Sequence[Column], rows: Iterable[Cells]) -> None:
    """Make a temporary table of rows, which are taken batch by batch."""
    names = ", ".join(f'"{column.name}" {column.type}' for column in columns)
    connection.execute(f"create or replace temp table {table} ({names})")
    types = struct({column.name: column.type for column in columns})
    rest = iter(rows)
    while batch := [*islice(rest, _BATCH)]:
        files = MemoryFiles()
        try:
            cells = ({name: _value(cell) for name, cell in row.items() if cell is not None} for row in batch)
            path = files.hold(f"{json.dumps(each)}\n".encode() for each in cells)
            connection.execute(
                f"insert into {table} by name select * from read_json({literal(path)}, "
                f"columns = {types}, format = 'newline_delimited')"
            )
        finally:
            files.close()


def _value(cell: object) -> object:
    if isinstance(cell, str):
        return printable(cell)
    if isinstance(cell, float) and not math.isfinite(cell):
        return str(cell)
    if isinstance(cell, list | tuple):
        return [_value(each) for each in cell]
    return cell
