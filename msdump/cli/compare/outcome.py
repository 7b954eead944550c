"""The end of every comparison: its report is printed or put as a document, the exit code follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

from msdump.cli import messages
from msdump.cli.compare import listing, summary, text
from msdump.cli.compare.listing import ComparisonView
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED
from msdump.tools import reports
from msdump.tools.compare.verdict import table as tables
from msdump.tools.judge.findings import Report


def tell(
    report: Report,
    folder: str,
    origins: Callable[[], Iterable[str]] = tuple,
    alone: Sequence[str] = (),
    *,
    view: ComparisonView = ComparisonView(),  # noqa: B008 - frozen
    code: int | None = None,
) -> None:
    """Tell the verdicts of a comparison, and exit with 1 where something differs.

    Args:
        report: The verdicts.
        folder: Directory of the table.
        origins: Gives lines on where the inputs that differ come from.
        alone: Directories without a counterpart.
        view: What is listed.
        code: Exit code of a comparison that did not come to its end, None where it did.

    Raises:
        ToolError: The table cannot be written.
    """
    if not documents.wanted():
        for line in summary.lines(report):
            print(line)
        shown = listing.show(report, view)
        for line in text.lines(report, shown, tuple(origins())):
            print(line)
    # Behind the table, where a long one does not scroll them away.
    for path in alone:
        messages.say(f"warning: {path} has no counterpart")
    for fault in report.unreadable:
        messages.say(f"warning: {fault}")
    table = tables.table(report.findings, report.absent)
    path = reports.write(folder, reports.stamped("compare", ".csv"), [table])
    if documents.wanted():
        from msdump.cli.documents.compare import document

        documents.put(document(report, alone=alone, table=path))
    else:
        print(f"written   {path}")
    if code is not None:
        click.get_current_context().exit(code)
    if not report.agrees:
        click.get_current_context().exit(FAILED)
