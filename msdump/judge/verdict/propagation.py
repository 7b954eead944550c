"""How far each tensor may be from golden's: allowed distances, handed from producers to readers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from msdump.device import INSERTED_PREFIX
from msdump.judge import Fact, FactKind, TensorError
from msdump.judge.verdict.evidence import (
    AGREEING,
    UNCOMPARED,
    Finding,
    OwnError,
    TensorEvidence,
    TensorVerdict,
    joined,
    largest_distance,
)
from msdump.judge.verdict.limits import (
    BOUNDED,
    DISCONTINUOUS,
    NONEXPANSIVE,
    PRODUCTS,
    QUANTISED,
    SUMS,
    TIED,
    VALUE_SHAPED,
    Limits,
    coarser,
    kind,
    steps_of,
)
from msdump.read import ABSENT, SourceKind
from msdump.record import IO

BY_CHANCE: Final = "random"
"""Note of an operator that draws random numbers, or differs only because of them."""

_OF_LIMIT: Final = 4.0
"""Times its epsilon that a type of 16 bits allows."""

_CANCELS: Final = 4.0
"""Times the error of factors that are off at random: seldom exceeded by chance."""

_SLACK: Final = 2.0
"""Times the inputs' errors that an operator which enlarges none may show: other roundings, borders."""

_SWAP: Final = 2
"""Ids that change where two candidates are nearly even: each takes the place of the other one."""

_ZERO_POINT: Final = 2
"""Number of the output of a quantising operator with its zero point."""


_ARGUMENTS: Final = frozenset({"bool", "int32", "int64"})
"""Types of arguments that are inputs of MindSpore's operators."""


_FOLDED: Final = 2.0**-22
"""Largest difference of weights beside the largest element that computing them in another order explains."""


class Before(NamedTuple):
    """The operators before one, in a run of the network."""

    # whether earlier runs differed, so that the weights that they trained may differ, too
    is_continued: bool = False
    is_first: bool = True  # whether there are none
    differs: bool = False  # whether an output differs, or there is evidence of a fault
    is_suspect: bool = False  # whether there is evidence of a fault
    is_exact: bool = True  # whether all outputs have golden's bits
    is_whole: bool = True  # whether all outputs were compared
    is_uneven: bool = False  # whether one ran more often on one side
    is_noisy: bool = False  # whether one hands on tensors that are rounding alone


@dataclass(frozen=True)
class Operator:
    """A row with all that the conditions of a verdict ask for."""

    row: Finding  # the evidence, with verdicts and limits of the tensors
    before: Before  # the operators before it
    limits: Limits  # the limits of agreement
    # the latest operators before it, by name
    producers: Mapping[str, Operator] = field(repr=False, default_factory=dict)
    moved: float = 0.0  # the largest distance of flipped elements that its inputs carry
    # producers with values that golden lacks and that may show a fault, by name
    doubtful: frozenset[str] = frozenset()
    facts: tuple[Fact, ...] = ()  # differences of the graphs in this operator
    excuse: str = ""  # difference of the graphs in an earlier operator that shows in this one, in words
    wrong_scale: str = ""  # sentence on a scale that does not fit the tensor; "" for none
    # whether both sides compute alike, so that no rounding explains another result
    is_one_arithmetic: bool = False
    coarsest: str = ""  # the coarsest type that rounded a tensor so far
    is_held: bool = False  # whether its outputs differ or were not compared, and all that reads them agrees

    def fact(self, kind: FactKind) -> str | None:
        """Return a difference of the graphs of a kind in words, None without any."""
        return next((each.text for each in self.facts if each.kind is kind), None)

    def producer(self, slot: int) -> Operator | None:
        """Return the operator that wrote an input, None if unknown."""
        source = self.row.source(slot)
        return self.producers.get(source.name) if source.kind is SourceKind.OPERATOR else None

    def written(self, slot: int) -> TensorEvidence | None:
        """Return the output that an input reads, None if its producer is unknown."""
        producer, number = self.producer(slot), self.row.source(slot).slot
        outputs = () if producer is None else producer.tensors
        return next((each for each in outputs if each.io is IO.OUTPUT and each.slot == number), None)

    @cached_property
    def inputs(self) -> Sequence[TensorEvidence]:
        """Its compared inputs; the producer's output stands for an input that was not dumped.

        For an output that golden lacks, the input of its producer stands that agrees least, unless the
        output may show a fault.
        """
        return [*self._inputs.values()]

    @cached_property
    def _inputs(self) -> dict[int, TensorEvidence]:
        known = {each.slot: each for each in self.row.inputs if each.verdict not in UNCOMPARED}
        for slot in range(len(self.row.reads)):
            written, producer = self.written(slot), self.producer(slot)
            if slot in known or written is None or producer is None:
                continue
            if written.verdict in UNCOMPARED and not (
                producer.outputs or self.row.source(slot).name in self.doubtful
            ):
                computed = (each for each in producer.inputs if not each.is_weight)
                written = max(computed, key=lambda each: each.badness, default=written)
            if written.verdict not in UNCOMPARED:
                known[slot] = replace(written, slot=slot)
        return known

    @cached_property
    def is_complete(self) -> bool:
        """Whether all of its inputs are known."""
        if not self.row.reads:
            return bool(self.inputs)
        dumped = {each.slot for each in self.row.inputs}
        return not any(
            slot not in self._inputs
            and (source.kind is SourceKind.OPERATOR or (slot in dumped and source == ABSENT))
            for slot, source in enumerate(self.row.reads)
        )

    @property
    def is_measured(self) -> bool:
        """Whether all of its inputs were compared, so that none further away stands for one."""
        own = {each.slot for each in self.row.inputs if each.verdict not in UNCOMPARED}
        written = [self.written(each.slot) for each in self.inputs if each.slot not in own]
        return self.is_complete and not any(each and each.verdict in UNCOMPARED for each in written)

    @cached_property
    def outputs(self) -> Sequence[TensorEvidence]:
        """Its compared outputs."""
        return [each for each in self.row.outputs if each.verdict not in UNCOMPARED]

    @cached_property
    def bad_inputs(self) -> Sequence[TensorEvidence]:
        """Inputs that differ."""
        return [each for each in self.inputs if each.is_bad]

    @cached_property
    def bad_outputs(self) -> Sequence[TensorEvidence]:
        """Outputs that differ."""
        return [each for each in self.outputs if each.is_bad]

    @property
    def flipped(self) -> Sequence[TensorEvidence]:
        """Inputs that agree except for flipped elements: integers or truth values that rounding changed."""
        return [each for each in self.inputs if each.is_flipped]

    @cached_property
    def own(self) -> OwnError | None:
        """The first own error that rounding does not explain, and that golden does not contradict.

        Outputs with golden's bits contradict it, and outputs that agree one within an epsilon of their type.
        Outputs that agree also do if something before has differed: files then do not hold the values that
        it read.
        """
        found = next((each for each in self.row.own if not each.is_explained), None)
        if found is None or self.row.replaces or self.bad_outputs or not self.outputs:
            return found
        epsilon = max((each.limit or 0.0 for each in self.outputs), default=0.0) / _OF_LIMIT
        is_rounding = not found.error.misplaced and found.error.distance <= epsilon
        are_same = all(each.error is not None and each.error.is_same for each in self.outputs)
        return None if are_same or is_rounding or self.before.differs else found

    @cached_property
    def is_carrier(self) -> bool:
        """Whether a device inserted the operator, and its input differs, which its reader then reads."""
        return (
            self.row.place.name.startswith(INSERTED_PREFIX) and not self.row.reads and bool(self.bad_inputs)
        )

    @property
    def is_contradicted(self) -> bool:
        """Whether outputs that agree contradict the result of running again on its inputs and its kernel.

        Where golden has a kernel of the same parts, the model's parts are only cut otherwise.
        """
        row = self.row
        if not self.outputs or (row.replaces and not row.is_in_golden):
            return False
        if row.replaces:
            return not self.bad_outputs or bool(self.bad_inputs)
        return not self.bad_outputs and self.before.differs and self.own is None

    @cached_property
    def wrong_weight(self) -> TensorEvidence | None:
        """The first weight that differs: in bits, but in training beyond its limit."""
        for each in self.inputs:
            error, source = each.error, self.row.source(each.slot)
            if self.is_harmless(each):
                continue
            if each.verdict in {TensorVerdict.SHAPE, TensorVerdict.DTYPE} and each.is_weight:
                if source.kind is SourceKind.WEIGHT:
                    return each
            elif (each.is_weight or each.is_folded) and error is not None:
                is_mask = bool(error.masked) and not (error.largest or error.misplaced)
                is_same = error.is_same or each.is_rounded or each.is_folded or is_mask
                if each.is_bad or not (is_same or self.row.is_state):
                    return each
        return None

    @property
    def is_other(self) -> bool:
        """Whether it reads other weights or values than golden's, or replaces golden's operator.

        Not where the limits are those of quantisation: values may agree within these behind a wrong scale.
        """
        row, is_wired = self.row, bool(self.row.wiring) and not self.limits.explanation
        return bool(self.wrong_weight or row.wrong_weights or is_wired or row.replaces)

    def is_harmless(self, weight: TensorEvidence) -> bool:
        """Return whether a weight is golden's in effect: outputs agree, and it is an argument, or rounding.

        Arguments have several values of one meaning, as an end beyond a tensor's; folding in another order
        rounds otherwise.
        """
        error = weight.error
        is_other = error is None or bool(error.misplaced or error.changed) or error.scaled > _FOLDED
        is_agreed = bool(self.outputs) and not self.bad_outputs and self.own is None
        return is_agreed and (weight.dtype in _ARGUMENTS or not is_other)

    @cached_property
    def is_chance(self) -> bool:
        """Whether random numbers alone explain its difference."""
        if not self.bad_outputs or self.own is not None or self.row.wiring:
            return False
        makers = [self.producer(each.slot) for each in self.row.inputs if each.is_bad]
        return self.row.is_random or (bool(makers) and all(maker and maker.is_chance for maker in makers))

    @cached_property
    def apart(self) -> float:
        """The distance between the inputs as both sides read them.

        If the sides write different types, it is at least an epsilon of the shorter one, which rounds every
        summand of sums that may cancel.
        """
        own, other = ({dtype for io, dtype in side if io is IO.OUTPUT} for side in self.row.arithmetic)
        coarsest = "" if own == other else coarser(*own, *other)
        rounding = (self.limits.allowed((coarsest,), "") or 0.0) / _OF_LIMIT
        return max(largest_distance(self.inputs), rounding)

    @cached_property
    def is_drift(self) -> bool:
        """Whether small differences of agreeing inputs explain all outputs that differ."""
        if self.bad_inputs or not self.bad_outputs or self.own or self.row.wiring or self.wrong_weight:
            return False
        if any(each.verdict is not TensorVerdict.DIFFERS or each.misplaced for each in self.bad_outputs):
            return False
        return bool(self.flipped) or self.is_explained or (bool(self.row.own) and not self.is_amplified)

    @cached_property
    def is_explained(self) -> bool:
        """Whether the differences of its inputs explain all outputs that differ."""
        return all(map(self.explains, self.bad_outputs))

    @property
    def is_amplified(self) -> bool:
        """Whether an output differs by more than ``gain`` times its inputs."""
        propagated = self.row.propagated
        distance = largest_distance(self.bad_outputs) if propagated is None else propagated
        return 0 < largest_distance(self.inputs) * self.limits.gain < distance

    def explains(self, output: TensorEvidence) -> bool:
        """Return whether the inputs' differences explain how far an output is from golden's."""
        error, op_type = output.error, self.row.place.op_type
        if error is None or not self.apart:
            return False
        if error.changed:
            return self._explains_integers(output, error)
        if op_type in DISCONTINUOUS and error.distance <= math.sqrt(TIED):
            return True
        effect = self.effect(output)
        if op_type in BOUNDED and math.isfinite(effect):
            return error.norm <= effect
        # the operator's own rounding, and the growth of the inputs' difference
        if error.distance <= (output.limit or 0.0) + self.limits.growth * self.apart:
            return True
        return error.norm <= effect < math.inf

    def effect(self, output: TensorEvidence) -> float:
        """Return the norm of an output's error that rounding and the errors of its inputs explain.

        Infinite where the operator's type, or an input's error, does not give it.
        """
        op_type, error = self.row.place.op_type, output.error
        errors = [each.error for each in self.inputs if each.error is not None]
        size, sizes = math.prod(output.shape), [math.prod(each.shape) for each in self.inputs]
        is_known = error is not None and bool(errors and size and all(sizes)) and len(errors) == len(sizes)
        if error is None or not is_known or not all(math.isfinite(each.norm) for each in (error, *errors)):
            return math.inf
        limit, effect = output.limit or 0.0, math.inf
        if op_type in BOUNDED:  # an input that is broadcast moves more elements than it has
            read = [max(each.norm, self.apart * _norm(each)) for each in errors]
            spread = [math.sqrt(max(1.0, size / each)) for each in sizes]
            effect = _SLACK * sum(norm * by for norm, by in zip(read, spread, strict=True))
        elif op_type in NONEXPANSIVE and error.norm <= sum(each.norm for each in errors):
            effect = error.norm
        elif op_type in SUMS:  # one that is zero in theory is the rounding of its summands
            effect = math.sqrt(max(1.0, sizes[0] / size)) * (errors[0].norm + limit * _norm(errors[0]))
        elif op_type in PRODUCTS and len(errors) > 1:
            effect = _CANCELS * self._of_product(output, errors)
        return limit * _norm(error) + effect if math.isfinite(limit) else math.inf

    def _of_product(self, output: TensorEvidence, errors: Sequence[TensorError]) -> float:
        """Return the expected norm of the error of a product of two tensors with random errors.

        If the summands of an element cancel, the element is small and its relative distance says nothing. An
        element of ``n`` products of factors with mean squares ``a`` and ``b``, and mean squared errors ``da``
        and ``db``, has the squared error ``n (a db + b da)``; ``n`` follows from the numbers of elements.
        """
        sizes = [math.prod(each.shape) for each in (*self.inputs[:2], output)]
        if not all(each.distance for each in errors[:2]):
            return math.inf
        share = math.sqrt(math.sqrt(sizes[2] / (sizes[0] * sizes[1])))
        first, second = errors[:2]
        return share * (_norm(first) * second.norm + _norm(second) * first.norm)

    def _explains_integers(self, output: TensorEvidence, error: TensorError) -> bool:
        """Return whether real numbers that differ explain which integers or truth values differ.

        The largest element of a quantised tensor spans at least half of the steps of its type. So an element
        may move by the inputs' differences in such steps, rounded up, and by as much again if the scale
        moved. If elements are off by a fraction of a step, the same fraction of them may move to the next
        integer. Ids, as of ArgMax, jump: a small difference decides between two nearly equal candidates. Of
        selections in order, and of ids beside values that agree, it may move all.
        """
        real = [each for each in self.inputs if kind(each.dtype) != "int" or not each.dtype]
        if not real:
            return False
        if self.row.place.op_type == "Cast" and output.dtype != "bool":  # rounds to the next integer
            return error.largest <= 1 + max(each.error.largest for each in real if each.error is not None)
        steps = 2 * steps_of(output.dtype)
        if not steps:
            are_ties = any(each.verdict in AGREEING and kind(each.dtype) == "float" for each in self.outputs)
            if are_ties or self.row.place.op_type in VALUE_SHAPED:
                return True
            return error.changed <= max(_SWAP, TIED * math.prod(output.shape))
        moved = [(each, each.error) for each in self.inputs if each.error is not None and each.error.largest]
        if not moved or not all(math.isfinite(each.scaled) for _, each in moved):
            return False
        part = sum(
            each.norm / math.sqrt(max(math.prod(tensor.shape), 1)) * each.scaled / each.largest
            for tensor, each in moved
        )
        # a dynamic zero point that moved shifts all elements
        zeros = (each.error.largest for each in self.outputs if each.slot == _ZERO_POINT and each.error)
        zero = 0.0 if output.slot else max(zeros, default=0.0)
        share = 1.0 if zero else max(TIED, steps * part)
        most = 1 + zero + steps * sum(each.scaled for _, each in moved)
        return error.largest <= most and error.changed <= max(1.0, math.prod(output.shape) * share)

    @property
    def edge(self) -> float:
        """Relative distance of outputs that flipped inputs explain: by quantised steps, or by ties."""
        are_steps = self.flipped and all(steps_of(each.dtype) for each in self.flipped)
        return QUANTISED if are_steps else math.sqrt(TIED)

    @cached_property
    def handed_on(self) -> float:
        """Distance that flipped elements, or noise, of its own or of its inputs may cause in its readers."""
        if any(each.is_noise for each in self.tensors if each.io is IO.OUTPUT):
            return math.inf
        if math.isinf(self.moved):  # until an output of a reader is near golden's again
            plain = (replace(each, verdict=TensorVerdict.UNCHECKED) for each in self.outputs)
            is_far = any(judge_tensor(each, self.limits, self.coarsest).is_bad for each in plain)
            return math.inf if is_far else 0.0
        steps = self.is_drift and self.row.place.op_type in DISCONTINUOUS
        if not (steps or self.flipped):
            return self.moved
        outputs = (each.distance for each in self.outputs if not (each.is_flipped or each.misplaced))
        return max(self.moved, min(self.edge, self.limits.growth * max(outputs, default=0.0)))

    @cached_property
    def tensors(self) -> tuple[TensorEvidence, ...]:
        """Its tensors as readers see them: outputs that inputs or chance explain do not differ."""
        if not any(each.is_bad for each in self.row.tensors):
            return self.row.tensors
        if self.is_chance:
            return tuple(_unjudged(each, BY_CHANCE) if each.is_bad else each for each in self.row.tensors)
        return tuple(map(self._within, self.row.tensors)) if self.is_drift else self.row.tensors

    @cached_property
    def is_suspect(self) -> bool:
        """Whether there is evidence of a fault in it."""
        has_evidence = (self.own is not None or bool(self.row.wiring)) and not self.is_contradicted
        weight = self.wrong_weight is not None and not self.is_trained
        return has_evidence or weight or bool(self.row.wrong_weights)

    @cached_property
    def is_doubtful(self) -> bool:
        """Whether no output was compared, and there is evidence of a fault in it or behind such inputs."""
        unknown = {each.name for slot, each in enumerate(self.row.reads) if slot not in self._inputs}
        return not self.outputs and (self.is_suspect or not unknown.isdisjoint(self.doubtful))

    @property
    def after(self) -> Before:
        """The operators up to this one, for the next one."""
        row = self.row if self.tensors is self.row.tensors else replace(self.row, tensors=self.tensors)
        outputs, is_suspect = row.outputs, self.before.is_suspect or self.is_suspect
        return Before(
            self.before.is_continued,
            is_first=False,
            differs=self.before.differs
            or is_suspect
            or (any(each.is_bad for each in outputs) and not self.is_carrier)
            or bool(self.bad_inputs and not self.outputs),  # a loop: its body comes next
            is_suspect=is_suspect,
            is_exact=self.before.is_exact and all(each.verdict is TensorVerdict.EQUAL for each in outputs),
            is_whole=self.before.is_whole and not any(each.verdict in UNCOMPARED for each in outputs),
            is_uneven=self.before.is_uneven or self.row.passes is not None,
            is_noisy=self.before.is_noisy or math.isinf(self.handed_on),
        )

    @property
    def is_trained(self) -> bool:
        """Whether training explains a weight that differs: the operator that updates it is judged."""
        row, before = self.row, self.before
        is_later = before.is_continued or bool(row.place.iteration)
        return row.is_state and (is_later or (row.is_evaluation and before.differs))

    def as_written(self, tensor: TensorEvidence) -> TensorEvidence:
        """Return an input as agreeing if it has no more flipped elements than the producer's output."""
        written = self.written(tensor.slot) if tensor.io is IO.INPUT else None
        if written is None or not written.is_flipped or tensor.error is None or written.error is None:
            return tensor
        return _flipped(tensor) if tensor.error.changed <= written.error.changed else tensor

    def _within(self, tensor: TensorEvidence) -> TensorEvidence:
        """Return an output that differs as agreeing if flipped elements or a drift explain it."""
        error, limit = tensor.error, tensor.limit or 0.0
        if tensor.io is IO.INPUT or tensor.verdict is not TensorVerdict.DIFFERS or error is None:
            return tensor
        if error.changed:
            return _flipped(tensor)
        allowed = 0.0
        if self.flipped or self.row.place.op_type in DISCONTINUOUS:
            allowed = self.edge
        elif tensor.slot in self.row.returned:
            allowed = min(self.limits.growth * limit, max(limit, QUANTISED))
        if error.distance > allowed:
            return tensor
        return replace(tensor, verdict=TensorVerdict.AGREES, limit=allowed)


def propagate(
    rows: Iterable[Finding],
    limits: Limits,
    *,
    is_continued: bool,
    is_one_arithmetic: bool,
) -> Iterator[Operator]:
    """Yield the operators of a run in the order of execution, their tensors with limits and verdicts.

    A tensor is at best as precise as its inputs. So its limit is that of the coarsest element type of all
    tensors so far that are not bit for bit the same, and of the types that the sides compute in if these
    differ. Inputs may also differ by less than the smallest number of that type: numbers that underflowed
    before are missing even if later types could hold them.
    """
    coarsest, lost, most, before = limits.precision, 0.0, 0.0, Before(is_continued)
    latest: dict[str, Operator] = {}
    for given in rows:
        producers = {each.name: latest[each.name] for each in given.reads if each.name in latest}
        row = _without_masks(given, producers)
        # flipped elements may have come by an unknown way, as into a branch
        unknown = (row.source(each.slot) for each in row.tensors if each.io is IO.INPUT)
        is_unknown = any(
            source.kind is SourceKind.ABSENT
            or (source.kind is SourceKind.OPERATOR and source.name not in producers)
            for source in unknown
        )
        moved = max((each.handed_on for each in producers.values()), default=0.0)
        moved = max(moved, most) if is_unknown else moved
        doubtful = frozenset(name for name, each in producers.items() if each.is_doubtful)
        mine, golden = row.arithmetic  # where both sides read and write the same types they round alike
        computed = () if mine == golden else tuple(sorted({dtype for _, dtype in mine | golden}))
        coarsest = coarser(coarsest, *sorted({*computed, *_rounded_types(row)}))
        tensors = []
        for each in row.tensors:
            tensor = judge_tensor(each, limits, coarsest, computed=computed, lost=lost, moved=moved)
            if tensor.io is IO.OUTPUT and tensor.slot in row.unread and tensor.is_bad:
                # vendor: MindSpore's kernels do not write outputs without a reader: these hold old bytes
                tensor = _unjudged(tensor, "no operator reads it")
            tensors.append(tensor)
        if computed:  # numbers that underflow in this operator are missing in its readers
            lost = max(lost, limits.floor(computed))
        own = tuple(each for each in row.own if each.io is not IO.OUTPUT or each.slot not in row.unread)
        operator = Operator(
            replace(row, tensors=tuple(tensors), own=own),
            before,
            limits,
            producers,
            moved,
            doubtful,
            is_one_arithmetic=is_one_arithmetic,
            coarsest=coarsest,
        )
        if any(each.is_flipped for maker in producers.values() for each in maker.tensors):
            written = tuple(map(operator.as_written, tensors))
            operator = replace(operator, row=replace(operator.row, tensors=written))
        yield operator
        latest[row.place.shown_name] = operator
        most = max(most, operator.handed_on)
        before = operator.after


def coarsest_type(rows: Iterable[Finding], limits: Limits) -> str:
    """Return the coarsest type that rounded a tensor of some operators; "" for none."""
    return coarser(limits.precision, *sorted({name for row in rows for name in _rounded_types(row)}))


def _rounded_types(row: Finding) -> set[str]:
    differing = (each for each in row.tensors if each.error is None or not each.error.is_same)
    return {name for each in differing for name in (each.dtype, each.golden_dtype, each.rounded_to)}


def judge_tensor(
    tensor: TensorEvidence,
    limits: Limits,
    coarsest: str = "",
    *,
    computed: Sequence[str] = (),
    lost: float = 0.0,
    moved: float = 0.0,
) -> TensorEvidence:
    """Return a tensor with verdict, limit and remarks; one that no numbers decide is returned as it is.

    Args:
        tensor: The tensor beside its counterpart.
        limits: The limits of agreement.
        coarsest: The coarsest type that it may have been computed from.
        computed: Types that its operator computes in, if these differ between the sides.
        lost: Absolute difference of inputs that underflow before explains.
        moved: Relative distance that flipped elements before explain.
    """
    error, types = tensor.error, (tensor.dtype, tensor.golden_dtype)
    if error is None or tensor.verdict is not TensorVerdict.UNCHECKED:
        return tensor
    limit = limits.allowed(types, coarsest or limits.precision)
    if limit is not None and limits.distance is None:
        limit = max(limit, moved)
    floor = limits.floor((*types, *computed))
    floor = max(floor, lost) if tensor.io is IO.INPUT else floor
    notes = ["", "" if types[0] == types[1] else f"{types[0]} against {types[1]}", tensor.note]
    if error.misplaced:
        notes[0] = f"NaN or infinities differ at {elements(error.misplaced)}"
    elif math.isnan(error.cosine):
        notes[0] = "golden is zero" if math.isinf(error.distance) else "mine is zero"
    kinds = {*map(kind, types)}
    if tensor.is_rounded:
        verdict = TensorVerdict.AGREES
        notes = notes if any(notes) else ["rounded to fewer bits"]
    elif error.is_same:  # the same numbers in two types agree, but are not EQUAL
        verdict = TensorVerdict.EQUAL if types[0] == types[1] else TensorVerdict.AGREES
    elif len(kinds) > 1 and "" not in kinds:
        verdict = TensorVerdict.DTYPE
    elif limit is None or error.misplaced:
        verdict = TensorVerdict.DIFFERS
    elif math.isinf(limit):
        verdict, notes = TensorVerdict.AGREES, ["it is computed of nothing but rounding", *notes]
    else:
        is_near = error.distance <= limit and error.cosine >= limits.cosine
        is_near &= error.scaled <= limit * limits.peak
        is_rounding = 0 < error.ulps <= limits.units(types) or 0 < error.largest <= floor
        is_rounding &= limits.distance is None or bool(limits.explanation)  # not below a limit of the user
        verdict = TensorVerdict.AGREES if is_near or is_rounding else TensorVerdict.DIFFERS
        if verdict is TensorVerdict.DIFFERS and 0 < error.norm <= limit * tensor.summed:
            verdict, notes = TensorVerdict.AGREES, ["within the rounding of the summands", *notes]
    return replace(tensor, verdict=verdict, note=joined(*notes), limit=limit)


def _without_masks(row: Finding, producers: Mapping[str, Operator]) -> Finding:
    """Return a row without the masked elements of tensors that only a softmax reads."""
    masked = {}
    for each in row.tensors:
        maker = producers.get(row.source(each.slot).name) if each.io is IO.INPUT else None
        is_masking = maker.row.is_masking if maker is not None else row.is_masking
        if is_masking and each.error is not None and each.error.beside_masks is not None:
            masked[each.io, each.slot] = replace(each, error=each.error.beside_masks)
    if not masked:
        return row
    tensors = tuple(masked.get((each.io, each.slot), each) for each in row.tensors)
    own = tuple(each for each in row.own if (each.io, each.slot) not in masked)
    return replace(row, tensors=tensors, own=own)


def _norm(error: TensorError) -> float:
    """Return the norm of golden's tensor, 0 if it is unknown because the two are the same."""
    return error.norm / error.distance if error.distance and math.isfinite(error.distance) else 0.0


def elements(count: int) -> str:
    """Return a number of elements in words."""
    return f"{count:,} element{'s' * (count != 1)}"


def _flipped(tensor: TensorEvidence) -> TensorEvidence:
    """Return a tensor as agreeing if rounding flipped integers or truth values alone, else as it is."""
    error = tensor.error
    if error is None or tensor.verdict is not TensorVerdict.DIFFERS or not error.changed:
        return tensor
    note = joined(f"{elements(error.changed)} flipped at a near tie", tensor.note)
    return replace(tensor, verdict=TensorVerdict.AGREES, note=note)


def _unjudged(tensor: TensorEvidence, note: str) -> TensorEvidence:
    return replace(tensor, verdict=TensorVerdict.UNCHECKED, note=joined(note, tensor.note))
