"""Answers as a table for people, and as csv."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Final

from msdump.cli import messages
from msdump.cli.terminal import visible
from msdump.tools.query.session import Answer

_SHOWN: Final = 50  # rows; -v shows all
_BATCH: Final = 10_000
_PIPED_WIDTH: Final = 160  # columns; rich takes 80 where there is no terminal, which folds every name


def print_table(answer: Answer) -> None:
    """Print the first rows of an answer as a table, and whether there are more."""
    rows = answer.fetch(_SHOWN + 1) if not messages.verbosity() else _all(answer)
    is_cut = len(rows) > _SHOWN and not messages.verbosity()
    if not rows:
        print("no rows" if answer.columns else "done")
        return
    _print(answer, rows[:_SHOWN] if is_cut else rows)
    if is_cut:
        print(f"the first {_SHOWN} rows; -v shows all, --csv, --json and --parquet hold all")


def _all(answer: Answer) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    while batch := answer.fetch(_BATCH):
        rows += batch
    return rows


def _print(answer: Answer, rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title, kind in answer.columns:
        is_number = kind in {"BIGINT", "DOUBLE", "INTEGER", "HUGEINT"} or kind.startswith("DECIMAL")
        table.add_column(visible(title), overflow="fold", justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(visible(_short(cell)) for cell in row))
    # markup=False: names of operators may have square brackets, which rich takes for styles
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False, emoji=False).print(table)


def _short(cell: object) -> str:
    """Return a cell with six digits, as statistics have."""
    return f"{cell:.6g}" if isinstance(cell, float) else _text(cell)


def _text(cell: object) -> str:
    """Return a cell in full."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, list | tuple):
        return "[{}]".format(", ".join(map(_text, cell)))
    return str(cell)


def print_csv(answer: Answer) -> None:
    """Print an answer as csv: a line of titles, then all rows; NULL is an empty cell."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(title for title, _ in answer.columns)
    while rows := answer.fetch(_BATCH):
        writer.writerows([_text(cell) for cell in row] for row in rows)
