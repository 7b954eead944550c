"""DuckDB, which the extra ``query`` brings: its connection, texts, paths and rows in its words, csv files.

DuckDB's reader stops at a row that does not fit or at other titles further down. Such a file of statistics is
read here and written anew in memory: a table for the rows of each line of titles, without rows and cells that
cannot be read, which are reported.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from msdump import dtypes, reading
from msdump.encode import dump_message
from msdump.errors import NotAvailableError, plural
from msdump.judge import reports
from msdump.look.query.columns import NUMBER, REAL, TEXT, VIEWS, Column, column_of
from msdump.read import no_table
from msdump.statistics import STATISTICS

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


def fault_of(connection: Any, select: str) -> str:
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
        self._open = contextlib.ExitStack()

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


_HEAD: Final = 1 << 16  # bytes read to find the line of titles
_ACL: Final = "Input/Output"
_FIRST_TITLES: Final = ("Op Type", _ACL)
NOTHING: Final = ["", "null", "-", "NA"]
"""Cells of statistics that were not computed."""

_COLUMNS: Final[Mapping[str, str]] = {
    "Op Type": "op_type",
    "Op Name": "op_name",
    "Task ID": "task_id",
    "Stream ID": "stream_id",
    "Timestamp": "timestamp",
    "IO": "io",
    "Input/Output": "io",
    "Slot": "slot",
    "Index": "slot",
    "Data Size": "bytes",
    "Data Type": "dtype",
    "Format": "format",
    "Shape": "shape",
    **{each.title: column_of(each) for each in STATISTICS},
    "Nan Count": "nan_count",  # acl's spelling, as is the next
    "l2norm": "l2norm",
}
"""View's column by title, for MindSpore's files and for acl's (one file for each operator)."""

_TYPES: Final = {column.name: column.type for column in VIEWS["statistics"]} | {"shape": TEXT}
_TYPE_OF: Final = {title: _TYPES[column] for title, column in _COLUMNS.items()}
"""Types of cells by title."""

_ACL_TYPES: Final = "case {{0}} {} else lower({{0}}) end".format(
    " ".join(
        f"when 'DT_{name}' then '{row.name}'"
        for row in dtypes.DTYPES
        for name, number in dump_message.DATA_TYPES.items()
        if row.dump == number
    )
)
"""Element types by the names that acl's files have."""

_EXPRESSIONS: Final[Mapping[str, str]] = {
    "io": "lower({0})",
    "dtype": "lower({0})",
    # "(2,3)" of MindSpore, "2x3" of acl, "()" and "-" of scalars
    "shape": "try_cast('[' || translate(coalesce({0}, ''), 'x()', ',') || ']' as bigint[])",
}
"""SQL that converts the text of a cell to the column's type, by column."""

# extremes of truth values on a device are the texts True and False
_REAL: Final = "case {0} when 'True' then 1.0 when 'False' then 0.0 else cast({0} as double) end"


@dataclass(frozen=True)
class Table:
    """A file of statistics, or the rows of one."""

    path: str  # the file in the dump
    readable: str  # the path that DuckDB reads: path, or a rewritten copy in memory for an irregular table
    titles: tuple[str, ...]
    # cells that follow from the file's place in the dump, such as rank and iteration, by column
    place: Mapping[str, Any] = field(repr=False)


def tables_of(
    path: str, place: Mapping[str, Any], memory: MemoryFiles, fault: Callable[[str], None]
) -> Iterator[Table]:
    """Yield the table of a file of statistics, none where it has no row yet; ``fault`` gets messages.

    A last row without a line feed is no row: a run goes on, or was killed, while it was written. The file
    is then read from a copy in memory that ends before it.
    """
    try:
        with reading.open_file(path) as file:
            head = file.read(_HEAD)
            if why := no_table(head):
                fault(f"{path}: {why}; left out")
                return
            size = start = file.seek(0, os.SEEK_END)
            end = 0  # behind the last line feed
            while start > 0 and not end:
                step = min(_HEAD, start)
                start -= step
                file.seek(start)
                at = file.read(step).rfind(b"\n")
                end = start + at + 1 if at >= 0 else 0
            readable = memory.path_of(path)
            if end < size:
                fault(f"{path}: the last row has no line feed yet and is left out")
                file.seek(0)
                readable = memory.hold([file.read(end)])
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return
    titles = titles_of(head.partition(b"\n")[0])
    if not end or titles is None:
        return
    for title in titles:
        if title and title not in _COLUMNS:
            fault(f"{path}: the column {title!r} is not known and is left out")
    yield Table(path, readable, titles, place)


def titles_of(line: bytes) -> tuple[str, ...] | None:
    """Return the titles in the first line of a file, None where it holds something else."""
    try:
        cells = _cells(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None
    return tuple(cells) if cells and cells[0] in _FIRST_TITLES else None


def _cells(line: str) -> list[str]:
    """Return the cells of a line; one cell, which fits no titles, where csv cannot split it."""
    try:
        return next(csv.reader([line.rstrip("\r\n")]), [])
    except csv.Error:
        return [line]


def first_names(paths: Iterable[str]) -> Iterator[str]:
    """Yield names of operators from the first rows of ``statistic.csv`` files."""
    for path in paths:
        with contextlib.suppress(OSError), reading.open_file(path) as file:
            lines = file.read(_HEAD).rpartition(b"\n")[0].decode(errors="replace").splitlines()
            for row in csv.DictReader(lines):
                yield row.get("Op Name") or ""


def select(tables: Sequence[Table], places: str) -> str:
    """Return the SQL that reads tables of the same titles and joins their rows of the table ``places``."""
    titles = tables[0].titles
    types = {
        f"c{number}": TEXT if (kind := _TYPE_OF.get(title, TEXT)) == REAL else kind
        for number, title in enumerate(titles)
    }
    files = ", ".join(pattern(table.readable) for table in tables)
    cells: dict[str, str] = {}
    for number, title in enumerate(titles):
        if name := _COLUMNS.get(title):
            is_acl_type = titles[0] == _ACL and name == "dtype"
            text = (
                _REAL
                if _TYPES[name] == REAL
                else _ACL_TYPES
                if is_acl_type
                else _EXPRESSIONS.get(name, "{0}")
            )
            cells.setdefault(name, text.format(f"t.c{number}"))
    shown = "".join(f', {text} as "{name}"' for name, text in cells.items())
    # a second line of titles, written by a later run, raises an error: the file is not plain
    plain = f"case when t.c0 = {literal(titles[0])} then error('titles') else true end"
    return (
        f"select p.* exclude (readable){shown} from read_csv([{files}], columns = {struct(types)}, "
        f"header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
        f"nullstr = {NOTHING}, filename = '_file') t "
        f"join {places} p on p.readable = t._file where {plain}"
    )


def plain(
    table: Table, connection: Any, memory: MemoryFiles, fault: Callable[[str], None]
) -> Iterator[Table]:
    """Yield a table that DuckDB can read, or its readable rows, a table for each line of titles."""
    if not fault_of(connection, select([table], f"(select {literal(table.readable)} as readable)")):
        yield table
        return
    for titles, rows in sections(table.path, fault):
        for row in rows:
            for number, (title, cell) in enumerate(zip(titles, row, strict=True)):
                if not _fits(_TYPE_OF.get(title, TEXT), cell):
                    fault(f"{table.path}: {title} is {cell[:40]!r}, no number; it is left out")
                    row[number] = ""
        path = memory.hold(line.encode() for line in reports.csv_lines([titles, *rows]))
        yield replace(table, readable=path, titles=tuple(titles))


def sections(path: str, fault: Callable[[str], object]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield each line of titles of a file of statistics and the rows below it, if there are any.

    A later run into the same file may have other titles. Rows that do not fit their titles are left out, and
    a last row without a line feed, which a run that goes on has half written; ``fault`` gets messages.
    """
    try:
        data = reading.read_bytes(path)
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return
    if why := no_table(data):
        fault(f"{path}: {why}; left out")
        return
    end = data.rfind(b"\n") + 1
    if end < len(data):
        fault(f"{path}: the last row has no line feed yet and is left out")
    text = data[:end].decode("utf-8-sig", errors="replace")
    lines = text.split("\n")
    try:
        cells = [*csv.reader(lines)]
    except csv.Error:  # a cell beyond csv's limit of size
        cells = []
    # an unclosed quote swallows the lines behind it: then parse one line at a time
    if len(cells) != len(lines):
        cells = [_cells(line) if '"' in line else line.rstrip("\r").split(",") for line in lines if line]
    titles: list[str] = []
    rows: list[list[str]] = []
    for row in [*filter(None, cells), [_FIRST_TITLES[0]]]:
        if row[0] not in _FIRST_TITLES:
            rows.append(row)
            continue
        width = len(titles)
        # vendor: rows end with a comma, the line of titles does not
        fitting = [
            each[:width] for each in rows if len(each) == width or (len(each) == width + 1 and not each[-1])
        ]
        if unfit := len(rows) - len(fitting):
            fault(f"{path}: {plural(unfit, 'row')} with another number of cells than titles left out")
        if fitting:
            yield titles, fitting
        titles, rows = row, []


def _fits(kind: str, cell: str) -> bool:
    if cell in NOTHING or (kind == REAL and cell in {"True", "False"}):
        return True
    try:
        if kind == NUMBER:
            return cell.isascii() and abs(int(float(cell))) < 1 << 63
        return kind != REAL or (cell.isascii() and float(cell) is not None)
    except (ValueError, OverflowError):
        return False
