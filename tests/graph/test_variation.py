"""Which networks have tensors whose sizes depend on the contents that they are fed."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper

from msdump.graph import loader
from msdump.graph.variation import content_sized
from tests.dump.nets import model, node, value

INT = onnx.TensorProto.INT64
BOOL = onnx.TensorProto.BOOL
X, SHAPE, COUNT, FLAG = value("x", ["n", 4]), value("s", [2], INT), value("m", [], INT), value("c", [], BOOL)


def branches():
    """Return an If whose branches have results of different sizes."""
    bodies = [helper.make_graph([node("Neg", "x", name)], name, [], [value(name)]) for name in ("a", "b")]
    return helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])


def loop(limit, nodes, made="c1"):
    """Return a loop over x; ``made`` is the condition that its body gives."""
    inputs = [value("i", [], INT), value("c0", [], BOOL), value("v")]
    body = helper.make_graph(nodes, "body", inputs, [value(made, [], BOOL), value("w")])
    return helper.make_node("Loop", [limit, "", "x"], ["y"], body=body)


CASES = {
    "elementwise": ([node("Neg", "x", "y")], [X], False),
    "shape of an input": ([node("Shape", "x", "s"), node("Reshape", "x s", "y")], [X], False),
    "shape that is fed": ([node("Reshape", "x s", "y")], [X, SHAPE], True),
    "shape from contents": ([node("Cast", "x", "s", to=INT), node("Expand", "x s", "y")], [X], True),
    "elements found": ([node("NonZero", "x", "y")], [X], True),
    "elements of a random tensor": (
        [node("RandomUniformLike", "x", "r"), node("NonZero", "r", "y")],
        [X],
        True,
    ),
    "elements of a weight": ([node("NonZero", "w", "s"), node("Neg", "x", "y")], [X], False),
    "slice": ([node("Slice", "x s s", "y")], [X, SHAPE], True),
    "unknown operator": ([helper.make_node("Some", ["x"], ["y"], domain="own")], [X], True),
    "branch": ([branches()], [X, FLAG], True),
    "loop of fixed length": (
        [loop("w", [node("Identity", "c0", "c1"), node("Neg", "v", "w")])],
        [X],
        False,
    ),
    "loop of fed length": (
        [loop("m", [node("Identity", "c0", "c1"), node("Neg", "v", "w")])],
        [X, COUNT],
        True,
    ),
    "loop that looks at its values": (
        [
            loop(
                "w",
                [
                    node("ReduceSum", "v", "t", keepdims=0),
                    node("Cast", "t", "c1", to=BOOL),
                    node("Neg", "v", "w"),
                ],
            )
        ],
        [X],
        True,
    ),
    "loop that looks for elements": (
        [loop("w", [node("Identity", "c0", "c1"), node("NonZero", "v", "t"), node("Cast", "t", "w", to=1)])],
        [X],
        True,
    ),
    "loop that carries what it looks at": (
        [
            loop(
                "w",
                [
                    node("Identity", "c0", "c1"),
                    node("Cast", "v", "f", to=BOOL),
                    node("Compress", "v f", "t"),
                    node("Identity", "t", "w"),
                ],
            )
        ],
        [X],
        True,
    ),
}


@pytest.mark.parametrize(("nodes", "inputs", "expected"), CASES.values(), ids=CASES)
def test_sizes(nodes, inputs, expected):
    """Sizes vary where an operator takes them from contents that depend on what is fed."""
    proto = model(nodes, inputs, [value("y")], {"w": np.array(3, np.int64)})
    if any(item.domain for item in nodes):
        proto.opset_import.append(helper.make_opsetid("own", 1))

    graph = loader.load(proto)

    assert expected == bool(content_sized(graph, [item.name for item in inputs]))


def test_initializer_that_is_fed():
    """An initializer tells sizes like a weight, unless it is fed."""
    proto = model([node("Reshape", "x s", "y")], [X, SHAPE], [value("y")], {"s": np.array([4, -1])})
    graph = loader.load(proto)

    assert [(), (0,)] == [content_sized(graph, fed) for fed in (["x"], ["x", "s"])]


def test_sources_of_sizes():
    """Operators that vary are told; what follows from the sizes of their results is not."""
    nodes = [
        node("Neg", "x", "n"),
        node("NonZero", "n", "at"),
        node("Shape", "at", "s"),
        node("Expand", "w s", "y"),
    ]
    graph = loader.load(model(nodes, [X], [value("y")], {"w": np.ones(1, np.float32)}))

    assert (1,) == content_sized(graph, ["x"])


def test_sources_in_fused_operators():
    """What a fused operator makes of sizes inside it, which nobody sees, depends on contents."""
    nodes = [node("NonZero", "x", "at"), node("Shape", "at", "s"), node("Expand", "w s", "y")]
    graph = loader.load(model(nodes, [X], [value("y")], {"w": np.ones(1, np.float32)}))
    found, shape, expand = graph.nodes
    fused = dataclasses.replace(shape, inputs=found.inputs, parts=(found, shape))

    assert (0, 1) == content_sized(dataclasses.replace(graph, nodes=(fused, expand)), ["x"])
