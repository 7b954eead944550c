"""Identity operators: which are removed, and the values that their readers read then."""

import onnx.parser
import pytest

from msdump.errors import GraphError
from msdump.graph import loader

HEAD = '<ir_version: 10, opset_import: ["": 20]> g (float[4] x, bool c) => (float[4] y)'


def loaded(body, head=HEAD):
    """Return the graph of operators in ONNX's text form."""
    return loader.load(onnx.parser.parse_model(f"{head} {{ {body} }}"))


GRAPHS = {
    "between two operators": ("a = Abs(x) b = Identity(a) y = Exp(b)", ["Abs x", "Exp a"]),
    "one behind the other": ("a = Abs(x) b = Identity(a) d = Identity(b) y = Exp(d)", ["Abs x", "Exp a"]),
    "in the wrong order": ("d = Identity(b) b = Identity(a) a = Abs(x) y = Exp(d)", ["Abs x", "Exp a"]),
    "of an input": ("a = Identity(x) y = Exp(a)", ["Exp x"]),
    "of a constant": ("w = Constant<value_float = 1.0>() v = Identity(w) y = Add(x, v)", ["Add x w"]),
    "read twice": ("a = Abs(x) b = Identity(a) y = Add(b, b)", ["Abs x", "Add a a"]),
    "read by nobody": ("a = Identity(x) y = Exp(x)", ["Exp x"]),
    "of an output": ("a = Abs(x) y = Identity(a)", ["Abs x", "Identity a"]),
    "before that of an output": ("a = Identity(x) y = Identity(a)", ["Identity x"]),
}


@pytest.mark.parametrize(("body", "expected"), GRAPHS.values(), ids=GRAPHS)
def test_what_stays(body, expected):
    """An Identity is taken out unless it makes an output of the network."""
    graph = loaded(body)

    assert expected == [" ".join((node.op_type, *node.inputs)) for node in graph.nodes]


def test_branches():
    """A branch reads the input of an outer Identity; an Identity that makes its output stays."""
    (node, *_) = loaded(
        "a = Identity(x) y = If(c) <then_branch = t () => (float[4] p) { b = Identity(a) p = Exp(b) },"
        " else_branch = e () => (float[4] q) { q = Identity(a) }>"
    ).nodes

    bodies = [[(inner.op_type, inner.inputs) for inner in body.nodes] for body in node.bodies.values()]
    assert [[("Exp", ("x",))], [("Identity", ("x",))]] == bodies


FAULTS = {
    "ring": ("a = Identity(b) b = Identity(a) y = Add(x, a)", "nodes wait for each other"),
    "nothing": ("a = Identity(gone) y = Add(x, a)", "reads value 'gone', which no node, input"),
    "value made twice": ("a = Identity(x) a = Abs(x) y = Add(x, a)", "writes value 'a', which node"),
}


@pytest.mark.parametrize(("body", "message"), FAULTS.values(), ids=FAULTS)
def test_faults_are_still_told(body, message):
    """Faults of an Identity are not hidden by its removal."""
    with pytest.raises(GraphError, match=message):
        loaded(body)
