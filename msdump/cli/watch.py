"""``msdump watch``: checks watch rules on a finished dump."""

from __future__ import annotations

import click

from msdump.cli import messages, options
from msdump.cli.counts import plural
from msdump.cli.documents import output as documents
from msdump.cli.program import FAILED, REFUSED
from msdump.config import watch as rule_files
from msdump.store.read.reader import open_dump
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.watching.checks import DumpedHit
from msdump.tools.watching.report import WatchReport, watch


@click.command(name="watch")
@click.argument("dump", type=click.Path())
@click.option(
    "--rules", "rules_file", required=True, type=click.Path(), help="JSON file with the rules to check."
)
@click.option("-n", "--top", type=click.IntRange(min=1), help="Print only so many hits, first ones first.")
@options.execution
@options.executor
@documents.option
@messages.verbose
def command(
    *, dump: str, rules_file: str, top: int | None, execution: int | None, executor: ExecutorChoice
) -> None:
    """Check watch rules on the tensors, or the statistics, of the dump DUMP.

    Hits are told in the order of iterations, ranks and time, with the measured value and the limit.
    Exit codes: 0 nothing hit, 1 something did, 2 nothing could be checked, a file cannot be read, or
    something given is wrong, 130 interrupted.
    """
    rules = rule_files.read(rules_file)
    with messages.bar("directories", 0) as bar:
        report = watch(open_dump(dump, execution), rules, executor=executor, progress=bar)
    if documents.wanted():
        from msdump.cli.documents.watch import document

        documents.put(document(report, top))
    else:
        _print(report, top)
    for fault in report.unreadable:
        messages.say(f"error: {fault}")
    if not report.has_checked:
        messages.say(f"error: {dump}: no rule could be checked on any tensor")
    click.get_current_context().exit(_exit_code(report))


def _exit_code(report: WatchReport) -> int:
    if report.hits:
        return FAILED
    return REFUSED if report.unreadable or not report.has_checked else 0


def _print(report: WatchReport, top: int | None) -> None:
    for hit in report.hits[:top]:
        print(_line(hit))
    if top is not None and len(report.hits) > top:
        print(f"... and {len(report.hits) - top} more")
    for each in report.undecided:
        tensors = plural(each.count, "tensor")
        first = f"{each.first.op_type} {each.first.name} {each.first.io}.{each.first.slot}"
        print(f"undecided: {each.rule} on {tensors}, such as {first}: {each.reason}")
    for name in report.unused:
        print(f"unused: {name} looks at nothing that was dumped")
    looked_at = max(report.looked_at.values(), default=0)
    hits, rules = plural(len(report.hits), "hit"), plural(len(report.rules), "rule")
    print(f"{hits} of {rules}, up to {plural(looked_at, 'tensor')} looked at")


def _line(each: DumpedHit) -> str:
    hit = each.hit
    tensor, moment = hit.subject, hit.moment
    place = f"iteration {moment.iteration}, rank {moment.rank}"
    if moment.pass_number:
        place += f", pass {moment.pass_number}"
    source = f"  [{each.source}]" if each.source else ""
    return (
        f"{hit.rule.name}: {place}: {tensor.op_type} {tensor.name} {tensor.io}.{tensor.slot}: {hit}{source}"
    )
