"""Operators of two networks that belong together, whatever their names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.graph import compile_graph, fuse_elementwise, loader
from msdump.judge.pair import GraphSide, align, joined_parts, operator_graphs, part_types
from msdump.judge.pair.sides import digest, of_array
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueForm, ValueSource
from tests.judge.pair import values
from tests.texts import parsed

EXPORTS = "tests/judge/pair/exports"
TRANSFORMER = "graphs/transformer.onnx"
FORMS = {"O0": lambda graph: graph, "O1": fuse_elementwise, "O2": compile_graph}


def side(path, form="O0", *, has_elements=True):
    """Return the graph of a model, with the digests of its weights or without them."""
    graph = FORMS[form](loader.load(path))
    digests = {name: digest(array) for name, array in graph.weights.items()} if has_elements else {}
    return GraphSide(operator_graphs(graph)[0], digests.get)


def moved(graph, name_of):
    """Return a graph with other names of operators, and without ONNX nodes."""

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
    """Return a graph without an operator: its readers read the first operator that it read."""
    inputs = graph.operators[dropped].inputs
    first = next((each for each in inputs if each.kind is SourceKind.OPERATOR), inputs[0])

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
    """Return names without a scope or a type."""
    return {name: f"Default/node-op{place}" for place, name in enumerate(graph.operators)}


TRANSFORMER_SIDE = side(TRANSFORMER)
GRAPH = TRANSFORMER_SIDE.graph
INNER = [name for name in GRAPH.operators if GRAPH.inputs_from(name)]


@pytest.mark.parametrize("name", ["x" * 300_000, "-op1" * 75_000, "x-op1" * 60_000])
def test_long_names_are_split_in_linear_time(name):
    """A name of 300,000 characters is split within the time limit of a test."""
    operator = GraphOperator(f"Default/{name}/MatMul-op0ReLU-op1", "MatMul")

    assert ("MatMul", "ReLU") == part_types(operator)
    assert [*joined_parts(name)] == ["x-op1"] * name.count("x-op1")


def test_equal_networks_are_paired_by_name():
    """Networks with the same names and the same structure are paired by name, for sure."""
    matching = align(side(TRANSFORMER), side(TRANSFORMER))

    assert [True, Counter({1.0: 43})] == [
        matching.is_by_name,
        Counter(pair.certainty for pair in matching.pairs),
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

    matching = align(
        GraphSide(moved(rest, name_of), digest_of), replace(TRANSFORMER_SIDE, digest_of=digest_of)
    )

    assert [(), (dropped,)] == [matching.mine_alone, matching.golden_alone]
    assert name_of == {pair.golden[0]: pair.mine[0] for pair in matching.pairs}


@pytest.mark.parametrize(
    ("name", "op_type", "partners"),
    [("trans_TransData_0", "TransData", {}), ("Assign-op0", "Assign", {"Assign-op0": "Update-op0"})],
)
def test_transfers_that_nobody_reads(name, op_type, partners):
    """A transfer without readers stands in the place of no operator."""
    first = ("Exp-op0", None, "x")
    mine = values.graph(first, (name, op_type, "Exp-op0"))
    golden = values.graph(first, ("Update-op0", None, "Exp-op0"))

    matching = align(GraphSide(mine), GraphSide(golden))

    assert {"Exp-op0": "Exp-op0"} | partners == {pair.mine[0]: pair.golden[0] for pair in matching.pairs}


def test_equal_layers_without_a_name():
    """In a deep network of equal layers, with anonymous names and weights, the order decides."""
    layer = [("MatMul", 2), ("Add", 2), ("ReLU", 1), ("Transpose", 1), ("Softmax", 1)]
    operators, source = {}, ValueSource(SourceKind.INPUT, "x")
    for place, (op_type, inputs) in enumerate(layer * 40):
        name = f"Default/node{place}"
        weight = ValueSource(SourceKind.WEIGHT, f"w{place}")
        forms = (ValueForm("float32", (4, 4)),)
        operators[name] = GraphOperator(name, op_type, (source, weight)[:inputs], forms)
        source = ValueSource(SourceKind.OPERATOR, name)
    weights = {each.name: ValueForm() for one in operators.values() for each in one.inputs[1:]}
    golden = OperatorGraph(operators, {"x": ValueForm()}, weights, (source,))
    dropped = [f"Default/node{place}" for place in (17, 60, 61, 143)]
    mine = golden
    for name in dropped:
        mine = without(mine, name)
    name_of = {name: f"Other/{place}" for place, name in enumerate(mine.operators)}
    mine = replace(moved(mine, name_of), weights={})

    matching = align(GraphSide(mine), GraphSide(golden))

    assert dropped == [*matching.golden_alone]
    assert name_of == {pair.golden[0]: pair.mine[0] for pair in matching.pairs}


@pytest.mark.parametrize("golden", FORMS)
@pytest.mark.parametrize("mine", FORMS)
@pytest.mark.parametrize("model", ["lenet", "transformer", "torch_export"])
def test_levels(model, mine, golden):
    """Operators of O0 belong to the fused ones of O1 and O2 that they are parts of; none is left over."""
    own, other = side(f"graphs/{model}.onnx", mine), side(f"graphs/{model}.onnx", golden)

    matching = align(own, other)

    assert [(), ()] == [matching.mine_alone, matching.golden_alone]
    for pair in matching.pairs:
        nodes = (
            {node for name in names for node in each.graph.operators[name].onnx_names}
            for each, names in ((own, pair.mine), (other, pair.golden))
        )
        assert next(nodes) == next(nodes)


QUOTIENT = "g (float[4] x, float[4] y) => (float[4] z) { m = Max(x, y) z = Div(x, m) }"
KERNELS = {
    "Default/Cast-op0Sub-op0Mul-op0": (
        *(TRANSFORMER, "O1", "O0"),
        ("Default/Cast-op0", "Default/Sub-op0", "Default/Mul-op0"),
    ),
    "Default/fc2-Dense/MatMul-op0BiasAdd-op0ReLU-op3": (
        *("graphs/lenet.onnx", "O2", "O1"),
        ("Default/fc2-Dense/MatMul-op0", "Default/BiasAdd-op0ReLU-op3"),
    ),
    # compiled graphs call a Div RealDiv
    "Default/Maximum-op0RealDiv-op0": (QUOTIENT, "O2", "O0", ("Default/Maximum-op0", "Default/Div-op0")),
}
"""A model, the levels of both sides and the golden operators of a kernel, by the kernel's name."""


@pytest.mark.parametrize("keeps_last", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
def test_fused_operators_without_parts(kernel, keeps_last):
    """A fused operator of which only the name is known is paired with the operators that its name joins."""
    model, *forms, parts = KERNELS[kernel]
    own, other = (side(parsed(model) if "{" in model else model, form) for form in forms)
    forgotten = {
        name: replace(each, onnx_names=each.onnx_names[-1:] if keeps_last else ())
        for name, each in own.graph.operators.items()
    }

    matching = align(replace(own, graph=replace(own.graph, operators=forgotten)), other)

    assert parts == matching.of_mine[kernel].golden
    assert (((kernel, 0), (parts[-1], 0)),) == matching.of_mine[kernel].outputs
    assert [(), ()] == [matching.mine_alone, matching.golden_alone]


def test_fused_operators_of_scopes_with_one_beginning():
    """The parts of a fused operator stand in its own scope, not in one with a name that begins alike."""
    cells = ("Default/cell", "Default/cell_1")

    def chain(*kernels):
        names = ["x", *(f"{cell}/{kernel}" for cell in cells for kernel in kernels)]
        rows = ((name, None, before) for before, name in pairwise(names))
        return GraphSide(values.graph(*rows, outputs=names[-1:]))

    found = align(chain("Exp-op0Tanh-op0"), chain("Exp-op0", "Tanh-op0"))

    parts = {pair.mine: pair.golden for pair in found.pairs if pair.certainty > 0.9}
    assert parts == {(f"{cell}/Exp-op0Tanh-op0",): (f"{cell}/Exp-op0", f"{cell}/Tanh-op0") for cell in cells}


FEEDS = {
    "transformer": np.arange(12).reshape(2, 6) % 20,
    "cnn": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32),
}
"""Inputs of the networks of ``exports``."""

ONLY_TORCHSCRIPT = {"TensorShape", "StridedSlice", "Cast", "Sqrt", "Div"}
"""Types of operators that compute the scale of attention from a shape; the other export has a constant."""


@pytest.mark.parametrize("has_contents", [False, True])
@pytest.mark.parametrize("network", FEEDS)
def test_two_exporters(network, has_contents):
    """Of networks of two exporters, which share no names, outputs that are paired hold the same values."""
    paths = [f"{EXPORTS}/{network}_{exporter}.onnx" for exporter in ("torchscript", "dynamo")]
    mine, golden = (values.outputs(path, FEEDS[network]) for path in paths)
    sides = [side(path) for path in paths]
    if has_contents:
        contents = [{key: of_array(array) for key, array in each.items()} for each in (mine, golden)]
        sides = [
            replace(each, content_of=lambda name, slot, known=known: known[name, slot])
            for each, known in zip(sides, contents, strict=True)
        ]

    matching = align(*sides)

    pairs = [output for pair in matching.pairs for output in pair.outputs]
    assert [] == [(own, other) for own, other in pairs if not values.are_alike(mine[own], golden[other])]
    alone, golden_alone = (
        {each.graph.operators[name].op_type for name in names}
        for each, names in zip(sides, (matching.mine_alone, matching.golden_alone), strict=True)
    )
    assert golden_alone == set()
    assert alone == (ONLY_TORCHSCRIPT if network == "transformer" else set())
    assert {"transformer": 58, "cnn": 13}[network] <= len(pairs)


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_optimization(tmp_path, exporter):
    """An optimised network is paired with the original, and holds the same values."""
    model = f"{EXPORTS}/cnn_{exporter}.onnx"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model, options)
    written = [values.outputs(path, FEEDS["cnn"]) for path in (options.optimized_model_filepath, model)]

    matching = align(side(options.optimized_model_filepath), side(model))

    assert [(), ()] == [matching.mine_alone, matching.golden_alone]
    pairs = [output for pair in matching.pairs for output in pair.outputs]
    assert [] == [each for each in pairs if not values.are_alike(written[0][each[0]], written[1][each[1]])]


def test_contents_decide_where_structure_does_not():
    """Operators of one type and input are paired by the elements that they wrote."""
    names = [f"Default/Exp-op{number}" for number in range(4)]
    graph = values.graph(*((name, None, "x") for name in names[:3]), shape=(2,))
    golden = replace(graph, operators={name: graph.operators[name] for name in names[:2]})
    written = {name: of_array(np.array([number, number + 1.5])) for number, name in enumerate(names)}

    matching = align(
        GraphSide(graph, content_of=lambda name, _: written[names[names.index(name)]]),
        GraphSide(golden, content_of=lambda name, _: written[names[names.index(name) + 1]]),
    )

    assert {names[1]: names[0], names[2]: names[1]} == {
        pair.mine[0]: pair.golden[0] for pair in matching.pairs
    }
    assert ((names[0],), ()) == (matching.mine_alone, matching.golden_alone)


def test_empty_graphs():
    """Where one side has no operators, all of the other have no partner."""
    empty = GraphSide(OperatorGraph({}))

    assert [0, 43] == [len(align(empty, empty).pairs), len(align(TRANSFORMER_SIDE, empty).mine_alone)]


def test_casts_in_a_row():
    """Of two casts in a row, the first belongs to the first, whatever the numbers in their names."""

    def casts(first, second):
        weight = ValueSource(SourceKind.WEIGHT, "w")
        half, whole = (ValueForm(dtype, (4, 6)) for dtype in ("float16", "float32"))
        operators = (
            GraphOperator(first, "Cast", (weight,), (half,)),
            GraphOperator(second, "Cast", (ValueSource(SourceKind.OPERATOR, first),), (whole,)),
            GraphOperator("fc/ReLU-op0", "ReLU", (ValueSource(SourceKind.OPERATOR, second),), (whole,)),
        )
        return GraphSide(OperatorGraph({each.full_name: each for each in operators}, {}, {"w": whole}))

    found = align(casts("fc/Cast-op1", "fc/Cast-op0"), casts("fc/Cast-op0", "fc/Cast-op1"))

    assert ("fc/Cast-op0",) == found.of_mine["fc/Cast-op1"].golden
    assert ("fc/Cast-op1",) == found.of_mine["fc/Cast-op0"].golden


def _gated(*, turn, lacks=""):
    """Return two blocks, each a product gated by a part of itself: Exp and Sqrt, a view or none, Mul, Add."""
    operators, counts, before = {}, Counter(), ValueSource(SourceKind.INPUT, "x")

    def add(op_type, *inputs):
        name = f"Default/{op_type}-op{counts[op_type]}"
        counts[op_type] += 1
        operators[name] = GraphOperator(name, op_type, inputs, (ValueForm("float32", (2, 3)),))
        return ValueSource(SourceKind.OPERATOR, name)

    for number in range(2):
        wide = add("Exp", before)
        gate = add("Sqrt", add("Greater", wide, before))
        gate = add(turn, gate) if turn else gate
        gated = wide if lacks == f"Mul-op{number}" else add("Mul", wide, gate)
        before = add("Softmax", gated)
    elements = np.arange(6.0)

    def content_of(name, _):
        # behind a lacking operator all elements differ
        return of_array(elements * (1 if name[-1] == "0" and "Mul" not in name else 1 + len(lacks)))

    return GraphSide(OperatorGraph(operators, outputs=(before,)), content_of=content_of)


@pytest.mark.parametrize("turn", ["ExpandDims", "Reshape", "Squeeze"])
def test_views_that_a_compiled_graph_lacks(turn):
    """Operators that only change a shape are looked through where one of two graphs has none of them."""
    found = align(_gated(turn="", lacks="Mul-op0"), _gated(turn=turn))

    pair = found.of_mine["Default/Mul-op0"]
    assert (("Default/Mul-op1",), True) == (pair.golden, pair.certainty > 0.9)
    alone = {"Default/Mul-op0", f"Default/{turn}-op0", f"Default/{turn}-op1"}
    assert alone == {*found.golden_alone}


def _graph(*operators):
    """Return a graph of operators, each a name and names of its inputs; the last one gives its output."""
    rows = ((name, None, *read) for name, *read in operators)
    return GraphSide(values.graph(*rows, outputs=[operators[-1][0]]))


def test_a_name_on_the_other_side_of_what_it_reads():
    """An operator is not paired with a namesake that ran before its inputs."""
    between = ("Softmax-op0", "MatMul-op0"), ("Sqrt-op0", "Softmax-op0"), ("Neg-op0", "Sqrt-op0")
    mine = _graph(
        ("Exp-op0", "x"),
        ("MatMul-op0", "Exp-op0"),
        *between,
        ("Add-op0", "Neg-op0", "Exp-op0"),
        ("ReduceMax-op0", "Add-op0"),
        ("Tanh-op0", "ReduceMax-op0"),
    )
    golden = _graph(
        ("Exp-op0", "x"),
        ("Add-op0", "Exp-op0", "x"),
        ("MatMul-op0", "Add-op0"),
        *between,
        ("Add-op1", "Neg-op0", "Add-op0"),
        ("ReduceMean-op0", "Add-op1"),
        ("Tanh-op0", "ReduceMean-op0"),
    )

    found = align(mine, golden)

    pair = found.of_mine.get("Add-op0")
    assert pair is None or ("Add-op0",) != pair.golden
