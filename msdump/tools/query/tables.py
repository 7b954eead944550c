"""Files of statistics as DuckDB's reader of csv files takes them: ``statistic.csv``, and acl's by operator.

MindSpore ends every row with a comma, msdump does not, acl has a file for each operator, with other titles:
all of them give the same columns of the same types. Which columns a file has is told by its own first line.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msdump import dtypes, reading
from msdump.encode import dump_enums
from msdump.statistics.table import STATISTICS
from msdump.tools.query import engine
from msdump.tools.query.columns import NUMBER, REAL, STATISTIC_COLUMNS, TEXT

_HEAD: Final = 1 << 16  # bytes in which a line of titles ends
_TAIL: Final = 1 << 16
_ACL: Final = "Input/Output"
FIRST_TITLES: Final = ("Op Type", _ACL)
"""What a line of titles begins with."""

NOTHING: Final = ["", "null", "-", "NA"]
"""Cells of what was not computed."""

_TITLES: Final[Mapping[str, tuple[str, str]]] = {
    "Op Type": ("op_type", TEXT),
    "Op Name": ("op_name", TEXT),
    "Task ID": ("task_id", NUMBER),
    "Stream ID": ("stream_id", NUMBER),
    "Timestamp": ("timestamp", NUMBER),
    "IO": ("io", TEXT),
    "Input/Output": ("io", TEXT),
    "Slot": ("slot", NUMBER),
    "Index": ("slot", NUMBER),
    "Data Size": ("bytes", NUMBER),
    "Data Type": ("dtype", TEXT),
    "Format": ("format", TEXT),
    "Shape": ("shape", TEXT),
    **{
        each.title: (column.name, column.type)
        for each, column in zip(STATISTICS, STATISTIC_COLUMNS, strict=True)
    },
    "Nan Count": ("nan_count", NUMBER),  # acl's spelling, as is the next
    "l2norm": ("l2norm", REAL),
}
"""Column and type of each title, of MindSpore's files and of acl's."""

_ACL_TYPES: Final = "case {{}} {} else lower({{}}) end".format(
    " ".join(
        f"when 'DT_{name}' then '{row.name}'"
        for row in dtypes.DTYPES
        for name, number in dump_enums.DATA_TYPES.items()
        if row.dump == number
    )
)
"""Element types by the names that acl's files have."""

_EXPRESSIONS: Final[Mapping[str, str]] = {
    "io": "lower({})",
    "dtype": "lower({})",
    # "(2,3)" of MindSpore, "2x3" of acl, "()" and "-" of scalars
    "shape": "try_cast('[' || translate(coalesce({}, ''), 'x()', ',') || ']' as bigint[])",
}
"""How the text of a cell becomes what the column holds."""

# a device's extremes of truth values are True and False
_REAL: Final = "case {0} when 'True' then 1.0 when 'False' then 0.0 else cast({0} as double) end"


@dataclass(frozen=True)
class Table:
    """A file of statistics, or the rows of one.

    Attributes:
        path: The file that the user knows.
        readable: The path that it is read by: that of a copy in memory where it is no plain table.
        titles: The titles of its columns.
        place: The columns that its path tells.
    """

    path: str
    readable: str
    titles: tuple[str, ...]
    place: Mapping[str, Any] = field(repr=False)


def tables_of(
    path: str, place: Mapping[str, Any], memory: engine.MemoryFiles, fault: Callable[[str], None]
) -> Iterator[Table]:
    """Yield what is read of a file of statistics: nothing where it has no row yet.

    A last row without a line feed is no row: a run goes on, or was killed, while it was written. The file
    is then read from a copy in memory that ends before it.

    Args:
        path: The file.
        place: The columns that its path tells.
        memory: Holds copies.
        fault: Gets what is wrong with the file.
    """
    try:
        with reading.open_file(path) as file:
            head = file.read(_HEAD)
            size = file.seek(0, os.SEEK_END)
            end = _end(file, size)
            readable = memory.path_of(path)
            if end < size and end:
                fault(f"{path}: the last row has no line feed yet and is left out")
                file.seek(0)
                readable = memory.hold([file.read(end)])
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return
    if not end:
        return
    titles = titles_of(head.partition(b"\n")[0])
    if titles is None:
        fault(f"{path}: the first line has no titles of statistics; the file is left out")
        return
    for title in titles:
        if title and title not in _TITLES:
            fault(f"{path}: the column {title!r} is not known and is left out")
    yield Table(path, readable, titles, place)


def _end(file: Any, size: int) -> int:
    """Return the number of bytes up to the last line feed."""
    start = size
    while start > 0:
        step = min(_TAIL, start)
        start -= step
        file.seek(start)
        place = file.read(step).rfind(b"\n")
        if place >= 0:
            return int(start + place + 1)
    return 0


def titles_of(line: bytes) -> tuple[str, ...] | None:
    """Return the titles in the first line of a file, None where it holds something else."""
    try:
        cells = next(csv.reader([line.decode().rstrip("\r\n")]), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    return tuple(cells) if cells and cells[0] in FIRST_TITLES else None


def first_names(paths: Iterable[str]) -> Iterator[str]:
    """Yield names of operators from the first rows of ``statistic.csv`` files."""
    for path in paths:
        with contextlib.suppress(OSError), reading.open_file(path) as file:
            lines = file.read(_HEAD).rpartition(b"\n")[0].decode(errors="replace").splitlines()
            for row in csv.DictReader(lines):
                yield row.get("Op Name") or ""


def type_of(title: str) -> str:
    """Return the type of the cells below a title."""
    return _TITLES.get(title, ("", TEXT))[1]


def select(tables: Sequence[Table], places: str) -> str:
    """Return the SQL that reads tables of the same titles.

    Args:
        tables: The tables.
        places: Name of the table of their places, by the path that each is read by.
    """
    titles = tables[0].titles
    types = {
        f"c{number}": TEXT if type_of(title) == REAL else type_of(title)
        for number, title in enumerate(titles)
    }
    files = ", ".join(engine.pattern(table.readable) for table in tables)
    cells: dict[str, str] = {}
    for number, title in enumerate(titles):
        name, kind = _TITLES.get(title, ("", TEXT))
        if name:
            cells.setdefault(name, _expression(f"t.c{number}", name, kind, is_acl=titles[0] == _ACL))
    shown = "".join(f', {text} as "{name}"' for name, text in cells.items())
    # the titles of a later run, which may be others, make the file one that is not plain
    plain = f"case when t.c0 = {engine.literal(titles[0])} then error('titles') else true end"
    return (
        f"select p.* exclude (readable){shown} from read_csv([{files}], columns = {engine.struct(types)}, "
        f"header = true, auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
        f"nullstr = {NOTHING}, filename = '_file') t "
        f"join {places} p on p.readable = t._file where {plain}"
    )


def _expression(cell: str, name: str, kind: str, *, is_acl: bool) -> str:
    if kind == REAL:
        return _REAL.format(cell)
    expression = _ACL_TYPES if is_acl and name == "dtype" else _EXPRESSIONS.get(name, "{}")
    return expression.replace("{}", cell)
