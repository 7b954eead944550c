"""Draws verdicts on operators, from six principles: docs/reference/verdicts.md says them in the same order.

Not finite comes first; each side is judged by its own device's arithmetic; an input is its producer's output;
a shape that differing values cause is inherited; random numbers are not judged; outputs decide (``Report``).

Then facts about the graphs: an operator in which the graphs differ is at fault if outputs differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.judge import Fact, FactKind, TensorError
from msdump.judge.verdict.case import Case, steps_of
from msdump.judge.verdict.evidence import (
    AGREEING,
    UNCOMPARED,
    Finding,
    OperatorPlace,
    OwnError,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    joined,
    largest_distance,
)
from msdump.judge.verdict.limits import (
    DISCONTINUOUS,
    NONEXPANSIVE,
    PRODUCTS,
    TIED,
    VALUE_SHAPED,
    Limits,
    coarser,
)
from msdump.judge.verdict.tensors import TensorJudge
from msdump.read import ABSENT, SourceKind, ValueSource
from msdump.record import IO
from msdump.store import PARAMETER

_ARGUMENTS: Final = frozenset({"bool", "int32", "int64"})
"""Types of arguments that are inputs of MindSpore's operators."""

_OF_LIMIT: Final = 4.0
"""Times its epsilon that a type of 16 bits allows."""

_CANCELS: Final = 4.0
"""Times the error of factors that are off at random: seldom exceeded by chance."""

_SWAP: Final = 2
"""Ids that change where two candidates are nearly even: each takes the place of the other one."""

_Reason = tuple[Verdict, str]
_UNFIT: Final = {TensorVerdict.SHAPE: Verdict.SHAPE, TensorVerdict.DTYPE: Verdict.DTYPE}
BY_CHANCE: Final = "random"
"""Note of an operator that draws random numbers, or differs only because of them."""


@dataclass(slots=True)
class Judge:
    """Draws verdicts on operators, in the order of the execution.

    Attributes:
        limits: The limits of agreement.
        is_continued: Whether earlier runs differed, so that the weights they trained may differ, too.
    """

    limits: Limits
    is_continued: bool = False
    _tensors: TensorJudge = field(init=False)
    _findings: dict[str, Finding] = field(default_factory=dict)
    _carried: dict[str, float] = field(default_factory=dict)
    _random: set[str] = field(default_factory=set)
    _masking: set[str] = field(default_factory=set)
    _has_differed: bool = False
    _has_accused: bool = False
    _is_exact: bool = True
    _is_whole: bool = True

    def __post_init__(self) -> None:
        """Start at the first operator."""
        self._tensors = TensorJudge(self.limits)

    def finding(self, evidence: Finding) -> Finding:
        """Return the verdict on the operator that ran next."""
        evidence = self._beside_masks(evidence)
        place = evidence.place
        carried = self._carried_to(evidence)
        results = self._tensors.results(evidence.tensors, evidence.arithmetic, carried)
        if evidence.unread:
            evidence = replace(evidence, own=tuple(each for each in evidence.own if _is_read(each, evidence)))
            results = tuple(
                each if _is_read(each, evidence) or not each.is_bad else _left(each) for each in results
            )
        results = tuple(self._as_its_writer(each, evidence) for each in results)
        case = self._case(evidence, results, replace(evidence, tensors=results).outputs)
        verdict, note = self._verdict(case)
        if verdict is Verdict.WEIGHT and (other := self._told_again(case)):  # two faults in one note
            note = joined(note, other[1])
        if verdict is Verdict.UNCHECKED and note == BY_CHANCE:
            self._random.add(place.shown_name)
            results = tuple(_unjudged(each, BY_CHANCE) if each.is_bad else each for each in results)
        elif verdict is Verdict.ACCUMULATED:
            results = tuple(self._within(case, each) for each in results)
        outputs = replace(evidence, tensors=results).outputs
        self._carry(case, outputs, carried, is_drift=verdict is Verdict.ACCUMULATED)
        finding = replace(evidence, verdict=verdict, tensors=results, note=note)
        self._findings[place.shown_name] = finding
        self._is_exact &= all(each.verdict is TensorVerdict.EQUAL for each in outputs)
        self._is_whole &= finding.is_compared
        self._has_accused |= finding.is_accused
        self._has_differed |= finding.is_accused or any(each.is_bad for each in outputs)
        return finding

    def _beside_masks(self, evidence: Finding) -> Finding:
        """Return the evidence without the masked elements of tensors that only a softmax reads."""
        if evidence.is_masking:
            self._masking.add(evidence.place.shown_name)
        masked = {
            (each.io, each.slot): replace(each, error=each.error.beside_masks)
            for each in evidence.tensors
            if each.error is not None and each.error.beside_masks is not None
            if (evidence.is_masking if each.io is IO.OUTPUT else self._is_masking(evidence, each.slot))
        }
        if not masked:
            return evidence
        return replace(
            evidence,
            tensors=tuple(masked.get((each.io, each.slot), each) for each in evidence.tensors),
            own=tuple(each for each in evidence.own if (each.io, each.slot) not in masked),
        )

    def _is_masking(self, evidence: Finding, slot: int) -> bool:
        source = evidence.source(slot)
        return source.kind is SourceKind.OPERATOR and source.name in self._masking

    def network_outputs(self, outputs: Iterable[TensorEvidence]) -> tuple[TensorEvidence, ...]:
        """Return the verdicts on the network's results, behind its last operator."""
        return self._tensors.results(outputs)

    def written(self, name: str, slot: int) -> TensorEvidence | None:
        """Return the verdict on an output of an operator that was judged before, None if unknown."""
        finding = self._findings.get(name)
        outputs = () if finding is None else finding.tensors
        return next((each for each in outputs if each.io is IO.OUTPUT and each.slot == slot), None)

    def _writer(self, evidence: Finding, slot: int) -> TensorEvidence | None:
        """Return the verdict on the output that an input reads, None if its producer is unknown."""
        source = evidence.source(slot)
        return self.written(source.name, source.slot) if source.kind is SourceKind.OPERATOR else None

    def _as_its_writer(self, tensor: TensorEvidence, evidence: Finding) -> TensorEvidence:
        """Return a flipped input as agreeing if no more elements differ than in the producer's output."""
        if tensor.io is IO.OUTPUT or tensor.verdict is not TensorVerdict.DIFFERS:
            return tensor
        written = self._writer(evidence, tensor.slot)
        error = tensor.error
        if written is None or error is None or written.error is None or not written.is_flipped:
            return tensor
        return _flipped(tensor) if error.changed <= written.error.changed else tensor

    def _carried_to(self, evidence: Finding) -> float:
        """Return the distance that flipped elements of earlier operators may have caused in the inputs.

        An input without a known source, as in a branch, gets the largest distance of any operator.
        """
        if not self._carried:
            return 0.0
        found = [self._carried.get(each.name, 0.0) for each in evidence.reads]
        for each in evidence.tensors:
            source = evidence.source(each.slot)
            is_of_operator = source.kind is SourceKind.OPERATOR
            is_unjudged = is_of_operator and self.written(source.name, source.slot) is None
            if each.io is IO.INPUT and (is_unjudged or source.kind is SourceKind.ABSENT):
                found.append(max(self._carried.values()))
        return max(found, default=0.0)

    def _carry(
        self, case: Case, outputs: Sequence[TensorEvidence], carried: float, *, is_drift: bool
    ) -> None:
        """Record the distance that an operator's flipped elements, or noise, may cause in its readers."""
        if any(each.is_noise for each in outputs):
            carried = math.inf
        elif math.isinf(carried):  # until an output of a reader is near golden's again
            plain = self._tensors.results(replace(each, verdict=TensorVerdict.UNCHECKED) for each in outputs)
            carried = carried if any(each.is_bad for each in plain) else 0.0
        steps = is_drift and case.evidence.place.op_type in DISCONTINUOUS
        if steps or case.flipped:
            moved = (each.distance for each in outputs if not (each.is_flipped or each.misplaced))
            carried = max(carried, min(case.edge, self.limits.growth * max(moved, default=0.0)))
        if carried:
            self._carried[case.evidence.place.shown_name] = carried

    def _within(self, case: Case, tensor: TensorEvidence) -> TensorEvidence:
        """Return a tensor as agreeing if it is an output that flipped elements or a drift explain."""
        error, distance = tensor.error, tensor.distance
        if tensor.io is IO.INPUT or tensor.verdict is not TensorVerdict.DIFFERS or error is None:
            return tensor
        if error.changed:
            return _flipped(tensor)
        allowed = 0.0
        if case.flipped or case.evidence.place.op_type in DISCONTINUOUS:
            allowed = case.edge
        elif tensor.slot in case.evidence.returned:
            allowed = self.limits.growth * (tensor.limit or 0.0)
        if distance > allowed or error.misplaced:
            return tensor
        return replace(tensor, verdict=TensorVerdict.AGREES, limit=allowed)

    def _case(
        self,
        evidence: Finding,
        results: tuple[TensorEvidence, ...],
        written: tuple[TensorEvidence, ...],
    ) -> Case:
        shown = replace(evidence, tensors=results).inputs
        inputs = {each.slot: each for each in shown if each.verdict not in UNCOMPARED}
        outputs = [each for each in written if each.verdict not in UNCOMPARED]
        unknown = not evidence.reads and not inputs
        read = {each.slot for each in shown}
        for slot, source in enumerate(evidence.reads):
            if slot in inputs:
                continue
            if slot in read and source == ABSENT:  # its producer is unknown
                unknown = True
            elif source.kind is SourceKind.OPERATOR:
                maker = self.written(source.name, source.slot)
                if maker is None or maker.verdict in UNCOMPARED:
                    unknown = True
                else:
                    inputs[slot] = replace(maker, slot=slot)
        return Case(evidence, results, [*inputs.values()], outputs, not unknown)

    def _verdict(self, case: Case) -> _Reason:
        for rule in (
            *(self._not_the_models, self._alone, self._parameter, self._weight),
            *(self._overflown, self._not_finite, self._chance, self._unfit, self._told_again),
            *(self._changed, self._sound),
        ):
            reason = rule(case)
            if reason is not None:
                return reason
        return self._differing(case)

    # --- the graphs and the model, and operators without evidence -----------------------------------------

    @staticmethod
    def _not_the_models(case: Case) -> _Reason | None:
        """WEIGHT if an input is not the model's weight."""
        if not case.evidence.wrong_weights:
            return None
        wrong = [f"input {slot} {name}" for slot, name in case.evidence.wrong_weights.items()]
        return Verdict.WEIGHT, f"{', '.join(wrong)}: not the model's weight"

    def _alone(self, case: Case) -> _Reason | None:
        """Judge an operator without any compared output."""
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

    def _parameter(self, case: Case) -> _Reason | None:
        """Judge the file of a parameter, which is no operator: its readers were judged before."""
        if case.evidence.place.op_type != PARAMETER or not case.bad_outputs:
            return None
        is_explained = self._has_differed or self.is_continued or any(map(math.isinf, self._carried.values()))
        return (Verdict.INHERITED if is_explained else Verdict.WEIGHT), case.bad_outputs[0].note

    def _weight(self, case: Case) -> _Reason | None:
        """Judge weights: by bits, but by limits if training or golden's operators compute them."""
        for each in case.inputs:
            tensor = each
            if _is_another_weight(each, case.evidence):
                return Verdict.WEIGHT, f"{_named(each)}: {each.note}"
            if not (tensor.is_weight or tensor.is_folded) or tensor.error is None:
                continue
            # flags and scalar arguments have several values of one meaning, such as an end beyond a tensor's
            if tensor.dtype in _ARGUMENTS and case.outputs and not case.bad_outputs and not case.evidence.own:
                continue
            is_same = tensor.error.is_same or tensor.is_rounded or tensor.is_folded
            if each.is_bad or not (is_same or case.evidence.is_state):
                # a trained weight is judged at the operator that updates it, not at its readers
                is_trained = case.evidence.is_state and (
                    self.is_continued
                    or bool(case.evidence.place.iteration)
                    or (case.evidence.is_evaluation and self._has_differed)
                )
                where = f" at {tensor.places}" if tensor.places else ""
                note = f"{_named(each)} differs{where} (distance {tensor.error.distance:.2g})"
                return (Verdict.INHERITED if is_trained else Verdict.WEIGHT), note
        return self._foreign(case)

    def _foreign(self, case: Case) -> _Reason | None:
        """WEIGHT if an input differs, every operator before agrees, and no graph names its source.

        Such an input came from outside, as a weight does, or changed in between. If all tensors before have
        the same bits, one differing bit of the input is enough.
        """
        evidence = case.evidence
        if evidence.reads or evidence.own or self._has_differed or self.is_continued or not self._is_whole:
            return None
        for each in case.inputs:
            error, is_first = each.error, not self._findings
            if error is None or (is_first and not each.slot):  # an input of the network
                continue
            if each.is_bad or (self._is_exact and each.slot and not is_first and not error.is_same):
                note = f"differs (distance {each.distance:.2g}) although all earlier operators agree"
                return Verdict.WEIGHT, f"{_named(each)} {note}"
        return None

    # --- 1. not finite comes first ------------------------------------------------------------------------

    @staticmethod
    def _overflown(case: Case) -> _Reason | None:
        """NONFINITE if a weight or an input of the network exceeds the type's range."""
        for each in case.inputs:
            is_given = case.evidence.source(each.slot).kind is SourceKind.INPUT
            # the model may correct ``is_weight`` of an input that files alone suggested, not ``is_rounded``
            if each.overflows and (each.is_weight or each.is_rounded or is_given):
                where = _elements(each.overflows)
                return Verdict.NONFINITE, f"{_named(each)} overflows its element type at {where}"
        return None

    def _not_finite(self, case: Case) -> _Reason | None:
        """NONFINITE for the first operator with NaN or infinities, even if running it again overflows too."""
        struck = [each for each in case.bad_outputs if each.misplaced]
        # a wrong input, or another result of re-execution, explains more
        is_told = bool(case.evidence.wiring) or (
            case.unexplained is not None and not self._is_contradicted(case)
        )
        if not struck or is_told:
            return None
        given = next((each for each in case.inputs if each.misplaced and self._is_given(case, each)), None)
        if given is not None:
            return Verdict.INHERITED, f"NaN or infinities come from {self._origin(case, given)}"
        if not case.is_complete and self._has_differed:
            return Verdict.INHERITED, struck[0].note
        if not case.evidence.own:
            return Verdict.NONFINITE, struck[0].note
        # golden's arithmetic overflows, too, on inputs that are wrong because of an accused operator
        if case.bad_inputs and self._has_accused and case.evidence.propagated == math.inf:
            return Verdict.INHERITED, "NaN or infinities begin here because of wrong inputs"
        return Verdict.NONFINITE, joined(
            struck[0].note, f"the same in a run in {case.evidence.own[0].arithmetic}"
        )

    def _is_given(self, case: Case, tensor: TensorEvidence) -> bool:
        """Return whether an input was not finite when its producer wrote it; True if that is unknown."""
        written = self._writer(case.evidence, tensor.slot)
        return written is None or written.verdict in UNCOMPARED or bool(written.misplaced)

    # --- 5. random numbers are not judged -----------------------------------------------------------------

    def _chance(self, case: Case) -> _Reason | None:
        """UNCHECKED if random numbers alone explain the difference."""
        if not case.bad_outputs or case.unexplained is not None or case.evidence.wiring:
            return None
        sources = {case.evidence.source(each.slot).name for each in case.bad_inputs}
        if case.evidence.is_random or (sources and sources <= self._random):
            return Verdict.UNCHECKED, BY_CHANCE
        return None

    # --- 4. shapes that follow from values inherit --------------------------------------------------------

    def _unfit(self, case: Case) -> _Reason | None:
        """Judge an output with another shape, or another kind of elements, than golden's."""
        unfit = next((each for each in case.bad_outputs if each.verdict in _UNFIT), None)
        if unfit is None:
            return None
        is_shape = unfit.verdict is TensorVerdict.SHAPE
        if any(each.verdict in _UNFIT for each in case.inputs):
            verdict, note = Verdict.INHERITED, unfit.note
        elif is_shape and self._is_shaped_by_values(case):
            verdict, note = (
                Verdict.INHERITED,
                joined("its shape depends on input values that differ", unfit.note),
            )
        elif is_shape and case.evidence.replaces:
            verdict, note = Verdict.REPLACED, _other_shapes(case.evidence)
        elif case.evidence.place.name.startswith(INSERTED_PREFIX):
            verdict, note = Verdict.UNCHECKED, unfit.note  # inserted operators are paired by number alone
        else:
            verdict, note = _UNFIT[unfit.verdict], unfit.note
        return verdict, note

    @staticmethod
    def _is_shaped_by_values(case: Case) -> bool:
        """Return whether differing integers, or selected elements, may change an output's shape."""
        errors = [each.error for each in case.inputs if each.error is not None]
        if case.evidence.place.op_type in VALUE_SHAPED:
            return any(not error.is_same for error in errors)
        return any(error.changed for error in errors)

    # --- 3. an operator's input is its producer's output --------------------------------------------------

    def _changed(self, case: Case) -> _Reason | None:
        """OWN if an input differs although its producer's output agrees: it reads the wrong tensor.

        Not needed after re-execution, which checks wiring itself.
        """
        if case.evidence.own:
            return None
        for each, source in case.written_inputs():
            written = self.written(source.name, source.slot)
            if written is None or written.verdict not in AGREEING or self._is_carried(case, source):
                continue
            if each.as_written:  # so golden's own input differs from its producer's output
                continue
            told = f"input {each.slot} is not the output of {source.name}"
            if each.verdict is TensorVerdict.DIFFERS:
                return Verdict.OWN, f"{told}: the tensor changed in between"
            # an input with the same number of elements is the same tensor in another layout
            sizes = {math.prod(tensor.shape) for tensor in (each, written)}
            if each.verdict is TensorVerdict.SHAPE and len(sizes) > 1:
                return Verdict.OWN, f"{told}: {each.note}"
        return None

    def _is_carried(self, case: Case, source: ValueSource) -> bool:
        """Return whether a pass of a loop read the value of the pass before it."""
        number = case.evidence.place.pass_number or 0
        return number > 0 and (self._findings[source.name].place.pass_number or 0) < number

    # --- 2. each side is judged by its own device's arithmetic --------------------------------------------

    def _told_again(self, case: Case) -> _Reason | None:
        """Judge by re-execution, unless golden contradicts it."""
        return None if self._is_contradicted(case) else case.told_again(self.limits)

    def _is_contradicted(self, case: Case) -> bool:
        """Return whether outputs that agree contradict an own error.

        The inputs of re-execution may be wrong where something before has differed: files then do not hold
        the values that the operator read. An error within the allowed distance of agreement is not
        contradicted. Where golden has a kernel of the same parts, missing parts of the model are reported
        elsewhere.
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
        """Judge an operator without outputs that differ."""
        if case.bad_outputs:
            return None
        if case.bad_inputs:
            return (Verdict.HEALED if case.outputs else Verdict.INHERITED), ""
        verdicts = {each.verdict for each in case.tensors}
        if verdicts == {TensorVerdict.UNCHECKED}:
            return Verdict.UNCHECKED, ""  # its producers' outputs are known, but none of its own
        if case.unreadable_note is not None:
            return Verdict.UNREADABLE, case.unreadable_note
        compared = {each.verdict for each in (*case.inputs, *case.outputs)}
        return (Verdict.EQUAL if compared <= {TensorVerdict.EQUAL} else Verdict.AGREES), ""

    def _differing(self, case: Case) -> _Reason:
        if case.bad_inputs:
            worst = max(case.bad_inputs, key=lambda each: each.badness)
            return self._passed_on(case), f"from {self._origin(case, worst)}"
        if case.flipped:
            flipped = case.flipped[0]
            changed = _elements(flipped.error.changed) if flipped.error else ""
            return Verdict.ACCUMULATED, f"{changed} of {self._origin(case, flipped)} flipped at a near tie"
        if not case.is_complete and self._has_differed and not case.evidence.own:
            return Verdict.INHERITED, "its inputs were not compared"
        return self._of_agreeing(case)

    def _of_agreeing(self, case: Case) -> _Reason:
        """Judge an operator with an output that differs, and inputs that agree."""
        evidence, is_drift = case.evidence, self._is_drift(case)
        if evidence.own:  # re-execution gives the same, except for rounding
            return (Verdict.ACCUMULATED if is_drift else self._passed_on(case, Verdict.ACCUMULATED)), ""
        if evidence.replaces:
            return Verdict.REPLACED, f"in place of {evidence.replaces}"
        if is_drift:
            return Verdict.ACCUMULATED, f"its inputs already differ by {case.input_distance:.2g}"
        return Verdict.OWN, self._unless(case)

    @staticmethod
    def _unless(case: Case) -> str:
        """Return a proviso that names the network's inputs that were not compared."""
        known = {each.slot for each in case.inputs}
        fed = [each for slot, each in enumerate(case.evidence.reads) if slot not in known]
        names = [each.name for each in fed if each.kind is SourceKind.INPUT]
        return (
            f"the cause may be the network's input {', '.join(names)}, which was not compared"
            if names
            else ""
        )

    def _passed_on(self, case: Case, inherited: Verdict = Verdict.INHERITED) -> Verdict:
        """AMPLIFIED if the error exceeds ``gain`` times the inputs' errors, else ``inherited``."""
        propagated = case.evidence.propagated
        distance = largest_distance(case.bad_outputs) if propagated is None else propagated
        is_amplified = 0 < case.input_distance * self.limits.gain < distance
        return Verdict.AMPLIFIED if is_amplified else inherited

    def _is_drift(self, case: Case) -> bool:
        """Return whether the small differences of agreeing inputs explain outputs beyond the limit."""
        return all(self._is_explained(case, each) for each in case.bad_outputs)

    def _read_apart(self, case: Case) -> float:
        """Return the distance between the inputs as both sides read them.

        If the sides write different types, the distance is at least an epsilon of the shorter one, which
        rounds every summand of sums that may cancel.
        """
        own, other = ({dtype for io, dtype in side if io is IO.OUTPUT} for side in case.evidence.arithmetic)
        coarsest = "" if own == other else coarser(*own, *other)
        rounding = (self.limits.allowed((coarsest,), "") or 0.0) / _OF_LIMIT
        return max(case.input_distance, rounding)

    @staticmethod
    def _are_explained(case: Case, output: TensorEvidence, error: TensorError) -> bool:
        """Return whether the inputs' differences explain which integers or truth values differ."""
        dtype = output.dtype
        if case.evidence.place.op_type == "Cast" and dtype != "bool":  # rounds to the next integer
            errors = [each.error for each in case.inputs]
            return bool(error.largest <= 1 + max(each.largest for each in errors if each is not None))
        if steps_of(dtype):
            return case.explains_steps(output)
        # ids, as of ArgMax, jump: a small difference decides between two nearly equal candidates
        return error.changed <= max(_SWAP, TIED * math.prod(output.shape))

    def _is_explained(self, case: Case, output: TensorEvidence) -> bool:
        error, op_type, apart = output.error, case.evidence.place.op_type, self._read_apart(case)
        if error is None or not apart:
            return False
        if error.changed:
            return self._are_explained(case, output, error)
        # the operator's own rounding, and the growth of the inputs' difference
        if error.distance <= (output.limit or 0.0) + self.limits.growth * apart:
            return True
        if op_type in DISCONTINUOUS and error.distance <= math.sqrt(TIED):
            return True
        norms = (each.error.norm for each in case.inputs if each.error is not None)
        if op_type in PRODUCTS and error.norm <= _CANCELS * case.rounding_of_product(output):
            return True
        return op_type in NONEXPANSIVE and error.norm <= sum(norms)

    @staticmethod
    def _origin(case: Case, tensor: TensorEvidence) -> str:
        slot, source = tensor.slot, case.evidence.source(tensor.slot)
        if source.kind is SourceKind.INPUT:
            return f"input {slot}: the network's input {source.name}"
        return f"input {slot}{f', {source.name}' if source.name else ''}"


def _elements(count: int) -> str:
    return f"{count:,} element{'s' * (count != 1)}"


def _flipped(tensor: TensorEvidence) -> TensorEvidence:
    """Return a tensor as agreeing if only integers or truth values flipped; any other one as it is."""
    error = tensor.error
    if error is None or tensor.verdict is not TensorVerdict.DIFFERS or not error.changed:
        return tensor
    note = joined(f"{_elements(error.changed)} flipped at a near tie", tensor.note)
    return replace(tensor, verdict=TensorVerdict.AGREES, note=note)


def _unjudged(tensor: TensorEvidence, note: str) -> TensorEvidence:
    return replace(tensor, verdict=TensorVerdict.UNCHECKED, note=joined(note, tensor.note))


def _is_read(tensor: TensorEvidence | OwnError, evidence: Finding) -> bool:
    return tensor.io is not IO.OUTPUT or tensor.slot not in evidence.unread


def _is_another_weight(tensor: TensorEvidence, evidence: Finding) -> bool:
    """Return whether an input is a weight with another shape, or kind of elements, than golden's."""
    is_unfit = tensor.verdict in _UNFIT and tensor.is_weight
    return is_unfit and evidence.source(tensor.slot).kind is SourceKind.WEIGHT


def _left(tensor: TensorEvidence) -> TensorEvidence:
    """Return a differing output without reader as unchecked.

    vendor: kernels of MindSpore do not write outputs without a reader, which hold the memory's old bytes.
    """
    return _unjudged(tensor, "no operator reads it")


def _other_shapes(evidence: Finding) -> str:
    return f"in place of {evidence.replaces}, with other output shapes"


def _named(tensor: TensorEvidence) -> str:
    name = tensor.name
    return f"input {tensor.slot}{f' {name}' if name else ''}"


_VERDICTS: Final = {
    FactKind.ATTRIBUTE: Verdict.OWN,
    FactKind.WIRING: Verdict.OWN,
    FactKind.EXTRA: Verdict.REPLACED,
    FactKind.REPLACED: Verdict.REPLACED,
    FactKind.MISSING: Verdict.MISSING,
    FactKind.DTYPE: Verdict.DTYPE,
}
"""Verdict on the operator of a fact; of other kinds the tensors themselves tell."""

_DRIFTING: Final = frozenset({Verdict.ACCUMULATED, Verdict.AMPLIFIED})

_EXPLAINED: Final = frozenset(
    {(FactKind.WIRING, Verdict.WEIGHT), (FactKind.REPLACED, Verdict.OWN), (FactKind.EXTRA, Verdict.OWN)}
)
"""Facts that explain a verdict: swapped inputs a differing weight, another operator its own results."""

_ELSEWHERE: Final = frozenset({FactKind.EXTRA, FactKind.REPLACED, FactKind.MISSING})
"""Facts on an operator other than the one whose outputs show them."""


def accuse(
    findings: Sequence[Finding],
    facts: Sequence[Fact],
    place_of: Callable[[Fact], OperatorPlace],
    nodes: Mapping[str, str],
    *,
    outputs_differ: bool,
    is_one_arithmetic: bool = False,
) -> list[Finding]:
    """Return the verdicts of one run together with the facts about its graphs.

    Args:
        findings: The verdicts on its operators, in the order of execution.
        facts: Differences of the graphs.
        place_of: Returns the place of an operator that is missing, or has no verdict.
        nodes: Names of the model's nodes by full names, for operators that are fused.
        outputs_differ: Whether the network's outputs differ.
        is_one_arithmetic: Whether both sides compute alike, so that no rounding explains another result.
    """
    judged = _Judged(findings, nodes)
    for fact in facts:
        if fact.kind not in _VERDICTS:
            continue
        readers = [place for name in fact.readers for place in judged.places(name)]
        is_type = fact.kind is FactKind.DTYPE  # a wrong type is a fault even if no output differs
        showing = [place for place in readers if is_type or _differs(judged.findings[place])]
        if showing or (not readers and outputs_differ):
            judged.accuse(fact, showing, place_of)
    found = judged.result()
    return [*map(_unrounded, found)] if is_one_arithmetic else found


def _differs(finding: Finding) -> bool:
    return finding.verdict in _DRIFTING or any(each.is_bad for each in finding.outputs)


class _Judged:
    def __init__(self, findings: Sequence[Finding], nodes: Mapping[str, str]) -> None:
        self.findings = [*findings]
        self._nodes = nodes
        self._added: dict[int, list[Finding]] = {}
        self._places: dict[str, list[int]] = {}
        for place, finding in enumerate(findings):
            names = {finding.place.full_name, *finding.place.onnx_name.split("+")} - {""}
            for name in names:
                self._places.setdefault(name, []).append(place)

    @property
    def _first_bad(self) -> int:
        bad = (place for place, each in enumerate(self.findings) if any(out.is_bad for out in each.outputs))
        return next(bad, len(self.findings))

    def places(self, name: str) -> list[int]:
        return self._places.get(name) or self._places.get(self._nodes.get(name, ""), [])

    def accuse(self, fact: Fact, showing: Sequence[int], place_of: Callable[[Fact], OperatorPlace]) -> None:
        """Set the verdicts on the operator of a fact, and on operators that show it."""
        is_missing = fact.kind is FactKind.MISSING  # its name may be that of another operator
        own = [
            place
            for place in self.places(fact.operator)
            if is_missing is (self.findings[place].verdict is Verdict.MISSING)
        ]
        for place in own:
            finding = self.findings[place]
            is_kept = finding.is_accused and (fact.kind, finding.verdict) not in _EXPLAINED
            verdict = finding.verdict if is_kept else _VERDICTS[fact.kind]
            # the text of the fact names the replaced operator already
            told = finding.note if finding.is_accused and verdict is not Verdict.REPLACED else ""
            note = told if fact.text in told else joined(fact.text, told)
            self.findings[place] = replace(finding, verdict=verdict, note=note)
        if not own and self.findings:  # the operator is missing, or control flow
            first = min(showing, default=self._first_bad)
            at = self.findings[min(first, len(self.findings) - 1)].place
            where = replace(place_of(fact), iteration=at.iteration, order=at.order, time=at.time)
            self._added.setdefault(first, []).append(Finding(where, _VERDICTS[fact.kind], note=fact.text))
        if fact.kind in _ELSEWHERE:
            for place in set(showing) - set(own):
                self._excuse(place, f"the earlier operator {fact.operator} is {_WORDS[fact.kind]}")

    def _excuse(self, place: int, note: str) -> None:
        """Set INHERITED for an operator that only shows the fault of an extra, replaced or missing one."""
        finding = self.findings[place]
        is_explained = all(each.is_explained for each in finding.own)
        if finding.verdict in {Verdict.OWN, Verdict.ACCUMULATED, Verdict.AMPLIFIED} and is_explained:
            self.findings[place] = replace(finding, verdict=Verdict.INHERITED, note=note)

    def result(self) -> list[Finding]:
        """Return all findings; an operator without tensors comes before the first that shows its fault."""
        found: list[Finding] = []
        for place, finding in enumerate(self.findings):
            found += [*self._added.get(place, ()), finding]
        return [*found, *self._added.get(len(self.findings), ())]


_WORDS: Final = {
    FactKind.EXTRA: "not in golden",
    FactKind.REPLACED: "replaced",
    FactKind.MISSING: "missing",
}


def _unrounded(finding: Finding) -> Finding:
    """Turn ACCUMULATED into OWN if all inputs are golden's bits, and re-execution repeats the outputs' bits.

    Rounding cannot explain the difference then: the two graphs compute different things.
    """
    is_exact = finding.own and all(each.error.is_same for each in finding.own)
    inputs = {each.verdict for each in finding.inputs}
    if finding.verdict is not Verdict.ACCUMULATED or not is_exact or inputs != {TensorVerdict.EQUAL}:
        return finding
    return replace(finding, verdict=Verdict.OWN, note="golden's inputs are the same, but its outputs differ")
