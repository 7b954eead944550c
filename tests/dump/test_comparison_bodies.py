"""Comparisons of a graph compiled as a whole with one that has a graph for each branch and loop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.dump import o2
from tests.dump.compared import accused, document
from tests.dump.nets import with_weight

pytestmark = pytest.mark.usefixtures("quiet")

LOOP = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x, int64 n, bool flag) => (float[4,8] y)
  <float[8,8] w0, float[8,8] w1, float[8] b1> {
    start = MatMul(x, w0)
    last = Loop(n, , start) <body = round (int64 i, bool go, float[4,8] v) => (bool go, float[4,8] w) {
        p = MatMul(v, w1)
        q = Add(p, b1)
        r = Tanh(q)
        w = Sub(v, r) }>
    chosen = If(flag) <then_branch = yes () => (float[4,8] a) {
        s = Sigmoid(last)
        a = Mul(s, last)
      }, else_branch = no () => (float[4,8] b) { b = Neg(last) }>
    y = MatMul(chosen, w0) }"""
NESTED = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x, int64 n) => (float[4,8] y)
  <float[8,8] w0, float[8,8] w1, float[8] b1> {
    start = MatMul(x, w0)
    last = Loop(n, , start) <body = round (int64 i, bool go, float[4,8] v) => (bool go, float[4,8] w) {
        one = Constant<value_int = 1>()
        late = Less(one, i)
        w = If(late) <then_branch = yes () => (float[4,8] a) {
            p = MatMul(v, w1)
            q = Add(p, b1)
            a = Tanh(q)
          }, else_branch = no () => (float[4,8] b) { b = Sin(v) }> }>
    y = MatMul(last, w0) }"""
PASSES = 3
MODES = {"npy": {"file_format": "npy"}, "bin": {}}


def model_of(source):
    """Return a model with weights, some of them in a loop."""
    chance = np.random.default_rng(0)
    model = parser.parse_model(source)
    for name, shape in (("w0", (8, 8)), ("w1", (8, 8)), ("b1", (8,))):
        array = chance.normal(0, 0.4, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    declared = [each for each in model.graph.value_info if each.name not in {"w0", "w1", "b1"}]
    del model.graph.value_info[:]
    model.graph.value_info.extend(declared)
    return model


@pytest.fixture
def dump(door):
    """Return a function that dumps a model into a directory of its own and returns that."""

    def run(name, model, changes=None):
        feeds = {"x": np.random.default_rng(1).normal(size=(4, 8)).astype("f4"), "n": np.array(PASSES)}
        if "flag" in {each.name for each in model.graph.input}:
            feeds["flag"] = np.array(True)
        if changes is None:
            return door.aside(name, model, feeds, context={"device_target": "CPU"})
        return o2.aside(door, name, model, feeds, **changes)

    return run


@pytest.mark.parametrize("form", MODES)
@pytest.mark.parametrize(
    ("source", "passes"),
    [
        (LOOP, {"MatMul-op2BiasAdd-op0Tanh-op0": 3, "Sub-op0": 3, "Sigmoid-op0Mul-op0": 1}),
        (NESTED, {"MatMul-op2BiasAdd-op0Tanh-op0": 1, "Sin-op0": 2}),
    ],
    ids=["loop", "nested"],
)
def test_every_pass_is_compared(dump, form, source, passes):
    """Kernels of branches and loops agree pass by pass, inputs and outputs, in both directions."""
    compiled, single = dump("compiled", model_of(source), MODES[form]), dump("single", model_of(source))

    code, told = document(compiled, single)
    turned_code, turned = document(single, compiled)

    agreeing = Counter(
        each["operator"].rpartition("/")[2]
        for each in told["operators"]
        if {"agrees", "equal"} >= {tensor["verdict"] for tensor in (*each["inputs"], *each["outputs"])}
    )
    assert [(0, "agrees")] * 2 == [(code, told["verdict"]), (turned_code, turned["verdict"])]
    assert passes == {name: agreeing[name] for name in passes}
    assert "differs" not in str(turned["operators"])
    assert [] == [path for path in (*told["alone"], *turned["alone"]) if Path(path).name.isdecimal()]


@pytest.mark.parametrize("form", MODES)
@pytest.mark.parametrize(("source", "passes"), [(LOOP, 3), (NESTED, 1)], ids=["loop", "nested"])
def test_a_bit_of_a_weight_in_a_loop(dump, form, source, passes):
    """The kernel of a loop that reads a changed bias is accused in its passes, and no other operator."""

    def flip(bias):
        bias.view(np.uint32)[3] ^= np.uint32(1 << 22)
        return bias

    model = model_of(source)
    mine, golden = dump("mine", with_weight(model, "b1", flip), MODES[form]), dump("golden", model)

    found = [each for each in accused(mine, golden) if each[0] != "unchecked"]
    assert [("weight", "MatMul-op2BiasAdd-op0Tanh-op0")] * passes == found


def test_a_later_pass_that_went_wrong(dump):
    """An element of a file of the second pass that changed accuses that pass, and no pass before it."""
    mine, golden = dump("mine", model_of(LOOP), MODES["npy"]), dump("golden", model_of(LOOP))
    path = sorted(mine.rglob("Sub.*.output.0.*.npy"))[1]
    array = np.load(path)
    array[0, 0] += 5
    np.save(path, array)

    _, told = document(mine, golden)

    first = next(each for each in told["operators"] if each["verdict"] == "own")
    assert ("Default/Sub-op0", 1) == (first["operator"], first["pass_number"])
