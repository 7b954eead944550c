"""``msdump overflow``: prints which operators of a dump overflowed, and extremes of their tensors."""

from __future__ import annotations

import click

from msdump.cli import messages
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED
from msdump.tools import reports
from msdump.tools.overflow import records as overflow_records
from msdump.tools.overflow import report as tool

# Only compiled graphs leave records. Elsewhere op_debug_mode 3 dumps just the operators that overflow.
_NONE = (
    "no overflow: {} holds no Opdebug files, as O2, GE and acl dumps of overflows do"
    " (in O0 and O1 each dumped operator overflowed)"
)


@click.command(name="overflow")
@click.argument("directory", type=click.Path())
@click.option(
    "-out",
    "--output",
    default=".",
    show_default=True,
    type=click.Path(),
    help="Directory of the converted records and tensors, and of the summary.",
)
@click.option(
    "-n", "--top", type=click.IntRange(min=1), help="Only so many overflows, oldest first (default: all)."
)
@documents.option
@messages.verbose
def command(*, directory: str, output: str, top: int | None) -> None:
    """Tell which operators overflowed, from the Opdebug files in DIRECTORY and below.

    Each is joined to the dump file of the operator, whose tensors are converted and summed
    up. The summary is printed and written to overflow_summary_{time}.txt. Exit codes: 0 done,
    1 a record or a dump file cannot be read, 2 something given is wrong, 130 interrupted.
    """
    records = overflow_records.find(directory)
    if not records:
        messages.say(_NONE.format(directory))
        if documents.wanted():
            _put(tool.OverflowReport(), None)
        return
    report = tool.analyse(records, output, top or 0)
    for error in report.errors:
        messages.say(f"error: {error}")
    if not documents.wanted():
        print("".join(report.blocks), end="")
    path = reports.write(output, reports.stamped("overflow_summary", ".txt"), report.blocks)
    if documents.wanted():
        _put(report, path)
    else:
        print(f"{len(report.blocks)} of {len(records)} overflows, written to {path}")
    if report.errors:
        click.get_current_context().exit(FAILED)


def _put(report: tool.OverflowReport, path: str | None) -> None:
    from msdump.cli.documents.overflow import document

    documents.put(document(report, path))
