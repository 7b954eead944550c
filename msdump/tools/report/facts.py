"""The run that left a dump: its configuration, versions, device, ranks, iterations, what it left out."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msdump.errors import DumpReadError
from msdump.plan import DumpPlan, Trigger
from msdump.record import IO
from msdump.store.read.reader import Dump
from msdump.tools.report.columns import Fault
from msdump.tools.report.operators import ReportedOperator
from msdump.tools.report.series import StatisticSeries, spans

_EXAMPLES: Final = 5
_UNKNOWN: Final = "the dump does not tell why"


@dataclass(frozen=True, slots=True)
class RunFact:
    """A fact of the run in words: "iterations", "0-19"."""

    subject: str
    words: str


@dataclass(frozen=True, slots=True)
class UndumpedOperators:
    """Operators, or sides of operators, of which nothing was dumped.

    Attributes:
        what: What they are: "operators", "inputs", "outputs".
        reason: Why; in words, also where it is not known.
        count: Their number.
        examples: Full names of the first of them.
    """

    what: str
    reason: str
    count: int
    examples: tuple[str, ...]


def of_run(
    dump: Dump,
    plan: DumpPlan | None,
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    fault: Fault,
) -> Iterator[RunFact]:
    """Yield the facts of the run: what the dump tells, then the configuration as it was compiled."""
    version = importlib.import_module("msdump").__version__  # the layers below have no room to import from
    yield RunFact("report", f"made by msdump {version}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
    ranks = sorted({operator.rank for operator in operators})
    networks = dict.fromkeys(operator.place for operator in operators)
    yield RunFact("ranks", f"{len(ranks):,}: {spans(ranks)}" if ranks else "none")
    yield RunFact("networks", ", ".join(networks) or "none")
    numbers = spans(series.iterations)
    yield RunFact("iterations", f"{len(series.iterations):,}: {numbers}" if numbers else "none")
    yield RunFact(
        "operators", f"{len(operators):,}, of which {sum(each.is_dumped for each in operators):,} dumped"
    )
    yield RunFact("tensors", f"{len(series.tensors):,}, statistics: {', '.join(series.numbers) or 'none'}")
    yield from _metadata(dump, fault)
    if plan is not None:
        from msdump.tools.preview import describe  # not above: it loads what makes dumps

        for subject, words in describe.subjects(plan).items():
            yield RunFact(f"configured {subject}", words)


def _metadata(dump: Dump, fault: Fault) -> Iterator[RunFact]:
    devices: dict[str, list[int]] = {}
    configs: dict[str, list[int]] = {}
    for number, rank in dump.ranks.items():
        for told, kept in ((devices, "device"), (configs, "config")):
            try:
                value = getattr(rank, kept)
            except DumpReadError as error:
                fault(str(error))
                continue
            if value is not None:
                told.setdefault(json.dumps(value, ensure_ascii=False), []).append(number)
    for title, told in (("device", devices), ("configuration in the dump", configs)):
        for text, ranks in told.items():
            of_ranks = "" if len(told) == 1 else f" of rank {spans(ranks)}"
            yield RunFact(f"{title}{of_ranks}", text)


def left_out(
    operators: Sequence[ReportedOperator], series: StatisticSeries, plan: DumpPlan | None
) -> list[UndumpedOperators]:
    """Return what of the graphs was not dumped, and why, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for operator in operators:
        if not operator.is_dumped:
            reasons.setdefault(("operators", _reason(operator, plan)), []).append(operator.name)
    sides: dict[int, set[IO]] = {}
    for tensor in series.tensors:
        sides.setdefault(tensor.operator, set()).add(tensor.io)
    for side in IO:
        lacking = [
            operators[number].name
            for number, present in sides.items()
            if side not in present and not operators[number].is_parameter and _has(operators[number], side)
        ]
        if lacking:
            is_asked = plan is None or (
                plan.what.keeps_inputs if side is IO.INPUT else plan.what.keeps_outputs
            )
            reason = _UNKNOWN if is_asked else "not asked for (input_output)"
            reasons.setdefault((f"{side}s", reason), []).extend(lacking)
    return [
        UndumpedOperators(what, reason, len(names), tuple(names[:_EXAMPLES]))
        for (what, reason), names in reasons.items()
    ]


def _has(operator: ReportedOperator, side: IO) -> bool:
    described = operator.described
    return described is not None and bool(described.inputs if side is IO.INPUT else described.outputs)


def _reason(operator: ReportedOperator, plan: DumpPlan | None) -> str:
    if plan is None:
        return f"{_UNKNOWN}; --config gives the configuration"
    if plan.when.trigger is Trigger.OVERFLOW:
        return "it did not overflow (op_debug_mode 3)"
    if plan.when.trigger is Trigger.EXCEPTION:
        return "it did not fail (op_debug_mode 4)"
    refusal = plan.what.selector.refusal(operator.name) if plan.compiled.models is None else None
    return _UNKNOWN if refusal is None else str(refusal.value)
