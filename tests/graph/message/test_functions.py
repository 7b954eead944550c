"""Local functions: inlined under the names of their calls."""

import pytest
from onnx import parser

from msdump.errors import GraphError
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
