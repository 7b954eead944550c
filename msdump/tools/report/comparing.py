"""The comparison with a golden dump, by tensors or by statistics, and what it tells of each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.compare.measured import pairs
from msdump.tools.compare.measured.findings import RowJudge
from msdump.tools.compare.pairing import dump_folders
from msdump.tools.compare.pairing.dump_folders import Executions
from msdump.tools.compare.verdict.comparison import DumpComparison
from msdump.tools.compare.verdict.surroundings import SurroundedDump
from msdump.tools.judge import words
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.grouping import BY_GRAVITY, size
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import Verdict
from msdump.tools.mapping.executors import ExecutorChoice
from msdump.tools.report.operators import ReportedOperator, places_by_name
from msdump.tools.return_codes import ReturnCode

_GRAVITY: Final = {verdict: place for place, verdict in enumerate(BY_GRAVITY)}

Explain = Callable[[DumpComparison], None]
"""Lets a comparison know what running operators again tells."""


@dataclass(frozen=True, slots=True)
class ComparedDumps:
    """Two dumps that were compared.

    Attributes:
        report: The verdicts.
        alone: Directories without a counterpart.
    """

    report: Report
    alone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorVerdict:
    """The verdict on an operator over all iterations.

    Attributes:
        worst: The gravest of its findings; of equal ones that with the largest own error.
        count: Number of its findings.
        distance: Largest relative distance of an output from golden's; NaN where none was compared.
        own_error: Largest error of its own.
    """

    worst: Finding
    count: int
    distance: float
    own_error: float


def compare(
    dumped: str,
    golden: str,
    limits: Limits,
    executions: Executions = (None, None),
    *,
    graph: str | None = None,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    explain: Explain | None = None,
) -> ComparedDumps:
    """Compare two dumps, those of which one holds statistics alone by their statistics.

    Args:
        dumped: The dump that is examined.
        golden: The dump that it is compared with.
        limits: What counts as agreement.
        executions: Number of the execution, or of the run, of each; None: the last one.
        graph: A model or a graph file that tells which tensors belong together, None: by names.
        executor: Who measures the tensors.
        explain: Lets the comparison know what running operators again tells, None: nothing runs.

    Raises:
        ToolError: A dump cannot be used, or nothing in it has a counterpart.
        DumpReadError: A directory cannot be read.
    """
    if dump_folders.is_measured_alone(dumped, golden):
        compared = _statistics(dumped, golden, limits, executions)
    else:
        folders = dump_folders.pair(dumped, golden, executions)
        comparison = DumpComparison(dumped, golden, limits, graph, *folders.executions, executor)
        comparison.measure(map(comparison.add, folders.pairs))
        if explain is not None:
            explain(comparison)
        alone = tuple(path for path in folders.alone if path not in comparison.joined)
        compared = ComparedDumps(comparison.report(), alone)
    if not (compared.report.compared or compared.report.unreadable):
        message = f"nothing was compared: no operator of {dumped} has a counterpart in {golden}"
        raise ToolError(ReturnCode.PARAMETER, message)
    return compared


def _statistics(dumped: str, golden: str, limits: Limits, executions: Executions) -> ComparedDumps:
    folders = dump_folders.pair_statistics(dumped, golden, executions)
    report = Report()
    judge = RowJudge(limits, SurroundedDump(dumped), SurroundedDump(golden), report)
    for folder in folders.pairs:
        pair = pairs.read(folder.dumped, folder.golden, folders.executions)
        report.unreadable += pair.unreadable_golden
        judge.add(folder.label, folder, pair)
    return ComparedDumps(report, tuple(folders.alone))


def by_operator(
    findings: Sequence[Finding], operators: Sequence[ReportedOperator]
) -> dict[int, list[Finding]]:
    """Return findings by the place of their operator in the list; those of no operator stand under -1."""
    places = places_by_name(operators)
    grouped: dict[int, list[Finding]] = {}
    for finding in findings:
        place = finding.place
        known = (
            places.get((rank, name)) for rank in (place.rank, None) for name in (place.full_name, place.name)
        )
        number = next((each for each in known if each is not None), -1)
        grouped.setdefault(number, []).append(finding)
    return grouped


def verdict_of(findings: Sequence[Finding]) -> OperatorVerdict:
    """Return the verdict on an operator from its findings of all iterations."""
    worst = min(findings, key=lambda each: (_GRAVITY[each.verdict], -size(each)[1], each.place.time))
    compared = [each for each in findings if any(tensor.evidence.error for tensor in each.outputs)]
    distance = max((each.distance for each in compared), default=math.nan)
    return OperatorVerdict(worst, len(findings), distance, max(each.own_error for each in findings))


def distances(grouped: dict[int, list[Finding]], count: int, iterations: Sequence[int]) -> np.ndarray:
    """Return the distances of operators' outputs from golden's, operators x iterations; NaN: not compared."""
    table = np.full((count, len(iterations)), np.nan)
    columns = {number: column for column, number in enumerate(iterations)}
    for operator, findings in grouped.items():
        for finding in findings:
            column = columns.get(finding.place.iteration or 0)
            is_compared = any(tensor.evidence.error for tensor in finding.outputs)
            if operator >= 0 and column is not None and is_compared:
                table[operator, column] = np.fmax(table[operator, column], finding.distance)
    return table


def words_of(finding: Finding) -> str:
    """Return the fault of an operator in a sentence: the verdict, what differs, and the reason."""
    if finding.verdict is Verdict.MISSING:
        return f"missing: golden has it, this dump does not{f'; {finding.note}' if finding.note else ''}"
    note = finding.note or (finding.worst.note if finding.worst is not None else "")
    return f"{finding.verdict}: {'; '.join(filter(None, (words.fault(finding), note)))}"
