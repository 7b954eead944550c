"""Chains of elementwise operators become one."""

import pytest

from msdump.graph import fuse_elementwise, loader
from tests.texts import parsed


def fused(body, outputs="float[2] y", inputs="float[2] x, float[2] b"):
    """Return the fused graph of nodes in ONNX's text form."""
    return fuse_elementwise(loader.load(parsed(f"g ({inputs}) => ({outputs}) {{ {body} }}")))


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
    """An operator is fused into the elementwise operator that alone reads it."""
    assert sorted(expected) == sorted(node.op_type for node in fused(body).nodes)


def test_name_and_parts():
    """The fused operator joins the last components of the names, which it keeps, below their common scope."""
    text = 'g (float[2] x, float[2] b) => (y) { ["enc/a/Abs"] s = Abs(x) ["enc/b/Add"] y = Add(s, b) }'

    (node,) = fuse_elementwise(loader.load(parsed(text))).nodes

    assert "Default/enc/Abs-op0Add-op0" == node.operator.full_name
    assert "AbsAdd" == node.operator.op_type
    assert ["Default/enc/a/Abs-op0", "Default/enc/b/Add-op0"] == [p.operator.full_name for p in node.parts]
    assert ("x", "b") == node.inputs
    assert ("y",) == node.outputs
    assert node.parts == node.members


def test_nothing_to_fuse_leaves_nodes_alone():
    """Operators that stand alone are the same objects as before."""
    graph = loader.load(parsed("g (float[2] x) => (float[2] y) { y = Softmax(x) }"))

    assert graph.nodes[0] is fuse_elementwise(graph).nodes[0]
