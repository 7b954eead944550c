"""Which operators the watcher looks at, and after which."""

from __future__ import annotations

import pytest

from msdump.capture.compiled.watcher import resident, select_watch
from msdump.graph import Graph, Node, Value, ValueType
from msdump.plan import ModelItem
from msdump.record import OperatorRef
from tests import plans


def operator(name, op_type="Relu", *, outputs=("out",), parts=()):
    """Return a node with a name and outputs named after it."""
    values = tuple(f"{name}.{output}" if output else "" for output in outputs)
    return Node(name, op_type, "", ("x",), values, {}, OperatorRef(op_type, name), (), None, tuple(parts))


GRAPH = Graph(
    "m.onnx",
    "net",
    (
        operator("first"),
        operator("sum", "HcomAllReduce"),
        operator("pair", outputs=("out", "", "more")),
        operator("ab", parts=(operator("a"), operator("b"))),
        operator("last"),
    ),
    (Value("x", ValueType()),),
    (),
    {},
    (),
    frozenset(),
    {},
    {},
    10,
    None,
)


def plan(watched, layers=()):
    """Return a watcher's plan."""
    item = ModelItem(watched=tuple(watched), layers=tuple(layers))
    return plans.made("acl.json", models=(item,))


def named(flags):
    """Return the names of the operators with a flag."""
    return [node.name for node, flag in zip(GRAPH.nodes, flags, strict=True) if flag]


WATCHES = {
    "every layer": (["first"], [], ["first"], ["pair", "ab", "last"]),
    "some layers": (["first"], ["last", "pair"], ["first"], ["pair", "last"]),
    "a watched one is no layer": (["first", "last"], [], ["first", "last"], ["pair", "ab"]),
    "a collective one is no layer": (["first"], ["sum"], ["first"], []),
    "a collective one is watched": (["sum"], ["last"], ["sum"], ["last"]),
    "layer by its old name": (["first"], ["b"], ["first"], ["ab"]),
    "layer by its new name": (["first"], ["ab"], ["first"], ["ab"]),
    "old name is not watched": (["a"], [], [], ["first", "pair", "ab", "last"]),
    "new name is watched": (["ab"], ["last"], ["ab"], ["last"]),
}


@pytest.mark.parametrize(("watched", "layers", "seen", "after"), WATCHES.values(), ids=WATCHES)
def test_selection(watched, layers, seen, after):
    """Watched operators go by their names now, layers by their old ones too."""
    watch = select_watch(GRAPH, plan(watched, layers), (True,) * 5)

    assert (seen, after) == (named(watch.watched), named(watch.layers))


def test_operators_that_do_not_run_are_neither():
    """An operator without a task is not watched, and nothing is read after it."""
    watch = select_watch(GRAPH, plan(["first", "pair"]), (False, True, True, False, True))

    assert (["pair"], ["last"]) == (named(watch.watched), named(watch.layers))


def test_watched_outputs_stay_in_memory():
    """The outputs of watched operators keep their memory, absent ones aside."""
    assert ("pair.out", "pair.more") == resident(GRAPH, plan(["pair"]))
