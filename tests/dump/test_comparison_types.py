"""Operators that compute in another type than golden's, alone or inside of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.dump.compared import document

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(("types", "accused"), [((1, 10), ["Default/Cast-op1"]), ((10, 10), [])])
def test_operators_in_another_type(door, types, accused):
    """The first operator that writes another type is named; a network that was converted has none."""

    def model(wide, narrow):
        source = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) {{
            a = Cast<to = {wide}>(x)
            b = Exp(a)
            c = Cast<to = {narrow}>(b)
            d = Sin(c)
            e = Abs(d)
            f = Cast<to = {wide}>(e)
            g = Tanh(f)
            y = Cast<to = 1>(g) }}"""
        return parser.parse_model(source)

    feeds = {"x": np.float32([0.1, 0.2, 0.3, 0.4])}
    sides = door.aside("mine", model(*types), feeds), door.aside("golden", model(1, 1), feeds)

    _, told = document(*sides)

    found = [row for row in told["operators"] if row["verdict"] in {"dtype", "own"}]
    assert accused == [row["operator"] for row in found]


KERNEL = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x) => (float[4,8] y) {
        a = MatMul(x, w)
        CHAIN
        b = MatMul(f, v)
        c = Tanh(b)
        y = Softmax(c) }"""
RELU = "f = Relu(a)"
NARROW_RELU = "h = Cast<to = 10>(a) r = Relu(h) f = Cast<to = 1>(r)"
NARROW_PAIR = "h = Cast<to = 10>(a) r = Relu(h) s = Abs(r) f = Cast<to = 1>(s)"


@pytest.mark.parametrize(
    ("chains", "levels", "accused"),
    [
        ((NARROW_RELU, RELU), ("O1", "O1"), [("CastReLUCast", "own")]),
        ((NARROW_RELU, RELU), ("O1", "CPU"), [("CastReLUCast", "dtype")]),
        ((RELU, NARROW_RELU), ("CPU", "O1"), [("ReLU", "dtype")]),
        ((NARROW_RELU, RELU), ("CPU", "CPU"), [("ReLU", "dtype")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "O1"), [("CastReLUAbsCast", "own")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "CPU"), [("CastReLUAbsCast", "dtype")]),
        ((NARROW_RELU, NARROW_RELU), ("O1", "CPU"), []),
        ((NARROW_PAIR, NARROW_PAIR), ("CPU", "O1"), []),
    ],
)
def test_casts_inside_of_a_kernel(door, chains, levels, accused):
    """A kernel that computes in float16 inside is named, even if its tensors agree; its readers are not."""
    contexts = {"CPU": {"device_target": "CPU"}, "O1": {"device_target": "Ascend", "jit_level": "O1"}}
    generator = np.random.default_rng(3)
    weights = {name: generator.standard_normal((8, 8)).astype("f4") for name in ("w", "v")}

    def model(chain):
        made = parser.parse_model(KERNEL.replace("CHAIN", chain))
        made.graph.initializer.extend(numpy_helper.from_array(*each[::-1]) for each in weights.items())
        return made

    feeds = {"x": generator.standard_normal((4, 8)).astype("f4")}
    mine, golden = (
        door.aside(name, model(chain), feeds, context=contexts[level])
        for name, chain, level in zip(("mine", "golden"), chains, levels, strict=True)
    )

    _, told = document(mine, golden)

    innocent = {"equal", "agrees", "inherited", "accumulated", "unchecked", "healed"}
    found = [(row["op_type"], row["verdict"]) for row in told["operators"]]
    assert accused == [each for each in found if each[1] not in innocent]
