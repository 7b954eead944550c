"""The document of ``msdump watch --json``."""

from __future__ import annotations

from typing import Literal

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools.watching.checks import DumpedHit
from msdump.tools.watching.report import WatchReport


class WatchHit(Part):
    """A limit that a tensor has passed."""

    rule: str
    """Name of the rule."""

    condition: str
    """Name of its condition."""

    parameter: str | None
    """The parameter that gives the limit; null where the condition itself does."""

    limit: Number
    """The limit."""

    comparison: Literal[">", ">=", "<", "<="]
    """How the measured value stands to the limit."""

    quantity: str
    """What was measured."""

    measured: Number | None
    """What was measured; null where statistics tell only that the limit is passed."""

    at_least: Number
    """What the measured value is at least."""

    at_most: Number
    """What the measured value is at most."""

    note: str | None
    """What the numbers do not tell; null for nothing."""

    operator: str
    """Full name of the operator, or as files spell it; name of a parameter."""

    op_type: str
    """Type of the operator, "Parameter" for weights and graph inputs."""

    tensor: str
    """Which, "output:0"."""

    iteration: int
    """Number of the iteration."""

    rank: int
    """Number of the rank; of compiled models of the device."""

    pass_number: int
    """Which run of the operator within the iteration, from 0."""

    timestamp: int
    """When, in microseconds since the epoch."""

    source: str | None
    """The line of the program that made the operator; null where the dump does not tell."""

    path: str
    """File of the tensor, or directory of the table with its statistics."""


class UncheckedRule(Part):
    """A rule that could not be checked on some tensors, for one reason."""

    rule: str
    """Name of the rule."""

    reason: str
    """Why."""

    tensors: int
    """On how many tensors, those of each iteration counted."""

    first: str
    """The first of them."""


class CheckedRule(Part):
    """A rule, and how much it had to do."""

    rule: str
    """Its name."""

    condition: str
    """Its condition."""

    tensors: int
    """How many tensors it looked at."""


class WatchDocument(JsonDocument):
    """What watch rules find in a dump."""

    rules: list[CheckedRule]
    """The rules."""

    count: int
    """Number of all hits."""

    hits: list[WatchHit]
    """The hits, in the order of iterations, ranks and time; the first ones with --top."""

    undecided: list[UncheckedRule]
    """What could not be checked, and why."""

    unreadable: list[str]
    """Files that could not be read, and why."""


def document(report: WatchReport, top: int | None) -> WatchDocument:
    """Return a report as a document, with the first hits alone where ``top`` is given."""
    return WatchDocument(
        rules=[
            CheckedRule(rule=rule.name, condition=rule.condition, tensors=report.looked_at[rule.name])
            for rule in report.rules
        ],
        count=len(report.hits),
        hits=[_hit(each) for each in report.hits[:top]],
        undecided=[
            UncheckedRule(
                rule=each.rule,
                reason=each.reason,
                tensors=each.count,
                first=f"{each.first.op_type} {each.first.name} {each.first.io}:{each.first.slot}",
            )
            for each in report.undecided
        ],
        unreadable=report.unreadable,
    )


def _hit(each: DumpedHit) -> WatchHit:
    hit = each.hit
    return WatchHit(
        rule=hit.rule.name,
        condition=hit.rule.condition,
        parameter=hit.limit.parameter or None,
        limit=hit.limit.value,
        comparison=hit.limit.comparison.value,
        quantity=hit.limit.quantity.text,
        measured=hit.measured.low if hit.measured.is_exact else None,
        at_least=hit.measured.low,
        at_most=hit.measured.high,
        note=hit.note or None,
        operator=hit.subject.name,
        op_type=hit.subject.op_type,
        tensor=f"{hit.subject.io}:{hit.subject.slot}",
        iteration=hit.moment.iteration,
        rank=hit.moment.rank,
        pass_number=hit.moment.pass_number,
        timestamp=hit.moment.time,
        source=each.source or None,
        path=each.path,
    )
