"""Reading the small text files of a dump: JSON, lists, statistics."""

from __future__ import annotations

import csv
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.store.read import cells

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msdump.store.read.cells import Row

_log = logging.getLogger("msdump.store")

_FIRST_TITLES: Final = frozenset({"Op Type", "Input/Output"})
_SHOWN: Final = 40  # characters of a text in a message
_PARAMETER: Final = re.compile(r"%para\d+_(?P<name>.*?): +<")

ORDER_HEADER = "NodeExecutionOrder-FullNameWithScope"
"""First line of a list of operators in execution order."""


def read_bytes(path: str) -> bytes:
    """Return the contents of a file.

    Raises:
        DumpReadError: It cannot be read.
    """
    try:
        return reading.read_bytes(path)
    except OSError as error:
        raise DumpReadError(path, error.strerror or str(error)) from error


def digest(path: str) -> bytes:
    """Return a digest of the contents of a file.

    Raises:
        DumpReadError: It cannot be read.
    """
    import hashlib

    return hashlib.sha1(read_bytes(path), usedforsecurity=False).digest()


def modified(path: str) -> int:
    """Return when a file was written, microseconds since the epoch.

    Raises:
        DumpReadError: It is gone.
    """
    try:
        return Path(path).stat().st_mtime_ns // 1000
    except OSError as error:
        raise DumpReadError(path, error.strerror or str(error)) from error


def read_json(path: str) -> Any:
    """Return the value of a JSON file.

    Raises:
        DumpReadError: It cannot be read or is not JSON; tells the byte.
    """
    text = _decode(path, read_bytes(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())  # the library counts characters
        raise DumpReadError(path, f"not JSON: {error.msg}", offset) from error
    except RecursionError as error:
        raise DumpReadError(path, "the JSON is nested too deeply") from error
    except ValueError as error:  # of a number with more digits than Python reads
        raise DumpReadError(path, f"not JSON that can be read: {error}") from error


def read_execution_order(path: str) -> tuple[str, ...]:
    """Return the full names of a graph's operators in execution order.

    Raises:
        DumpReadError: The file cannot be read or its first line is not the header.
    """
    lines = [line for _, line in _lines(path)]
    if not lines or lines[0] != ORDER_HEADER:
        first = lines[0] if lines else ""
        raise DumpReadError(path, f"the first line is {first!r}, not {ORDER_HEADER!r}", 0)
    return tuple(lines[1:])


def read_parameters(path: str) -> tuple[str, ...]:
    """Return the plain names of a graph's weights and inputs, which its .ir file lists.

    Raises:
        DumpReadError: The file cannot be read.
    """
    matches = (_PARAMETER.match(line) for _, line in _lines(path))
    return tuple(dict.fromkeys(match["name"] for match in matches if match))


def read_iterations_run(path: str) -> tuple[int, ...]:
    """Return the numbers of a graph's dumped iterations, oldest first, repeats of later runs included.

    Raises:
        DumpReadError: The file cannot be read or holds something else than numbers.
    """
    numbers = []
    for offset, line in _rows(path):
        if not (line.isascii() and line.isdigit()):
            raise DumpReadError(path, f"{line[:_SHOWN]!r} is not the number of an iteration", offset)
        numbers.append(_number(path, offset, line))
    return tuple(numbers)


def read_called(path: str) -> frozenset[int]:
    """Return the numbers of the graphs that a graph calls: branches and bodies, as its .ir file names them.

    Raises:
        DumpReadError: The file cannot be read.
    """
    calls = (line for _, line in _lines(path) if line.startswith("  %"))
    return frozenset(_number(path, 0, match[1]) for line in calls for match in _CALLED.finditer(line))


_CALLED: Final = re.compile(r": @kernel_graph([0-9]+)[,}]")


def read_statistics(path: str) -> tuple[Row, ...]:
    """Return the rows of a ``statistic.csv``, cells by the titles of their columns.

    Numbers are numbers, digests and names are texts, a statistic that was not computed is None. A second
    line of titles, of a run that asked for other statistics, holds for the rows below it.

    Raises:
        DumpReadError: The file cannot be read, a row does not fit its titles or holds a number of too
            many digits.
    """
    titles: list[str] | None = None
    rows = []
    for offset, line in _rows(path):
        line_cells = _cells(path, offset, line)
        if titles is None or (line_cells and line_cells[0] in _FIRST_TITLES):
            titles = line_cells
        else:
            rows.append(_row(path, offset, titles, line_cells))
    return tuple(rows)


def _row(path: str, offset: int, titles: list[str], line_cells: list[str]) -> Row:
    if len(line_cells) == len(titles) + 1 and not line_cells[-1]:
        # vendor: the reference ends every row, but not the header, with a comma. An empty cell at the
        # end of a row as wide as the header is a statistic that was not computed.
        line_cells = line_cells[:-1]
    if len(line_cells) != len(titles):
        raise DumpReadError(path, f"a row has {len(line_cells)} cells, the header has {len(titles)}", offset)
    try:
        return {title: cells.read(title, text) for title, text in zip(titles, line_cells, strict=True)}
    except ValueError as error:
        raise DumpReadError(path, str(error), offset) from error


def _number(path: str, offset: int, digits: str) -> int:
    try:
        return cells.integer(digits)
    except ValueError as error:
        raise DumpReadError(path, str(error), offset) from error


def _cells(path: str, offset: int, line: str) -> list[str]:
    try:  # one line at a time: a quote that is never closed would swallow all the rows behind it
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise DumpReadError(path, f"not a row of comma-separated cells: {error}", offset) from error


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a text that are not empty.

    Raises:
        DumpReadError: The file cannot be read.
    """
    return (line for _, line in _lines(path))


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the byte offset and text of every line that is not empty."""
    return _split(path, read_bytes(path))


def _rows(path: str) -> Iterator[tuple[int, str]]:
    """Yield the byte offset and text of every row of a file that grows by rows.

    A row without a line feed is no row: a program that was killed while it wrote left half of it, whose
    last number may lack digits.
    """
    data = read_bytes(path)
    end = data.rfind(b"\n") + 1
    if end < len(data):
        _log.warning("%s: the last row has no line feed and is left out: its program was killed", path)
    return _split(path, data[:end])


def _split(path: str, data: bytes) -> Iterator[tuple[int, str]]:
    offset = 0
    # bytes are split, not text: str.splitlines also breaks at characters that names may hold, such as U+2028
    for line in data.splitlines(keepends=True):
        text = _decode(path, line, offset).rstrip("\r\n")
        if text:
            yield offset, text
        offset += len(line)


def _decode(path: str, data: bytes, offset: int = 0) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DumpReadError(path, "not UTF-8 text", offset + error.start) from error
