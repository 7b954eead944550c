"""The order in which operators run."""

from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from msdump.graph import outer_values
from msdump.graph.order import execution_order, used_values
from tests.texts import parsed


def node(line):
    """Return a node of ``name: inputs -> outputs``."""
    name, _, rest = line.partition(": ")
    inputs, _, outputs = rest.partition(" -> ")
    return helper.make_node("Op", inputs.split(", "), outputs.split(", "), name=name)


def names(nodes):
    """Return the nodes' names."""
    return [node.name for node in nodes]


@given(st.integers(1, 30), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_any_order_of_a_graph_runs(size, generator):
    """In any order of the list, each node runs after its producers."""
    graph = [helper.make_node("Op", ["x"], ["0"], name="0")]
    for number in range(1, size):
        inputs = [str(generator.randrange(number)) for _ in range(generator.randrange(4))]
        graph.append(helper.make_node("Op", inputs, [str(number)], name=str(number)))
    generator.shuffle(graph)

    ordered = execution_order(graph, {"x"})

    done = {"x"}
    for item in ordered:
        assert done.issuperset(item.input)
        done.update(item.output)
    assert sorted(names(graph)) == sorted(names(ordered))


def test_the_models_order_is_kept():
    """Nodes in a valid order keep it; a misplaced one runs as soon as it can."""
    kept = [node("a: x -> a"), node("b: x -> b"), node("c: a -> c")]
    misplaced = [node("c: b -> c"), node("a: x -> a"), node("b: a -> b"), node("d: x -> d")]

    assert ["a", "b", "c"] == names(execution_order(kept, {"x"}))
    assert ["a", "b", "c", "d"] == names(execution_order(misplaced, {"x"}))


def test_subgraphs_read_outer_values():
    """Outer values of a subgraph count as read by its node, its own values do not."""
    inner = "body (p) => (r, passed) <float bound = {1}> { q = Add(p, outer) t = Mul(q, bound) r = Neg(t) }"
    middle = f"branch () => (m) {{ m = Loop (far) <body = {inner}> }}"
    text = f"g (flag) => (y) {{ y = If (flag) <then_branch = {middle}, else_branch = {middle}> }}"
    (item,) = parsed(text).graph.node

    assert ["far", "outer", "passed"] == outer_values(item)
    assert ["flag", "far", "outer", "passed"] == list(used_values(item))
