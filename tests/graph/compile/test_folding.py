"""Operators of constants replaced by their results."""

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from msdump.errors import ExecutionError
from msdump.graph import compile_graph, loader
from msdump.graph.compilation import fold
from tests.texts import parsed

OPSETS = '<ir_version: 10, opset_import: ["": 20, "own": 1]>'
WEIGHTS = "<float[2,3] w = {1, 2, 3, 4, 5, 6}, int64[1] two = {2}, int64[1] many = {300000}>"


def compute(part):
    """Run a part of a graph with ONNX's reference implementation."""
    inputs = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in part.weights]
    outputs = [onnx.helper.make_empty_tensor_value_info(value.name) for value in part.outputs]
    graph = onnx.helper.make_graph([node.proto for node in part.nodes], "part", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    return ReferenceEvaluator(model).run(None, dict(part.weights))


def load(body, outputs="y", inputs="float[4,3] x, float[n] v"):
    """Return the graph of operators in ONNX's text form."""
    text = f"{OPSETS} g ({inputs}) => ({outputs}) {WEIGHTS} {{ {body} }}"
    return loader.load(onnx.parser.parse_model(text))


FOLDED = {
    "chain": ("t = Transpose(w) s = Neg(t) y = MatMul(x, s)", ["MatMul"]),
    "static shape": ("s = Shape(x) k = Slice(s, two, many) y = Reshape(x, s) z = Neg(k)", ["Reshape", "Neg"]),
    "unknown shape": ("s = Shape(v) y = Reshape(v, s)", ["Shape", "Reshape"]),
    "a graph output": ("t = Neg(w) y = Neg(t)", ["Neg"]),
    "random": ("y = Mul(x, r) r = RandomNormal<shape = [3]>()", ["RandomNormal", "Mul"]),
    "no constant": ("y = Neg(x)", ["Neg"]),
    "too large": (
        "t = ConstantOfShape(many) s = ReduceSum<keepdims = 0>(t) y = Mul(x, s)",
        ["ConstantOfShape", "ReduceSum", "Mul"],
    ),
    "small": ("t = ConstantOfShape(two) s = ReduceSum<keepdims = 0>(t) y = Mul(x, s)", ["Mul"]),
    "unknown operator": ("t = own.Neg(w) y = Mul(t, t)", ["Neg", "Mul"]),
}


@pytest.mark.parametrize(("body", "expected"), FOLDED.values(), ids=FOLDED)
def test_what_is_folded(body, expected):
    """Operators that only constants decide go, unless they are random, too large or make an output."""
    graph = load(body, outputs="y, z" if "z =" in body else "y")

    folded = fold(graph, compute)

    assert sorted(expected) == sorted(node.op_type for node in folded.nodes)


def test_values():
    """A folded result is a constant of the graph, with its type; weights that only it needed are gone."""
    graph = fold(load("t = Transpose(w) s = Neg(t) y = MatMul(x, s)"), compute)

    np.testing.assert_array_equal([[-1, -4], [-2, -5], [-3, -6]], graph.weights["s"])
    assert not graph.weights["s"].flags.writeable
    assert "s" in graph.constants
    assert (3, 2) == graph.type_of("s").shape
    assert {"two", "many", "s"} == set(graph.weights)


def test_shapes_are_told_without_running():
    """A static shape and the number of its elements need no kernel."""
    graph = fold(load("s = Shape<start = 1>(x) z = Size(x) y = Add(s, z)"), compute)

    np.testing.assert_array_equal([3], graph.weights["s"])
    assert 12 == graph.weights["z"]
    assert ["Add"] == [node.op_type for node in graph.nodes]


def test_weights_that_a_caller_may_feed_are_no_constants():
    """An initializer that is listed as an input may have another value in each run."""
    model = parsed("g (float[2] x, float[2] w = {1, 2}) => (y) { t = Neg(w) y = Mul(x, t) }")

    graph = fold(loader.load(model), compute)

    assert ["Neg", "Mul"] == [node.op_type for node in graph.nodes]


def test_what_the_runtime_refuses_is_left_to_fail():
    """A constant that cannot be computed stays an operator, which fails when the network runs."""

    def refuse(_part):
        raise ExecutionError("Neg-op0", "no")

    graph = load("t = Neg(w) y = MatMul(x, t)")

    assert graph is fold(graph, refuse)


def test_what_branches_read_stays():
    """A value that a branch reads by its name stays a value; constants inside the branch go."""
    body = (
        "t = Neg(w) p = ReduceMax<keepdims = 0>(x) q = Cast<to = 9>(p) y = If(q) <"
        " then_branch = a () => (float[2,3] b) { b = Exp(t) },"
        " else_branch = c () => (float[2,3] d) { e = Neg(w) d = Mul(e, t) } >"
    )

    graph = compile_graph(load(body), compute=compute)

    assert "Neg" in [node.op_type for node in graph.nodes]
    assert [["Exp"], ["Mul"]] == [[node.op_type for node in body.nodes] for body in graph.bodies]
