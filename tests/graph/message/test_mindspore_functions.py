"""Functions of the domain mindspore.ops stay operators; functions of other domains are inlined."""

import numpy as np
from onnx import parser

from msdump.execute import Program
from msdump.execute.values import from_array
from msdump.graph import loader

HEAD = '<ir_version: 10, opset_import: ["": 20, "mindspore.ops": 1, "user": 1]>'
MODEL = f"""
{HEAD}
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
        f"{HEAD} net (float[2] x) => (float[2] y) {{ y = mindspore.ops.Add(x) }}"
        '<domain: "mindspore.ops", opset_import: ["": 20]> Add (a) => (c) { b = Abs(a) c = Sqrt(b) }'
    )

    assert [2, 3] == run(model, np.array([4, 9], np.float32)).tolist()
