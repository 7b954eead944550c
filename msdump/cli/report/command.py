"""``msdump report``: what is wrong with a dump, the run and all of its operators, in one page."""

from __future__ import annotations

import sys

import click

from msdump.cli import messages
from msdump.cli import options as common
from msdump.cli.compare import options as compare_options
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED
from msdump.cli.report import exports as export
from msdump.cli.report import follow, options, shown
from msdump.cli.report.exports import WantedExports
from msdump.cli.report.gathering import gather
from msdump.cli.report.options import ReportOptions
from msdump.tools.report import table
from msdump.tools.report.collecting import DumpReport

_MOST_FAULTS = 20  # that are told; -v tells all


@click.command(name="report")
@click.argument("dump", type=click.Path())
@click.argument("golden", type=click.Path(), required=False)
@compare_options.statistic_limits
@compare_options.limits
@common.executor
@options.asked
@export.options
@click.option(
    "--csv", "is_csv", is_flag=True, help="Print the same as csv, a row for a tensor and iteration."
)
@click.option(
    "--watch", "is_followed", is_flag=True, help="Follow a run that goes on: write the page again and again."
)
@click.option("--open", "is_opened", is_flag=True, help="Show the page in a browser.")
@documents.option
@messages.verbose
def command(
    *,
    dump: str,
    golden: str | None,
    asked: ReportOptions,
    exports: WantedExports,
    is_csv: bool,
    is_opened: bool,
    is_followed: bool,
) -> None:
    """Write one page on the dump DUMP: what is wrong, the run, all operators and their statistics.

    The page needs no network and no server. With GOLDEN the two dumps are compared, and the operators
    at fault are told first. --json and --csv print the same; the page is written beside them only with
    --output. --watch follows a run that goes on, until Ctrl-C. Exit codes: 0 the report is made,
    whatever it tells, 1 it is made, but a file or directory cannot be read, 2 something given is
    wrong, 130 interrupted.
    """
    if is_csv and documents.wanted():
        raise click.UsageError("--csv and --json exclude each other")
    if is_followed:
        if is_csv or documents.wanted():
            raise click.UsageError("--watch writes a page; --csv and --json print one report")
        if exports:
            raise click.UsageError("--watch writes a page; files for other programs are of one report")
        follow.follow(dump, golden, asked, is_opened=is_opened)
    report = gather(dump, golden, asked)
    if documents.wanted():
        from msdump.cli.documents.report import document

        documents.put(document(report))
    elif is_csv:
        sys.stdout.writelines(table.lines(report))
    else:
        print(report.headline)
    tell(report)
    source = click.get_current_context().get_parameter_source("output")
    is_page_asked = source is click.core.ParameterSource.COMMANDLINE
    for line in export.write(report, exports):
        messages.say(f"written {line}") if is_csv or documents.wanted() else print(f"written   {line}")
    if is_page_asked or not (is_csv or documents.wanted() or (exports and not is_opened)):
        shown.write(report, asked.output, is_opened=is_opened, is_told=not is_csv)
    click.get_current_context().exit(FAILED if report.faults else 0)


def tell(report: DumpReport) -> None:
    """Warn of what could not be read, and of directories without a counterpart."""
    faults = [*report.faults, *(f"{path} has no counterpart" for path in report.alone)]
    most = len(faults) if messages.verbosity() else _MOST_FAULTS
    for fault in faults[:most]:
        messages.say_once(f"warning: {fault}")
    if len(faults) > most:
        messages.say(f"warning: {len(faults) - most:,} more of these (-v shows all)")
