"""``msdump query``: answers questions in SQL about dumps, packs and results of comparisons."""

from __future__ import annotations

import csv
import math
import os
import sys
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, Final

import click

from msdump.cli import messages, options, sections, streams
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.errors import ToolError
from msdump.executors import ExecutorChoice
from msdump.look.query import Answer, Session, is_named, parse_sources
from msdump.return_codes import ReturnCode

_SHOWN: Final = 50  # rows; -v shows all
_BATCH: Final = 10_000
_NONFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _print_table(answer: Answer) -> None:
    """Print the first rows of an answer as a table, and whether there are more."""
    from rich.table import Table

    rows = answer.fetch(sys.maxsize if messages.verbosity() else _SHOWN + 1)
    is_cut = len(rows) > _SHOWN and not messages.verbosity()
    if not rows:
        print("no rows" if answer.columns else "done")
        return
    shown = Table()
    for title, kind in answer.columns:
        is_number = kind in {"BIGINT", "DOUBLE", "INTEGER", "HUGEINT"} or kind.startswith("DECIMAL")
        shown.add_column(title, overflow="fold", justify="right" if is_number else "left")
    for row in rows[:_SHOWN] if is_cut else rows:  # with six digits, as statistics have
        shown.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else _text(cell) for cell in row))
    streams.print_table(shown)
    if is_cut:
        print(f"the first {_SHOWN} rows; -v shows all, --csv, --json and --parquet hold all")


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, list | tuple):
        return "[{}]".format(", ".join(map(_text, cell)))
    return str(cell)


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer.

    Attributes:
        name: Its name; no two columns of an answer have the same one.
        type: Its type, as DuckDB calls it.
    """

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The answer to a question.

    Attributes:
        question: The question.
        columns: The columns of the answer.
        rows: All rows: cells by the names of their columns; NaN and infinities are texts, times ISO 8601 in
            UTC.
        warnings: Parts of the sources that could not be read.
    """

    question: str
    columns: list[AnswerColumn]
    rows: list[dict[str, Any]]
    warnings: list[str]


DOCUMENT: Final = Document(Shape(WholeAnswer, "question columns rows warnings", name="QueryDocument"))


def _json_value(cell: object) -> object:
    """Return a cell of an answer as JSON has it."""
    value: object
    match cell:
        case None | bool() | int() | str():
            value = cell
        case float():
            value = cell if math.isfinite(cell) else _NONFINITE[str(cell)]
        case Decimal():
            value = float(cell)
        case date() | time():
            value = cell.isoformat()
        case list() | tuple():
            value = [_json_value(each) for each in cell]
        case dict():
            value = {str(key): _json_value(each) for key, each in cell.items()}
        case _:
            value = str(cell)
    return value


@click.command(name="query", cls=sections.Command)
@click.argument(
    "arguments", nargs=-1, required=True, metavar="DUMP... [QUESTION]", help="Dumps, and a query in SQL."
)
@sections.selection(
    "--measure", "measures", is_flag=True, help="Read tensors without statistics and measure them."
)
@sections.selection(
    "--read-only",
    "is_read_only",
    is_flag=True,
    help="Give the query access to the DUMPs and to no other file.",
)
@sections.output("--csv", "is_csv", is_flag=True, help="Print the answer as CSV.")
@sections.output("--parquet", metavar="FILE", help="Write the answer to a Parquet file.")
@documents.option
@options.executor
@messages.verbose
def command(
    *,
    arguments: tuple[str, ...],
    is_csv: bool,
    parquet: str | None,
    measures: bool,
    is_read_only: bool,
    executor: ExecutorChoice,
) -> None:
    """Query dumps in SQL.

    The views are tensors, statistics, operators, files, comparisons and runs
    (docs/reference/views.md). DUMP is a dump, a pack of `msdump pack`, or a document of
    `msdump compare --json`. NAME=DUMP names a dump. Without QUESTION the query is read from
    standard input.

    Examples:
        msdump query dump "SELECT op_name, max FROM statistics ORDER BY max DESC"

    Exit codes:
        0  The query is answered.
        1  A part of a dump could not be read and is left out.
    2  A dump, the query or an option is wrong.
    """
    if documents.wanted() + is_csv + (parquet is not None) > 1:
        raise click.UsageError("--csv, --json and --parquet exclude each other")
    if is_read_only and parquet is not None:
        raise click.UsageError("--parquet writes a file and excludes --read-only")
    # the question is the last argument, if it has several words and is no file
    *names, last = arguments
    is_word = " " not in last.strip() and "\n" not in last.strip()
    if is_source := is_word or os.path.lexists(last) or is_named(last):
        names.append(last)
    elif not names:
        raise ToolError(ReturnCode.PARAMETER, "the question needs a dump before it: msdump query DUMP ...")
    given = parse_sources(names)
    with Session(given, measures=measures, executor=executor, is_read_only=is_read_only) as session:
        try:
            _answer(session, sys.stdin.read() if is_source else last, parquet, is_csv=is_csv)
        finally:
            messages.say_each("warning", [*session.faults])


def _answer(session: Session, question: str, parquet: str | None, *, is_csv: bool) -> None:
    if parquet is not None:
        count = session.save(question, parquet)
        print(f"written   {parquet} ({count:,} rows)")
        return
    answer = session.ask(question)
    if documents.wanted():
        names = [name for name, _ in answer.columns]
        rows = [dict(zip(names, map(_json_value, row), strict=True)) for row in answer.fetch(sys.maxsize)]
        columns = [AnswerColumn(name, kind) for name, kind in answer.columns]
        documents.put(DOCUMENT, WholeAnswer(question, columns, rows, [*session.faults]))
    elif is_csv:  # a line of titles, then all rows; NULL is an empty cell
        writer = csv.writer(streams.data(), lineterminator="\n")
        writer.writerow(title for title, _ in answer.columns)
        while batch := answer.fetch(_BATCH):
            writer.writerows([_text(cell) for cell in row] for row in batch)
    else:
        _print_table(answer)
