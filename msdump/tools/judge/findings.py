"""The verdicts on tensors and operators, and the report of all of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.graph.updates import written_inputs
from msdump.record import IO, lies_in
from msdump.tools.judge.evidence import OperatorPlace, OwnError, TensorEvidence
from msdump.tools.judge.limits import TYPES
from msdump.tools.judge.verdicts import (
    ACCUSING,
    AGREEING,
    BAD,
    SEVERITY,
    TensorVerdict,
    Verdict,
)

_SUGGESTED: Final = ("float16", "bfloat16")  # what a device may compute in, whatever the types of its tensors
_UNCOMPARED: Final = frozenset({TensorVerdict.UNCHECKED, TensorVerdict.UNREADABLE})
_UNASKED: Final = "mine's configuration leaves it out"
# Of several verdicts that accuse nobody, the first of these is that of the whole.
_OVERALL: Final = (
    *(Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.INHERITED, Verdict.UNREADABLE, Verdict.HEALED),
    *(Verdict.AGREES, Verdict.EQUAL),
)


@dataclass(frozen=True, slots=True)
class TensorResult:
    """The verdict on a tensor.

    Attributes:
        evidence: The tensor and its counterpart, and how far they are apart.
        verdict: The verdict.
        note: Reason of the verdict, where the numbers do not tell.
        limit: Largest distance that was allowed; None where the two had to be the same, or were not compared.
    """

    evidence: TensorEvidence
    verdict: TensorVerdict
    note: str = ""
    limit: float | None = None

    @property
    def io(self) -> IO:
        """Input or output."""
        return self.evidence.io

    @property
    def slot(self) -> int:
        """Number of the input or output."""
        return self.evidence.slot

    @property
    def is_bad(self) -> bool:
        """Whether it differs, or could not be compared with its counterpart."""
        return self.verdict in BAD

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Sort key that is largest for the tensor that agrees least: verdict, whether an output, distance."""
        error = self.evidence.error
        distance = math.inf if error is None else error.distance
        return SEVERITY[self.verdict], self.io is IO.OUTPUT, distance


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one execution of an operator.

    Attributes:
        place: The operator, where and when it ran.
        verdict: The verdict.
        tensors: The verdict on each tensor, inputs first.
        note: Reason of the verdict in words, where the numbers do not tell; "" for none.
        own: Its own error, by output; empty where it did not run again.
        replaces: Name of the golden operator that stood in its place, "" where both have the same operator.
        reaches_output: Whether NaN or an infinity that it makes reaches an output of the network; None where
            that is not known, or does not apply.
    """

    place: OperatorPlace
    verdict: Verdict
    tensors: tuple[TensorResult, ...] = ()
    note: str = ""
    own: tuple[OwnError, ...] = ()
    replaces: str = ""
    reaches_output: bool | None = None

    def of(self, io: IO) -> tuple[TensorResult, ...]:
        """Return the verdicts on the inputs or the outputs; an input that it writes counts as an output."""
        return of_side(self.tensors, io, self.place.op_type)

    @property
    def inputs(self) -> tuple[TensorResult, ...]:
        """The verdicts on what it reads."""
        return self.of(IO.INPUT)

    @property
    def outputs(self) -> tuple[TensorResult, ...]:
        """The verdicts on what it writes."""
        return self.of(IO.OUTPUT)

    @property
    def worst(self) -> TensorResult | None:
        """The tensor that agrees least, None where it has none."""
        return max(self.tensors, key=lambda tensor: tensor.badness, default=None)

    @property
    def is_accused(self) -> bool:
        """Whether the fault is in this operator."""
        return self.verdict in ACCUSING

    @property
    def is_bad(self) -> bool:
        """Whether it is accused, or one of its tensors differs or could not be compared."""
        return self.is_accused or any(tensor.is_bad for tensor in self.tensors)

    @property
    def is_compared(self) -> bool:
        """Whether all of its outputs were compared."""
        return not any(tensor.verdict in _UNCOMPARED for tensor in self.outputs)

    @property
    def own_error(self) -> float:
        """How much of its error is its own: measured where it ran again, else that beyond its inputs'."""
        if self.own:
            return max(each.error.distance for each in self.own)
        before, behind = (_largest(self.of(io)) for io in (IO.INPUT, IO.OUTPUT))
        if self.is_accused:
            return max(behind, before)
        return max(0.0, behind - before) if math.isfinite(before) else 0.0

    @property
    def distance(self) -> float:
        """Relative distance of the output that is furthest from golden's."""
        return _largest(self.outputs)

    def wrong(self, side: IO) -> tuple[TensorResult, ...]:
        """Return the inputs or the outputs that differ or could not be compared."""
        return tuple(tensor for tensor in self.of(side) if tensor.is_bad)


def of_side(tensors: tuple[TensorResult, ...], io: IO, op_type: str) -> tuple[TensorResult, ...]:
    """Return the verdicts on the inputs or the outputs; an input that the operator writes is an output.

    Args:
        tensors: The verdicts on all of its tensors.
        io: Inputs or outputs.
        op_type: Its type.
    """
    written = written_inputs(op_type)
    if not written:
        return tuple([tensor for tensor in tensors if tensor.evidence.io is io])
    return tuple(
        tensor
        for tensor in tensors
        if (IO.OUTPUT if tensor.io is IO.INPUT and tensor.slot in written else tensor.io) is io
    )


@dataclass(frozen=True, slots=True)
class Uneven:
    """An operator of a loop that ran more often on one side.

    Attributes:
        name: The operator as the names of files have it.
        dumped: Number of its executions on the side that is examined.
        golden: Number of its executions on the golden side.
    """

    name: str
    dumped: int
    golden: int


@dataclass(slots=True)
class Report:
    """All verdicts of a comparison.

    Attributes:
        findings: The operators, directory by directory, in the order of execution.
        tensors: Number of tensors by verdict.
        missing: Golden operators that the other side lacks.
        unasked: Golden operators that the other side's configuration leaves out.
        unreadable: Messages about golden files that cannot be read.
        uneven: Operators of loops that did not run equally often.
    """

    findings: list[Finding] = field(default_factory=list)
    tensors: Counter[TensorVerdict] = field(default_factory=Counter)
    missing: list[OperatorPlace] = field(default_factory=list)
    unasked: list[OperatorPlace] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    uneven: list[Uneven] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Add an operator, and count its tensors."""
        self.findings.append(finding)
        self.tensors.update(tensor.verdict for tensor in finding.tensors)

    @property
    def absent(self) -> list[Finding]:
        """Verdicts on golden operators that the other side has no files of, where ``findings`` has none."""
        judged = {_without_time(each.place) for each in self.findings if each.verdict is Verdict.MISSING}
        missing = (place for place in self.missing if _without_time(place) not in judged)
        return [
            *(Finding(place, Verdict.MISSING) for place in missing),
            *(Finding(place, Verdict.UNCHECKED, note=_UNASKED) for place in self.unasked),
        ]

    @property
    def verdict(self) -> Verdict:
        """That of the first accused operator; else the worst of the others; unchecked without any tensor."""
        accused = self.accused
        if accused:
            return accused[0].verdict
        present = {finding.verdict for finding in self.findings}
        if self.unreadable or self.tensors[TensorVerdict.UNREADABLE]:
            present.add(Verdict.UNREADABLE)
        return next((verdict for verdict in _OVERALL if verdict in present), Verdict.UNCHECKED)

    @property
    def accused(self) -> list[Finding]:
        """The operators that the fault is in, in the order of execution."""
        accused = (finding for finding in self.findings if finding.is_accused)
        return sorted(accused, key=lambda finding: finding.place.time)

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
    def agrees(self) -> bool:
        """Whether everything that has a counterpart could be compared with it and agrees."""
        return not (self.bad or self.unreadable or self.uneven)

    @property
    def first(self) -> Finding | None:
        """The first operator with a tensor that differs; else one at fault, or with a bad file."""
        bad = [each for each in self.bad if any(tensor.is_bad for tensor in each.tensors)] or self.bad
        # A file that cannot be read says nothing about the computation, so it comes second.
        readable = [each for each in bad if each.verdict is not Verdict.UNREADABLE]
        return min(readable or bad, key=lambda each: each.place.time, default=None)

    def before(self, finding: Finding) -> list[Finding]:
        """Return the operators that ran before another one, in all directories, in the order of execution."""
        earlier = (each for each in self.findings if each.place.time < finding.place.time)
        return sorted(earlier, key=lambda each: each.place.time)

    def below(self, scope: str) -> list[Finding]:
        """Return the operators in a scope, ``Default/fc1-Dense`` or ``h.3``."""
        return [each for each in self.findings if lies_in(each.place.full_name or each.place.name, scope)]

    def precision(self) -> str:
        """Return the type to suggest for ``--precision``, "" where none makes the first operator agree."""
        first = self.first
        if first is None:
            return ""
        bad = [each for each in first.tensors if each.is_bad]
        return next((name for name in _SUGGESTED if all(_is_within(each, name) for each in bad)), "")


def _without_time(place: OperatorPlace) -> OperatorPlace:
    """Return a place without when it ran: an operator that is missing stands where its reader ran."""
    return replace(place, order=0, time=0)


def _largest(tensors: Iterable[TensorResult]) -> float:
    errors = (each.evidence.error for each in tensors)
    return max((error.distance for error in errors if error is not None), default=0.0)


def _is_within(tensor: TensorResult, dtype: str) -> bool:
    error = tensor.evidence.error
    if error is None or tensor.limit is None:
        return False
    return tensor.limit < error.distance <= TYPES[dtype].distance
