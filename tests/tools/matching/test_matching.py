"""Operators of two networks that belong together, whatever their names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.graph import loader
from msdump.graph.compile.compilation import compile_graph
from msdump.graph.compile.fusion import fuse_elementwise
from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind
from msdump.tools.matching.contents import digest
from msdump.tools.matching.matching import Means, match
from msdump.tools.matching.model_graph import operator_graphs
from msdump.tools.matching.sides import GraphSide

TRANSFORMER = "graphs/transformer.onnx"
FORMS = {"O0": lambda graph: graph, "O1": fuse_elementwise, "O2": compile_graph}


def side(path, form="O0", *, has_elements=True):
    """Return the graph of a model, with the digests of its weights or without them."""
    graph = FORMS[form](loader.load(path))
    digests = {name: digest(array) for name, array in graph.weights.items()} if has_elements else {}
    return GraphSide(operator_graphs(graph)[0], digests.get)


def moved(graph, name_of):
    """Return a graph whose operators have other names; ONNX nodes are forgotten."""

    def source(each):
        return replace(each, name=name_of[each.name]) if each.kind is SourceKind.OPERATOR else each

    operators = (
        replace(each, full_name=name_of[name], inputs=tuple(map(source, each.inputs)), onnx_names=())
        for name, each in graph.operators.items()
    )
    return replace(
        graph,
        operators={each.full_name: each for each in operators},
        outputs=tuple(map(source, graph.outputs)),
    )


def without(graph, dropped):
    """Return a graph without an operator: its readers read what it read first."""
    first = graph.operators[dropped].inputs[0]

    def source(each):
        return first if (each.kind, each.name) == (SourceKind.OPERATOR, dropped) else each

    operators = {
        name: replace(each, inputs=tuple(map(source, each.inputs)))
        for name, each in graph.operators.items()
        if name != dropped
    }
    return replace(graph, operators=operators, outputs=tuple(map(source, graph.outputs)))


def renumbered(graph):
    """Return names as a network without some operators gives them: the numbers behind them are smaller."""
    counts = Counter()
    names = {}
    for name, operator in graph.operators.items():
        stem = f"{operator.scope}/{operator.op_type}"
        names[name] = f"{stem}-op{counts[stem]}"
        counts[stem] += 1
    return names


def anonymous(graph):
    """Return names that tell nothing."""
    return {name: f"Default/node-op{place}" for place, name in enumerate(graph.operators)}


TRANSFORMER_SIDE = side(TRANSFORMER)
GRAPH = TRANSFORMER_SIDE.graph
INNER = [name for name in GRAPH.operators if GRAPH.inputs_from(name)]


def test_equal_networks_are_paired_by_name():
    """Networks with the same names and the same structure are paired by name, for sure."""
    matching = match(side(TRANSFORMER), side(TRANSFORMER))

    assert [True, Counter({(Means.NAME, 1.0): 43})] == [
        matching.is_by_name,
        Counter((pair.means, pair.certainty) for pair in matching.pairs),
    ]


@pytest.mark.parametrize("has_elements", [True, False])
@pytest.mark.parametrize("rename", [renumbered, anonymous])
@given(dropped=st.sampled_from(INNER))
@settings(deadline=None, max_examples=20)
def test_dropped_operators(dropped, rename, has_elements):
    """One operator less: it alone has no partner, though the numbers of its siblings' names moved."""
    rest = without(GRAPH, dropped)
    name_of = rename(rest)
    digest_of = TRANSFORMER_SIDE.digest_of if has_elements else lambda _name: None

    matching = match(
        GraphSide(moved(rest, name_of), digest_of), replace(TRANSFORMER_SIDE, digest_of=digest_of)
    )

    assert [(), (dropped,)] == [matching.mine_alone, matching.golden_alone]
    assert name_of == {pair.golden[0]: pair.mine[0] for pair in matching.pairs}


@pytest.mark.parametrize("golden", FORMS)
@pytest.mark.parametrize("mine", FORMS)
@pytest.mark.parametrize("model", ["lenet", "transformer", "torch_export"])
def test_levels(model, mine, golden):
    """Operators of O0 belong to the fused ones of O1 and O2 that they are parts of; none is left over."""
    own, other = side(f"graphs/{model}.onnx", mine), side(f"graphs/{model}.onnx", golden)

    matching = match(own, other)

    assert [(), ()] == [matching.mine_alone, matching.golden_alone]
    for pair in matching.pairs:
        nodes = (
            {node for name in names for node in each.graph.operators[name].onnx_names}
            for each, names in ((own, pair.mine), (other, pair.golden))
        )
        assert next(nodes) == next(nodes)


def test_fused_operators_without_parts():
    """A fused operator of which only the name is known is paired with the operators that its name joins."""
    own, other = side(TRANSFORMER, "O1"), side(TRANSFORMER)
    forgotten = {
        name: replace(each, onnx_names=each.onnx_names[-1:]) for name, each in own.graph.operators.items()
    }

    matching = match(replace(own, graph=replace(own.graph, operators=forgotten)), other)

    pair = matching.of_mine["Default/Cast-op0Sub-op0Mul-op0"]
    assert ("Default/Cast-op0", "Default/Sub-op0", "Default/Mul-op0") == pair.golden
    assert ((("Default/Cast-op0Sub-op0Mul-op0", 0), ("Default/Mul-op0", 0)),) == pair.outputs
    assert [(), ()] == [matching.mine_alone, matching.golden_alone]


def test_empty_graphs():
    """Where one side has no operators, all of the other have no partner."""
    empty = GraphSide(OperatorGraph({}))

    assert [0, 43] == [len(match(empty, empty).pairs), len(match(TRANSFORMER_SIDE, empty).mine_alone)]
