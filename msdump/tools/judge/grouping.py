"""Operators of a report in groups, and by the size of their errors."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msdump.tools.judge.findings import Finding
from msdump.tools.judge.verdicts import Verdict


class Arrangement(enum.StrEnum):
    """How operators are listed other than in the order of execution."""

    OWN = "own"
    """By how much of their error is their own."""
    SCOPE = "scope"
    """In one group for each scope."""
    TYPE = "type"
    """In one group for each type."""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """The operators of a scope or of a type.

    Attributes:
        name: The scope, or the type.
        findings: The operators, in the order of execution.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def accused(self) -> int:
        """Number of operators at fault."""
        return sum(each.is_accused for each in self.findings)

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Number of operators by verdict, the accusing ones first."""
        counts = Counter(each.verdict for each in self.findings)
        return {verdict: counts[verdict] for verdict in BY_GRAVITY if counts[verdict]}

    @property
    def worst(self) -> Finding:
        """The operator with the largest own error, or else with the largest error."""
        return max(self.findings, key=size)


BY_GRAVITY = (
    *(Verdict.OWN, Verdict.WEIGHT, Verdict.NONFINITE, Verdict.REPLACED, Verdict.SHAPE, Verdict.DTYPE),
    *(Verdict.MISSING, Verdict.UNREADABLE, Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.INHERITED),
    *(Verdict.HEALED, Verdict.AGREES, Verdict.EQUAL, Verdict.UNCHECKED),
)
"""All verdicts, the gravest first."""


def size(finding: Finding) -> tuple[bool, float, float]:
    """Return a sort key that is largest for the operator that matters most."""
    return finding.is_accused, finding.own_error, finding.distance


def by_own(findings: Iterable[Finding]) -> list[Finding]:
    """Return operators by their own error, the largest first."""
    return sorted(findings, key=size, reverse=True)


def groups(findings: Iterable[Finding], arrangement: Arrangement) -> list[FindingGroup]:
    """Return operators in groups, those at fault and with the largest own error first."""
    members: dict[str, list[Finding]] = {}
    for finding in findings:
        place = finding.place
        name = place.op_type if arrangement is Arrangement.TYPE else place.scope
        members.setdefault(name, []).append(finding)
    grouped = (FindingGroup(name, tuple(each)) for name, each in members.items())
    return sorted(grouped, key=lambda group: size(group.worst), reverse=True)


def top(findings: Sequence[Finding], count: int) -> list[Finding]:
    """Return the operators that matter most, in their order; not those without an error."""
    differing = (finding for finding in findings if finding.is_bad or finding.distance)
    chosen = {id(finding) for finding in by_own(differing)[:count]}
    return [finding for finding in findings if id(finding) in chosen]
