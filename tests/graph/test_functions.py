"""Local functions, inlined under the names of their calls or kept as operators, and Identity operators."""

import numpy as np
import onnx.parser
import pytest
from onnx import parser

from msdump.errors import GraphError
from msdump.execute import Program
from msdump.execute.values import from_array
from msdump.graph import functions, loader
from tests.texts import parsed

NESTED = """
<ir_version: 10, opset_import: ["" : 20, "my" : 1]>
g (float[3] x) => (float[3] y, float[3] z) { y = my.twice(x)  z = my.twice(y) }
<domain: "my", opset_import: ["" : 20, "my" : 1]>
twice (a) => (c) { b = my.more(a)  c = my.more(b) }
<domain: "my", opset_import: ["" : 20]>
more (a) => (b) { one = Constant<value_float=1.0>()  b = Add(a, one) }
"""


def named(text):
    """Return a parsed model with named calls."""
    model = parser.parse_model(text)
    for position, node in enumerate(model.graph.node):
        node.name = f"call{position}"
    return model


def test_nested_functions_are_inlined_under_their_calls():
    """The operators of functions in functions appear, each named after the calls that lead to it."""
    graph = loader.load(named(NESTED))

    calls = [f"call{call}/more_{inner}/Add_1" for call in (0, 1) for inner in (0, 1)]
    assert calls == [node.name.rpartition("__")[0] for node in graph.nodes]
    assert ["Default/call0/more_0/Add-op0", "Default/call0/more_1/Add-op0"] == [
        node.operator.full_name for node in graph.nodes[:2]
    ]


def test_a_function_of_another_opset_stays_a_call():
    """A function with an opset of its own is not inlined: its operators would change their meaning."""
    model = named(
        NESTED.replace('domain: "my", opset_import: ["" : 20]', 'domain: "my", opset_import: ["" : 13]')
    )

    inlined = functions.inline(model)

    assert {"my"} == {node.domain for node in inlined.graph.node}
    assert inlined.functions


def test_a_model_without_functions_stays_itself():
    """Nothing is copied where there is nothing to inline."""
    model = parsed("g (float[3] x) => (float[3] y) { y = Relu(x) }")

    assert functions.inline(model) is model


def test_a_call_that_does_not_fit_is_refused():
    """A call with more inputs than its function has is an error of the model."""
    model = named(NESTED)
    model.graph.node[0].input.append("x")

    with pytest.raises(GraphError, match=r"functions cannot be inlined: .*Number of actual parameters"):
        loader.load(model)


OPSETS = '<ir_version: 10, opset_import: ["": 20, "mindspore.ops": 1, "user": 1]>'
MODEL = f"""
{OPSETS}
net (float[2] x) => (float[2] y) {{
  [outer] a = user.Outer(x)
  [last] y = mindspore.ops.ReLU:twice(a)
}}
<domain: "mindspore.ops", opset_import: ["": 20]>
ReLU (a) => (c) {{ c = Relu(a) }}
<domain: "mindspore.ops", overload: "twice", opset_import: ["": 20, "user": 1]>
ReLU (a) => (c) {{ b = user.Doubled(a) c = Relu(b) }}
<domain: "user", opset_import: ["": 20, "mindspore.ops": 1]>
Outer (a) => (c) {{ b = mindspore.ops.ReLU(a) c = Neg(b) }}
<domain: "user", opset_import: ["": 20]>
Doubled (a) => (c) {{ c = Add(a, a) }}
"""


def run(model, x):
    """Return the first output of a model of one input."""
    return Program(loader.load(model)).run({"x": from_array(x)})[0]


def test_calls_stay_operators():
    """A call in the graph, or in another function, is one operator named after its primitive."""
    graph = loader.load(parser.parse_model(MODEL))

    assert [
        ("ReLU", "mindspore.ops", "Default/outer/ReLU-op0"),
        ("Neg", "", "Default/outer/Neg-op0"),
        ("ReLU", "mindspore.ops", "Default/ReLU-op0"),
    ] == [(node.op_type, node.domain, node.operator.full_name) for node in graph.nodes]


def test_functions_that_they_call_are_found():
    """An operator runs with the function of its overload, and the functions that this one calls."""
    x = np.array([1, -2], np.float32)

    assert [0, 0] == run(parser.parse_model(MODEL), x).tolist()
    assert [4, 0] == run(parser.parse_model(MODEL.replace("c = Neg(b)", "c = Add(b, b)")), x).tolist()


def test_older_functions_beside_them_stay_calls():
    """A user's function of another opset, which cannot be inlined, is one operator as it always was."""
    older = MODEL.replace(
        "Doubled (a)", 'Old (a) => (c) { c = Neg(a) }\n<domain: "user", opset_import: ["": 20]>\nDoubled (a)'
    )
    older = older.replace('opset_import: ["": 20]>\nOld', 'opset_import: ["": 18]>\nOld')
    model = parser.parse_model(older.replace("a = user.Outer(x)", "a = user.Old(x)"))

    assert ["Old", "ReLU"] == [node.op_type for node in loader.load(model).nodes]
    assert [0, 4] == run(model, np.array([1, -2], np.float32)).tolist()


def test_a_name_of_onnx_is_no_trap():
    """A function of one input that is called like ONNX's Add runs as itself."""
    model = parser.parse_model(
        f"{OPSETS} net (float[2] x) => (float[2] y) {{ y = mindspore.ops.Add(x) }}"
        '<domain: "mindspore.ops", opset_import: ["": 20]> Add (a) => (c) { b = Abs(a) c = Sqrt(b) }'
    )

    assert [2, 3] == run(model, np.array([4, 9], np.float32)).tolist()


IDENTITIES = '<ir_version: 10, opset_import: ["": 20]> g (float[4] x, bool c) => (float[4] y)'


def loaded(body, head=IDENTITIES):
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
