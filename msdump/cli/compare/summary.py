"""The first lines of a comparison: who is at fault, and where runs over several iterations part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msdump.cli.counts import plural
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.grouping import BY_GRAVITY
from msdump.tools.judge.verdicts import ACCUSING, Verdict

_MOST: Final = 10  # accused operators, and iterations; the table has them all

_Run = tuple[int | None, int | None]
"""Rank and iteration."""


def lines(report: Report) -> Iterator[str]:
    """Yield who is at fault in the order of execution, what the others are, and where runs part."""
    yield f"verdict   {report.verdict}"
    accused = _once(report.accused)
    for findings in list(accused.values())[:_MOST]:
        yield from _fault(findings)
    if len(accused) > _MOST:
        yield f"          and {plural(len(accused) - _MOST, 'more operator')}"
    others = Counter(finding.verdict for finding in report.findings if finding.verdict not in ACCUSING)
    if accused and others:
        yield f"others    {_counted(others)}"
    yield from _runs(report)


def _once(accused: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Return accused operators by name: one that is at fault in several iterations is told once."""
    by_name: dict[str, list[Finding]] = {}
    for finding in accused:
        by_name.setdefault(finding.place.full_name or finding.place.name, []).append(finding)
    return by_name


def _fault(findings: Sequence[Finding]) -> Iterator[str]:
    first, place = findings[0], findings[0].place
    op_type = f" ({place.op_type})" if place.op_type else ""
    outputs = {True: ", reaches an output", False: ", reaches no output", None: ""}[first.reaches_output]
    reason = f", {first.note}" if first.note else ""
    yield f"fault     {place.full_name or place.name}{op_type}: {first.verdict}{reason}{outputs}"
    where = [f"rank {place.rank}"] if place.rank else []
    if place.iteration is not None and len(findings) > 1:
        where.append(f"iteration {place.iteration}, and {plural(len(findings) - 1, 'more time')}")
    for line in filter(None, (place.source, ", ".join(where))):
        yield f"          {line}"


def _counted(verdicts: Counter[Verdict]) -> str:
    return ", ".join(f"{verdicts[verdict]:,} {verdict}" for verdict in BY_GRAVITY if verdicts[verdict])


def _runs(report: Report) -> Iterator[str]:
    """Yield where each rank parts, and a line for each iteration, where there are several."""
    runs: dict[_Run, list[Finding]] = {}
    for finding in report.findings:
        runs.setdefault((finding.place.rank, finding.place.iteration), []).append(finding)
    if len(runs) < 2:  # noqa: PLR2004 - a single run is told by the table
        return
    for rank in dict.fromkeys(rank for rank, _ in runs):
        yield _part(rank, {iteration: each for (other, iteration), each in runs.items() if other == rank})
    told = [(run, findings) for run, findings in runs.items() if any(each.is_bad for each in findings)]
    for run, findings in told[:_MOST]:
        yield f"          {_name(*run)}: {_counted(Counter(each.verdict for each in findings))}"
    rest = len(runs) - len(told[:_MOST])
    if rest and len(told) <= _MOST:
        yield f"          {plural(rest, 'more run')} without a difference"
    elif rest:
        yield f"          and {plural(rest, 'more run')}"


def _part(rank: int | None, runs: dict[int | None, list[Finding]]) -> str:
    """Return the first iteration and operator that part on one rank."""
    prefix = "" if rank is None else f"rank {rank}: "
    for iteration, findings in runs.items():
        accused = [each for each in findings if each.is_accused]
        bad = accused or [each for each in findings if each.is_bad]
        if bad:
            first = min(bad, key=lambda each: each.place.time)
            name = first.place.full_name or first.place.name
            return f"parts     {prefix}in iteration {iteration}, at {name}: {first.verdict}"
    return f"parts     {prefix}nowhere in {plural(len(runs), 'iteration')}"


def _name(rank: int | None, iteration: int | None) -> str:
    return f"{'' if rank is None else f'rank {rank}, '}iteration {iteration}"
