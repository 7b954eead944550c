"""The verdict on each operator: the first condition of one table that holds for its row of evidence.

Rows and table have no state: ``propagate`` finds limits and verdicts of tensors along the graph before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.graph import CONTROL_FLOW
from msdump.judge import Fact, FactKind
from msdump.judge.verdict.evidence import (
    ACCUSING,
    AGREEING,
    UNCOMPARED,
    Finding,
    OperatorPlace,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    joined,
    largest_distance,
)
from msdump.judge.verdict.limits import VALUE_SHAPED, Limits, kind
from msdump.judge.verdict.propagation import BY_CHANCE, Operator, elements, propagate
from msdump.judge.verdict.scales import wrong_scales
from msdump.read import SourceKind
from msdump.store import PARAMETER

_UNFIT: Final = frozenset({TensorVerdict.SHAPE, TensorVerdict.DTYPE})
_SHORT: Final = "float16"  # the type with the fewest numbers, in which kernels overflow
_LIKE: Final = 0.5
"""Relative distance from golden's tensor up to which a quantised input has golden's range."""


def _named(tensor: TensorEvidence) -> str:
    return f"input {tensor.slot}{f' {tensor.name}' if tensor.name else ''}"


def _origin(operator: Operator, tensor: TensorEvidence) -> str:
    slot, source = tensor.slot, operator.row.source(tensor.slot)
    if source.kind is SourceKind.INPUT:
        return f"input {slot}: the network's input {source.name}"
    return f"input {slot}{f', {source.name}' if source.name else ''}"


def _same(operator: Operator) -> str | None:
    """All tensors have the same bits, and there is no other evidence."""
    row = operator.row
    others = row.note, row.own, row.replaces, row.wiring, row.passes, row.wrong_weights, operator.facts
    has_other = any(others) or operator.wrong_scale
    is_same = {each.verdict for each in row.tensors} == {TensorVerdict.EQUAL} and bool(row.outputs)
    return "" if is_same and not has_other else None


def _wrong_scale(operator: Operator) -> str | None:
    """The operator's scale makes much more noise than the range of the tensor explains."""
    return operator.wrong_scale or None


def _extra(operator: Operator) -> str | None:
    """Golden's graph lacks the operator, and outputs differ."""
    return operator.fact(FactKind.EXTRA)


def _replaced(operator: Operator) -> str | None:
    """Golden's graph has another operator in its place, and outputs differ."""
    return operator.fact(FactKind.REPLACED)


def _unpaired(operator: Operator) -> str | None:
    """The operator has no counterpart that ran."""
    return operator.row.note or None


def _wired(operator: Operator) -> str | None:
    """The operator reads other values than in golden's graph, and outputs differ."""
    return operator.fact(FactKind.WIRING)


def _attribute(operator: Operator) -> str | None:
    """The operator has another attribute, and outputs differ by more than its inputs explain."""
    is_inherited = bool(operator.bad_inputs) and operator.is_explained
    return None if is_inherited else operator.fact(FactKind.ATTRIBUTE)


def _declared(operator: Operator) -> str | None:
    """The graphs declare another type of elements, and no output alone differs."""
    is_alone = bool(operator.bad_outputs) and not (operator.bad_inputs or operator.is_drift)
    return None if is_alone else operator.fact(FactKind.DTYPE)


def _uneven(operator: Operator) -> str | None:
    """The operator ran more often on one side, and all operators before agree."""
    passes, before = operator.row.passes, operator.before
    if passes is None or before.differs or before.is_uneven or operator.bad_inputs:
        return None
    mine, golden = (f"{count:,} time{'s' * (count != 1)}" for count in passes)
    return f"it ran {mine}, in golden {golden}"


def _by_chance(operator: Operator) -> str | None:
    """Random numbers alone explain the difference of the outputs."""
    return BY_CHANCE if operator.is_chance else None


def _shape(operator: Operator) -> str | None:
    """An output has another shape."""
    return _unfit(operator, TensorVerdict.SHAPE)


def _dtype(operator: Operator) -> str | None:
    """An output has another kind of elements."""
    return _unfit(operator)


def _rearranged(operator: Operator) -> str | None:
    """The operator is one of several differences that undo each other: the values behind it agree."""
    # an own error was measured on golden's values: the readers do not show it, they may have read these, too
    is_healed = operator.is_held and operator.is_other and operator.own is None
    return "the values behind it agree" if is_healed else None


def _not_the_models(operator: Operator) -> str | None:
    """The operator reads a weight that is not the model's, and not golden's."""
    inputs = operator.row.inputs
    same = {each.slot for each in inputs if (each.error and each.error.is_same) or operator.is_harmless(each)}
    wrong = {slot: name for slot, name in operator.row.wrong_weights.items() if slot not in same}
    text = ", ".join(f"input {slot} {name}" for slot, name in wrong.items())
    return f"{text}: not the model's weight" if text else None


def _parameter(operator: Operator) -> str | None:
    """The file of a parameter differs."""
    is_file = operator.row.place.op_type == PARAMETER and bool(operator.bad_outputs)
    return operator.bad_outputs[0].note if is_file else None


def _weight(operator: Operator) -> str | None:
    """A weight differs: by its bits, or beyond its limit in training."""
    wrong = operator.wrong_weight
    if wrong is None:
        return None
    if wrong.error is None or wrong.verdict in _UNFIT:
        return f"{_named(wrong)}: {wrong.note}"
    where = f" at {wrong.places}" if wrong.places else ""
    return f"{_named(wrong)} differs{where} (distance {wrong.error.distance:.2g})"


def _foreign(operator: Operator) -> str | None:
    """An input of unknown source differs although all operators before agree.

    It came from outside, as a weight does, or into a branch or a pass of a loop; or it changed in between. If
    all tensors before have the same bits, one differing bit is enough.
    """
    row, before = operator.row, operator.before
    if before.differs or before.is_continued or not before.is_whole or operator.is_carrier:
        return None
    for each in operator.inputs:
        is_elsewhere = row.source(each.slot).kind in {SourceKind.INPUT, SourceKind.OPERATOR}
        is_given = before.is_first and (bool(row.reads) or not each.slot)  # an input of the network
        if each.error is None or each.is_weight or is_elsewhere or is_given:
            continue
        is_bit = not row.reads and before.is_exact and not before.is_first and bool(each.slot)
        if each.is_bad or (is_bit and not each.error.is_same):
            return (
                f"{_named(each)} differs (distance {each.distance:.2g}) although all earlier operators agree"
            )
    return None


def _foreign_weight(operator: Operator) -> str | None:
    """An input that no graph names differs, and all operators before agree."""
    return None if operator.row.reads or operator.row.own else _foreign(operator)


def _foreign_value(operator: Operator) -> str | None:
    """A value of unknown source differs, as in a branch or loop, and all operators before agree."""
    shows = operator.bad_outputs or not operator.outputs  # a shape may be written in several ways
    return _foreign(operator) if operator.row.reads and shows else None


def _overflown(operator: Operator) -> str | None:
    """A weight or an input of the network is infinite in its type."""
    for each in operator.inputs:
        is_given = operator.row.source(each.slot).kind is SourceKind.INPUT
        # the model may correct ``is_weight`` of an input that files alone suggested, not ``is_rounded``
        if each.overflows and (each.is_weight or each.is_rounded or is_given):
            return f"{_named(each)} overflows its element type at {elements(each.overflows)}"
    return None


def _struck(operator: Operator) -> TensorEvidence | None:
    """Return the first output with NaN or infinities that no wrong input or other result explains."""
    if operator.own is not None or (operator.row.wiring and not operator.is_contradicted):
        return None
    return next((each for each in operator.bad_outputs if each.misplaced), None)


def _given_nonfinite(operator: Operator) -> str | None:
    """NaN or infinities come from the inputs."""
    struck = _struck(operator)
    if struck is None:
        return None
    for each in operator.inputs:
        written = operator.written(each.slot)
        if each.misplaced and (written is None or written.verdict in UNCOMPARED or written.misplaced):
            return f"NaN or infinities come from {_origin(operator, each)}"
    if not operator.is_complete and operator.before.differs:
        return struck.note
    # golden's arithmetic overflows, too, on inputs that are wrong because of an operator at fault
    is_golden = bool(operator.row.own) and operator.row.propagated == math.inf
    if is_golden and operator.bad_inputs and operator.before.is_suspect:
        return "NaN or infinities begin here because of wrong inputs"
    return None


def _nonfinite(operator: Operator) -> str | None:
    """The operator is the first with NaN or infinities."""
    struck, own = _struck(operator), operator.row.own
    if struck is None:
        return None
    return joined(struck.note, f"the same in a run in {own[0].arithmetic}" if own else "")


def _unfit(operator: Operator, verdict: TensorVerdict | None = None) -> str | None:
    """Return the reason of the first output with another shape or kind of elements."""
    unfit = next((each for each in operator.bad_outputs if each.verdict in _UNFIT), None)
    return unfit.note if unfit is not None and verdict in {None, unfit.verdict} else None


def _unfit_inputs(operator: Operator) -> str | None:
    """Inputs have other shapes or kinds of elements, too."""
    note = _unfit(operator)
    return note if any(each.verdict in _UNFIT for each in operator.inputs) else None


def _shaped_by_values(operator: Operator) -> str | None:
    """The operator's shape depends on input values that differ."""
    note = _unfit(operator, TensorVerdict.SHAPE)
    errors = [each.error for each in operator.inputs if each.error is not None]
    is_selecting = operator.row.place.op_type in VALUE_SHAPED
    if note is None or not any(not each.is_same if is_selecting else each.changed for each in errors):
        return None
    return joined("its shape depends on input values that differ", note)


def _inserted(operator: Operator) -> str | None:
    """A device inserted the operator, so that numbers alone pair it, and its shape or kind differs."""
    return _unfit(operator) if operator.row.place.name.startswith(INSERTED_PREFIX) else None


def _other_shapes(operator: Operator) -> str | None:
    """Golden's graph has another operator in the place, with outputs of another shape."""
    row, note = operator.row, _unfit(operator, TensorVerdict.SHAPE)
    alone = not (operator.outputs or row.wiring)
    if row.replaces and (
        note or (alone and any(each.verdict is TensorVerdict.UNCHECKED for each in row.tensors))
    ):
        return f"in place of {row.replaces}, with other output shapes"
    return None


def _excused(operator: Operator) -> str | None:
    """The graphs differ in an earlier operator, and its outputs show it."""
    is_shown = bool(operator.bad_outputs) and operator.own is None
    return operator.excuse if operator.excuse and is_shown else None


def _wiring(operator: Operator) -> str | None:
    """An input is not the output of its producer, or not the model's."""
    is_other = operator.row.replaces or operator.is_contradicted
    return None if is_other else operator.row.wiring or None


def _replacing(operator: Operator) -> str | None:
    """Golden's graph has another operator in the place, with other inputs or results."""
    row = operator.row
    if not row.replaces or operator.is_contradicted:
        return None
    if row.wiring:
        is_done = operator.outputs and not operator.bad_outputs  # it does the other one's work
        return None if is_done else row.wiring
    return None if operator.own is None else f"in place of {row.replaces}, with other results"


def _own_nonfinite(operator: Operator) -> str | None:
    """The operator's NaN or infinities do not come again."""
    own = operator.own
    if own is None or not own.error.misplaced:
        return None
    return f"NaN or infinities differ at {elements(own.error.misplaced)} from a run in {own.arithmetic}"


def _own_finite(operator: Operator) -> str | None:
    """The operator's NaN or infinities do not come again, and other elements differ, too."""
    own, note = operator.own, _own_nonfinite(operator)
    if own is None or note is None or not any(each.misplaced for each in operator.inputs):
        return None
    if own.finite > (operator.limits.allowed((_SHORT, _SHORT), _SHORT) or 0.0):
        return f"own error {own.finite:.2g} in {own.arithmetic} at elements finite on both sides; {note}"
    finite = own.error.misplaced - own.error.nonfinite
    return f"{note}, {finite:,} of them finite here" if finite else None


def _recurring(operator: Operator) -> str | None:
    """The operator's NaN or infinities come from inputs, and again in its own arithmetic."""
    is_given = any(each.misplaced for each in operator.inputs)
    return _own_nonfinite(operator) if is_given and operator.own and operator.own.recurs else None


def _hidden(operator: Operator) -> str | None:
    """A part of a fused kernel overflows, and later parts of the kernel hide the infinities."""
    part = "" if operator.own is None else operator.own.overflow
    return f"{part} in the kernel overflows, and the parts behind it hide the infinities" if part else None


def _own(operator: Operator) -> str | None:
    """Run again, the operator gives another result."""
    own = operator.own
    if own is None:
        return None
    text = f"own error {own.error.distance:.2g} in {own.arithmetic}, {own.explanation} {own.allowed:.2g}"
    return joined(text, own.note)


def _changed(operator: Operator) -> str | None:
    """An input differs although its producer's output agrees; judged where it did not run again."""
    number = operator.row.place.pass_number or 0
    for each in operator.bad_inputs if not operator.row.own else ():
        producer, written = operator.producer(each.slot), operator.written(each.slot)
        if producer is None or written is None or written.verdict not in AGREEING or each.as_written:
            continue
        if (
            producer.row.place.pass_number or 0
        ) < number:  # a pass of a loop reads the value of the one before
            continue
        text = f"input {each.slot} is not the output of {producer.row.place.shown_name}"
        if each.verdict is TensorVerdict.DIFFERS and each.distance > written.distance:
            return f"{text}: the tensor changed in between"
        # an input with the same number of elements is the same tensor in another layout
        if each.verdict is TensorVerdict.SHAPE and math.prod(each.shape) != math.prod(written.shape):
            return f"{text}: {each.note}"
    return None


def _unreadable(operator: Operator) -> str | None:
    notes = (each.note for each in operator.row.tensors if each.verdict is TensorVerdict.UNREADABLE)
    return next(notes, None)


def _lost(operator: Operator) -> str | None:
    """The operator's file is lost or torn."""
    return None if operator.outputs or operator.row.wiring else _unreadable(operator)


def _alone(operator: Operator) -> str | None:
    """No tensor of the operator was compared."""
    verdicts = {each.verdict for each in operator.row.tensors}
    is_unchecked = verdicts == {TensorVerdict.UNCHECKED}
    has_nothing = not (operator.outputs or operator.inputs)
    return "" if has_nothing or (is_unchecked and not operator.bad_inputs) else None


def _healed(operator: Operator) -> str | None:
    """An input differs, and its outputs agree."""
    return "" if operator.outputs and operator.bad_inputs and not operator.bad_outputs else None


def _without_outputs(operator: Operator) -> str | None:
    """An input differs, and no output was compared."""
    return "" if operator.bad_inputs and not operator.outputs else None


def _torn(operator: Operator) -> str | None:
    """A tensor cannot be read."""
    return None if operator.bad_outputs else _unreadable(operator)


def _equal(operator: Operator) -> str | None:
    """All tensors have the same bits."""
    verdicts = {each.verdict for each in (*operator.inputs, *operator.outputs)}
    return "" if verdicts <= {TensorVerdict.EQUAL} else None


def _agrees(operator: Operator) -> str | None:
    """All outputs agree."""
    return None if operator.bad_outputs else ""


def _beyond_inputs(operator: Operator) -> str | None:
    """An output differs by more than its type makes of the inputs."""
    if operator.row.own or operator.row.replaces or operator.flipped or not operator.is_measured:
        return None
    for each in operator.bad_outputs if operator.bad_inputs else ():
        effect = operator.effect(each)
        if (
            each.verdict is TensorVerdict.DIFFERS
            and each.error
            and not each.error.changed
            and each.error.norm > effect
        ):
            explained = effect / each.error.norm * each.distance
            return f"output {each.slot} differs by {each.distance:.2g}, its inputs explain {explained:.2g}"
    return None


def _amplified(operator: Operator) -> str | None:
    """An output differs by more than `gain` times the inputs."""
    return _inherited(operator) if operator.is_amplified else None


def _inherited(operator: Operator) -> str | None:
    """An input differs."""
    if not operator.bad_inputs:
        return None
    return f"from {_origin(operator, max(operator.bad_inputs, key=lambda each: each.badness))}"


def _flipped(operator: Operator) -> str | None:
    """Elements of an input flipped at a near tie."""
    if not operator.flipped:
        return None
    flipped = operator.flipped[0]
    count = elements(flipped.error.changed) if flipped.error else ""
    return f"{count} of {_origin(operator, flipped)} flipped at a near tie"


def _unknown_inputs(operator: Operator) -> str | None:
    """The operator's inputs were not compared, and an operator before it differs."""
    is_open = not operator.is_complete and operator.before.differs and not operator.row.own
    return "its inputs were not compared" if is_open else None


def _other_network(operator: Operator) -> str | None:
    """Inputs have the same bits, both sides compute alike, and outputs differ."""
    inputs = {each.verdict for each in operator.row.inputs}
    repeats = bool(operator.row.own) and all(each.error.is_same for each in operator.row.own)
    is_certain = operator.is_one_arithmetic and repeats and inputs == {TensorVerdict.EQUAL}
    return "golden's inputs are the same, but its outputs differ" if is_certain else None


def _drift(operator: Operator) -> str | None:
    """Small differences of the inputs explain the differences of the outputs."""
    if not (operator.is_drift and operator.is_explained):
        return None
    return "" if operator.row.own else f"its inputs already differ by {largest_distance(operator.inputs):.2g}"


def _own_amplified(operator: Operator) -> str | None:
    """Run again, the operator gives the same result, off by more than `gain` times its inputs."""
    return "" if operator.row.own and operator.is_amplified else None


def _again(operator: Operator) -> str | None:
    """Run again, the operator gives the same result."""
    return "" if operator.row.own else None


def _in_place(operator: Operator) -> str | None:
    """Golden's graph has another operator in the place."""
    return f"in place of {operator.row.replaces}" if operator.row.replaces else None


def _by_itself(operator: Operator) -> str:
    """The operator's inputs agree, an output does not."""
    known = {each.slot for each in operator.inputs}
    fed = [each for slot, each in enumerate(operator.row.reads) if slot not in known]
    names = [each.name for each in fed if each.kind is SourceKind.INPUT]
    if names:
        return f"the cause may be the network's input {', '.join(names)}, which was not compared"
    worst = max(operator.bad_outputs, key=lambda each: each.badness)
    text = f"output {worst.slot} differs by {worst.distance:.2g}, its inputs agree"
    return joined(text, worst.note)


def _trained_weight(operator: Operator) -> str | None:
    """A weight or its file differs, and training or an operator before explains it."""
    is_earlier = operator.before.differs or operator.before.is_continued or operator.before.is_noisy
    return (_weight(operator) if operator.is_trained else None) or (
        _parameter(operator) if is_earlier else None
    )


CONDITIONS: Final[tuple[tuple[Verdict, Callable[[Operator], str | None]], ...]] = (
    (Verdict.EQUAL, _same),
    (Verdict.OWN, _wrong_scale),
    (Verdict.EXTRA, _extra),
    (Verdict.REPLACED, _replaced),
    (Verdict.UNCHECKED, _unpaired),
    (Verdict.HEALED, _rearranged),
    (Verdict.WEIGHT, _not_the_models),
    (Verdict.OWN, _wired),
    (Verdict.UNREADABLE, _lost),
    (Verdict.INHERITED, _trained_weight),
    (Verdict.WEIGHT, _parameter),
    (Verdict.WEIGHT, _weight),
    (Verdict.WEIGHT, _foreign_weight),
    (Verdict.OWN, _uneven),
    (Verdict.NONFINITE, _overflown),
    (Verdict.INHERITED, _given_nonfinite),
    (Verdict.NONFINITE, _nonfinite),
    (Verdict.UNCHECKED, _by_chance),
    (Verdict.INHERITED, _unfit_inputs),
    (Verdict.INHERITED, _shaped_by_values),
    (Verdict.REPLACED, _other_shapes),
    (Verdict.UNCHECKED, _inserted),
    (Verdict.SHAPE, _shape),
    (Verdict.DTYPE, _dtype),
    (Verdict.REPLACED, _replacing),
    (Verdict.INHERITED, _excused),
    (Verdict.OWN, _wiring),
    (Verdict.OWN, _own_finite),
    (Verdict.INHERITED, _recurring),
    (Verdict.NONFINITE, _own_nonfinite),
    (Verdict.NONFINITE, _hidden),
    (Verdict.OWN, _own),
    (Verdict.OWN, _attribute),
    (Verdict.DTYPE, _declared),
    (Verdict.OWN, _changed),
    (Verdict.OWN, _foreign_value),
    (Verdict.UNCHECKED, _alone),
    (Verdict.HEALED, _healed),
    (Verdict.INHERITED, _without_outputs),
    (Verdict.UNREADABLE, _torn),
    (Verdict.EQUAL, _equal),
    (Verdict.AGREES, _agrees),
    (Verdict.OWN, _beyond_inputs),
    (Verdict.AMPLIFIED, _amplified),
    (Verdict.INHERITED, _inherited),
    (Verdict.ACCUMULATED, _flipped),
    (Verdict.INHERITED, _unknown_inputs),
    (Verdict.OWN, _other_network),
    (Verdict.ACCUMULATED, _drift),
    (Verdict.AMPLIFIED, _own_amplified),
    (Verdict.ACCUMULATED, _again),
    (Verdict.REPLACED, _in_place),
    (Verdict.OWN, _by_itself),
)
"""Verdicts and conditions, which return the reason: the first that holds decides. The reference page has the
first lines of their docstrings."""


def verdict_of(operator: Operator) -> Finding:
    """Return the verdict on an operator, with its reason."""
    verdict, note = next(
        (each, note) for each, reason in CONDITIONS if (note := reason(operator)) is not None
    )
    if verdict is Verdict.WEIGHT and operator.wrong_weight is not None:  # two faults in one note
        faults = (_replacing, _wiring, _own_finite, _own_nonfinite, _hidden, _own)
        note = joined(note, next(filter(None, (each(operator) for each in faults)), ""))
    if verdict is Verdict.OWN:
        turned = (f"{_named(each)}: {each.note}" for each in operator.row.inputs if each.is_turned)
        note = joined(note, *turned)
    if verdict in ACCUSING:
        note = joined(*(each.text for each in operator.facts if each.text not in note), note)
    return replace(operator.row, verdict=verdict, tensors=operator.tensors, note=note)


_WORDS: Final = {
    FactKind.EXTRA: "is not in golden",
    FactKind.REPLACED: "is replaced",
    FactKind.MISSING: "is missing",
    FactKind.WIRING: "reads another value",
}
"""Facts that other operators may show: readers, or operators inside of a loop, with the words on them."""


def judge(
    rows: Iterable[Finding],
    limits: Limits,
    facts: Sequence[Fact] = (),
    *,
    place_of: Callable[[Fact], OperatorPlace] = lambda fact: OperatorPlace(fact.operator),
    nodes: Mapping[str, str] = MappingProxyType({}),
    outputs_differ: bool = False,
    is_continued: bool = False,
    is_one_arithmetic: bool = False,
) -> list[Finding]:
    """Return the verdicts on the operators of one run, and on golden operators that it lacks.

    Args:
        rows: The evidence on the operators, in the order of execution.
        limits: The limits of agreement.
        facts: Differences of the two graphs.
        place_of: Returns the place of an operator that is missing, or has no row.
        nodes: Names of the model's nodes by full names, for operators that are fused.
        outputs_differ: Whether outputs of the network differ that no row writes.
        is_continued: Whether earlier runs differed, so that the weights they trained may differ, too.
        is_one_arithmetic: Whether both sides compute alike, so that no rounding explains another result.
    """
    operators = [*propagate(rows, limits, is_continued=is_continued, is_one_arithmetic=is_one_arithmetic)]
    located = [*_located(operators, facts, nodes)]
    lasting, held = _lasting(operators, located)
    found, absent = _with_facts(operators, lasting, located, place_of, outputs_differ=outputs_differ)
    scales = {
        place: each.row.scale
        for place, each in enumerate(operators)
        if each.row.scale is not None and all(tensor.distance <= _LIKE for tensor in each.inputs[:1])
    }
    wrong = {place: scales[place][1] for place in wrong_scales(scales)}
    findings: list[Finding] = []
    has_accused = False  # an earlier fault changes the range of a quantised tensor
    for place, operator in enumerate(found):
        wrong_scale, is_held = "" if has_accused else wrong.get(place, ""), place in held
        if wrong_scale or is_held:
            operator = replace(operator, wrong_scale=wrong_scale, is_held=is_held)  # noqa: PLW2901
        findings += [*absent.get(place, ()), verdict_of(operator)]
        has_accused |= findings[-1].is_accused
    return [*findings, *absent.get(len(found), ())]


_Located = tuple[Fact, list[int], list[int]]
"""A difference of the graphs, with the places of its operator and of its readers."""


def _located(
    operators: Sequence[Operator], facts: Iterable[Fact], nodes: Mapping[str, str]
) -> Iterator[_Located]:
    """Yield each fact with the places of its operators, which may be parts of fused ones."""
    places: dict[str, list[int]] = {}
    inside: dict[str, list[int]] = {}
    for place, each in enumerate(operators):
        for name in {each.row.place.full_name, *each.row.place.onnx_name.split("+")} - {""}:
            places.setdefault(name, []).append(place)
        for source in each.row.reads:  # a value that a branch or a loop hands on to its body
            if source.kind is SourceKind.ABSENT and source.name:
                inside.setdefault(source.name, []).append(place)

    def find(name: str) -> list[int]:
        return places.get(name) or places.get(nodes.get(name, ""), [])

    for fact in facts:
        own = [] if fact.kind is FactKind.MISSING else find(fact.operator)
        readers = [place for name in fact.readers for place in (*find(name), *inside.get(name, ()))]
        yield fact, own, readers


def _with_facts(
    operators: Sequence[Operator],
    lasting: Collection[int],
    located: Iterable[_Located],
    place_of: Callable[[Fact], OperatorPlace],
    *,
    outputs_differ: bool,
) -> tuple[list[Operator], dict[int, list[Finding]]]:
    """Return operators with the graphs' differences that reach the outputs, and missing operators by place.

    A missing operator, or one without a row, comes before the first operator that shows it.
    """
    found, absent = [*operators], dict[int, list[Finding]]()
    differing = [
        place
        for place, each in enumerate(operators)
        if each.bad_outputs and not each.is_chance and place in lasting
    ]
    returned = outputs_differ or any(
        each.is_bad and each.slot in operators[place].row.returned
        for place in differing
        for each in operators[place].row.outputs
    )
    for fact, own, readers in located:
        is_type = fact.kind is FactKind.DTYPE  # a wrong type is a fault even if no output differs
        showing = [place for place in readers if is_type or place in differing]
        if fact.kind is FactKind.WEIGHT or not (showing or (not readers and returned)):
            continue
        for place in own:
            found[place] = replace(found[place], facts=(*found[place].facts, fact))
        if not own and operators:
            first = min(showing, default=differing[0] if differing else len(operators))
            at = operators[min(first, len(operators) - 1)].row.place
            where = replace(place_of(fact), iteration=at.iteration, order=at.order, time=at.time)
            absent.setdefault(first, []).append(Finding(where, _ABSENT[fact.kind], note=fact.text))
        for place in {*showing} - {*own} if fact.kind in _WORDS else ():
            excuse = f"the earlier operator {fact.operator} {_WORDS[fact.kind]}"
            found[place] = replace(found[place], excuse=excuse)
    return found, absent


def _lasting(operators: Sequence[Operator], located: Iterable[_Located]) -> tuple[set[int], set[int]]:
    """Return the places of operators with a difference that reaches the outputs, and with one that is undone.

    Where the values around a region agree, it computes the same in another way, unless it has one difference
    alone: another one would have to undo it.
    """
    readers: dict[str, list[int]] = {}
    for place, each in enumerate(operators):
        for source in each.row.reads:
            if source.kind is SourceKind.OPERATOR:
                readers.setdefault(source.name, []).append(place)
    lasting, held = set[int](), set[int]()
    regions: dict[int, int] = {}  # of an operator before values that agree: the place of its last reader
    for place, each in reversed([*enumerate(operators)]):
        if each.outputs and all(map(_is_number_that_agrees, each.outputs)):
            continue
        behind = readers.get(each.row.place.shown_name, [])
        # a graph has no casts: the operator behind a cast reads the cast's input
        is_end = bool(each.row.returned) or (not behind and bool(each.bad_outputs))
        if is_end or not lasting.isdisjoint(behind):
            lasting.add(place)
        elif behind and each.row.place.op_type not in CONTROL_FLOW:  # its body has the outputs
            held.add(place)
            regions[place] = max(regions.get(reader, reader) for reader in behind)
    names = [each.row.place.full_name for each in operators]
    changes = {
        (regions[place], names[place])
        for place in held
        if operators[place].is_other or not operators[place].outputs
    }
    changes |= {
        (regions.get(place, place), names[own[0]] if own else fact.operator)
        for fact, own, shown in located
        for place in (*own, *shown)
    }
    counts = Counter(region for region, _ in changes)
    single = {place for place in held if counts[regions[place]] == 1 and operators[place].outputs}
    return lasting | single, held - single


def _is_number_that_agrees(output: TensorEvidence) -> bool:
    """Return whether an output holds real numbers that agree by more than a limit of noise."""
    is_noise = output.is_noise or math.isinf(output.limit or 0.0)
    return kind(output.dtype) == "float" and not (output.is_bad or is_noise)


_ABSENT: Final = {
    **dict.fromkeys((FactKind.ATTRIBUTE, FactKind.WIRING), Verdict.OWN),
    FactKind.EXTRA: Verdict.EXTRA,
    FactKind.REPLACED: Verdict.REPLACED,
    FactKind.MISSING: Verdict.MISSING,
    FactKind.DTYPE: Verdict.DTYPE,
}
"""Verdict on an operator without a row, such as control flow, by the difference of the graphs."""
