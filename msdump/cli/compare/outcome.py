"""The end of every comparison: its report is printed or put as a document, the exit code follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click

from msdump.cli import messages
from msdump.cli.compare import text
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED
from msdump.tools import reports
from msdump.tools.compare.verdict import table as tables
from msdump.tools.judge.findings import Report

_SHOWN: Final = 30  # operators; of more only those that differ are listed


def tell(
    report: Report,
    folder: str,
    origins: Callable[[], Iterable[str]] = tuple,
    alone: Sequence[str] = (),
    code: int | None = None,
) -> None:
    """Tell the verdicts of a comparison, and exit with 1 where something differs.

    Args:
        report: The verdicts.
        folder: Directory of the table.
        origins: Gives lines on where the inputs that differ come from.
        alone: Directories without a counterpart.
        code: Exit code of a comparison that did not come to its end, None where it did.

    Raises:
        ToolError: The table cannot be written.
    """
    if not documents.wanted():
        _print(report, origins)
    # Behind the table, where a long one does not scroll them away.
    for path in alone:
        messages.say(f"warning: {path} has no counterpart")
    for fault in report.unreadable:
        messages.say(f"warning: {fault}")
    table = tables.table(report.findings, report.missing)
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


def _print(report: Report, origins: Callable[[], Iterable[str]]) -> None:
    shown = report.findings
    if len(shown) > _SHOWN and not messages.verbosity():
        shown = sorted(report.bad, key=lambda finding: finding.place.time)[:_SHOWN]
    if shown:
        text.print_table(shown, has_labels=any(finding.place.label for finding in report.findings))
    for line in text.lines(report, len(shown), tuple(origins())):
        print(line)
