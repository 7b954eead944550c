"""Reading the small text files of a dump: JSON, lists, statistics."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

from msdump import reading
from msdump.errors import DumpReadError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARAMETER = re.compile(r"%para\d+_(?P<name>.*?): +<")

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


def read_json(path: str) -> Any:
    """Return the value of a JSON file.

    Raises:
        DumpReadError: It cannot be read or is not JSON; tells the byte.
    """
    text = _decode(path, read_bytes(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode())
        raise DumpReadError(path, f"not JSON: {error.msg}", at) from error
    except RecursionError as error:
        raise DumpReadError(path, "the JSON is nested too deeply") from error


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
    found = (_PARAMETER.match(line) for _, line in _lines(path))
    return tuple(dict.fromkeys(match["name"] for match in found if match))


def read_iterations_run(path: str) -> tuple[int, ...]:
    """Return the numbers of a graph's dumped iterations, oldest first, repeats of later runs included.

    Raises:
        DumpReadError: The file cannot be read or holds something else than numbers.
    """
    numbers = []
    for offset, line in _lines(path):
        if not (line.isascii() and line.isdigit()):
            raise DumpReadError(path, f"{line!r} is not the number of an iteration", offset)
        numbers.append(int(line))
    return tuple(numbers)


def read_statistics(path: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a ``statistic.csv``, cells as text by the titles of their columns.

    Raises:
        DumpReadError: The file cannot be read or a row does not fit the header.
    """
    lines = _lines(path)
    _, header = next(lines, (0, ""))
    titles = _cells(header)
    rows = []
    for offset, line in lines:
        cells = _cells(line)
        if len(cells) != len(titles):
            raise DumpReadError(path, f"a row has {len(cells)} cells, the header has {len(titles)}", offset)
        rows.append(dict(zip(titles, cells, strict=True)))
    return tuple(rows)


def _cells(line: str) -> list[str]:
    cells = next(csv.reader([line]), [])
    # vendor: the reference ends every row, but not the header, with a comma.
    return cells[:-1] if line.endswith(",") else cells


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield the byte offset and text of every line that is not empty."""
    offset = 0
    for line in read_bytes(path).splitlines(keepends=True):
        text = _decode(path, line, offset).rstrip("\r\n")
        if text:
            yield offset, text
        offset += len(line)


def _decode(path: str, data: bytes, offset: int = 0) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DumpReadError(path, "not UTF-8 text", offset + error.start) from error
