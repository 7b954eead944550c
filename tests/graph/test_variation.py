"""Networks with tensors of sizes that depend on the contents of their inputs."""

import dataclasses

import numpy as np
import pytest

from msdump.graph import has_content_sizes, loader
from tests.texts import parsed

INPUTS = {"x": "float[n,4] x", "s": "int64[2] s", "m": "int64 m", "c": "bool c"}
LOOP = (
    "y = Loop ({limit}, , x)"
    " <body = b (int64 i, bool c0, float[n,4] v) => (bool c1, float[k,4] w) {{ {body} }}>"
)
BRANCHES = (
    "y = If (c) <then_branch = t () => (float[k,4] a) { a = Neg(x) },"
    " else_branch = e () => (float[k,4] b) { b = Neg(x) }>"
)


def loop(limit, body):
    """Return a loop over x."""
    return LOOP.format(limit=limit, body=body)


CASES = {
    "shape of an input": ("t = Shape(x) y = Reshape(x, t)", "x", False),
    "shape from contents": ("t = Cast<to = 7>(x) y = Expand(x, t)", "x", True),
    "elements of a random tensor": ("r = RandomUniformLike(x) y = NonZero(r)", "x", True),
    "elements of a weight": ("t = NonZero(three) y = Neg(x)", "x", False),
    "slice": ("y = Slice(x, s, s)", "xs", True),
    "unknown operator": ("y = own.Some(x)", "x", True),
    "branch": (BRANCHES, "xc", True),
    "loop of fixed length": (loop("three", "c1 = Identity(c0) w = Neg(v)"), "x", False),
    "loop of fed length": (loop("m", "c1 = Identity(c0) w = Neg(v)"), "xm", True),
    "loop that looks at its values": (
        loop("three", "t = ReduceSum<keepdims = 0>(v) c1 = Cast<to = 9>(t) w = Neg(v)"),
        *("x", True),
    ),
    "loop that looks for elements": (
        loop("three", "c1 = Identity(c0) t = NonZero(v) w = Cast<to = 1>(t)"),
        *("x", True),
    ),
    "loop that carries what it looks at": (
        loop("three", "c1 = Identity(c0) f = Cast<to = 9>(v) t = Compress(v, f) w = Identity(t)"),
        *("x", True),
    ),
}


def loaded(body, inputs="x", **weights):
    """Return the graph of operators that read some inputs and weights."""
    declared = ", ".join(INPUTS[name] for name in inputs)
    return loader.load(parsed(f"g ({declared}) => (y) {{ {body} }}", **weights))


@pytest.mark.parametrize(("body", "inputs", "expected"), CASES.values(), ids=CASES)
def test_sizes(body, inputs, expected):
    """Sizes vary where an operator takes them from contents that depend on inputs."""
    graph = loaded(body, inputs, three=np.array(3, np.int64))

    assert expected == has_content_sizes(graph, [*inputs])


def test_initializer_that_is_fed():
    """An initializer decides sizes like a weight, unless it is fed."""
    graph = loaded("y = Reshape(x, s)", "xs", s=np.array([4, -1]))

    assert [False, True] == [has_content_sizes(graph, fed) for fed in (["x"], ["x", "s"])]


def test_fused_operators():
    """Results of a fused operator depend on contents if sizes inside it vary."""
    graph = loaded("at = NonZero(x) t = Shape(at) y = Expand(w, t)", w=np.ones(1, np.float32))
    found, shape, expand = graph.nodes
    fused = dataclasses.replace(shape, inputs=found.inputs, parts=(found, shape))

    assert has_content_sizes(dataclasses.replace(graph, nodes=(fused, expand)), ["x"])
