"""Models of operators that are equal to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from msdump.graph import loader, reads
from msdump.graph.kernel import EqualModels, onenode
from tests.texts import parsed

GRAPHS = Path(__file__).parents[3] / "graphs"
LIMITS = onenode.RuntimeLimits(ir_version=13, opset=26)
OPERATORS = """g (float[3] x, float[3] z) => (float[3] y)
    { a = LeakyRelu<alpha=0.5>(x) b = LeakyRelu<alpha=0.5>(a) c = LeakyRelu<alpha=0.25>(b)
      d = Add(c, c) e = Add(c, d) f = Clip(d, , e) g = Clip(f, e) h = Clip(g, , z)
      i, = Dropout(h) j, m = Dropout(i) y = Add(i, j) }"""


def _bindings(graph, node, kind="float"):
    return onenode.Bindings(dict.fromkeys(reads(node), f"tensor({kind})"), {}, {}, {})


@pytest.mark.parametrize("most", [1, 32], ids=["others came between", "kept"])
@pytest.mark.parametrize("source", [None, *sorted(each.name for each in GRAPHS.glob("*.onnx"))])
def test_an_equal_model_is_the_one_that_is_made_of_the_operator(source, most):
    """Whatever ran before, an operator's model has the bytes and names that it has without the others."""
    graph = loader.load(GRAPHS / source if source else parsed(OPERATORS))
    models = EqualModels(most)
    for each in graph.walk():
        for node in [node for node in each.operators for _ in range(2)]:
            for kind in ("float", "int64"):
                bindings = _bindings(each, node, kind)
                expected = onenode.build(each, node, bindings, LIMITS)
                assert expected == models.build(each, node, bindings, LIMITS)


def test_equal_operators_have_one_model():
    """Operators that differ in their names only share the model, so that its session is found."""
    graph = loader.load(parsed(OPERATORS))
    first, second, third, *_ = (
        EqualModels(1).build(graph, node, _bindings(graph, node), LIMITS) for node in graph.nodes
    )
    models = EqualModels(2)
    made = [models.build(graph, node, _bindings(graph, node), LIMITS).data for node in graph.nodes[:3]]
    assert [first.data, second.data, third.data] == made
    assert made[0] is made[1]
