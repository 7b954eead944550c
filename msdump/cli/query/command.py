"""``msdump query``: answers questions in SQL about dumps, packs and results of comparisons."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

import click

from msdump.cli import messages, options
from msdump.cli.documents import output as documents
from msdump.cli.query import prompt, text
from msdump.errors import ToolError
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.query import sources
from msdump.tools.query.session import Session
from msdump.tools.return_codes import ReturnCode

_MOST_FAULTS: Final = 20  # that are told; -v tells all


@click.command(name="query")
@click.argument("arguments", nargs=-1, required=True, metavar="DUMP... [QUESTION]")
@click.option("--csv", "is_csv", is_flag=True, help="Print the answer as csv.")
@click.option("--parquet", metavar="FILE", help="Write the answer to a Parquet file.")
@click.option(
    "--measure", "measures", is_flag=True, help="Measure tensors without statistics; reads their files."
)
@options.executor
@documents.option
@messages.verbose
def command(
    *, arguments: tuple[str, ...], is_csv: bool, parquet: str | None, measures: bool, executor: ExecutorChoice
) -> None:
    """Answer QUESTION, in SQL, about each DUMP: tensors, statistics, operators, files, comparisons, runs.

    DUMP is a dump, what msdump pack made of some, or a result of msdump compare (.json, .csv);
    NAME=DUMP gives it a name. Without QUESTION they are read from standard input; on a terminal
    there is a prompt. Columns: docs/reference/views.md. Exit codes: 0 done, 2 something given is
    wrong, 130 interrupted.
    """
    if documents.wanted() + is_csv + (parquet is not None) > 1:
        raise click.UsageError("--csv, --json and --parquet exclude each other")
    names, question = split(arguments)
    with Session(sources.parse(names), measures=measures, executor=executor) as session:
        try:
            if question is None and sys.stdin.isatty() and not documents.wanted():
                prompt.ask(session, is_csv=is_csv)
            else:
                answer(session, sys.stdin.read() if question is None else question, parquet, is_csv=is_csv)
        finally:
            tell(session.faults)


def split(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the sources and the question, None without one: a last argument of several words, and no file.

    Raises:
        ToolError: There is a question alone.
    """
    *others, last = arguments
    if (" " not in last.strip() and "\n" not in last.strip()) or os.path.lexists(last):
        return arguments, None
    if sources.is_named(last):
        return arguments, None
    if not others:
        raise ToolError(
            ReturnCode.PARAMETER, "a question alone; name a dump before it: msdump query DUMP ..."
        )
    return tuple(others), last


def answer(session: Session, question: str, parquet: str | None, *, is_csv: bool) -> None:
    """Print or write the answer to a question.

    Raises:
        ToolError: The question cannot be answered, or the file not be written.
    """
    if parquet is not None:
        count = session.save(question, parquet)
        print(f"written   {parquet} ({count:,} rows)")
        return
    rows = session.ask(question)
    if documents.wanted():
        from msdump.cli.documents.query import document

        documents.put(document(question, rows, session.faults))
    elif is_csv:
        text.print_csv(rows)
    else:
        text.print_table(rows)


def tell(faults: Iterable[str]) -> None:
    """Warn of what could not be read."""
    each = list(faults)
    shown = each if messages.verbosity() else each[:_MOST_FAULTS]
    for fault in shown:
        messages.say_once(f"warning: {fault}")
    if len(shown) < len(each):
        messages.say(f"warning: {len(each) - len(shown):,} more of these (-v shows all)")
