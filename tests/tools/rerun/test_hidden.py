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

X = np.random.default_rng(3).standard_normal((4, 16)) * 2.0**16
DOUBLED = 2 * X
SCALE = 2.0**-16


def kernel():
    """Return the graph of ``tanh((x + x) / 2**16) * 3``, one kernel."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["sum"], "sum"),
        helper.make_node("Mul", ["sum", "scale"], ["small"], "small"),
        helper.make_node("Tanh", ["small"], ["curve"], "curve"),
        helper.make_node("Mul", ["curve", "three"], ["y"], "scaled"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in "xy")
    numbers = [("three", 3.0), ("scale", SCALE)]
    numbers = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in numbers]
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], numbers))
    return fuse_elementwise(loader.load(onnx.shape_inference.infer_shapes(model)))


def beyond(edge):
    """Return the result where sums beyond an edge have become infinite."""
    return 3 * np.tanh(SCALE * np.where(np.abs(DOUBLED) > edge, np.copysign(np.inf, DOUBLED), DOUBLED))


def one_off():
    """Return the result with the wrong number at the place of the smallest sum."""
    result = 3 * np.tanh(SCALE * DOUBLED)
    result.flat[np.abs(DOUBLED).argmin()] = 3.0
    return result


@pytest.mark.parametrize(
    ("expected", "dumped"),
    [
        ("Add-op0", beyond(65504.0)),
        ("Add-op0", beyond(65504.0).astype(np.float16)),
        ("", 3 * np.tanh(SCALE * DOUBLED)),
        ("", 3.3 * np.tanh(SCALE * DOUBLED)),
        ("", one_off()),
        ("Add-op0", beyond(4e4)),
    ],
    ids=["overflow", "in float16", "right", "wrong", "one element", "from a smaller number"],
)
def test_a_hidden_overflow_is_told_from_other_errors(expected, dumped):
    """What is off has to be what an infinity becomes, of the largest numbers alone."""
    graph = kernel()
    (node,) = graph.operators

    def run(change):
        return Float64Runner(graph).run(node, {"x": X}, change=change)

    assert expected == hidden.overflowed_part(node, run, 0, dumped)


def rows():
    """Return the graph of ``x / (m + m)`` with a number ``m`` for each row, one kernel."""
    nodes = [
        helper.make_node("Add", ["m", "m"], ["sum"], "sum"),
        helper.make_node("Div", ["x", "sum"], ["y"], "share"),
    ]
    sizes = {"x": [4, 16], "m": [4, 1], "y": [4, 16]}
    x, m, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items())
    model = helper.make_model(helper.make_graph(nodes, "net", [x, m], [y]))
    return fuse_elementwise(loader.load(onnx.shape_inference.infer_shapes(model)))


@pytest.mark.parametrize(
    ("expected", "lost"), [("Add-op0", [3]), ("Add-op0", [0, 1, 2, 3]), ("", [0]), ("", [])], ids=str
)
def test_a_hidden_overflow_of_one_number_for_a_row(expected, lost):
    """A part that writes one number for many elements is told where the largest are lost."""
    graph = rows()
    (node,) = graph.operators
    parameters = {"x": X, "m": np.array([[1.0], [2.0], [4.0], [9.0]])}
    dumped = X / (2 * parameters["m"])
    dumped[lost] = 0.0

    def run(change):
        return Float64Runner(graph).run(node, parameters, change=change)

    assert expected == hidden.overflowed_part(node, run, 0, dumped)
