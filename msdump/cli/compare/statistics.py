"""``msdump compare`` of dumps of which one holds statistics alone."""

from __future__ import annotations

import os

import click

from msdump.cli import messages
from msdump.cli.compare import outcome
from msdump.cli.compare.listing import ComparisonView
from msdump.cli.program import REFUSED
from msdump.store.layouts import STATISTICS as TABLE
from msdump.tools.compare.measured import pairs
from msdump.tools.compare.measured.contradictions import contradictions
from msdump.tools.compare.measured.findings import RowJudge
from msdump.tools.compare.pairing import dump_folders
from msdump.tools.compare.verdict.surroundings import SurroundedDump
from msdump.tools.judge.findings import Report
from msdump.tools.judge.limits import Limits


def tell_contradictions(path: str, execution: int) -> None:
    """Warn of rows of a directory that do not measure the tensors beside them; the tensors decide."""
    if not os.path.isfile(f"{path}/{TABLE}"):
        return
    told = list(contradictions(path, execution))
    if told:
        more = f", and so for {len(told) - 1} more" if len(told) > 1 else ""
        messages.say(
            f"warning: {path}/{TABLE} contradicts the tensors beside it, which are compared: {told[0]}{more}"
        )


def run(
    dumped: str,
    golden: str,
    output: str,
    limits: Limits,
    executions: tuple[int | None, int | None],
    *,
    view: ComparisonView = ComparisonView(),  # noqa: B008 - frozen
) -> None:
    """Compare and tell; exit with 1 where something differs, with 2 where nothing has a counterpart.

    Args:
        dumped: The dump that is examined.
        golden: The dump that it is compared with.
        output: Directory of the table.
        limits: What counts as agreement.
        executions: Number of the execution of each side, None: the last one that is whole.
        view: What is listed.

    Raises:
        ToolError: A dump cannot be used, or the table cannot be written.
        DumpReadError: A table of statistics cannot be read.
    """
    folders = dump_folders.pair_statistics(dumped, golden, executions)
    report = Report()
    judge = RowJudge(limits, SurroundedDump(dumped), SurroundedDump(golden), report)
    for folder in folders.pairs:
        pair = pairs.read(folder.dumped, folder.golden, folders.executions)
        for path, side in ((folder.dumped, pair.dumped), (folder.golden, pair.golden)):
            # Where several runs dumped into one path, the user is told which one is read.
            messages.tell_execution(path, side.execution, side.executions)
        report.unreadable += pair.unreadable_golden
        judge.add(folder.label, folder, pair)
    if not (report.compared or report.unreadable):
        messages.say(f"error: nothing was compared: no row of {dumped} has a counterpart in {golden}")
        click.get_current_context().exit(REFUSED)
    outcome.tell(report, output, alone=folders.alone, view=view)
