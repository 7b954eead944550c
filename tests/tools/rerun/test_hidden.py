"""Overflows inside of fused kernels, which the parts behind them hide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from msdump.execute.operators.float64.evaluator import Float64Runner
from msdump.graph import loader
from msdump.graph.compile.fusion import fuse_elementwise
from msdump.tools.rerun import hidden

X = np.random.default_rng(3).standard_normal((4, 16))
DOUBLED = 2 * X


def kernel():
    """Return the graph of ``tanh(x + x) * 3``, one kernel."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"], "sum"),
        helper.make_node("Tanh", ["sum"], ["curve"], "curve"),
        helper.make_node("Mul", ["curve", "three"], ["y"], "scaled"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in "xy")
    three = helper.make_tensor("three", TensorProto.FLOAT, [], [3.0])
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], [three]))
    return fuse_elementwise(loader.load(onnx.shape_inference.infer_shapes(model)))


def beyond(edge):
    """Return the result where sums beyond an edge have become infinite."""
    return 3 * np.tanh(np.where(np.abs(DOUBLED) > edge, np.copysign(np.inf, DOUBLED), DOUBLED))


def one_off():
    """Return the result with the wrong number at the place of the smallest sum."""
    result = 3 * np.tanh(DOUBLED)
    result.flat[np.abs(DOUBLED).argmin()] = 3.0
    return result


@pytest.mark.parametrize(
    ("expected", "dumped"),
    [
        ("Add-op0", beyond(1.0)),
        ("Add-op0", beyond(1.0).astype(np.float16)),
        ("", 3 * np.tanh(DOUBLED)),
        ("", 3.3 * np.tanh(DOUBLED)),
        ("", one_off()),
    ],
    ids=["overflow", "in float16", "right", "wrong", "one element"],
)
def test_a_hidden_overflow_is_told_from_other_errors(expected, dumped):
    """What is off has to be what an infinity becomes, of the largest numbers alone."""
    graph = kernel()
    (node,) = graph.operators

    def run(change):
        return Float64Runner(graph).run(node, {"x": X}, change=change)

    assert expected == hidden.overflowed_part(node, run, 0, dumped)
