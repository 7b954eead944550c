"""Draws verdicts on operators: whose error it is, by the first rule that applies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.record import IO
from msdump.store.names import PARAMETER
from msdump.store.read.graphs.operator_graph import ABSENT, SourceKind, ValueSource
from msdump.tools.judge.case import Case
from msdump.tools.judge.evidence import OperatorEvidence, OwnError
from msdump.tools.judge.findings import Finding, TensorResult, of_side
from msdump.tools.judge.limits import DECIDING, NONEXPANSIVE, QUANTISING, TIED, Limits
from msdump.tools.judge.tensors import TensorJudge
from msdump.tools.judge.verdicts import AGREEING, TensorVerdict, Verdict

_Reason = tuple[Verdict, str]
_NOT_COMPARED: Final = frozenset({TensorVerdict.UNCHECKED, TensorVerdict.UNREADABLE})
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
            note = f"{note}; {other[1]}"
        finding = Finding(place, verdict, results, note, evidence.own, evidence.replaces)
        self._findings[place.full_name or place.name] = finding
        self._is_exact &= all(each.verdict is TensorVerdict.EQUAL for each in outputs)
        self._has_differed |= finding.is_accused or any(each.is_bad for each in outputs)
        return finding

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
        inputs = {each.slot: each for each in shown if each.verdict not in _NOT_COMPARED}
        outputs = [each for each in written if each.verdict not in _NOT_COMPARED]
        unknown = not evidence.reads and not inputs
        read = {each.slot for each in shown}
        for slot, source in enumerate(evidence.reads):
            if slot in inputs:
                continue
            if slot in read and source == ABSENT:  # nothing tells what wrote it
                unknown = True
            elif source.kind is SourceKind.OPERATOR:
                maker = self.written(source.name, source.slot)
                if maker is None or maker.verdict in _NOT_COMPARED:
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
        states = {each.verdict for each in case.tensors}
        if case.evidence.wiring:
            return (Verdict.REPLACED if case.evidence.replaces else Verdict.OWN), case.evidence.wiring
        if case.evidence.replaces and TensorVerdict.UNCHECKED in states:
            return Verdict.REPLACED, _other_shapes(case.evidence)
        if TensorVerdict.UNREADABLE in states:
            unreadable = (each for each in case.tensors if each.verdict is TensorVerdict.UNREADABLE)
            return Verdict.UNREADABLE, next(unreadable).note
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
                note = f"differs (distance {error.distance:.2g}), all that ran before is the same"
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
        swapped = (each.slot for each in case.bad_inputs if case.swapped_with(each.slot) is not None)
        slot = next(swapped, None)
        return None if slot is None else (Verdict.OWN, case.wrong_wiring(slot))

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
        if TensorVerdict.UNREADABLE in verdicts:
            unreadable = (each for each in case.tensors if each.verdict is TensorVerdict.UNREADABLE)
            return Verdict.UNREADABLE, next(unreadable).note
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
            if each.verdict is TensorVerdict.DIFFERS:
                return (
                    Verdict.OWN,
                    f"input {each.slot} is not what {source.name} wrote: it changed in between",
                )
            if each.verdict is TensorVerdict.SHAPE and not _is_of_size(each, written):
                return Verdict.OWN, f"input {each.slot} is not what {source.name} wrote: {each.note}"
        return None

    def _is_carried(self, case: Case, source: ValueSource) -> bool:
        """Tell whether a pass of a loop read what a pass before it handed on, and not the source's value."""
        number = case.evidence.operator.pass_number or 0
        return number > 0 and (self._findings[source.name].place.pass_number or 0) < number

    def _nonfinite(self, case: Case) -> _Reason | None:
        """Judge NaN and infinities that only one side has."""
        outputs = [each for each in case.bad_outputs if _misplaced(each)]
        if not outputs:
            return None
        inputs = [each for each in case.inputs if _misplaced(each)]
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
        distance = case.output_distance if propagated is None else propagated
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
        slot, reads = tensor.slot, case.evidence.reads
        source = reads[slot] if slot < len(reads) else ABSENT
        if source.kind is SourceKind.INPUT:
            return f"input {slot}: the network's input {source.name}"
        return f"input {slot}{f', {source.name}' if source.name else ''}"


def _is_read(tensor: TensorResult | OwnError, evidence: OperatorEvidence) -> bool:
    return tensor.io is not IO.OUTPUT or tensor.slot not in evidence.unread


def _is_of_size(tensor: TensorResult, written: TensorResult) -> bool:
    """Tell whether an input has as many elements as what was written, which it reads in another layout."""
    return math.prod(tensor.evidence.shape) == math.prod(written.evidence.shape)


def _is_another_weight(tensor: TensorResult, evidence: OperatorEvidence) -> bool:
    """Tell whether an input of another shape, or other kind of elements, is a weight."""
    if tensor.verdict not in _UNFIT or not tensor.evidence.is_weight:
        return False
    return tensor.slot < len(evidence.reads) and evidence.reads[tensor.slot].kind is SourceKind.WEIGHT


def _left(tensor: TensorResult) -> TensorResult:
    """Return a tensor that differs and matters to nobody.

    vendor: kernels of MindSpore leave outputs that nothing reads as the memory was.
    """
    note = "; ".join(filter(None, ("nothing reads it", tensor.note)))
    return replace(tensor, verdict=TensorVerdict.UNCHECKED, note=note)


def _other_shapes(evidence: OperatorEvidence) -> str:
    return f"in the place of {evidence.replaces}, whose outputs have other shapes"


def _named(tensor: TensorResult) -> str:
    name = tensor.evidence.name
    return f"input {tensor.slot}{f' {name}' if name else ''}"


def _misplaced(tensor: TensorResult) -> int:
    return 0 if tensor.evidence.error is None else tensor.evidence.error.misplaced
