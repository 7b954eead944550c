"""Measure the rooms of the package and its tests against their budgets: python scripts/budget.py [--lower].

A budget holds lines, tokens of code (two statements packed into one line save a line, but no token) and vague
words in docstrings and comments. ``--lower`` writes the present figures where they are below the budget.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
BUDGETS: Final = ROOT / "tests" / "budgets.csv"
VAGUE: Final = re.compile(
    r"\b(what|whose|those|nobody|somebody|whichever|tells|told|asks|asked|minds|knows)\b", re.IGNORECASE
)
_LAYOUT: Final = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Size(NamedTuple):
    """Size of a module or room.

    Attributes:
        lines: Lines, blank ones included.
        tokens: Tokens of code, without comments, docstrings and layout.
        vague: Vague words in docstrings and comments.
    """

    lines: int
    tokens: int
    vague: int


def size_of(text: str) -> Size:
    """Return the size of a module's source text."""
    documented: set[int] = set()
    prose: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)) is not None:
            prose.append(docstring)
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            prose.append(token.string)
        else:
            tokens += token.type not in _LAYOUT and token.start[0] not in documented
    return Size(text.count("\n"), tokens, sum(len(VAGUE.findall(each)) for each in prose))


def room_of(module: str) -> str:
    """Return the room of a module: its folder below msdump or tests, one deeper below judge and look.

    >>> [room_of(f"msdump/{name}.py") for name in ("errors", "graph/graph", "look/report/page/page")]
    ['msdump', 'msdump/graph', 'msdump/look/report']
    """
    folders = module.split("/")[:-1]
    return "/".join(folders[: 3 if {"judge", "look"} & {*folders[:2]} else 2])


def measured() -> dict[str, Size]:
    """Return the sizes of all rooms, and of "msdump" and "tests" as wholes, under their names with "/"."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "msdump/*.py", "tests/*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found: dict[str, Size] = defaultdict(lambda: Size(0, 0, 0))
    for name in names:
        if (ROOT / name).is_file():
            size = size_of((ROOT / name).read_text(encoding="utf-8"))
            for room in (room_of(name), name.partition("/")[0] + "/"):
                found[room] = Size(*map(sum, zip(found[room], size, strict=True)))
    return dict(sorted(found.items()))


def budgets() -> dict[str, Size]:
    """Return the budget of each room."""
    with BUDGETS.open(encoding="utf-8", newline="") as file:
        return {
            row["room"]: Size(int(row["lines"]), int(row["tokens"]), int(row["vague"]))
            for row in csv.DictReader(file)
        }


def _write(rows: dict[str, Size]) -> None:
    with BUDGETS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("room", *Size._fields))
        writer.writerows((room, *size) for room, size in rows.items())


def main() -> None:
    """Print today's sizes beside the budgets; lower the budgets if asked to."""
    found, allowed = measured(), budgets() if BUDGETS.exists() else {}
    for room, size in found.items():
        shown = (f"{now:>9,} of {most:>9,}" for now, most in zip(size, allowed.get(room, size), strict=True))
        print(f"{room:32}", *shown)
    if "--lower" in sys.argv[1:]:
        _write({room: Size(*map(min, size, allowed.get(room, size))) for room, size in found.items()})


if __name__ == "__main__":
    main()
