"""The rules of the judge, each on operators made up for it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from msdump.analysis import SAME, TensorError
from msdump.analysis.judge import Judge, Limits, OperatorEvidence, OperatorPlace, OwnError, TensorEvidence
from msdump.analysis.judge import findings as verdicts
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.record import IO

NEAR, FAR = 1e-5, 1e-2  # beside the limit of float32, 1.2e-4
NAN = TensorError(is_same=False, distance=math.inf, cosine=math.nan, misplaced=3, nonfinite=3)


def error(distance, **numbers):
    """Return the error of a tensor at a distance; 0: the same bits."""
    if isinstance(distance, TensorError):
        return distance
    if not distance:
        return SAME
    return TensorError(is_same=False, distance=distance, norm=distance, scaled=distance, ulps=1e6, **numbers)


def tensor(io, slot, distance, dtype="float32", golden_dtype="", **known):
    """Return a tensor at a distance from its counterpart; None: it has none."""
    if distance is None:
        return TensorEvidence(io, slot, (8,), dtype, fault=verdicts.TensorVerdict.UNCHECKED)
    if isinstance(distance, verdicts.TensorVerdict):
        return TensorEvidence(io, slot, (8,), dtype, golden_dtype or dtype, fault=distance, note="why")
    return TensorEvidence(io, slot, (8,), dtype, golden_dtype or dtype, error=error(distance), **known)


def operator(name="X", inputs=(), outputs=(0,), op_type="MatMul", order=1, **known):
    """Return an operator with tensors at some distances from golden's."""
    return OperatorEvidence(
        OperatorPlace(name, op_type, full_name=name, order=order, time=order),
        (
            *(tensor(IO.INPUT, slot, each) for slot, each in enumerate(inputs)),
            *(tensor(IO.OUTPUT, slot, each) for slot, each in enumerate(outputs)),
        ),
        **known,
    )


def judged(*operators, limits=None, is_continued=False):
    """Return the verdicts on operators that ran one after the other."""
    judge = Judge(limits or Limits(), is_continued=is_continued)
    return [judge.finding(each) for each in operators]


def own(distance, *, is_explained):
    """Return the result of running again."""
    return (OwnError(0, error(distance), 1e-6, is_explained, "float32"),)


def placed_otherwise(finite, *, healed=0, recurs=False):
    """Return the result of running again with NaN at other places, and finite elements so far apart."""
    misplaced = replace(NAN, nonfinite=NAN.misplaced - healed)
    return (OwnError(0, misplaced, 1e-6, False, "float32", finite=finite, recurs=recurs),)


def computed(*types):
    """Return the types in which the two sides write, "" where one does not tell."""
    return tuple(frozenset({(IO.OUTPUT, each)} if each else ()) for each in types)


def of(name, slot=0):
    """Return an operator's output as the source of an input."""
    return ValueSource(SourceKind.OPERATOR, name, slot)


SINGLE = {
    "same bits": ([0], [0], {}, "equal"),
    "within the limit": ([0], [NEAR], {}, "agrees"),
    "its own": ([0], [FAR], {}, "own"),
    "inputs agree": ([NEAR / 10], [FAR], {}, "own"),
    "an output that nothing reads": ([0], [0, FAR], {"unread": frozenset({1})}, "equal"),
    "another one that is read": ([0], [FAR, FAR], {"unread": frozenset({1})}, "own"),
    "inherited": ([FAR], [FAR], {}, "inherited"),
    "amplified": ([1e-3], [0.5], {}, "amplified"),
    "drift": ([1.1e-4], [1.3e-4], {}, "accumulated"),
    "healed": ([FAR], [0], {}, "healed"),
    "NaN made here": ([0], [NAN], {}, "nonfinite"),
    "NaN made of inputs that differ": ([FAR], [NAN], {}, "nonfinite"),
    "NaN passed on": ([NAN], [NAN], {}, "inherited"),
    "nothing to compare with": ([None], [None], {}, "unchecked"),
    "cannot be read": ([], [verdicts.TensorVerdict.UNREADABLE], {}, "unreadable"),
    "shape": ([0], [verdicts.TensorVerdict.SHAPE], {}, "shape"),
    "shape of its inputs": ([verdicts.TensorVerdict.SHAPE], [verdicts.TensorVerdict.SHAPE], {}, "inherited"),
    "in the place of another": ([0], [FAR], {"replaces": "Y"}, "replaced"),
    "does the same as another": ([0], [0], {"replaces": "Y"}, "equal"),
    "other shape than another": ([0], [None], {"replaces": "Y"}, "replaced"),
    "wrong input": ([0], [FAR], {"wiring": "inputs 0 and 1 are swapped"}, "own"),
    "own error behind a fault": ([FAR], [FAR], {"own": own(FAR, is_explained=False)}, "own"),
    "NaN of its own": ([0], [NAN], {"own": placed_otherwise(FAR)}, "nonfinite"),
    "NaN of its inputs at other places": ([NAN], [NAN], {"own": placed_otherwise(1.0)}, "own"),
    "more NaN, the others rounded": ([NAN], [NAN], {"own": placed_otherwise(1e-3)}, "nonfinite"),
    "more NaN in MINE's arithmetic": (
        [NAN],
        [NAN],
        {"own": placed_otherwise(1e-3, recurs=True)},
        "inherited",
    ),
    "finite where its inputs' NaN come again": ([NAN], [NAN], {"own": placed_otherwise(0, healed=1)}, "own"),
    "explained by running again": ([FAR], [FAR], {"own": own(1e-8, is_explained=True)}, "inherited"),
    "many small errors": ([1e-4], [1e-3], {"own": own(1e-8, is_explained=True)}, "accumulated"),
    "more than its inputs": (
        [1e-3],
        [FAR],
        {"own": own(1e-8, is_explained=True), "propagated": 0.5},
        "amplified",
    ),
}


@pytest.mark.parametrize(("inputs", "outputs", "known", "verdict"), SINGLE.values(), ids=SINGLE)
def test_rules(inputs, outputs, known, verdict):
    """The first rule that applies to an operator's inputs and outputs gives its verdict."""
    assert verdict == judged(operator(inputs=inputs, outputs=outputs, **known))[0].verdict


@pytest.mark.parametrize(
    ("distance", "known", "is_state", "is_continued", "verdict"),
    [
        (NEAR, {}, False, False, "weight"),
        (NEAR, {"is_rounded": True}, False, False, "agrees"),
        (FAR, {"is_rounded": True}, False, False, "agrees"),
        (NEAR, {}, True, False, "agrees"),
        (FAR, {}, True, False, "weight"),
        (FAR, {}, True, True, "inherited"),
    ],
    ids=["bits", "rounded", "rounded_far", "trained", "trained_far", "trained_before"],
)
def test_weights(distance, known, is_state, is_continued, verdict):
    """A weight counts by its bits, rounding aside; a trained one by its limit."""
    weight = tensor(IO.INPUT, 1, distance, is_weight=True, name="fc.weight", **known)
    evidence = operator(inputs=[0], outputs=[NEAR], is_state=is_state)
    evidence = replace(evidence, tensors=(*evidence.tensors, weight))

    (finding,) = judged(evidence, is_continued=is_continued)

    assert verdict == finding.verdict
    assert ("fc.weight" in finding.note) == (verdict in {"weight", "inherited"})


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, ""),
        ({"wiring": "in the place of Y", "replaces": "Y"}, "; in the place of Y"),
        (
            {"own": own(FAR, is_explained=False)},
            "; own error 0.01 in float32, rounding explains 1e-06",
        ),
        ({"own": own(1e-8, is_explained=True)}, ""),
    ],
    ids=["alone", "replaced", "own", "rounding"],
)
def test_what_else_is_wrong_where_a_weight_is(known, words):
    """An operator with a wrong weight and another fault has the weight's verdict, and both in its note."""
    weight = tensor(IO.INPUT, 1, FAR, is_weight=True, name="fc.weight")
    evidence = operator(inputs=[0], outputs=[FAR], **known)

    (finding,) = judged(replace(evidence, tensors=(*evidence.tensors, weight)))

    assert ("weight", f"input 1 fc.weight differs (distance 0.01){words}") == (finding.verdict, finding.note)


@pytest.mark.parametrize(
    ("reads", "verdict", "words"),
    [
        ([of("A"), of("B")], "own", "input 0 is not what A wrote: it changed in between"),
        ([of("C"), of("B")], "inherited", "from input 0, C"),
        ([ValueSource(SourceKind.INPUT, "x"), of("B")], "inherited", "the network's input x"),
    ],
    ids=["changed", "not_compared", "fed"],
)
def test_inputs_that_nobody_wrote_so(reads, verdict, words):
    """An input that differs though its writer agrees changed in between."""
    before = [operator(name, [], [0], order=order) for order, name in enumerate("AB")]

    finding = judged(*before, operator("X", [FAR, 0], [FAR], order=3, reads=tuple(reads)))[-1]

    assert verdict == finding.verdict
    assert words in finding.note


@pytest.mark.parametrize(
    ("before", "inputs", "verdict"),
    [
        ([0], [0, FAR], "weight"),
        ([0], [0, NEAR], "weight"),
        ([NEAR], [0, FAR], "weight"),
        ([NEAR], [0, NEAR], "agrees"),
        ([FAR], [0, FAR], "inherited"),
        ([0], [FAR, 0], "weight"),
        ([None], [0, FAR], "inherited"),
        ([], [FAR, 0], "inherited"),
        ([], [0, FAR], "weight"),
    ],
)
def test_inputs_that_no_graph_tells_of(before, inputs, verdict):
    """Without a graph an input that differs where nothing before does came so from outside."""
    earlier = [operator(str(order), [0], [each], order=order) for order, each in enumerate(before)]
    output = FAR if FAR in inputs else NEAR

    assert verdict == judged(*earlier, operator("X", inputs, [output], order=3))[-1].verdict


@pytest.mark.parametrize(
    ("passes", "verdict"),
    [((None, 1), "inherited"), ((0, 1), "inherited"), ((1, 1), "own"), ((None, 0), "own")],
)
def test_passes_of_a_loop_read_what_passes_before_them_wrote(passes, verdict):
    """The graph names only the writer of a carried value before the first pass."""
    writer, reader = (
        replace(each, operator=replace(each.operator, pass_number=number))
        for each, number in zip(
            (operator("A", [], [0]), operator("X", [FAR], [FAR], order=1, reads=(of("A"),))),
            passes,
            strict=True,
        )
    )

    assert verdict == judged(writer, reader)[-1].verdict


@pytest.mark.parametrize(
    ("first", "reads", "verdict"),
    [(FAR, [of("A")], "inherited"), (0, [of("A")], "own"), (FAR, [], "inherited"), (0, [], "own")],
    ids=["writer_differs", "writer_agrees", "something_differs", "first"],
)
def test_inputs_that_were_not_dumped(first, reads, verdict):
    """The outputs that an operator reads stand in for its inputs; without a graph the first is at fault."""
    findings = judged(operator("A", [0], [first]), operator("X", [], [FAR], reads=tuple(reads)))

    assert verdict == findings[-1].verdict


def test_input_of_the_network_that_was_not_dumped():
    """An operator that reads an input of the network without files is accused with that doubt."""
    fed = (ValueSource(SourceKind.INPUT, "mask"),)

    (finding,) = judged(operator("a", outputs=[FAR], reads=fed))

    assert verdicts.Verdict.OWN is finding.verdict
    assert "unless the network's input mask differs, which was not compared" == finding.note


def test_ids_of_outputs_that_were_not_dumped():
    """An input that stands for an output of another number has its own number in the note."""
    writer = operator("A", [0], [0, FAR])
    reader = operator("X", [], [FAR], reads=(of("A", 0), of("A", 1)))

    assert "from input 1, A" == judged(writer, reader)[-1].note


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "verdict"),
    [
        ("Sub", [1e-4, 1e-4], error(2e-3 ) , "own"),
        ("Sub", [error(1e-4), error(1e-4)], replace(error(2e-3), norm=1e-4), "accumulated"),
        ("MaxPoolGrad", [1e-4], error(0.1), "accumulated"),
        ("MaxPoolGrad", [0], error(0.1), "own"),
        ("MaxPoolGrad", [1e-4], error(0.6), "own"),
        ("MatMul", [1e-4], error(8e-4), "accumulated"),
    ],
    ids=["beyond", "cancels", "decides", "decides_alike", "decides_wrong", "grows"],
)  # fmt: skip
def test_what_agreeing_inputs_explain(op_type, inputs, output, verdict):
    """Slow growth, differences of nearly equal tensors and ties explain an output; more is a fault."""
    assert verdict == judged(operator(inputs=inputs, outputs=[output], op_type=op_type))[0].verdict


@pytest.mark.parametrize(
    ("arithmetic", "largest", "verdict"),
    [
        (("float16", "float32"), 2**-25, "agrees"),
        (("float16", "float32"), 2**-22, "own"),
        (("bfloat16", "float32"), 2**-25, "own"),
        (("", ""), 2**-25, "own"),
    ],
)
def test_what_small_numbers_round_to(arithmetic, largest, verdict):
    """Half a step between subnormal numbers is rounding, however large a share of a number it is."""
    output = replace(error(0.5), largest=largest)

    assert (
        verdict == judged(operator(inputs=[0], outputs=[output], arithmetic=computed(*arithmetic)))[0].verdict
    )


def test_files_of_parameters_are_no_operators():
    """A parameter that differs is a weight where nothing explains it."""
    parameter = operator("fc.weight", [], [FAR], op_type="Parameter")

    assert "weight" == judged(parameter)[0].verdict
    assert "inherited" == judged(operator("X", [0], [FAR]), parameter)[-1].verdict


def graph(outputs):
    """Return a graph X -> Y -> Z of which some operators' outputs are returned."""
    names = {"X": (), "Y": (of("X"),), "Z": (of("Y"),)}
    return OperatorGraph(
        {name: GraphOperator(name, "Add", reads) for name, reads in names.items()},
        outputs=tuple(of(name) for name in outputs),
    )


@pytest.mark.parametrize(
    ("errors", "outputs", "reaches"),
    [
        ({"X": NAN, "Y": NAN, "Z": NAN}, "Z", True),
        ({"X": NAN, "Y": NAN, "Z": 0}, "Z", False),
        ({"X": NAN, "Y": NAN, "Z": 0}, "YZ", True),
        ({"X": NAN, "Z": 0}, "Z", None),
        ({"X": NAN, "Y": NAN, "Z": NAN}, None, True),
        ({"X": NAN, "Y": NAN, "Z": 0}, None, False),
    ],
    ids=["through", "masked", "side", "not_compared", "no_graph", "no_graph_masked"],
)
def test_whether_nan_reach_an_output(errors, outputs, reaches):
    """NaN are followed from operator to operator, by the graph or to the last operator."""
    operators = [operator(name, [], [each], order=order) for order, (name, each) in enumerate(errors.items())]
    findings = judged(*operators)

    told = verdicts.with_reach(findings[0], findings, None if outputs is None else graph(outputs))

    assert "nonfinite" == told.verdict
    assert reaches is told.reaches_output


def test_report_tells_the_first_that_is_accused():
    """The verdict of a report is that of the first operator at fault, whatever came before."""
    report = verdicts.Report()
    for finding in judged(
        operator("A", [0], [0], order=1),
        operator("B", [0], [FAR], order=2),
        operator("C", [FAR], [FAR], order=3),
        operator("D", [0], [NAN], order=4),
    ):
        report.add(finding)

    assert ("own", ["B", "D"]) == (report.verdict, [each.place.name for each in report.accused])
    assert not report.agrees
    assert ["D", "B", "C", "A"] == [each.place.name for each in verdicts.by_own(report.findings)]
    assert ["B", "D"] == [each.place.name for each in verdicts.top_findings(report.findings, 2)]


def test_groups():
    """Operators of a type or scope form a group; that with the gravest comes first."""
    findings = judged(
        operator("A", [0], [0], op_type="Add"),
        operator("B", [0], [FAR], op_type="MatMul"),
        operator("C", [FAR], [FAR], op_type="Add"),
    )

    groups = verdicts.grouped_findings(findings, verdicts.Arrangement.TYPE)

    assert [("MatMul", 1, {"own": 1}), ("Add", 0, {"inherited": 1, "equal": 1})] == [
        (group.name, group.accused, dict(group.verdicts)) for group in groups
    ]
    assert ["B", "C"] == [group.worst.place.name for group in groups]


STEPS = {
    "a few elements by a step": (1.0, 60, "accumulated"),
    "more elements than are off by a step": (1.0, 900, "own"),
    "by more steps than the input": (3.0, 60, "own"),
}


@pytest.mark.parametrize("slot", [0, 1], ids=["data", "scale"])
@pytest.mark.parametrize(("largest", "changed", "expected"), STEPS.values(), ids=STEPS)
def test_rounded_inputs_move_integers_by_a_step(largest, changed, expected, slot):
    """A quantising operator gives other integers where an input is off, by as many steps."""
    off = TensorError(is_same=False, distance=1e-3, largest=1e-3, norm=3e-3, scaled=1e-3, ulps=1e6)
    errors = (off, SAME) if not slot else (SAME, replace(off, norm=1e-3))
    moved = TensorError(is_same=False, distance=2e-3, largest=largest, changed=changed)
    quantise = OperatorEvidence(
        OperatorPlace("Q", "QuantizeLinear", full_name="Q"),
        (
            TensorEvidence(IO.INPUT, 0, (1000,), "float32", "float32", error=errors[0]),
            TensorEvidence(IO.INPUT, 1, (), "float32", "float32", error=errors[1]),
            TensorEvidence(IO.OUTPUT, 0, (1000,), "int8", "int8", error=moved),
        ),
    )

    (found,) = judged(quantise, limits=Limits(precision="float16"))

    assert expected == found.verdict


@pytest.mark.parametrize(("largest", "expected"), [(3.0, "accumulated"), (5.0, "own")])
def test_numbers_that_become_integers(largest, expected):
    """A cast to integers moves each number to one next to it, however many of them change."""
    off = TensorError(is_same=False, distance=1e-3, largest=2.5, scaled=1e-3)
    moved = TensorError(is_same=False, distance=1e-3, largest=largest, changed=900)
    cast = OperatorEvidence(
        OperatorPlace("C", "Cast", full_name="C"),
        (
            TensorEvidence(IO.INPUT, 0, (1000,), "float32", "float32", error=off),
            TensorEvidence(IO.OUTPUT, 0, (1000,), "int32", "int32", error=moved),
        ),
    )

    (found,) = judged(cast, limits=Limits(precision="float16"))

    assert expected == found.verdict


@pytest.mark.parametrize(
    ("op_type", "norm", "expected"),
    [
        ("MatMul", 0.02, "accumulated"),
        ("MatMul", 0.2, "own"),
        ("Mystery", 0.02, "own"),
    ],
)
def test_products_that_cancel(op_type, norm, expected):
    """A sum of products that cancel may be off as far as its factors make it, whatever is left of it."""
    off = TensorError(is_same=False, distance=1e-3, norm=1e-3, largest=1e-4, scaled=1e-3, ulps=1e3)
    wrong = TensorError(is_same=False, distance=0.5, norm=norm / 100, largest=1e-3, scaled=0.5, ulps=1e6)
    forms = ((IO.INPUT, 0, (1, 64), off), (IO.INPUT, 1, (64, 1), off), (IO.OUTPUT, 0, (1, 1), wrong))
    tensors = [TensorEvidence(io, slot, shape, *["float32"] * 2, error=of) for io, slot, shape, of in forms]
    product = OperatorEvidence(OperatorPlace("P", op_type, full_name="P"), tuple(tensors))

    (found,) = judged(product, limits=Limits(precision="float16"))

    assert expected == found.verdict
