"""The measured table of a page: ``python -m scripts.bench.page FILE.json docs/performance.md``.

Replaces the text between the two marks of the page by the table of a file that
``scripts.bench.run --json`` wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.bench import document, run
from scripts.bench.document import Document, Line

BEGIN: Final = "<!-- measured: begin (make bench JSON=table.json && make bench-page JSON=table.json) -->"
END: Final = "<!-- measured: end -->"

_HEAD: Final = (
    "| name | measured | on | 1 thread | 2 threads | goal |\n| --- | --- | --- | ---: | ---: | ---: |\n"
)
_THREADS: Final = (1, 2)


def written(page: str, table: Document) -> str:
    """Return a page with another table.

    Raises:
        ValueError: It has not both marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has not both marks, {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text(table)}{END}{after}"


def text(table: Document) -> str:
    """Return a table as Markdown, with its date and machine."""
    missed = len(document.missed(table.lines))
    told = f"{len(table.lines)} lines, {missed} missed (in bold)."
    rows = "".join(f"| {' | '.join(cells)} |\n" for cells in _rows(table))
    return f"{told} {_machine(table.date, table.machine)}\n\n{_HEAD}{rows}"


def _machine(date: str, facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    told = (
        f"Measured on {date[:10]}, commit {facts['commit'] or 'unknown'}: {facts['cpu']}",
        f"{facts['cores']} cores, {facts['memory_gib']} GiB, {facts['kernel']}",
        f"files on {facts['file_system']}",
        f"Python {facts['python']}, {versions}; load {facts['load'][0]} before.",
    )
    return ", ".join(told)


def _rows(table: Document) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each measurement on one network, its thread counts beside each other."""
    groups: dict[tuple[str, str, str, str], dict[int, Line]] = {}
    for line in table.lines:
        goal = f"{'at least' if line.is_floor else 'at most'} {line.limit:,g}"
        groups.setdefault((line.name, line.title, line.network, goal), {})[line.threads] = line
    for (name, title, network, goal), lines in groups.items():
        figures = (_figure(lines[threads]) if threads in lines else "" for threads in _THREADS)
        yield (f"`{name}`", title, network, *figures, goal)


def _figure(line: Line) -> str:
    if line.figure is None:
        return str(line.verdict)
    value, spread = run.figure_texts(line.figure)
    shown = f"{value} ({spread})" if spread else value
    return f"**{shown}**" if document.missed([line]) else shown


def main(source: str, page: str) -> None:
    """Write the table of a file into a page."""
    path = Path(page)
    path.write_text(written(path.read_text(encoding="utf-8"), document.read(Path(source))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
