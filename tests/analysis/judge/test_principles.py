"""The six principles of docs/reference/verdicts.md, sentence by sentence, on operators made up for them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from msdump.analysis import SAME, errors
from msdump.analysis.judge import (
    Judge,
    Limits,
    OperatorEvidence,
    OwnError,
    Report,
    TensorEvidence,
    TensorVerdict,
)
from msdump.read import ABSENT, SourceKind, ValueSource
from msdump.record import IO
from tests.analysis.judge.test_judging import (
    FAR,
    NAN,
    NEAR,
    computed,
    error,
    judged,
    of,
    operator,
    own,
    tensor,
)

WEIGHT = ValueSource(SourceKind.WEIGHT, "w")


def with_input(evidence: OperatorEvidence, added: TensorEvidence) -> OperatorEvidence:
    """Return an operator that reads one tensor more."""
    return replace(evidence, tensors=(added, *evidence.tensors))


def changed(count, *, size=64, distance=0.1):
    """Return the error of integers or truth values of which some differ, by one each."""
    return replace(error(distance), changed=count, largest=1.0, ulps=0.0)


def integers(io, slot, count, dtype="int64", size=64):
    """Return integers of which some differ."""
    return TensorEvidence(io, slot, (size,), dtype, dtype, error=changed(count, size=size) if count else SAME)


AGAIN = {"own": own(1e-8, is_explained=True)}
"""What comes again in MINE's arithmetic."""

NOT_FINITE = {
    "come again in MINE's arithmetic": ([0], NAN, {**AGAIN, "propagated": 0.1}, "nonfinite"),
    "come again in golden's, too, of sound inputs": (
        [NEAR],
        NAN,
        {**AGAIN, "propagated": math.inf},
        "nonfinite",
    ),
    "come of inputs that differ": ([FAR], NAN, {**AGAIN, "propagated": 0.1}, "nonfinite"),
}


@pytest.mark.parametrize(("inputs", "output", "known", "verdict"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_overflow_is_not_rounding(inputs, output, known, verdict):
    """Where infinities or NaN begin the operator is named, whatever gives them again."""
    assert verdict == judged(operator(inputs=inputs, outputs=[output], **known))[0].verdict


@pytest.mark.parametrize(("is_accused", "verdict"), [(True, "inherited"), (False, "nonfinite")])
def test_what_golden_makes_of_wrong_inputs_is_of_the_operator_that_made_them(is_accused, verdict):
    """An overflow that golden's arithmetic gives again on wrong inputs is of the operator that is named."""
    before = operator("A", [0 if is_accused else FAR], [FAR], own=own(FAR, is_explained=not is_accused))
    behind = operator("B", [FAR], [NAN], order=2, own=own(0, is_explained=True), propagated=math.inf)

    assert verdict == judged(before, replace(behind, reads=(of("A"),)))[-1].verdict


def test_an_input_that_only_its_reader_holds_as_infinite_begins_there():
    """Infinities that the producer's output lacks begin in the operator with the type that makes them."""
    reader = operator("B", [NAN], [NAN], order=2, reads=(of("A"),))

    assert ["equal", "nonfinite"] == [each.verdict for each in judged(operator("A", [0], [0]), reader)]


@pytest.mark.parametrize("output", [0, NEAR, FAR])
def test_a_weight_that_rounding_made_infinite_is_named(output):
    """An operator that reads such a weight is nonfinite although its outputs may agree."""
    weight = tensor(IO.INPUT, 1, NAN, is_weight=True, is_rounded=True, overflows=3, name="variance")
    evidence = with_input(operator(inputs=[0], outputs=[output]), weight)

    (finding,) = judged(replace(evidence, reads=(of("A"), WEIGHT)))

    assert "nonfinite" == finding.verdict
    assert finding.note.startswith("input 1 variance is infinite at 3 elements")


@pytest.mark.parametrize(
    ("mine", "golden", "count"),
    [([np.inf, 1], [1e7, 1], 1), ([-np.inf, 0], [-3.4e38, 0], 0), ([np.inf, 1], [9.0, 1], 0)],
    ids=["beyond the type", "mask", "a wrong weight"],
)
def test_only_large_numbers_overflow(mine, golden, count):
    """A mask of the lowest numbers may become infinite; a small number that is infinite is another fault."""
    assert count == errors.overflowed(np.float32(mine), np.float32(golden))


ARITHMETIC = {
    "alike": (computed("float16", "float16"), "own"),
    "other results": (computed("float16", "float32"), "agrees"),
    "other inputs": ((frozenset({(IO.INPUT, "float16")}), frozenset({(IO.INPUT, "float32")})), "agrees"),
    "two halves": (computed("bfloat16", "float16"), "agrees"),
}


@pytest.mark.parametrize(("arithmetic", "verdict"), ARITHMETIC.values(), ids=ARITHMETIC)
def test_rounding_of_the_types_of_both_sides_is_allowed(arithmetic, verdict):
    """An operator that both sides do not read and write alike may differ by the coarsest of their types."""
    assert verdict == judged(operator(inputs=[0], outputs=[2e-3], arithmetic=arithmetic))[0].verdict


@pytest.mark.parametrize(("precision", "verdict"), [("", "own"), ("tfloat32", "agrees")])
def test_a_type_that_no_file_tells_is_given(precision, verdict):
    """Products of a GPU round to ten bits, which an option says."""
    evidence = operator(inputs=[0], outputs=[2e-3])

    assert verdict == judged(evidence, limits=Limits(precision=precision))[0].verdict


def rounded(array, dtype):
    """Return numbers rounded to a type, as files of float32 hold them."""
    if dtype == "bfloat16":
        return ((array.view(np.uint32) + 0x7FFF + (array.view(np.uint32) >> 16 & 1)) & 0xFFFF0000).view(
            np.float32
        )
    return array.astype(dtype).astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("types", [("bfloat16", "float16"), ("float16", "float32"), ("float16", "float16")])
def test_weights_are_rounded_by_both_sides(types, noise):
    """A weight in two types is the same one, and two percent of noise is another one."""
    chance = np.random.default_rng(0)
    weight = chance.standard_normal(4096).astype(np.float32)
    wrong = (weight * (1 + noise * chance.standard_normal(4096))).astype(np.float32)

    mine, golden = rounded(wrong, types[0]), rounded(weight, types[1])

    assert (not noise) == errors.is_rounding(mine, golden, (), types)


EDGES = {
    "ids of a near tie": ([NEAR], integers(IO.OUTPUT, 0, 2, size=7), "TopK", "accumulated"),
    "many ids": ([NEAR], integers(IO.OUTPUT, 0, 40), "TopK", "own"),
    "ids of the same numbers": ([0], integers(IO.OUTPUT, 0, 2), "TopK", "own"),
    "truth values": ([NEAR], integers(IO.OUTPUT, 0, 3, "bool"), "Less", "accumulated"),
}


@pytest.mark.parametrize(("inputs", "output", "op_type", "verdict"), EDGES.values(), ids=EDGES)
def test_what_falls_to_the_other_side_of_an_edge_is_nobodys_fault(inputs, output, op_type, verdict):
    """Inputs that agree, and not in all bits, may decide few elements otherwise; these agree then."""
    (finding,) = judged(
        replace(made := operator(inputs=inputs, op_type=op_type), tensors=(made.tensors[0], output))
    )

    assert verdict == finding.verdict
    assert (TensorVerdict.AGREES if verdict == "accumulated" else TensorVerdict.DIFFERS) is finding.tensors[
        -1
    ].verdict


@pytest.mark.parametrize(
    ("dtype", "distance", "verdict"),
    [("int8", 0.03, "agrees"), ("int8", 0.1, "differs"), ("bool", 0.1, "agrees"), ("bool", 0.5, "differs")],
)
def test_what_such_elements_become_is_allowed(dtype, distance, verdict):
    """Quantised integers may move an output by their steps, choices by elements that fell otherwise."""
    first = integers(IO.OUTPUT, 0, 1, dtype)
    near = replace(error(NEAR), largest=NEAR)
    maker = replace(made := operator("A", [near], op_type="Less"), tensors=(made.tensors[0], first))
    reader = with_input(operator("B", [], [distance], order=2, reads=(of("A"),)), replace(first, io=IO.INPUT))

    assert verdict == judged(maker, reader)[-1].outputs[0].verdict


@pytest.mark.parametrize(
    ("source", "verdict"), [(ABSENT, "agrees"), (of("If"), "agrees"), (WEIGHT, "differs")]
)
def test_what_such_elements_become_in_a_branch_is_allowed(source, verdict):
    """An input without a known source may have been moved by any such elements before."""
    made = operator("A", [replace(error(NEAR), largest=NEAR)], op_type="QuantizeLinear")
    steps = integers(IO.OUTPUT, 0, 1, "int8")
    maker = replace(made, tensors=(made.tensors[0], steps))
    real = operator("B", [], [0.02], order=2, reads=(of("A"),))
    reader = operator("C", [0.02], [0.02], order=3, reads=(source,))

    findings = judged(maker, with_input(real, replace(steps, io=IO.INPUT)), reader)

    assert verdict == findings[-1].outputs[0].verdict


@pytest.mark.parametrize(("is_as_written", "verdict"), [(True, "inherited"), (False, "own"), (None, "own")])
def test_an_input_is_what_its_producer_wrote(is_as_written, verdict):
    """An input changed in between only if it differs from MINE's own producer's output."""
    reader = operator("B", [FAR], [FAR], order=2, reads=(of("A"),))
    reader = replace(reader, as_written=lambda _: is_as_written)

    finding = judged(operator("A", [0], [0]), reader)[-1]

    assert verdict == finding.verdict
    assert ("it changed in between" in finding.note) == (verdict == "own")


SHAPES = {
    "a shape that differs": ("Reshape", integers(IO.INPUT, 0, 1), "inherited"),
    "truth values that differ": ("NonZero", integers(IO.INPUT, 0, 1, "bool"), "inherited"),
    "the same shape": ("Reshape", integers(IO.INPUT, 0, 0), "shape"),
    "what is selected": ("NonMaxSuppressionV3", tensor(IO.INPUT, 0, NEAR), "inherited"),
    "the same numbers": ("NonMaxSuppressionV3", tensor(IO.INPUT, 0, 0), "shape"),
    "numbers that shape nothing": ("Conv2D", tensor(IO.INPUT, 0, NEAR), "shape"),
}


@pytest.mark.parametrize(("op_type", "read", "verdict"), SHAPES.values(), ids=SHAPES)
def test_shapes_that_follow_from_values_inherit(op_type, read, verdict):
    """An output of another shape is no fault where the values that shape it differ."""
    evidence = operator(outputs=[TensorVerdict.SHAPE], op_type=op_type)

    assert verdict == judged(with_input(evidence, read))[0].verdict


def chance(*, others=0):
    """Return a random operator, its reader, and a reader of something else besides."""
    return (
        operator("R", [0], [1.0], op_type="StandardNormal", is_random=True),
        operator("A", [0], [others], order=2),
        operator("S", [1.0], [1.0], op_type="Mul", order=3, reads=(of("R"),)),
        operator("T", [1.0, others], [1.0], op_type="Add", order=4, reads=(of("S"), of("A"))),
    )


def test_what_chance_made_is_not_judged():
    """Random operators and differences by them alone are unchecked; other differences inherit."""
    alone, beside = judged(*chance()), judged(*chance(others=FAR))

    assert [("unchecked", "random")] * 3 == [(each.verdict, each.note) for each in (*alone[:1], *alone[2:])]
    assert ["unchecked", "own", "unchecked", "inherited"] == [each.verdict for each in beside]
    assert not any(each.is_bad for each in alone)


def report(*operators, outputs=(), is_strict=False, limits=None):
    """Return the report of operators of which some return their first output."""
    made, judge = Report(is_strict=is_strict), Judge(limits or Limits())
    for each in operators:
        returned = frozenset({0}) if each.operator.name in outputs else frozenset()
        finding = judge.finding(replace(each, returned=returned))
        made.add(finding)
        made.outputs += [out for out in finding.outputs if returned]
    return made


DRIFTS = operator("D", [1.1e-4], [5e-4], op_type="Add")
AGREES = operator("Y", [5e-4], [NEAR], order=2)
SAME_ALL = operator("Y", [0], [0])
WHOLE = {
    "inner drift": ([DRIFTS, AGREES], "Y", False, "agrees", True),
    "inner drift, strict": ([DRIFTS, AGREES], "Y", True, "accumulated", False),
    "inner drift, no graph": ([DRIFTS, AGREES], "", False, "accumulated", False),
    "drift of an output": ([DRIFTS], "D", False, "agrees", True),
    "an output that differs": ([operator("D", [FAR], [FAR])], "D", False, "inherited", False),
    "an output that was not compared": (
        [SAME_ALL, operator("D", [NEAR], [None])],
        "YD",
        False,
        "unchecked",
        False,
    ),
    "an operator at fault": ([operator("X", [0], [FAR]), AGREES], "Y", False, "own", False),
    "all the same": ([SAME_ALL], "Y", False, "equal", True),
}


@pytest.mark.parametrize(
    ("operators", "outputs", "is_strict", "verdict", "agrees"), WHOLE.values(), ids=WHOLE
)
def test_outputs_decide(operators, outputs, is_strict, verdict, agrees):
    """The whole agrees where no operator is at fault and every output lies within its allowance."""
    made = report(*operators, outputs=outputs, is_strict=is_strict)

    assert (verdict, agrees) == (made.verdict, made.agrees)


def test_an_output_that_golden_alone_has_is_not_compared():
    """A network that lacks an operator with an output that golden returns does not agree."""
    made = report(operator("Y", [0], [0]), outputs="Y")
    made.unreturned.append(operator("Z").operator)

    assert ("unchecked", False) == (made.verdict, made.agrees)


def test_another_input_of_the_network_is_no_agreement():
    """Networks that are fed other values do not agree, whatever comes of it."""
    made = report(operator("H", [FAR], [0]), operator("Y", [0], [0]), outputs="Y")
    made.inputs.append("x")

    assert ("healed", False) == (made.verdict, made.agrees)


def test_reruns_of_other_operators_do_not_hide_an_error():
    """An error of its own beside MINE's arithmetic is named in a network that drifts."""
    wrong = (OwnError(0, error(FAR), 1e-6, False, "float64"),)

    assert "own" == report(DRIFTS, operator("X", [5e-4], [FAR], order=2, own=wrong), outputs="X").verdict
