"""The six principles of docs/reference/verdicts.md on dumps of one network in two ways, and by its model."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, parser

from tests.dump.compared import accused, document
from tests.dump.nets import model, node, value

ASCEND = {"device_target": "Ascend", "jit_level": "O0"}
CPU = {"device_target": "CPU"}
DRAW = np.random.default_rng(0)

pytestmark = pytest.mark.usefixtures("quiet")


def precision(mode):
    """Return the context of an Ascend that computes in a precision mode."""
    return ASCEND | {"ascend_config": {"precision_mode": mode}}


def pair(door, network, feeds, mine, golden):
    """Return the dumps of a network on two devices."""
    return door.aside("mine", network, feeds, context=mine), door.aside(
        "golden", network, feeds, context=golden
    )


def norm(variance):
    """Return a BatchNorm between two products."""
    weights = {
        "w": DRAW.standard_normal((4, 3, 3, 3)).astype("f4"),
        **{name: np.ones(4, "f4") for name in ("scale", "bias", "mean")},
        "var": np.full(4, variance, "f4"),
    }
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale bias mean var", "y")]
    return model(nodes, [value("x", [1, 3, 6, 6])], ["y"], weights)


def scaled(most):
    """Return a product, multiplied by a large number and divided again."""
    weights = {
        "w": DRAW.standard_normal((8, 8)).astype("f4"),
        "most": np.float32(most),
        "less": np.float32(1 / most),
    }
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a most", "b"), node("Mul", "b less", "y")]
    return model(nodes, [value("x", [4, 8])], ["y"], weights)


OVERFLOWS = {
    "a variance of 1e7": (norm(1e7), [1, 3, 6, 6], "BatchNorm-op0"),
    "a product": (scaled(6e4), [4, 8], "Mul-op0"),
}


@pytest.mark.parametrize("options", [(), ("--model",)], ids=["files", "model"])
@pytest.mark.parametrize(("network", "shape", "name"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_what_float16_does_not_hold_is_named(door, network, shape, name, options):
    """An operator that overflows is named by files and by the model, which overflows again."""
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype("f4")}
    dumps = pair(door, network, feeds, precision("force_fp16"), CPU)
    arguments = (*options, str(door.folder / "mine.onnx")) if options else ()

    assert [("nonfinite", name)] == accused(*dumps, *arguments)


@pytest.mark.parametrize(("seed", "verdict", "code"), [(None, "unchecked", 1), (7, "equal", 0)])
def test_random_numbers_are_compared_with_equal_seeds_alone(door, seed, verdict, code):
    """Without a seed random results are not judged, and neither are their successors."""
    drop = node("Dropout", "x ratio trains", "n")
    if seed is not None:
        drop.attribute.append(helper.make_attribute("seed", seed))
    weights = {"ratio": np.float32(0.5), "trains": np.array(True)}
    network = model([drop, node("Abs", "n", "y")], [value("x", [64])], ["y"], weights)

    told = document(*pair(door, network, {"x": np.ones(64, "f4")}, CPU, CPU))

    assert (code, verdict) == (told[0], told[1]["verdict"])
    assert {"equal", verdict} == {"equal", *(each["verdict"] for each in told[1]["operators"])}


def test_shapes_that_follow_from_values_inherit(door):
    """Numbers near an edge are counted otherwise, and the counted ones have another shape."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[64] x) => (int64[1,N] y)
        <float edge = {0.0}> { a = Mul(x, x) b = Sub(a, x) c = Mul(b, b) d = Less(edge, b) y = NonZero(d) }"""
    chance = np.random.default_rng(2).uniform(-1, 1, 64).astype("f4")
    chance[:2] = 1.0001, 0.9999
    dumps = pair(door, parser.parse_model(text), {"x": chance}, precision("force_fp16"), CPU)

    assert [] == [each for each in accused(*dumps) if each[0] != "unchecked"]
