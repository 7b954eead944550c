"""``msdump watch``: checks watch rules on a finished dump."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import click

from msdump.cli import messages, options, sections
from msdump.cli import output as documents
from msdump.cli.output import Document, Shape
from msdump.cli.program import FAILED, REFUSED, leave
from msdump.config import watch as rule_files
from msdump.errors import plural
from msdump.executors import ExecutorChoice
from msdump.look import UndecidedRule, WatchReport, watch
from msdump.read import open_dump
from msdump.watch import Hit, LowerBound


def _measured(hit: Hit) -> float | None:
    """The measured value; null where statistics show only that the limit is passed."""
    return None if isinstance(hit.measured, LowerBound) else hit.measured


def _at_least(hit: Hit) -> float:
    """Lower bound of the quantity."""
    return float(hit.measured)


def _at_most(hit: Hit) -> float:
    """Upper bound of the quantity."""
    return math.inf if isinstance(hit.measured, LowerBound) else hit.measured


def _tensor(hit: Hit) -> str:
    """Which input or output, "output:0"."""
    return f"{hit.subject.io}:{hit.subject.slot}"


def _first(rule: UndecidedRule) -> str:
    """The first of the tensors."""
    return f"{rule.first.op_type} {rule.first.name} {rule.first.io}:{rule.first.slot}"


DOCUMENT: Final = Document(
    Shape(WatchReport, "rules=checked count hits=shown undecided unreadable", name="WatchDocument"),
    Shape(
        Hit,
        "rule=rule.name condition=rule.condition parameter=limit.parameter? limit=limit.value"
        " comparison=limit.comparison quantity=limit.quantity.text measured at_least at_most"
        " note? operator=subject.name op_type=subject.op_type tensor"
        " iteration=moment.iteration rank=moment.rank pass_number=moment.pass_number timestamp=moment.time"
        " source=moment.source? path=moment.path",
        name="DumpedHit",
        measured=_measured,
        at_least=_at_least,
        at_most=_at_most,
        tensor=_tensor,
    ),
    Shape(UndecidedRule, "rule reason tensors=count first", first=_first),
)


_rules: Final = sections.Section("Rules")


@click.command(name="watch", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump with tensors or statistics.")
@_rules("--rules", "rules_file", required=True, type=click.Path(), metavar="FILE.json", help="Watch rules.")
@options.execution
@sections.output("-n", "--top", type=click.IntRange(min=1), metavar="N", help="Print only the first N hits.")
@documents.option
@options.executor
@messages.verbose
def command(
    *, dump: str, rules_file: str, top: int | None, execution: int | None, executor: ExecutorChoice
) -> None:
    """Check watch rules on the tensors of a dump.

    Each hit is printed with its value and its limit, in the order of iterations, ranks and time.

    Examples:
        msdump watch dump --rules rules.json

    Exit codes:
        0  No rule hit.
        1  A rule hit.
        2  No rule could be checked, a file could not be read, or an option is wrong.
    """
    rules = rule_files.read(rules_file)
    with messages.bar("directories", 0) as bar:
        report = watch(open_dump(dump, execution), rules, executor=executor, progress=bar)
    report.top = top
    documents.show(DOCUMENT, report, _lines(report))
    messages.say_each("error", report.unreadable)
    if not report.has_checked:
        messages.say(f"error: {dump}: no rule could be checked on any tensor")
    if report.hits:
        leave(FAILED)
    # 1 says that a rule hit, also where files or rows are missing
    leave(REFUSED if messages.has_damages() or not report.has_checked else 0)


def _lines(report: WatchReport) -> Iterator[str]:
    yield from map(_line, report.shown)
    if hidden := report.count - len(report.shown):
        yield f"... and {hidden} more"
    for each in report.undecided:
        tensors = plural(each.count, "tensor")
        first = f"{each.first.op_type} {each.first}"
        yield f"undecided: {each.rule} on {tensors}, such as {first}: {each.reason}"
    for name in report.unused:
        yield f"unused: {name} fits no dumped tensor"
    looked_at = max(report.looked_at.values(), default=0)
    hits, rules = plural(report.count, "hit"), plural(len(report.rules), "rule")
    yield f"{hits} of {rules} on up to {plural(looked_at, 'tensor')}"


def _line(hit: Hit) -> str:
    moment = hit.moment
    place = f"iteration {moment.iteration}, rank {moment.rank}"
    if moment.pass_number:
        place += f", pass {moment.pass_number}"
    source = f"  [{moment.source}]" if moment.source else ""
    return f"{hit.rule.name}: {place}: {hit.subject.op_type} {hit.subject}: {hit}{source}"
