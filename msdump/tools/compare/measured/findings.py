"""The verdicts on the operators of a directory whose statistics are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from msdump.tools.compare.measured import differences
from msdump.tools.compare.measured.differences import RowComparison
from msdump.tools.compare.measured.pairs import RowPair
from msdump.tools.compare.measured.rows import Place, RowSide, StatisticRow
from msdump.tools.judge.evidence import OperatorEvidence, OperatorPlace, TensorEvidence
from msdump.tools.judge.findings import Report, Uneven
from msdump.tools.judge.judging import Judge
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import TensorVerdict

Passage = tuple[str, int]
"""One execution of an operator: its name as files spell it, and the number of its pass."""


@dataclass(frozen=True, slots=True)
class RowLimits:
    """What statistics that agree may differ by.

    Attributes:
        judge: As for tensors.
        by_category: Largest relative difference by category, where the user says so.
    """

    judge: Limits
    by_category: Mapping[str, float]


def add(report: Report, label: str, pair: RowPair, limits: RowLimits) -> None:
    """Add the verdicts on the operators of a pair of directories to a report.

    Args:
        report: The report.
        label: Label of the two directories.
        pair: Their rows.
        limits: What counts as agreement.
    """
    dumped, golden = pair.dumped, pair.golden
    comparison = RowComparison(limits.by_category)
    judge, missing, passes = Judge(limits.judge), _by_passage(golden), _passes(dumped)
    for order, ((name, number), rows) in enumerate(_by_passage(dumped).items(), 1):
        counterparts = missing.pop((name, number), {})
        tensors = [_evidence(comparison, row, golden, pair.unreadable) for row in rows.values()]
        tensors += _left_over(rows, counterparts)
        tensors.sort(key=lambda tensor: (tensor.io, tensor.slot))
        place = _place(next(iter(rows.values())), label, order, passes[name])
        report.add(judge.finding(OperatorEvidence(place, tuple(tensors))))
    names = {place[0] for place in dumped.rows}
    for (name, _), rows in missing.items():
        first = next(iter(rows.values()))
        if name not in names and not first.is_parameter:
            report.missing.append(_place(first, label, 0, 1))
    report.uneven += _uneven(dumped, golden)


def _by_passage(side: RowSide) -> dict[Passage, dict[Place, StatisticRow]]:
    """Return the rows of each execution of an operator, in the order of execution."""
    passages: dict[Passage, dict[Place, StatisticRow]] = {}
    for place, row in side.rows.items():
        passages.setdefault((place[0], place[3]), {})[place] = row
    return passages


def _passes(side: RowSide) -> Counter[str]:
    """Return how often each operator ran."""
    return Counter(name for name, _ in _by_passage(side))


def _evidence(
    comparison: RowComparison, row: StatisticRow, golden: RowSide, unreadable: Mapping[Place, str]
) -> TensorEvidence:
    if row.place in unreadable:
        return replace(differences.alone(row), fault=TensorVerdict.UNREADABLE, note=unreadable[row.place])
    counterpart = golden.rows.get(row.place)
    if counterpart is None:
        return differences.alone(row)
    return comparison.evidence(row, counterpart)


def _left_over(
    rows: Mapping[Place, StatisticRow], counterparts: Mapping[Place, StatisticRow]
) -> Iterator[TensorEvidence]:
    """Yield the golden tensors of an operator that the examined side lacks."""
    for place, row in counterparts.items():
        if place not in rows:
            yield replace(differences.alone(row), note="mine has no such row")


def _place(row: StatisticRow, label: str, order: int, passes: int) -> OperatorPlace:
    name, _, _, number = row.place
    pass_number = number if passes > 1 else None
    return OperatorPlace(name, row.op_type, label=label, order=order, time=row.time, pass_number=pass_number)


def _uneven(dumped: RowSide, golden: RowSide) -> Iterator[Uneven]:
    mine, theirs = _passes(dumped), _passes(golden)
    for name, count in mine.items():
        if count != theirs.get(name, count):
            yield Uneven(name, count, theirs[name])
