"""``msdump overflow``: prints which operators of a dump overflowed, and extremes of their tensors."""

from __future__ import annotations

from typing import Final

import click

from msdump.cli import messages, options, sections
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, leave
from msdump.judge import reports
from msdump.look import OperatorOverflow, OverflowUnit, TensorSummary
from msdump.look import overflow as tool

DOCUMENT: Final = Document(
    Shape(
        tool.OverflowReport, "records=record_count overflows faults=errors summary", name="OverflowDocument"
    ),
    Shape(OperatorOverflow, "operator=name? op_type? pass_number timestamp units tensors"),
    Shape(OverflowUnit, "unit fields"),
    Shape(TensorSummary, "tensor file format shape dtype? max min mean fault?"),
)

# Only compiled graphs leave records. Elsewhere op_debug_mode 3 dumps just the operators that overflow.
_NONE = (
    "no overflow: {} has no Opdebug files; only O2, GE and acl dumps of overflows have them"
    " (in O0 and O1 each dumped operator overflowed)"
)


@click.command(name="overflow", cls=sections.Command)
@click.argument(
    "directory", type=click.Path(), help="Directory with Opdebug files, also in directories below."
)
@options.result_directory("Directory of the converted records, the converted tensors and the summary.")
@sections.output(
    "-n",
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="all",
    help="List only the oldest N overflows.",
)
@documents.option
@messages.verbose
def command(*, directory: str, output: str, top: int | None) -> None:
    """List the operators that overflowed.

    Each overflow record (Opdebug file) is joined to the dump file of its operator. The tensors of
    the operator are converted and summarised. The summary is printed and written to
    overflow_summary_{time}.txt.

    Examples:
        msdump overflow overflow_dump -out overflows

    Exit codes:
        0  All records are read.
        1  A record or a dump file could not be read.
        2  The directory or an option is wrong.
    """
    records = tool.find(directory)
    if not records:
        messages.say(_NONE.format(directory))
        if documents.wanted():
            documents.put(DOCUMENT, tool.OverflowReport())
        return
    report = tool.analyse(records, output, top or 0)
    for error in report.errors:
        messages.say(f"error: {error}")
    if not documents.wanted():
        print("".join(report.blocks), end="")
    report.summary = reports.write(output, reports.stamped("overflow_summary", ".txt"), report.blocks)
    written = f"{len(report.blocks)} of {len(records)} overflows, written to {report.summary}"
    documents.show(DOCUMENT, report, [written])
    if report.errors:
        leave(FAILED)
