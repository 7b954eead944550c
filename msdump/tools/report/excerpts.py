"""The lines of a program around the one that made an operator."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from msdump import reading
from msdump.store.read.graphs.operator_graph import GraphOperator

_AROUND: Final = 3  # lines on either side
_LARGEST: Final = 4 << 20  # bytes of a source file


@dataclass(frozen=True, slots=True)
class SourceExcerpt:
    """The line of the program that made an operator, and those around it.

    Attributes:
        file: The file, as the graph file names it.
        line: Number of the line, from 1.
        code: The line as it was when the graph was made.
        first: Number of the first line of ``around``.
        around: The lines around it; none where the file is not there any more, or has changed.
    """

    file: str
    line: int
    code: str
    first: int = 0
    around: tuple[str, ...] = ()


def of(operator: GraphOperator | None) -> SourceExcerpt | None:
    """Return the user's line that made an operator, None where it is not known."""
    line = None if operator is None else operator.own_line
    if line is None:
        return None
    lines = _lines(line.file)
    number = line.line - 1
    if not 0 <= number < len(lines) or lines[number].strip() != line.code.strip():
        return SourceExcerpt(line.file, line.line, line.code.strip())
    first = max(0, number - _AROUND)
    around = lines[first : number + _AROUND + 1]
    return SourceExcerpt(line.file, line.line, line.code.strip(), first + 1, around)


@functools.lru_cache(maxsize=64)
def _lines(path: str) -> tuple[str, ...]:
    try:
        data = reading.read_bytes(path, _LARGEST)
    except OSError:
        return ()
    return tuple(data.decode(errors="replace").splitlines())
