"""The verdicts on tensors and operators, the report of all of them, and its order and words."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.judge import Fact
from msdump.judge.verdict.evidence import (
    AGREEING,
    Finding,
    OperatorPlace,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    largest_distance,
)
from msdump.judge.verdict.limits import SOFTMAX, TO_SOFTMAX, TYPES
from msdump.read import OperatorGraph
from msdump.record import IO, lies_in

_SUGGESTED: Final = ("float16", "bfloat16")  # devices may compute in these, whatever the types of tensors
_UNASKED: Final = "mine's configuration leaves it out"
# Without an accused operator, the report's verdict is the first of these that an operator has.
_OVERALL: Final = (
    *(Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.INHERITED, Verdict.UNREADABLE, Verdict.HEALED),
)


@dataclass(frozen=True, slots=True)
class Uneven:
    """An operator of a loop that ran more often on one side.

    Attributes:
        name: Name in files.
        dumped: Number of its executions on the examined side.
        golden: Number of its executions on the golden side.
    """

    name: str
    dumped: int
    golden: int


@dataclass(frozen=True, slots=True)
class Stop:
    """An error that ended a run of a side."""

    side: str  # the side, ``golden (float32)``
    operator: str  # full name of the operator that failed; "" for another cause
    error: str  # the error's message

    def __str__(self) -> str:
        """Return the side and its error."""
        return f"{self.side}: {self.error}"


@dataclass(slots=True)
class Report:
    """All verdicts of a comparison.

    Attributes:
        findings: The operators, directory by directory, in the order of execution.
        tensors: Number of tensors by verdict.
        missing: Golden operators that the examined side lacks.
        unasked: Golden operators that the examined side's configuration leaves out.
        unreadable: Messages about golden files that cannot be read.
        uneven: Operators of loops that did not run equally often.
        inputs: Names of the network's inputs that differ.
        outputs: The outputs of the network, of each run.
        facts: Differences of the two graphs.
        unreturned: Missing golden operators with outputs of golden's network that were not compared.
        is_strict: Whether inner tensors count beside the outputs of the network.
        networks: Sentences on directories, or models, of two networks, which were not compared.
        stops: Errors that ended runs.
        unread_graphs: Sides without a graph file, so that names alone pair the operators.
        alone: Modules, calls and parameters of a tree of msprobe without a counterpart, and the reason.
        widened: Sentence on quantised numbers that make the limits wider; "" without such.
    """

    findings: list[Finding] = field(default_factory=list)
    tensors: Counter[TensorVerdict] = field(default_factory=Counter)
    missing: list[OperatorPlace] = field(default_factory=list)
    unasked: list[OperatorPlace] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    uneven: list[Uneven] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[TensorEvidence] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    unreturned: list[OperatorPlace] = field(default_factory=list)
    is_strict: bool = False
    networks: list[str] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    unread_graphs: dict[str, None] = field(default_factory=dict)
    alone: list[Finding] = field(default_factory=list)
    widened: str = ""

    def add(self, finding: Finding) -> None:
        """Add an operator, and count its tensors."""
        self.findings.append(finding)
        self.tensors.update(tensor.verdict for tensor in finding.tensors)

    def add_networks(self, mine: str, golden: str, sentence: str) -> None:
        """Add a sentence on two directories that are of two networks; "" adds nothing."""
        if sentence:
            self.networks.append(f"{mine} and {golden}: {sentence}")

    @property
    def operators(self) -> list[Finding]:
        """All operators, directory by directory in the order of execution, then the absent ones."""
        return [*self.findings, *self.absent]

    @property
    def absent(self) -> list[Finding]:
        """Verdicts on golden operators without files on the other side, if ``findings`` has none on them.

        With two graphs and outputs that were compared, a value shows the lack of each one in findings.
        """
        judged = {_without_time(each.place) for each in self.findings if each.verdict is Verdict.MISSING}
        missing = (place for place in self.missing if _without_time(place) not in judged)
        verdict, note = Verdict.UNCHECKED, "golden alone has it, and no value shows it"
        is_blind = all(each.verdict is TensorVerdict.UNCHECKED for each in self.outputs)
        if self.unread_graphs or self.networks or is_blind:
            verdict, note = Verdict.MISSING, ""
        return [
            *(Finding(place, verdict, note=note) for place in missing),
            *(Finding(place, Verdict.UNCHECKED, note=_UNASKED) for place in self.unasked),
            *self.alone,
        ]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the first accused operator; else of the outputs, or the worst of all operators.

        Stopped where an error ended a run, unchecked where no tensor, or not every output, was compared.
        Inner tensors count where no graph names the outputs, or where the report is strict.
        """
        if self.accused:
            return self.accused[0].verdict
        if self.stops:
            return Verdict.STOPPED
        present = {each.verdict for each in self.findings}
        is_torn = bool(self.unreadable or self.tensors[TensorVerdict.UNREADABLE])
        # with different network inputs, or missing outputs, equal outputs prove nothing
        is_sound = not (self.unreturned or self.inputs) and all(
            each.verdict in AGREEING for each in self.outputs
        )
        if is_sound and not (self.bad and (self.is_strict or not self.outputs)) and not is_torn:
            if self.uneven or not (self.outputs or present - {Verdict.UNCHECKED}):
                return Verdict.UNCHECKED
            return Verdict.EQUAL if present <= {Verdict.EQUAL, Verdict.UNCHECKED} else Verdict.AGREES
        present -= {Verdict.EQUAL, Verdict.AGREES}
        present |= {Verdict.UNREADABLE} if is_torn else set()
        return next((each for each in _OVERALL if each in present), Verdict.UNCHECKED)

    @property
    def agrees(self) -> bool:
        """Whether the verdict is agreement: the exit code is 0."""
        return self.verdict in {Verdict.EQUAL, Verdict.AGREES}

    @property
    def accused(self) -> list[Finding]:
        """The operators at fault, in the order of execution."""
        accused = (finding for finding in self.findings if finding.is_accused)
        return sorted(accused, key=lambda finding: finding.place.time)

    @property
    def unread(self) -> Iterator[str]:
        """Messages about tensors of either side that cannot be read."""
        tensors = (tensor for finding in self.findings for tensor in finding.tensors)
        return (tensor.note for tensor in tensors if tensor.verdict is TensorVerdict.UNREADABLE)

    @property
    def agreeing(self) -> int:
        """Number of tensors that agree."""
        return sum(self.tensors[verdict] for verdict in AGREEING)

    @property
    def failed(self) -> int:
        """Number of tensors that have a counterpart and cannot be compared with it."""
        unfit = (TensorVerdict.SHAPE, TensorVerdict.DTYPE, TensorVerdict.UNREADABLE)
        return sum(self.tensors[verdict] for verdict in unfit)

    @property
    def compared(self) -> int:
        """Number of tensors that have a counterpart."""
        return self.tensors.total() - self.tensors[TensorVerdict.UNCHECKED]

    @property
    def bad(self) -> list[Finding]:
        """Operators with a tensor that differs or could not be compared with its counterpart."""
        return [finding for finding in self.findings if finding.is_bad]

    @property
    def first(self) -> Finding | None:
        """The first operator with a tensor that differs; else the first accused or unreadable one."""
        bad = [each for each in self.bad if any(tensor.is_bad for tensor in each.tensors)] or self.bad
        # A file that cannot be read says nothing about the computation, so it comes second.
        readable = [each for each in bad if each.verdict is not Verdict.UNREADABLE]
        return min(readable or bad, key=lambda each: each.place.time, default=None)

    def below(self, scope: str) -> list[Finding]:
        """Return the operators in a scope, ``Default/fc1-Dense`` or ``h.3``."""
        return [each for each in self.findings if lies_in(each.place.shown_name, scope)]

    def precision(self) -> str:
        """Return the type to suggest for ``--precision``, "" where none makes the first operator agree."""
        first = self.first
        bad = [] if first is None else [each for each in first.tensors if each.is_bad]
        if not bad:
            return ""
        return next(
            (
                name
                for name in _SUGGESTED
                if all(
                    each.limit is not None and each.limit < each.distance <= TYPES[name].distance
                    for each in bad
                )
            ),
            "",
        )


def _without_time(place: OperatorPlace) -> OperatorPlace:
    return replace(place, order=0, time=0)


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
    """The operators of a scope or of a type, in the order of execution."""

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
        return max(self.findings, key=gravity)


BY_GRAVITY = (
    *(Verdict.OWN, Verdict.WEIGHT, Verdict.NONFINITE, Verdict.REPLACED, Verdict.SHAPE, Verdict.DTYPE),
    *(
        Verdict.EXTRA,
        Verdict.MISSING,
        Verdict.UNREADABLE,
        Verdict.AMPLIFIED,
        Verdict.ACCUMULATED,
        Verdict.INHERITED,
    ),
    *(Verdict.HEALED, Verdict.AGREES, Verdict.EQUAL, Verdict.UNCHECKED),
)
"""All verdicts on operators, the gravest first."""


def gravity(finding: Finding) -> tuple[bool, float, float]:
    """Sort key of findings; largest for the operator that matters most."""
    return finding.is_accused, finding.own_error, finding.distance


def by_own(findings: Iterable[Finding]) -> list[Finding]:
    """Return operators by their own error, the largest first."""
    return sorted(findings, key=gravity, reverse=True)


def grouped_findings(findings: Iterable[Finding], arrangement: Arrangement) -> list[FindingGroup]:
    """Return operators in groups, first the groups at fault and with the largest own error."""
    members: dict[str, list[Finding]] = {}
    for finding in findings:
        place = finding.place
        name = place.op_type if arrangement is Arrangement.TYPE else place.scope
        members.setdefault(name, []).append(finding)
    grouped = (FindingGroup(name, tuple(each)) for name, each in members.items())
    return sorted(grouped, key=lambda group: gravity(group.worst), reverse=True)


def top_findings(findings: Sequence[Finding], count: int) -> list[Finding]:
    """Return the ``count`` worst operators, in the given order; operators without an error are left out."""
    differing = (finding for finding in findings if finding.is_bad or finding.distance)
    chosen = {id(finding) for finding in by_own(differing)[:count]}
    return [finding for finding in findings if id(finding) in chosen]


def with_reach(finding: Finding, findings: Sequence[Finding], graph: OperatorGraph | None) -> Finding:
    """Return a finding, with ``reaches_output`` set if NaN or infinities begin in its operator.

    ``findings`` are of all operators of the run. Without a graph the outputs of the last one count as the
    network's.
    """
    if finding.verdict is not Verdict.NONFINITE:
        return finding
    return replace(finding, reaches_output=_reaches(finding, findings, graph))


def _reaches(finding: Finding, findings: Sequence[Finding], graph: OperatorGraph | None) -> bool | None:
    if graph is None:
        return _is_struck(max(findings, key=lambda each: each.place.time))
    holding = {each.place.shown_name for each in findings if _is_struck(each)}
    known = {each.place.shown_name for each in findings}
    reached = {finding.place.shown_name}
    pending, is_certain = [*reached], True
    while pending:
        name = pending.pop()
        if graph.is_output(name):
            return True
        readers = {reader.full_name for reader in graph.used_by(name)}
        is_certain &= readers <= known  # an operator that was not compared may pass them on
        new = (readers & holding) - reached
        reached |= new
        pending += new
    return False if is_certain else None


def masking_operators(graph: OperatorGraph | None) -> frozenset[str]:
    """Return the full names of operators with outputs that reach nothing but a softmax.

    Very low elements of these outputs are masks of attention: softmax turns them into zero. The outputs reach
    the softmax directly or through sums, selections, casts and views.
    """
    masking: set[str] = set()
    if graph is None:
        return frozenset()
    for name in reversed([*graph.operators]):
        readers = graph.used_by(name)
        are_masking = all(
            each.op_type in SOFTMAX or (each.op_type in TO_SOFTMAX and each.full_name in masking)
            for each in readers
        )
        if readers and are_masking and not graph.is_output(name):
            masking.add(name)
    return frozenset(masking)


def _is_struck(finding: Finding) -> bool:
    return any(tensor.misplaced for tensor in finding.outputs)


def fault_text(finding: Finding) -> str:
    """Return the fault of an operator in words, such as "output 0 differs, its inputs agree"."""
    # the side that differs is named first: if only inputs differ, the outputs' agreement follows
    parts = [_state(side, finding.of(side)) for side in (IO.OUTPUT, IO.INPUT)]
    return ", ".join(parts if finding.wrong(IO.OUTPUT) else reversed(parts))


def _state(side: IO, tensors: Sequence[TensorEvidence]) -> str:
    bad = [each for each in tensors if each.is_bad]
    if bad:
        differs = any(each.verdict in {TensorVerdict.DIFFERS, TensorVerdict.DTYPE} for each in bad)
        # inputs that the operator writes stand behind its outputs
        own = [str(each.slot) for each in bad if each.io is side]
        slots = ", ".join((*own, *(f"{each.io} {each.slot}" for each in bad if each.io is not side)))
        is_plural = len(bad) > 1
        # "already": an input that differs was wrong before this operator ran.
        verb = f"differ{'s' * (not is_plural)}" if differs else "cannot be compared"
        return f"{side}{'s' * is_plural} {slots} {'already ' * (differs and side is IO.INPUT)}{verb}"
    if any(each.error is not None for each in tensors):
        distance = largest_distance(tensors)
        return f"its {side}s agree{f' (distance {distance:.2g})' if distance else ''}"
    return f"its {side}s were not compared"
