"""Draws verdicts on tensors by limits, and on operators by the first rule that applies."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from msdump.analysis import TensorError
from msdump.analysis.judge.evidence import (
    AGREEING,
    UNCOMPARED,
    OperatorEvidence,
    OwnError,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    joined,
)
from msdump.analysis.judge.findings import Finding, TensorResult, largest_distance, of_side
from msdump.analysis.judge.limits import DECIDING, NONEXPANSIVE, QUANTISING, TIED, Limits, coarser
from msdump.device import INSERTED_PREFIX
from msdump.read import ABSENT, SourceKind, ValueSource
from msdump.record import IO
from msdump.store import PARAMETER

_KINDS: Final = {
    "float": "float",
    "bfloat": "float",
    "complex": "complex",
    "int": "int",
    "uint": "int",
    "bool": "bool",
}
"""Kinds of numbers by what the names of element types begin with."""


class _Allowance(NamedTuple):
    """What two tensors may differ by: their distance, units of the last place, their largest difference."""

    distance: float | None
    units: float
    floor: float


class TensorJudge:
    """Draws verdicts on tensors, in the order of the execution.

    A tensor is at best as precise as what it was computed from. So the limit is that of the coarsest
    element type of all tensors so far that the two sides do not have bit for bit the same, and of what only
    one of the two sides computed in. An input may differ by what that type does not hold at all, too: what
    the operators behind its producer compute in tells nothing of what was lost there.
    """

    def __init__(self, limits: Limits) -> None:
        """Start at the first operator."""
        self._limits = limits
        self._coarsest = limits.precision
        self._met: set[str] = set()
        self._lost = 0.0
        self._allowances: dict[tuple[tuple[str, str], str, tuple[str, ...]], _Allowance] = {}

    def results(
        self, tensors: Iterable[TensorEvidence], arithmetic: tuple[str, str] = ("", "")
    ) -> tuple[TensorResult, ...]:
        """Return the verdicts on the tensors of the operator that ran next.

        Args:
            tensors: Its tensors.
            arithmetic: Coarsest types that the examined side and golden compute it in, "" where one does
                not tell.
        """
        tensors = tuple(tensors)
        # Where both sides compute in the same type they round alike.
        computed = arithmetic if arithmetic[0] != arithmetic[1] else ()
        # All tensors of the operator before any is judged: its inputs limit how good its outputs can be.
        types = set(computed)
        for tensor in tensors:
            if tensor.error is None or not tensor.error.is_same:
                types.add(tensor.dtype)
                types.add(tensor.golden_dtype)
        if not types <= self._met:
            self._met |= types
            self._coarsest = coarser(self._coarsest, *types)
        results = tuple([self._result(each, computed) for each in tensors])
        if computed:  # what this operator loses is missing from what reads it
            self._lost = max(self._lost, self._limits.floor(computed))
        return results

    def _result(self, evidence: TensorEvidence, computed: tuple[str, ...]) -> TensorResult:
        error = evidence.error
        if error is None or evidence.fault is not None:
            return TensorResult(evidence, evidence.fault or TensorVerdict.UNCHECKED, evidence.note)
        types = (evidence.dtype, evidence.golden_dtype)
        allowance = self._allowance(types, computed)
        limit = allowance.distance
        remarks = evidence.note
        if error.misplaced or types[0] != types[1] or math.isnan(error.cosine):
            remarks = joined(
                _misplacement(error), f"{types[0]} beside {types[1]}" * (types[0] != types[1]), remarks
            )
        if evidence.is_rounded:
            return TensorResult(evidence, TensorVerdict.AGREES, remarks or "rounded to fewer bits", limit)
        if evidence.io is IO.INPUT and allowance.floor < self._lost:
            allowance = allowance._replace(floor=self._lost)
        return TensorResult(evidence, self._verdict(error, types, allowance), remarks, limit)

    def _allowance(self, types: tuple[str, str], computed: tuple[str, ...]) -> _Allowance:
        """Return what two element types may differ by now; networks have few of them."""
        key = types, self._coarsest, computed
        allowance = self._allowances.get(key)
        if allowance is None:
            limits = self._limits
            allowance = self._allowances[key] = _Allowance(
                limits.allowed(types, self._coarsest), limits.units(types), limits.floor((*types, *computed))
            )
        return allowance

    def _verdict(self, error: TensorError, types: tuple[str, str], allowance: _Allowance) -> TensorVerdict:
        if error.is_same:  # the same numbers in two types agree: one side was computed otherwise
            return TensorVerdict.EQUAL if types[0] == types[1] else TensorVerdict.AGREES
        limit = allowance.distance
        kinds = {*map(_kind, types)}
        if len(kinds) > 1 and "" not in kinds:
            return TensorVerdict.DTYPE
        if limit is None or error.misplaced:
            return TensorVerdict.DIFFERS
        is_near = (
            error.distance <= limit
            and error.cosine >= self._limits.cosine
            and error.scaled <= limit * self._limits.peak
        )
        is_rounding = 0 < error.ulps <= allowance.units or 0 < error.largest <= allowance.floor
        return TensorVerdict.AGREES if is_near or is_rounding else TensorVerdict.DIFFERS


def _kind(dtype: str) -> str:
    """Return the kind of numbers of an element type, "" of one that is not known.

    >>> _kind("bfloat16"), _kind("uint8"), _kind("bool"), _kind("99")
    ('float', 'int', 'bool', '')
    """
    return next((kind for prefix, kind in _KINDS.items() if dtype.startswith(prefix)), "")


def _misplacement(error: TensorError) -> str:
    if error.misplaced:
        return f"NaN or infinities differ at {error.misplaced:,} element{'s' * (error.misplaced > 1)}"
    if math.isnan(error.cosine):
        return "golden is zero" if math.isinf(error.distance) else "mine is zero"
    return ""


@dataclass(frozen=True)
class Case:
    """An operator before its verdict.

    Attributes:
        evidence: What is known of it.
        tensors: The verdicts on its tensors.
        inputs: Its inputs that were compared; where they were not dumped, the outputs that it reads.
        outputs: Its outputs that were compared.
        is_complete: Whether all of its inputs are known.
    """

    evidence: OperatorEvidence
    tensors: Sequence[TensorResult]
    inputs: Sequence[TensorResult]
    outputs: Sequence[TensorResult]
    is_complete: bool

    @functools.cached_property
    def bad_inputs(self) -> Sequence[TensorResult]:
        """Inputs that differ."""
        return [each for each in self.inputs if each.is_bad]

    @functools.cached_property
    def bad_outputs(self) -> Sequence[TensorResult]:
        """Outputs that differ."""
        return [each for each in self.outputs if each.is_bad]

    def written_inputs(self) -> Iterator[tuple[TensorResult, ValueSource, ValueSource]]:
        """Yield each input that differs and that an operator wrote, with its source and golden's source."""
        for each in self.bad_inputs:
            source = self.evidence.source(each.slot)
            if source.kind is SourceKind.OPERATOR:
                yield each, source, self.evidence.golden_source(each.slot)

    def wrong_wiring(self, slot: int) -> str:
        """Return in words which other tensor than golden an input is, both of whose sources are known."""
        other = self.swapped_with(slot)
        if other is not None:
            return f"inputs {min(slot, other)} and {max(slot, other)} are swapped"
        golden = self.evidence.golden_reads[slot]
        return f"input {slot} is of {self.evidence.reads[slot].name}, golden's is of {golden.name}"

    def swapped_with(self, slot: int) -> int | None:
        """Return the input that reads what golden's input of a number reads, and the other way round."""
        reads, golden = self.evidence.reads, self.evidence.golden_reads
        crossed = self.evidence.golden_source(slot), self.evidence.source(slot)
        if ABSENT in crossed or crossed[0] == crossed[1]:
            return None
        pairs = enumerate(zip(reads, golden, strict=False))
        return next((other for other, pair in pairs if pair == crossed), None)

    def explains_steps(self, output: TensorResult) -> bool:
        """Tell whether what moved the first input explains the steps that moved a quantised output.

        The largest element takes half of the steps of the type at least, or all of them. So an element moves
        by its difference in such steps, rounded up; by as much again where the scale moved; and of elements
        that are a part of a step off as large a part goes to the next one.
        """
        error = output.evidence.error
        data = next((each.evidence.error for each in self.inputs if not each.slot), None)
        if error is None or data is None or not data.largest or not math.isfinite(data.scaled):
            return False
        steps, count = 2 * _steps(output.evidence.dtype), math.prod(output.evidence.shape)
        part = data.norm / math.sqrt(max(count, 1)) * data.scaled / data.largest
        # where the zero point of the moment is another one, all elements go with it
        zero = 0.0 if output.slot else self._moved_zero()
        share = 1.0 if zero else max(TIED, steps * part)
        return error.largest <= 1 + zero + steps * data.scaled and error.changed <= max(1.0, count * share)

    def told_again(self, limits: Limits) -> tuple[Verdict, str] | None:
        """Return the verdict on an operator that read the wrong tensor, or that gives something else again.

        Args:
            limits: What counts as agreement.
        """
        evidence = self.evidence
        if evidence.wiring:
            return (Verdict.REPLACED if evidence.replaces else Verdict.OWN), evidence.wiring
        own = next((each for each in evidence.own if not each.is_explained), None)
        if own is None:
            return None
        if evidence.replaces:
            return Verdict.REPLACED, f"in the place of {evidence.replaces}, which gives something else"
        if own.error.misplaced:
            return self._misplaced(own, limits)
        if own.overflow:
            return Verdict.NONFINITE, f"as if {own.overflow} in it had overflowed, which what follows hides"
        told = f"own error {own.error.distance:.2g} in {own.arithmetic}, {own.explanation} {own.allowed:.2g}"
        return Verdict.OWN, joined(told, own.note)

    def _misplaced(self, own: OwnError, limits: Limits) -> tuple[Verdict, str]:
        """Return the verdict on NaN and infinities that running again does not give.

        Those that were in the inputs do not begin here; where they come out at other places, the operator is
        told by its finite elements. What overflows was computed in a shorter type, whose rounding these show,
        and makes no element finite.
        """
        count = own.error.misplaced
        elements = f"{count:,} element{'s' * (count > 1)}"
        note = f"NaN or infinities at {elements} that do not come again in {own.arithmetic}"
        is_given = any(each.misplaced for each in self.inputs)
        if is_given and own.finite > (limits.allowed((_SHORT, _SHORT), _SHORT) or 0.0):
            return (
                Verdict.OWN,
                f"own error {own.finite:.2g} where both are finite in {own.arithmetic}; {note}",
            )
        finite = count - own.error.nonfinite
        if is_given and finite:
            return Verdict.OWN, f"{note}, of which {finite:,} are finite here"
        return Verdict.NONFINITE, note

    def _moved_zero(self) -> float:
        """Return by how many steps the zero point has moved that the operator found for its input."""
        errors = (each.evidence.error for each in self.outputs if each.slot == _ZERO_POINT)
        return max((error.largest for error in errors if error is not None), default=0.0)

    @property
    def input_distance(self) -> float:
        """The largest distance of an input, 0 without any."""
        return largest_distance(self.inputs)

    @property
    def unreadable_note(self) -> str | None:
        """Why its first tensor whose file cannot be read cannot be; None without any."""
        faults = (each.note for each in self.tensors if each.verdict is TensorVerdict.UNREADABLE)
        return next(faults, None)


_SHORT: Final = "float16"
"""The type with the fewest numbers, in which kernels overflow."""

_ZERO_POINT: Final = 2
"""Number of the output in which a quantising operator tells its zero point."""


def _steps(dtype: str) -> int:
    """Return how many steps integers of a type have.

    >>> _steps("uint8"), _steps("int16")
    (255, 65535)
    """
    bits = dtype.removeprefix("u").removeprefix("int")
    return (1 << int(bits)) - 1 if bits.isdecimal() else 0


_Reason = tuple[Verdict, str]
_UNFIT: Final = {TensorVerdict.SHAPE: Verdict.SHAPE, TensorVerdict.DTYPE: Verdict.DTYPE}


@dataclass(slots=True)
class Judge:
    """Draws verdicts on operators, in the order of the execution.

    Attributes:
        limits: What counts as agreement.
        is_continued: Whether runs before it differed, whose trained weights this one reads.
    """

    limits: Limits
    is_continued: bool = False
    _tensors: TensorJudge = field(init=False)
    _findings: dict[str, Finding] = field(default_factory=dict)
    _has_differed: bool = False
    _is_exact: bool = True

    def __post_init__(self) -> None:
        """Start at the first operator."""
        self._tensors = TensorJudge(self.limits)

    def finding(self, evidence: OperatorEvidence) -> Finding:
        """Return the verdict on the operator that ran next."""
        place = evidence.operator
        results = self._tensors.results(evidence.tensors, evidence.arithmetic)
        if evidence.unread:
            evidence = replace(evidence, own=tuple(each for each in evidence.own if _is_read(each, evidence)))
            results = tuple(
                each if _is_read(each, evidence) or not each.is_bad else _left(each) for each in results
            )
        outputs = of_side(results, IO.OUTPUT, place.op_type)
        case = self._case(evidence, results, outputs)
        verdict, note = self._verdict(case)
        if verdict is Verdict.WEIGHT and (other := self._told_again(case)):  # one verdict, two faults
            note = joined(note, other[1])
        finding = Finding(place, verdict, results, note, evidence.own, evidence.replaces)
        self._findings[place.shown_name] = finding
        self._is_exact &= all(each.verdict is TensorVerdict.EQUAL for each in outputs)
        self._has_differed |= finding.is_accused or any(each.is_bad for each in outputs)
        return finding

    def network_outputs(self, outputs: Iterable[TensorEvidence]) -> tuple[TensorResult, ...]:
        """Return the verdicts on what the network returned, behind its last operator."""
        return self._tensors.results(outputs)

    def written(self, name: str, slot: int) -> TensorResult | None:
        """Return the verdict on an output that was written before.

        Args:
            name: Full name of the operator.
            slot: Number of the output.
        """
        finding = self._findings.get(name)
        outputs = () if finding is None else finding.tensors
        return next((each for each in outputs if each.io is IO.OUTPUT and each.slot == slot), None)

    def _case(
        self,
        evidence: OperatorEvidence,
        results: tuple[TensorResult, ...],
        written: tuple[TensorResult, ...],
    ) -> Case:
        shown = of_side(results, IO.INPUT, evidence.operator.op_type)
        inputs = {each.slot: each for each in shown if each.verdict not in UNCOMPARED}
        outputs = [each for each in written if each.verdict not in UNCOMPARED]
        unknown = not evidence.reads and not inputs
        read = {each.slot for each in shown}
        for slot, source in enumerate(evidence.reads):
            if slot in inputs:
                continue
            if slot in read and source == ABSENT:  # nothing tells what wrote it
                unknown = True
            elif source.kind is SourceKind.OPERATOR:
                maker = self.written(source.name, source.slot)
                if maker is None or maker.verdict in UNCOMPARED:
                    unknown = True
                else:
                    inputs[slot] = replace(maker, evidence=replace(maker.evidence, slot=slot))
        return Case(evidence, results, [*inputs.values()], outputs, not unknown)

    def _verdict(self, case: Case) -> _Reason:
        for rule in (
            *(self._swapped, self._not_the_models, self._alone, self._parameter, self._weight, self._unfit),
            *(self._told_again, self._changed, self._sound, self._wired, self._nonfinite),
        ):
            reason = rule(case)
            if reason is not None:
                return reason
        return self._differing(case)

    @staticmethod
    def _not_the_models(case: Case) -> _Reason | None:
        """Judge weights by the model, where there is one."""
        if not case.evidence.wrong_weights:
            return None
        wrong = [f"input {slot} {name}" for slot, name in case.evidence.wrong_weights.items()]
        return Verdict.WEIGHT, f"{', '.join(wrong)}: not the model's bits"

    def _alone(self, case: Case) -> _Reason | None:
        """Judge an operator none of whose outputs has a counterpart."""
        if case.outputs:
            return None
        if not case.evidence.wiring:
            is_unchecked = any(each.verdict is TensorVerdict.UNCHECKED for each in case.tensors)
            if case.evidence.replaces and is_unchecked:
                return Verdict.REPLACED, _other_shapes(case.evidence)
            if case.unreadable_note is not None:
                return Verdict.UNREADABLE, case.unreadable_note
        own = case.told_again(self.limits)
        return own or (None if case.inputs else (Verdict.UNCHECKED, ""))

    def _weight(self, case: Case) -> _Reason | None:
        """Judge a weight: bits count, but limits of a trained one, or of one that golden computes."""
        for each in case.inputs:
            tensor = each.evidence
            if _is_another_weight(each, case.evidence):
                return Verdict.WEIGHT, f"{_named(each)}: {each.note}"
            if not (tensor.is_weight or tensor.is_folded) or tensor.error is None:
                continue
            is_same = tensor.error.is_same or tensor.is_rounded or tensor.is_folded
            if each.is_bad or not (is_same or case.evidence.is_state):
                # what training has made of a weight is compared where it was made
                is_trained = case.evidence.is_state and (
                    self.is_continued
                    or bool(case.evidence.operator.iteration)
                    or (case.evidence.is_evaluation and self._has_differed)
                )
                note = f"{_named(each)} differs (distance {tensor.error.distance:.2g})"
                return (Verdict.INHERITED if is_trained else Verdict.WEIGHT), note
        return self._foreign(case)

    def _foreign(self, case: Case) -> _Reason | None:
        """Judge an input that differs in a bit where everything that ran before is the same in all bits.

        Without a graph nothing tells a weight; but what no operator wrote comes from outside.
        """
        if case.evidence.reads or not self._is_exact or not self._findings:
            return None
        for each in case.inputs:
            error = each.evidence.error
            if error is not None and not error.is_same and not each.is_bad and each.slot:
                note = f"differs (distance {each.distance:.2g}), all that ran before is the same"
                return Verdict.WEIGHT, f"{_named(each)} {note}"
        return None

    def _parameter(self, case: Case) -> _Reason | None:
        """Judge a file of a parameter, which is no operator: what reads it was judged before."""
        if case.evidence.operator.op_type != PARAMETER or not case.bad_outputs:
            return None
        is_explained = self._has_differed or self.is_continued
        return (Verdict.INHERITED if is_explained else Verdict.WEIGHT), case.bad_outputs[0].note

    @staticmethod
    def _swapped(case: Case) -> _Reason | None:
        """Judge inputs that differ and that golden reads in another order."""
        if not case.bad_outputs:
            return None
        for each in case.bad_inputs:
            if case.swapped_with(each.slot) is not None:
                return Verdict.OWN, case.wrong_wiring(each.slot)
        return None

    def _unfit(self, case: Case) -> _Reason | None:
        """Judge an output of another shape, or of elements of another type."""
        if case.evidence.retyped:
            return Verdict.DTYPE, case.evidence.retyped
        unfit = next((each for each in case.bad_outputs if each.verdict in _UNFIT), None)
        if unfit is None:
            return None
        if any(each.verdict in _UNFIT for each in case.inputs):
            return Verdict.INHERITED, unfit.note
        if unfit.verdict is TensorVerdict.SHAPE and case.evidence.replaces:
            return Verdict.REPLACED, _other_shapes(case.evidence)
        return _UNFIT[unfit.verdict], unfit.note

    def _told_again(self, case: Case) -> _Reason | None:
        """Judge by what running again tells, unless golden contradicts it."""
        return None if self._is_contradicted(case) else case.told_again(self.limits)

    def _is_contradicted(self, case: Case) -> bool:
        """Tell whether outputs that agree contradict an error that was found by running again.

        What it runs again on may be wrong where something before has differed: its files then hold what it
        made of right values. An error that is no larger than what agreement allows is not contradicted. Where
        golden has a kernel of the same parts, the model's has others that are told where they are missing.
        """
        if case.outputs and case.evidence.replaces and case.evidence.is_in_golden:
            return not case.bad_outputs or bool(case.bad_inputs)
        if not case.outputs or case.bad_outputs or case.evidence.replaces or not self._has_differed:
            return False
        allowed = {(each.io, each.slot): each.limit or 0.0 for each in case.outputs}
        return all(
            each.is_explained
            or each.error.misplaced
            or each.error.distance > allowed.get((each.io, each.slot), math.inf)
            for each in case.evidence.own
        )

    @staticmethod
    def _sound(case: Case) -> _Reason | None:
        """Judge an operator whose outputs do not differ."""
        if case.bad_outputs:
            return None
        if case.bad_inputs:
            return (Verdict.HEALED if case.outputs else Verdict.INHERITED), ""
        verdicts = {each.verdict for each in case.tensors}
        if verdicts == {TensorVerdict.UNCHECKED}:
            return Verdict.UNCHECKED, ""  # what its producers wrote is known, but nothing of its own
        if case.unreadable_note is not None:
            return Verdict.UNREADABLE, case.unreadable_note
        compared = {each.verdict for each in (*case.inputs, *case.outputs)}
        return (Verdict.EQUAL if compared <= {TensorVerdict.EQUAL} else Verdict.AGREES), ""

    def _wired(self, case: Case) -> _Reason | None:
        """Judge inputs that differ though what wrote them does not; by the model it is known already."""
        if case.evidence.own:
            return None
        for each, source, golden in case.written_inputs():
            if golden.kind is SourceKind.ABSENT and golden.name:
                return Verdict.INHERITED, f"golden's input {each.slot} is of {golden.name}, which is missing"
            if golden.kind is not SourceKind.ABSENT and golden != source:
                return Verdict.OWN, case.wrong_wiring(each.slot)
        return None

    def _changed(self, case: Case) -> _Reason | None:
        """Judge inputs that differ though what wrote them, the same on both sides, does not."""
        if case.evidence.own:
            return None
        for each, source, golden in case.written_inputs():
            # numbers pair what the device inserted, which may be of other values
            is_known = golden == source or not case.evidence.operator.name.startswith(INSERTED_PREFIX)
            if golden not in {ABSENT, source} or not is_known:
                continue
            written = self.written(source.name, source.slot)
            if written is None or written.verdict not in AGREEING or self._is_carried(case, source):
                continue
            told = f"input {each.slot} is not what {source.name} wrote"
            if each.verdict is TensorVerdict.DIFFERS:
                return Verdict.OWN, f"{told}: it changed in between"
            # an input of as many elements is the same one in another layout
            sizes = {math.prod(tensor.evidence.shape) for tensor in (each, written)}
            if each.verdict is TensorVerdict.SHAPE and len(sizes) > 1:
                return Verdict.OWN, f"{told}: {each.note}"
        return None

    def _is_carried(self, case: Case, source: ValueSource) -> bool:
        """Tell whether a pass of a loop read what a pass before it handed on, and not the source's value."""
        number = case.evidence.operator.pass_number or 0
        return number > 0 and (self._findings[source.name].place.pass_number or 0) < number

    def _nonfinite(self, case: Case) -> _Reason | None:
        """Judge NaN and infinities that only one side has."""
        outputs = [each for each in case.bad_outputs if each.misplaced]
        if not outputs:
            return None
        inputs = [each for each in case.inputs if each.misplaced]
        if inputs:
            return Verdict.INHERITED, f"NaN or infinities of {self._origin(case, inputs[0])} passed on"
        if case.evidence.own:
            return Verdict.INHERITED, "NaN or infinities begin here, as its inputs make them"
        if not case.is_complete and self._has_differed:
            return Verdict.INHERITED, outputs[0].note
        return Verdict.NONFINITE, outputs[0].note

    def _differing(self, case: Case) -> _Reason:
        """Judge an operator with an output that differs."""
        if case.bad_inputs:
            worst = max(case.bad_inputs, key=lambda each: each.badness)
            return self._passed_on(case), f"from {self._origin(case, worst)}"
        if not case.is_complete and self._has_differed and not case.evidence.own:
            return Verdict.INHERITED, "its inputs were not compared"
        if case.evidence.own:
            return self._same_again(case)
        if case.evidence.replaces:
            return Verdict.REPLACED, f"in the place of {case.evidence.replaces}"
        if not case.evidence.arguments and self._is_drift(case):
            return Verdict.ACCUMULATED, f"its inputs are {case.input_distance:.2g} off already"
        return Verdict.OWN, case.evidence.arguments

    def _same_again(self, case: Case) -> _Reason:
        """Judge an operator that gives the same again, but for rounding, on inputs that agree."""
        if case.evidence.beside and not self._is_drift(case):
            return Verdict.REPLACED, f"golden's {case.evidence.beside} gives something else"
        return self._passed_on(case, Verdict.ACCUMULATED), ""

    def _passed_on(self, case: Case, inherited: Verdict = Verdict.INHERITED) -> Verdict:
        """Return whether an operator's error is what its inputs' errors become, or more than that."""
        propagated = case.evidence.propagated
        distance = largest_distance(case.bad_outputs) if propagated is None else propagated
        is_amplified = 0 < case.input_distance * self.limits.gain < distance
        return Verdict.AMPLIFIED if is_amplified else inherited

    def _is_drift(self, case: Case) -> bool:
        """Tell whether inputs that agree, but not bit for bit, explain outputs beyond the limit."""
        if not case.input_distance:
            return False
        return all(self._is_explained(case, each) for each in case.bad_outputs)

    def _is_explained(self, case: Case, output: TensorResult) -> bool:
        error, op_type = output.evidence.error, case.evidence.operator.op_type
        if error is None:
            return False
        if op_type in QUANTISING and error.changed:
            return case.explains_steps(output)
        if error.changed:  # ids change in steps: where two candidates are nearly even, a little decides
            return error.changed <= max(1.0, TIED * math.prod(output.evidence.shape))
        if error.distance <= self.limits.growth * case.input_distance:
            return True
        if op_type in DECIDING and error.distance <= math.sqrt(TIED):
            return True
        norms = (each.evidence.error.norm for each in case.inputs if each.evidence.error is not None)
        return op_type in NONEXPANSIVE and error.norm <= sum(norms)

    @staticmethod
    def _origin(case: Case, tensor: TensorResult) -> str:
        """Return in words where an input comes from."""
        slot, source = tensor.slot, case.evidence.source(tensor.slot)
        if source.kind is SourceKind.INPUT:
            return f"input {slot}: the network's input {source.name}"
        return f"input {slot}{f', {source.name}' if source.name else ''}"


def _is_read(tensor: TensorResult | OwnError, evidence: OperatorEvidence) -> bool:
    return tensor.io is not IO.OUTPUT or tensor.slot not in evidence.unread


def _is_another_weight(tensor: TensorResult, evidence: OperatorEvidence) -> bool:
    """Tell whether an input of another shape, or other kind of elements, is a weight."""
    is_unfit = tensor.verdict in _UNFIT and tensor.evidence.is_weight
    return is_unfit and evidence.source(tensor.slot).kind is SourceKind.WEIGHT


def _left(tensor: TensorResult) -> TensorResult:
    """Return a tensor that differs and matters to nobody.

    vendor: kernels of MindSpore leave outputs that nothing reads as the memory was.
    """
    return replace(tensor, verdict=TensorVerdict.UNCHECKED, note=joined("nothing reads it", tensor.note))


def _other_shapes(evidence: OperatorEvidence) -> str:
    return f"in the place of {evidence.replaces}, whose outputs have other shapes"


def _named(tensor: TensorResult) -> str:
    name = tensor.evidence.name
    return f"input {tensor.slot}{f' {name}' if name else ''}"
