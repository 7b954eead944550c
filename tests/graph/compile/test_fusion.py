"""Chains of elementwise operators become one."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

from msdump.graph import loader
from msdump.graph.compile.fusion import fuse_elementwise


def fused(body, *, outputs="float[2] y", inputs="float[2] x, float[2] b"):
    """Return the fused graph of nodes in ONNX's text form."""
    text = f'<ir_version: 10, opset_import: ["" : 20]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return fuse_elementwise(loader.load(parser.parse_model(text)))


CASES = {
    "chain": ("s = Abs(x) t = Exp(s) y = Neg(t)", ["Abs+Exp+Neg"]),
    "single": ("y = Abs(x)", ["Abs"]),
    "other in between": ("s = Abs(x) t = Softmax(s) y = Neg(t)", ["Abs", "Softmax", "Neg"]),
    "two readers": ("s = Abs(x) t = Exp(s) y = Add(s, t)", ["Abs", "Exp+Add"]),
    "read twice by one": ("s = Abs(x) y = Mul(s, s)", ["Abs+Mul"]),
    "two chains meet": (
        "s = Abs(x) t = Exp(s) u = Neg(b) v = Sin(u) y = Add(t, v)",
        ["Neg+Sin", "Abs+Exp+Add"],
    ),
    "after a matrix product": ("s = MatMul(x, b) t = Relu(s) y = Tanh(t)", ["MatMul", "Relu+Tanh"]),
}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES)
def test_chains(body, expected):
    """Only what one elementwise operator alone reads is fused into it."""
    assert sorted(expected) == sorted(node.op_type for node in fused(body).nodes)


def test_order():
    """A fused operator comes after all that it reads."""
    graph = fused(
        "s = Abs(x) u = Softmax(b) v = Neg(u) y = Add(s, v) z = Sin(v)", outputs="float[2] y, float[2] z"
    )

    known = {"x", "b"}
    for node in graph.nodes:
        assert known >= set(node.inputs)
        known |= set(node.outputs)
    assert {"y", "z"} <= known


def test_graph_outputs_are_kept():
    """A value that the network returns stays visible."""
    graph = fused("s = Abs(x) y = Neg(s)", outputs="float[2] s, float[2] y")

    assert [("s",), ("y",)] == [node.outputs for node in graph.nodes]


def test_name_and_parts():
    """The fused operator joins the last components of the names, which it keeps, below their common scope."""
    parts = [
        helper.make_node("Abs", ["x"], ["s"], name="enc/a/Abs"),
        helper.make_node("Add", ["s", "b"], ["y"], name="enc/b/Add"),
    ]
    values = {name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xby"}
    graph = helper.make_graph(parts, "g", [values["x"], values["b"]], [values["y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    (node,) = fuse_elementwise(loader.load(model)).nodes

    assert "Default/enc/Abs-op0Add-op0" == node.operator.full_name
    assert "AbsAdd" == node.operator.op_type
    assert ["Default/enc/a/Abs-op0", "Default/enc/b/Add-op0"] == [p.operator.full_name for p in node.parts]
    assert ("x", "b") == node.inputs
    assert ("y",) == node.outputs
    assert node.parts == node.members


def test_subgraph_readers():
    """A value that a subgraph reads stays visible."""
    body = """
        s = Abs(x)
        t = Neg(s)
        y = If (c) <
            then_branch = then_g () => (float[2] p) { p = Exp(s) },
            else_branch = else_g () => (float[2] q) { q = Sin(t) }
        >
    """

    graph = fused(body, inputs="float[2] x, bool c")

    assert ["Abs", "Neg", "If"] == [node.op_type for node in graph.nodes]


def test_nothing_to_fuse_leaves_nodes_alone():
    """Operators that stand alone are the same objects as before."""
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Softmax(x) }'
    graph = loader.load(parser.parse_model(text))

    assert graph.nodes[0] is fuse_elementwise(graph).nodes[0]


def test_full_names_are_unique():
    """Chains whose short names would be the same have names of their own."""
    ends = {"p": "Abs", "q": "Neg", "r": "Abs", "s": "Neg"}
    scopes = {"p": "a", "q": "b", "r": "c", "s": "d"}
    before = {"p": "x", "q": "p", "r": "x", "s": "r"}
    nodes = [
        helper.make_node(kind, [before[out]], [out], name=f"{scopes[out]}/{kind}")
        for out, kind in ends.items()
    ]
    values = {name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xqs"}
    proto = helper.make_graph(nodes, "g", [values["x"]], [values["q"], values["s"]])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    names = [node.operator.full_name for node in fuse_elementwise(loader.load(model)).nodes]

    assert ["Default/Abs-op0Neg-op0", "Default/c/Abs-op0Default/d/Neg-op0"] == names
