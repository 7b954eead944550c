"""The rules of the judge and the principles of docs/reference/verdicts.md, on operators made up for them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from msdump.judge import SAME, Fact, FactKind, TensorError, errors
from msdump.judge.verdict import (
    Arrangement,
    Finding,
    Limits,
    OperatorPlace,
    OwnError,
    Report,
    TensorEvidence,
    TensorVerdict,
    by_own,
    grouped_findings,
    judge,
    top_findings,
    with_reach,
)
from msdump.read import ABSENT, GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.record import IO

NEAR, FAR = 1e-5, 1e-2  # beside the limit of float32, 1.2e-4
NAN = TensorError(is_same=False, distance=math.inf, cosine=math.nan, misplaced=3, nonfinite=3)
UNFIT, TORN = TensorVerdict.SHAPE, TensorVerdict.UNREADABLE
WEIGHT = ValueSource(SourceKind.WEIGHT, "w")


def error(distance, **numbers):
    """Return the error of a tensor at a distance; 0: the same bits."""
    if isinstance(distance, TensorError):
        return distance
    if not distance:
        return SAME
    known = {"norm": distance, "scaled": distance, "ulps": 1e6, **numbers}
    return TensorError(is_same=False, distance=distance, **known)


def tensor(io, slot, distance, dtype="float32", size=8, **known):
    """Return a tensor at a distance from its counterpart; None: it has none."""
    if distance is None:
        return TensorEvidence(io, slot, (size,), dtype, verdict=TensorVerdict.UNCHECKED)
    if isinstance(distance, TensorVerdict):
        return TensorEvidence(io, slot, (size,), dtype, dtype, verdict=distance, note="why")
    return TensorEvidence(io, slot, (size,), dtype, dtype, error=error(distance), **known)


def integers(io, slot, count, dtype="int64", size=64):
    """Return integers of which some differ by one."""
    return tensor(io, slot, error(0.1, changed=count, largest=1.0, ulps=0.0) if count else 0, dtype, size)


def operator(name="X", inputs=(), outputs=(0,), op_type="MatMul", order=1, number=None, **known):
    """Return an operator with tensors, or tensors at some distances from golden's."""
    sides = ((IO.INPUT, inputs), (IO.OUTPUT, outputs))
    tensors = (
        each if isinstance(each, TensorEvidence) else tensor(io, slot, each)
        for io, side in sides
        for slot, each in enumerate(side)
    )
    place = OperatorPlace(name, op_type, full_name=name, order=order, time=order, pass_number=number)
    return Finding(place, tensors=tuple(tensors), **known)


def judged(*operators, limits=None, is_continued=False):
    """Return the verdicts on operators that ran one after the other."""
    return judge(operators, limits or Limits(), is_continued=is_continued)


def own(distance, *, is_explained):
    """Return the result of running again."""
    return (OwnError(0, error(distance), 1e-6, is_explained, "float32"),)


def placed_otherwise(finite, *, healed=0, recurs=False):
    """Return the result of running again with NaN at other places, and finite elements so far apart."""
    misplaced = replace(NAN, nonfinite=NAN.misplaced - healed)
    return (OwnError(0, misplaced, 1e-6, False, "float32", finite=finite, recurs=recurs),)


def computed(*types, io=IO.OUTPUT):
    """Return the types in which the two sides read or write, "" where one is not known."""
    return tuple(frozenset({(io, each)} if each else ()) for each in types)


def of(name, slot=0):
    """Return an operator's output as the source of an input."""
    return ValueSource(SourceKind.OPERATOR, name, slot)


def weight(distance, **known):
    """Return a weight that an operator reads."""
    return tensor(IO.INPUT, 1, distance, **{"is_weight": True, "name": "fc.weight", **known})


def wrote(as_written):
    """Return an input that differs, with the elements that its producer wrote or with others."""
    return tensor(IO.INPUT, 0, FAR, as_written=as_written)


def case(verdict, *operators, words="", **settings):
    """Return operators that run one after the other, and the verdict on the last one; its note by a regex."""
    return operators, verdict, words, settings


AGAIN = own(1e-8, is_explained=True)
FED = ValueSource(SourceKind.INPUT, "x")
A, B = operator("A", [], [0]), operator("B", [], [0])
COARSE = Limits(precision="float16")
STEP = error(NEAR, largest=NEAR)
OFF = TensorError(is_same=False, distance=1e-3, largest=1e-3, norm=3e-3, scaled=1e-3, ulps=1e6)
FACTOR = TensorError(is_same=False, distance=1e-3, norm=1e-3, largest=1e-4, scaled=1e-3, ulps=1e3)
CAST = TensorError(is_same=False, distance=1e-3, largest=2.5, scaled=1e-3)
LACKS = {"inputs": [], "outputs": [None]}
WRONG = (
    operator("B", [], [NEAR]),
    operator("C", [None, weight(FAR)], [None], reads=(of("B"), WEIGHT)),
)
WEIGHTED = {"inputs": [0, weight(FAR)], "outputs": [FAR]}


def chain(first, known, verdict, inputs=(FAR,), outputs=(FAR,), **more):
    """Return a case of an operator behind A with an output at a distance."""
    before = operator("A", [0], [first])
    return case(verdict, before, operator("X", inputs, outputs, order=2, **known), **more)


def links(count):
    """Return operators that golden lacks, each behind ``B`` and the one before, and a reader of the last."""
    names = ["C", *(f"L{number}" for number in range(count))]
    inner = [operator(name, reads=(of(before), of("B")), **LACKS) for before, name in pairwise(names)]
    return *inner, operator("X", [], [FAR], reads=(of(names[-1]),))


def quantised(largest, count, sides):
    """Return an operator that quantises a tensor and a scale, with elements that differ."""
    moved = TensorError(is_same=False, distance=2e-3, largest=largest, changed=count)
    inputs = [tensor(IO.INPUT, 0, sides[0], size=1000), tensor(IO.INPUT, 1, sides[1], size=1)]
    return operator("Q", inputs, [tensor(IO.OUTPUT, 0, moved, "int8", 1000)], "QuantizeLinear")


def product(op_type, norm):
    """Return a product of which the sum cancels, off by a norm."""
    wrong = TensorError(is_same=False, distance=0.5, norm=norm / 100, largest=1e-3, scaled=0.5, ulps=1e6)
    inputs = [tensor(IO.INPUT, slot, FACTOR, size=64) for slot in (0, 1)]
    return operator("P", inputs, [tensor(IO.OUTPUT, 0, wrong, size=1)], op_type)


def moved(dtype, distance):
    """Return an operator with an element on the other side of an edge, and a reader of it."""
    read, made = (integers(io, 0, 1, dtype) for io in IO)
    maker = operator("A", [STEP], [made], "Less")
    return maker, operator("B", [read], [distance], order=2, reads=(of("A"),))


def stated(number, reader_number):
    """Return an operator of one pass of a loop, and a reader of its output in another pass."""
    reader = operator("X", [FAR], [FAR], reads=(of("A"),), number=reader_number)
    return operator("A", [], [0], number=number), reader


CASES = {
    "same bits": case("equal", operator(inputs=[0], outputs=[0])),
    "within the limit": case("agrees", operator(inputs=[0], outputs=[NEAR])),
    "its own": case("own", operator(inputs=[0], outputs=[FAR])),
    "inputs agree": case("own", operator(inputs=[NEAR / 10], outputs=[FAR])),
    "an output that nothing reads": case("equal", operator(outputs=[0, FAR], unread=frozenset({1}))),
    "another one that is read": case("own", operator(outputs=[FAR, FAR], unread=frozenset({1}))),
    "inherited": case("inherited", operator(inputs=[FAR], outputs=[FAR])),
    "amplified": case("amplified", operator(inputs=[1e-3], outputs=[0.5])),
    "drift": case("accumulated", operator(inputs=[1.1e-4], outputs=[1.3e-4])),
    "healed": case("healed", operator(inputs=[FAR], outputs=[0])),
    "nothing to compare with": case("unchecked", operator(inputs=[None], outputs=[None])),
    "cannot be read": case("unreadable", operator(outputs=[TORN])),
    "in place of another": case("replaced", operator(inputs=[0], outputs=[FAR], replaces="Y")),
    "does the same as another": case("equal", operator(inputs=[0], outputs=[0], replaces="Y")),
    "other shape than another": case("replaced", operator(inputs=[0], outputs=[None], replaces="Y")),
    "wrong input": case("own", operator(outputs=[FAR], wiring="inputs 0 and 1 are swapped"), words="swapped"),
    "own error behind a fault": case(
        "own", operator(inputs=[FAR], outputs=[FAR], own=own(FAR, is_explained=False))
    ),
    "explained by running again": case("inherited", operator(inputs=[FAR], outputs=[FAR], own=AGAIN)),
    "many small errors": case("accumulated", operator(inputs=[1e-4], outputs=[1e-3], own=AGAIN)),
    "more than its inputs": case(
        "amplified", operator(inputs=[1e-3], outputs=[FAR], own=AGAIN, propagated=0.5)
    ),
    # 1. not finite comes first
    "NaN made here": case("nonfinite", operator(inputs=[0], outputs=[NAN])),
    "NaN made of inputs that differ": case("nonfinite", operator(inputs=[FAR], outputs=[NAN])),
    "NaN passed on": case("inherited", operator(inputs=[NAN], outputs=[NAN])),
    "NaN of its own": case("nonfinite", operator(outputs=[NAN], own=placed_otherwise(FAR))),
    "NaN of its inputs at other places": case(
        "own", operator(inputs=[NAN], outputs=[NAN], own=placed_otherwise(1.0))
    ),
    "more NaN, the others rounded": case(
        "nonfinite", operator(inputs=[NAN], outputs=[NAN], own=placed_otherwise(1e-3))
    ),
    "more NaN in MINE's arithmetic": case(
        "inherited", operator(inputs=[NAN], outputs=[NAN], own=placed_otherwise(1e-3, recurs=True))
    ),
    "finite where its inputs' NaN come again": case(
        "own", operator(inputs=[NAN], outputs=[NAN], own=placed_otherwise(0, healed=1))
    ),
    "NaN that come again in MINE's arithmetic": case(
        "nonfinite", operator(inputs=[0], outputs=[NAN], own=AGAIN, propagated=0.1)
    ),
    "NaN in golden's arithmetic, too, of sound inputs": case(
        "nonfinite", operator(inputs=[NEAR], outputs=[NAN], own=AGAIN, propagated=math.inf)
    ),
    "NaN that come again of inputs that differ": case(
        "nonfinite", operator(inputs=[FAR], outputs=[NAN], own=AGAIN, propagated=0.1)
    ),
    "NaN that golden makes of the inputs of an accused operator": case(
        "inherited",
        operator("A", [0], [FAR], own=own(FAR, is_explained=False)),
        operator(
            "B", [FAR], [NAN], order=2, own=own(0, is_explained=True), propagated=math.inf, reads=(of("A"),)
        ),
    ),
    "NaN that golden makes of inputs that are nobody's fault": case(
        "nonfinite",
        operator("A", [FAR], [FAR], own=AGAIN),
        operator(
            "B", [FAR], [NAN], order=2, own=own(0, is_explained=True), propagated=math.inf, reads=(of("A"),)
        ),
    ),
    "an input that its reader alone holds as infinite": case(
        "nonfinite", A, operator("B", [NAN], [NAN], order=2, reads=(of("A"),))
    ),
    **{
        f"a weight that rounding made infinite, output {output}": case(
            "nonfinite",
            operator(
                inputs=[0, weight(NAN, is_rounded=True, overflows=3)],
                outputs=[output],
                reads=(of("A"), WEIGHT),
            ),
            words="^input 1 fc.weight overflows its element type at 3 elements",
        )
        for output in (0, NEAR, FAR)
    },
    # 2. each side is judged by its own device's arithmetic
    "types alike": case("own", operator(outputs=[2e-3], arithmetic=computed("float16", "float16"))),
    "other results": case("agrees", operator(outputs=[2e-3], arithmetic=computed("float16", "float32"))),
    "other inputs": case(
        "agrees", operator(outputs=[2e-3], arithmetic=computed("float16", "float32", io=IO.INPUT))
    ),
    "two halves": case("agrees", operator(outputs=[2e-3], arithmetic=computed("bfloat16", "float16"))),
    "products of a GPU": case(
        "agrees", operator(inputs=[0], outputs=[2e-3]), limits=Limits(precision="tfloat32")
    ),
    **{
        f"small numbers, {types}, {largest}": case(
            verdict, operator(inputs=[0], outputs=[error(0.5, largest=largest)], arithmetic=computed(*types))
        )
        for types, largest, verdict in (
            (("float16", "float32"), 2**-25, "agrees"),
            (("float16", "float32"), 2**-22, "own"),
            (("bfloat16", "float32"), 2**-25, "own"),
            (("", ""), 2**-25, "own"),
        )
    },
    "a difference beyond its inputs": case(
        "own", operator(inputs=[1e-4, 1e-4], outputs=[2e-3], op_type="Sub")
    ),
    "a difference that cancels": case(
        "accumulated", operator(inputs=[1e-4, 1e-4], outputs=[error(2e-3, norm=1e-4)], op_type="Sub")
    ),
    "ties that inputs decide": case(
        "accumulated", operator(inputs=[1e-4], outputs=[0.1], op_type="MaxPoolGrad")
    ),
    "ties of the same inputs": case("own", operator(inputs=[0], outputs=[0.1], op_type="MaxPoolGrad")),
    "more than ties": case("own", operator(inputs=[1e-4], outputs=[0.6], op_type="MaxPoolGrad")),
    "growth": case("accumulated", operator(inputs=[1e-4], outputs=[8e-4])),
    "a product that cancels": case("accumulated", product("MatMul", 0.02), limits=COARSE),
    "a product beyond its factors": case("own", product("MatMul", 0.2), limits=COARSE),
    "no product": case("own", product("Mystery", 0.02), limits=COARSE),
    "ids of a near tie": case(
        "accumulated", operator(inputs=[NEAR], outputs=[integers(IO.OUTPUT, 0, 2, size=7)])
    ),
    "many ids": case("own", operator(inputs=[NEAR], outputs=[integers(IO.OUTPUT, 0, 40)])),
    "many selected boxes": case(
        "accumulated",
        operator(inputs=[NEAR], outputs=[integers(IO.OUTPUT, 0, 40)], op_type="NonMaxSuppressionV3"),
    ),
    "many ids beside values that agree": case(
        "accumulated", operator(inputs=[NEAR], outputs=[NEAR, integers(IO.OUTPUT, 1, 40)], op_type="TopK")
    ),
    "many ids beside other values": case(
        "own", operator(inputs=[NEAR], outputs=[FAR, integers(IO.OUTPUT, 1, 40)], op_type="TopK")
    ),
    "behind an operator that golden lacks": case(
        "own",
        operator("A", [FAR], [FAR]),
        operator("B", [], [NEAR], order=2),
        operator("C", [None], [None], order=3, reads=(of("B"),)),
        operator("X", [None], [FAR], order=4, reads=(of("C"),)),
        words="its inputs agree",
    ),
    "behind one that reads another weight": case(
        "inherited",
        operator("B", [], [NEAR]),
        operator("C", [None, weight(FAR)], [None], order=2, reads=(of("B"), WEIGHT)),
        operator("X", [None], [FAR], order=3, reads=(of("C"),)),
        words="its inputs were not compared",
    ),
    **{
        f"further behind it, {name}": case(verdict, *WRONG, *operators)
        for name, verdict, operators in (
            ("beside values that agree", "inherited", links(1)),
            ("as deep as networks are", "inherited", links(2000)),
            ("a value that agrees", "own", (links(1)[0], operator("X", [NEAR], [FAR], reads=(of("L0"),)))),
        )
    },
    "ids of the same numbers": case("own", operator(inputs=[0], outputs=[integers(IO.OUTPUT, 0, 2)])),
    "truth values": case("accumulated", operator(inputs=[NEAR], outputs=[integers(IO.OUTPUT, 0, 3, "bool")])),
    **{
        f"{what}, {name}": case(verdict, quantised(largest, count, sides), limits=COARSE)
        for name, sides in (("data", (OFF, SAME)), ("scale", (SAME, replace(OFF, norm=1e-3))))
        for what, largest, count, verdict in (
            ("a few elements by a step", 1.0, 60, "accumulated"),
            ("more elements than are off by a step", 1.0, 900, "own"),
            ("by more steps than the input", 3.0, 60, "own"),
        )
    },
    **{
        f"numbers that become integers, {largest} off": case(
            verdict,
            operator(
                "C",
                [tensor(IO.INPUT, 0, CAST, size=1000)],
                [tensor(IO.OUTPUT, 0, replace(CAST, largest=largest, changed=900), "int32", 1000)],
                "Cast",
            ),
            limits=COARSE,
        )
        for largest, verdict in ((3.0, "accumulated"), (5.0, "own"))
    },
    "own error beside MINE's arithmetic in a network that drifts": case(
        "own",
        operator("D", [1.1e-4], [5e-4], op_type="Add"),
        operator("X", [5e-4], [FAR], order=2, own=own(FAR, is_explained=False), returned=frozenset({0})),
    ),
    # weights
    "a weight by its bits": case(
        "weight", operator(inputs=[0, weight(NEAR)], outputs=[NEAR]), words="fc.weight"
    ),
    "a rounded weight": case("agrees", operator(inputs=[0, weight(FAR, is_rounded=True)], outputs=[NEAR])),
    "a trained weight by its limit": case(
        "agrees", operator(inputs=[0, weight(NEAR)], outputs=[NEAR], is_state=True)
    ),
    "a trained weight": case(
        "weight", operator(inputs=[0, weight(FAR)], outputs=[NEAR], is_state=True), words="fc.weight"
    ),
    "a weight that was trained before": case(
        "inherited",
        operator(inputs=[0, weight(FAR)], outputs=[NEAR], is_state=True),
        words="fc.weight",
        is_continued=True,
    ),
    "nothing else": case(
        "weight", operator(**WEIGHTED), words=r"^input 1 fc.weight differs \(distance 0.01\)$"
    ),
    "replaced, too": case(
        "weight", operator(**WEIGHTED, wiring="in place of Y", replaces="Y"), words="; in place of Y$"
    ),
    "an own error, too": case(
        "weight",
        operator(**WEIGHTED, own=own(FAR, is_explained=False)),
        words=r"\); own error 0.01 in float32, the limit of rounding is 1e-06$",
    ),
    "rounding, too": case("weight", operator(**WEIGHTED, own=AGAIN), words=r"0.01\)$"),
    "a parameter's file": case("weight", operator("fc.weight", [], [FAR], op_type="Parameter")),
    "a parameter's file behind a difference": case(
        "inherited", operator(inputs=[0], outputs=[FAR]), operator("w", [], [FAR], op_type="Parameter")
    ),
    # inputs that no graph names
    **{
        f"inputs {inputs} behind {before}": case(
            verdict,
            *(operator(str(order), [0], [each], order=order) for order, each in enumerate(before)),
            operator("X", inputs, [FAR if FAR in inputs else NEAR], order=3),
        )
        for before, inputs, verdict in (
            ([0], [0, FAR], "weight"),
            ([0], [0, NEAR], "weight"),
            ([NEAR], [0, FAR], "weight"),
            ([NEAR], [0, NEAR], "agrees"),
            ([FAR], [0, FAR], "inherited"),
            ([0], [FAR, 0], "weight"),
            ([None], [0, FAR], "inherited"),
            ([], [FAR, 0], "inherited"),
            ([], [0, FAR], "weight"),
        )
    },
    # 3. an operator's input is its producer's output
    "an input that changed": case(
        "own",
        A,
        B,
        operator("X", [FAR, 0], [FAR], order=3, reads=(of("A"), of("B"))),
        words="^input 0 is not the output of A: the tensor changed in between$",
    ),
    "an input that its producer wrote so": case(
        "inherited", A, operator("X", [wrote(True)], [FAR], order=2, reads=(of("A"),))
    ),
    "an input that its producer wrote otherwise": case(
        "own", A, operator("X", [wrote(False)], [FAR], order=2, reads=(of("A"),))
    ),
    "an input of an operator that was not compared": case(
        "inherited",
        A,
        B,
        operator("X", [FAR, 0], [FAR], order=3, reads=(of("C"), of("B"))),
        words="^from input 0, C$",
    ),
    "an input of the network": case(
        "inherited",
        B,
        operator("X", [FAR, 0], [FAR], order=3, reads=(FED, of("B"))),
        words="the network's input x",
    ),
    "an input of the network that was not dumped": case(
        "own",
        operator(outputs=[FAR], reads=(FED,)),
        words="^the cause may be the network's input x, which was not compared$",
    ),
    "a second pass reads the first one's value": case("inherited", *stated(None, 1)),
    "a later pass, too": case("inherited", *stated(0, 1)),
    "the same pass": case("own", *stated(1, 1)),
    "the first pass": case("own", *stated(None, 0)),
    "an input that was not dumped, of a wrong operator": chain(FAR, {"reads": (of("A"),)}, "inherited", ()),
    "an input that was not dumped, of a right operator": chain(0, {"reads": (of("A"),)}, "own", ()),
    "a value that a transfer carries": case(
        "weight",
        A,
        operator("trans_Cast_0", [FAR], [FAR], "Cast", order=2),
        operator("X", [FAR, 0], [FAR], order=3),
        words="^input 0 differs .* although all earlier operators agree$",
    ),
    "no inputs behind a difference": chain(FAR, {}, "inherited", ()),
    "no inputs of the first that differs": chain(0, {}, "own", ()),
    "an input by its own number": case(
        "inherited",
        operator("A", [0], [0, FAR]),
        operator("X", [], [FAR], reads=(of("A", 0), of("A", 1))),
        words="^from input 1, A$",
    ),
    # branches and loops: a value handed in is an input like any other
    "a state that differs in a pass": case(
        "own",
        A,
        B,
        operator("X", [0, FAR], [FAR], order=3, reads=(of("B"), ABSENT), number=1),
        words="^input 1 differs .* although all earlier operators agree$",
    ),
    "a state behind a difference": case(
        "inherited",
        operator("A", [FAR], [FAR]),
        operator("X", [0, FAR], [FAR], order=3, reads=(of("C"), ABSENT), number=1),
    ),
    "one pass too many": case(
        "own", A, operator("X", [0], [0], order=2, passes=(4, 3)), words="4 times, in golden 3"
    ),
    "passes behind a difference": case(
        "equal", operator("A", [FAR], [FAR]), operator("X", [0], [0], order=2, passes=(4, 3))
    ),
    # weights and own errors
    "a mask of other low numbers": case(
        "agrees",
        operator(
            inputs=[0, weight(TensorError(is_same=False, masked=3))], outputs=[NEAR], reads=(of("A"), WEIGHT)
        ),
    ),
    "another weight than the model's, with golden's bits": case(
        "equal", operator(inputs=[0, weight(0)], outputs=[0], wrong_weights={1: "w"})
    ),
    "another weight than the model's": case(
        "weight", operator(inputs=[0], outputs=[NEAR], wrong_weights={1: "w"}), words="not the model's weight"
    ),
    "an own error of golden's bits": case(
        "equal", operator(inputs=[0], outputs=[0], own=own(FAR, is_explained=False))
    ),
    "an own error within an epsilon of outputs that agree": case(
        "agrees", operator(inputs=[0], outputs=[NEAR], own=own(NEAR, is_explained=False))
    ),
    "an own error beyond it": case(
        "own", operator(inputs=[0], outputs=[NEAR], own=own(1e-4, is_explained=False))
    ),
    # an inherited error is no larger than the inputs make it
    "a sum of inputs that differ": case(
        "inherited", operator(inputs=[FAR, 0], outputs=[2 * FAR], op_type="Add"), words="^from input 0$"
    ),
    "noise in a sum of inputs that differ": case(
        "own", operator(inputs=[1e-3, 0], outputs=[FAR], op_type="Add"), words="its inputs explain 0.0021"
    ),
    "more than inputs further away": case(
        "inherited",
        operator("A", [], [1e-3]),
        operator("B", reads=(of("A"),), **LACKS),
        operator("X", [], [FAR], "Add", order=3, reads=(of("B"),)),
    ),
    "a sum that is zero in theory": case(
        "accumulated",
        operator(
            "S",
            [tensor(IO.INPUT, 0, NEAR, size=64)],
            [tensor(IO.OUTPUT, 0, error(1.0, norm=1e-4), size=1)],
            "ReduceSum",
        ),
    ),
    # integers have no rounding
    "truncated ids": case(
        "own",
        operator("C", [integers(IO.INPUT, 0, 0)], [integers(IO.OUTPUT, 0, 2, "int32")], "Cast"),
    ),
    "an accusation has a reason": case(
        "own", operator(inputs=[0], outputs=[FAR]), words="^output 0 differs by 0.01, its inputs agree$"
    ),
    # 4. shapes that follow from values inherit
    "shape": case("shape", operator(inputs=[0], outputs=[UNFIT])),
    "shape of its inputs": case("inherited", operator(inputs=[UNFIT], outputs=[UNFIT])),
    "a shape that differs": case("inherited", operator("X", [integers(IO.INPUT, 0, 1)], [UNFIT], "Reshape")),
    "truth values that differ": case(
        "inherited", operator("X", [integers(IO.INPUT, 0, 1, "bool")], [UNFIT], "NonZero")
    ),
    "the same shape": case("shape", operator("X", [integers(IO.INPUT, 0, 0)], [UNFIT], "Reshape")),
    "selected elements": case("inherited", operator("X", [NEAR], [UNFIT], "NonMaxSuppressionV3")),
    "selected of the same numbers": case("shape", operator("X", [0], [UNFIT], "NonMaxSuppressionV3")),
    "numbers that shape nothing": case("shape", operator("X", [NEAR], [UNFIT], "Conv2D")),
}


@pytest.mark.parametrize(("operators", "verdict", "words", "settings"), CASES.values(), ids=CASES)
def test_verdict(operators, verdict, words, settings):
    """The first rule that applies to the last operator gives its verdict, and its note the reason."""
    finding = judged(*operators, **settings)[-1]

    assert verdict == finding.verdict
    assert re.search(words, finding.note)


BRANCH = operator("B", [integers(IO.INPUT, 0, 1, "int8")], [0.02], order=2, reads=(of("A"),))
BEHIND = {
    "ids of a near tie": (CASES["ids of a near tie"][0], "agrees"),
    "many ids": (CASES["many ids"][0], "differs"),
    "a step of integers": (moved("int8", 0.03), "agrees"),
    "more than a step of integers": (moved("int8", 0.1), "differs"),
    "a choice": (moved("bool", 0.1), "agrees"),
    "more than a choice": (moved("bool", 0.5), "differs"),
    **{
        f"in a branch, {name}": (
            (*moved("int8", 0.02)[:1], BRANCH, operator("C", [0.02], [0.02], order=3, reads=(source,))),
            verdict,
        )
        for name, source, verdict in (
            ("unknown", ABSENT, "agrees"),
            ("control flow", of("If"), "agrees"),
            ("weight", WEIGHT, "differs"),
        )
    },
}


@pytest.mark.parametrize(("operators", "verdict"), BEHIND.values(), ids=BEHIND)
def test_tensors_behind_elements_on_the_other_side_of_an_edge(operators, verdict):
    """Inputs that agree may decide few elements otherwise: these agree, and their readers' outputs."""
    assert verdict == judged(*operators)[-1].tensors[-1].verdict


@pytest.mark.parametrize(
    ("mine", "golden", "count"),
    [([np.inf, 1], [1e7, 1], 1), ([-np.inf, 0], [-3.4e38, 0], 0), ([np.inf, 1], [9.0, 1], 0)],
    ids=["beyond the type", "mask", "a wrong weight"],
)
def test_only_large_numbers_overflow(mine, golden, count):
    """A mask of the lowest numbers may become infinite; a small number that is infinite is another fault."""
    assert count == errors.overflowed(np.float32(mine), np.float32(golden))


def rounded(array, dtype):
    """Return numbers rounded to a type, as files of float32 hold them."""
    if dtype == "bfloat16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    return array.astype(dtype).astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("types", [("bfloat16", "float16"), ("float16", "float32"), ("float16", "float16")])
def test_weights_are_rounded_by_both_sides(types, noise):
    """A weight in two types is the same one, and two percent of noise is another one."""
    draw = np.random.default_rng(0)
    weight = draw.standard_normal(4096).astype(np.float32)
    wrong = (weight * (1 + noise * draw.standard_normal(4096))).astype(np.float32)

    mine, golden = rounded(wrong, types[0]), rounded(weight, types[1])

    assert (not noise) == errors.is_rounding(mine, golden, (), types)


def chance(*, others=0):
    """Return a random operator, its reader, and a reader of something else besides."""
    return (
        operator("R", [0], [1.0], op_type="StandardNormal", is_random=True),
        operator("A", [0], [others], order=2),
        operator("S", [1.0], [1.0], op_type="Mul", order=3, reads=(of("R"),)),
        operator("T", [1.0, others], [1.0], op_type="Add", order=4, reads=(of("S"), of("A"))),
    )


def test_random_numbers_are_not_judged():
    """Random operators and differences by them alone are unchecked; other differences inherit."""
    alone, beside = judged(*chance()), judged(*chance(others=FAR))

    assert [("unchecked", "random")] * 3 == [(each.verdict, each.note) for each in (*alone[:1], *alone[2:])]
    assert ["unchecked", "own", "unchecked", "inherited"] == [each.verdict for each in beside]
    assert not any(each.is_bad for each in alone)


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

    found = with_reach(findings[0], findings, None if outputs is None else graph(outputs))

    assert "nonfinite" == found.verdict
    assert reaches is found.reaches_output


def report(*operators, outputs=(), is_strict=False):
    """Return the report of operators of which some return their first output."""
    made = Report(is_strict=is_strict)
    returned = [frozenset({0}) if each.place.name in outputs else frozenset() for each in operators]
    for finding in judged(
        *(replace(each, returned=slots) for each, slots in zip(operators, returned, strict=True))
    ):
        made.add(finding)
        made.outputs += [out for out in finding.outputs if finding.returned]
    return made


DRIFTS = operator("D", [1.1e-4], [5e-4])
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


def test_outputs_and_inputs_that_are_not_compared():
    """A network that lacks an output of golden, or is fed other values, does not agree."""
    lacking, fed = report(SAME_ALL, outputs="Y"), report(operator("H", [FAR], [0]), SAME_ALL, outputs="Y")
    lacking.unreturned.append(operator("Z").place)
    fed.inputs.append("x")

    assert [("unchecked", False), ("healed", False)] == [
        (each.verdict, each.agrees) for each in (lacking, fed)
    ]


@pytest.mark.parametrize(("second", "verdicts"), [(0, ["weight", "inherited"]), (FAR, ["healed"] * 2)])
def test_one_difference_alone_is_not_undone(second, verdicts):
    """A region before values that agree computes them in another way if it has two differences or more."""
    region = (
        operator("A", [0, weight(FAR)], [FAR], reads=(FED, WEIGHT)),
        operator("B", [FAR, weight(second)], [FAR], order=2, reads=(of("A"), WEIGHT)),
        operator("C", [FAR], [0], order=3, reads=(of("B"),), returned=frozenset({0})),
    )

    assert [*verdicts, "healed"] == [each.verdict for each in judged(*region)]


@pytest.mark.parametrize("name", ["A", "Add"])
@pytest.mark.parametrize(("second", "note"), [(0, "axis 0, in golden 1"), (FAR, "its inputs agree")])
def test_a_difference_of_a_part_is_one_of_its_kernel(second, note, name):
    """A difference of the graphs counts in a region also where its operator is part of a fused one."""
    kernel = operator("A", [0], [FAR], reads=(FED,))
    region = (
        replace(kernel, place=replace(kernel.place, onnx_name="mul+add")),
        operator("B", [FAR, weight(second)], [FAR], order=2, reads=(of("A"), WEIGHT)),
        operator("C", [FAR], [0], order=3, reads=(of("B"),), returned=frozenset({0})),
    )
    fact = Fact(FactKind.ATTRIBUTE, name, "axis 0, in golden 1", readers=(name,))

    first, *_ = judge(region, Limits(), [fact], nodes={"Add": "add"})

    assert ("own", True) == (first.verdict, first.note.endswith(note))


@pytest.mark.parametrize(("explanation", "verdict"), [("", "healed"), ("one model is quantised", "own")])
def test_wide_limits_undo_no_wiring(explanation, verdict):
    """Values that agree within the limits of quantisation do not show that a scale is right."""
    region = (
        operator("A", [0], [FAR], reads=(FED,), wiring="scale 0.3 of input 0"),
        operator("B", [FAR, weight(FAR)], [FAR], order=2, reads=(of("A"), WEIGHT)),
        operator("C", [FAR], [0], order=3, reads=(of("B"),), returned=frozenset({0})),
    )

    assert verdict == judged(*region, limits=Limits(explanation=explanation))[0].verdict


def test_order_of_a_report():
    """The verdict is that of the first operator at fault; lists and groups begin with the gravest."""
    made = report(
        operator("A", [0], [0], "Add", order=1),
        operator("B", [0], [FAR], order=2),
        operator("C", [FAR], [FAR], "Add", order=3),
        operator("D", [0], [NAN], order=4),
    )

    assert ("own", ["B", "D"], False) == (
        made.verdict,
        [each.place.name for each in made.accused],
        made.agrees,
    )
    assert ["D", "B", "C", "A"] == [each.place.name for each in by_own(made.findings)]
    assert ["B", "D"] == [each.place.name for each in top_findings(made.findings, 2)]
    groups = grouped_findings(made.findings[:3], Arrangement.TYPE)
    assert [("MatMul", 1, {"own": 1}, "B"), ("Add", 0, {"inherited": 1, "equal": 1}, "C")] == [
        (group.name, group.accused, dict(group.verdicts), group.worst.place.name) for group in groups
    ]
