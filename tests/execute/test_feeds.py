"""Inputs of a run, checked against the network's declarations."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import helper, parser

import msdump
from msdump.errors import InputError
from msdump.execute import values
from msdump.graph import loader

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
X = np.zeros((2, 3), np.float32)
MASKED = np.ma.masked_array(X, [[0, 0, 1], [1, 0, 0]])


def graph_of(text: str):
    """Return a loaded graph of ONNX's text form."""
    return loader.load(parser.parse_model(HEAD + text))


PAIR = graph_of("g (float[N,3] x, int64[N] lengths) => (float[N,3] y) { y = Relu(x) z = Neg(lengths) }")
LENGTHS = np.zeros(2, np.int64)
OPTIONAL = graph_of("g (optional(float[3]) x) => (bool y) { y = OptionalHasElement(x) }")
SEQUENCE = graph_of("g (seq(float[N]) x) => (int64 y) { y = SequenceLength(x) }")
TEXTS = graph_of("g (string[N] x) => (string[N] y) { y = Identity(x) }")
BOOLS = graph_of("g (bool[N] x) => (bool[N] y) { y = Not(x) }")
BYTES = graph_of("g (uint8[N] x) => (uint8[N] y) { y = Identity(x) }")
BFLOAT16 = graph_of("g (bfloat16[N] x) => (bfloat16[N] y) { y = Identity(x) }")
NOTHING = graph_of("g () => (float[1] y) { y = Constant<value_floats=[1.0]>() }")

FAULTS = {
    "missing": (PAIR, (X,), {}, r"input 'lengths' \(int64, shape \(N,\)\) is missing"),
    "all missing": (PAIR, (), {}, r"input 'x' \(float32, shape \(N, 3\)\) is missing; input 'lengths'"),
    "too many": (PAIR, (X, LENGTHS, X), {}, r"3 inputs given, the network has 2 \(x, lengths\)"),
    "too many for none": (NOTHING, (X,), {}, "1 inputs given, the network has none"),
    "twice": (PAIR, (X, LENGTHS), {"x": X}, "input 'x' is given twice"),
    "unknown": (
        PAIR,
        (X,),
        {"length": LENGTHS},
        r"no input 'length'; the inputs are x, lengths \(did you mean 'lengths'",
    ),
    "unknown for none": (NOTHING, (), {"x": X}, "no input 'x'; the network has none"),
    "dtype": (
        PAIR,
        (X.astype(np.float64), LENGTHS),
        {},
        "input 'x': dtype float64 given, float32 expected; convert it with astype",
    ),
    "rank": (PAIR, (X[0], LENGTHS), {}, r"input 'x': shape \(3,\) given, \(N, 3\) expected"),
    "size": (PAIR, (X.T, LENGTHS), {}, r"input 'x': shape \(3, 2\) given, \(N, 3\) expected"),
    "dynamic dimension": (PAIR, (X, LENGTHS[:1]), {}, "dimension 'N' is 1 on axis 0, but 2 in input 'x'"),
    "two faults": (PAIR, (X.T, LENGTHS.astype(np.int32)), {}, r"input 'x': .*; input 'lengths': dtype int32"),
    "none": (PAIR, (None, LENGTHS), {}, r"input 'x': None given, float32, shape \(N, 3\) expected"),
    "no tensor": (PAIR, ({}, LENGTHS), {}, r"input 'x': an array of objects holds {} \(dict\)"),
    "objects for numbers": (
        PAIR,
        (X.astype(object), LENGTHS),
        {},
        r"input 'x': an array of objects holds 0.0 \(float\); .* convert numbers with astype",
    ),
    "mask": (PAIR, (MASKED, LENGTHS), {}, r"input 'x': masked elements: 2; .* \.filled\(number\)"),
    "mask in list": (PAIR, ([X[0], MASKED[0]], LENGTHS), {}, "input 'x': masked elements: 1"),
    "mask in sequence": (SEQUENCE, ([X[0], MASKED[0]],), {}, "input 'x': masked elements: 1"),
    "ragged": (PAIR, ([[1.0], [1.0, 2.0]], LENGTHS), {}, "input 'x': .* is not a tensor of float32"),
    "text for number": (PAIR, ("many", LENGTHS), {}, "input 'x': 'many' is not a tensor of float32"),
    "float for integer": (
        PAIR,
        (X, [1.5, 2.0]),
        {},
        r"input 'lengths': \[1.5, 2.0\] would lose its value as int64",
    ),
    "number for bool": (BOOLS, ([0, 2],), {}, "input 'x': .* would lose its value as bool"),
    "overflow": (BYTES, ([1, 300],), {}, "input 'x': .* is not a tensor of uint8"),
    "tensor for sequence": (SEQUENCE, (X,), {}, "input 'x': ndarray given, a list of tensors expected"),
    "dtype in sequence": (SEQUENCE, ([X[0], LENGTHS],), {}, "input 'x': dtype int64 given, float32 expected"),
    "objects": (TEXTS, (np.array(["a", 1], object),), {}, "input 'x': an array of objects holds 1"),
    "objects in list": (TEXTS, (["a", None],), {}, "input 'x': an array of objects holds None"),
    "date": (
        PAIR,
        (np.zeros((2, 3), "M8[s]"), LENGTHS),
        {},
        "input 'x': dtype datetime64.* has no ONNX counterpart",
    ),
    "float32 for bfloat16": (BFLOAT16, (X[0],), {}, "input 'x': dtype float32 given, bfloat16 expected"),
}


@pytest.mark.parametrize(("graph", "positional", "named", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(graph, positional, named, message):
    """The refusal of an input names the model, the input, its type or shape, and the expected one."""
    with pytest.raises(InputError, match=message) as caught:
        values.bind_inputs(graph, positional, named)

    assert str(caught.value).startswith("<ModelProto>: ")


PYTHON = {
    "numbers": (PAIR, {"x": [[1, 2, 3]], "lengths": [7]}, {"x": np.float32, "lengths": np.int64}),
    "empty": (BYTES, {"x": []}, {"x": np.uint8}),
    "bools": (BOOLS, {"x": [True, False]}, {"x": np.bool_}),
    "masked list without a mask": (BYTES, {"x": [np.ma.array(1), 2]}, {"x": np.uint8}),
    "texts": (TEXTS, {"x": ["a", "b"]}, {"x": np.object_}),
    "bfloat16": (BFLOAT16, {"x": [1.5]}, {"x": ml_dtypes.bfloat16}),
}


@pytest.mark.parametrize(("graph", "given", "expected"), PYTHON.values(), ids=PYTHON)
def test_python_values_take_the_declared_type(graph, given, expected):
    """Lists and numbers become arrays of the type that the network declares."""
    bound = values.bind_inputs(graph, (), given)

    assert {name: np.dtype(dtype) for name, dtype in expected.items()} == {
        n: a.dtype for n, a in bound.items()
    }
    assert {name: list(item) for name, item in given.items()} == {n: a.tolist() for n, a in bound.items()}


def test_positional_and_named_inputs_mix():
    """Inputs are given in order, by name, or both."""
    bound = values.bind_inputs(PAIR, (X,), {"lengths": LENGTHS})

    assert bound["x"] is X
    assert bound["lengths"] is LENGTHS


def test_optional_inputs_may_stay_away():
    """An optional input is a tensor, None, or not given."""
    assert {"x": None} == values.bind_inputs(OPTIONAL, (), {}) == values.bind_inputs(OPTIONAL, (None,), {})
    assert X[0].tolist() == values.bind_inputs(OPTIONAL, (X[0],), {})["x"].tolist()


def test_initializers_may_be_replaced():
    """An initializer that is an input is fed by name only, and checked as an input is."""
    model = parser.parse_model(HEAD + "g (float[3] x, float[3] b) => (float[3] y) { y = Add(x, b) }")
    model.graph.initializer.append(helper.make_tensor("b", 1, [3], [1, 2, 3]))
    graph = loader.load(model)

    assert ["x"] == list(values.bind_inputs(graph, (X[0],), {}))
    assert ["x", "b"] == list(values.bind_inputs(graph, (X[0],), {"b": X[1]}))
    with pytest.raises(InputError, match=r"input 'b': shape \(2, 3\) given, \(3,\) expected"):
        values.bind_inputs(graph, (X[0],), {"b": X})


def test_maps_are_dicts():
    """A network that takes a map is given a dict, and nothing else."""
    kind = helper.make_map_type_proto(8, helper.make_tensor_type_proto(1, None))
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a"])
    inputs, outputs = [helper.make_value_info("x", kind)], [helper.make_empty_tensor_value_info("y")]
    graph = loader.load(helper.make_model(helper.make_graph([node], "g", inputs, outputs)))

    assert {"x": {"a": 1.0}} == values.bind_inputs(graph, ({"a": 1.0},), {})
    with pytest.raises(InputError, match="input 'x': ndarray given, a dict expected"):
        values.bind_inputs(graph, (X,), {})


@pytest.mark.parametrize("name", ["?", "-1", "*"])
def test_names_without_letters_are_no_names(name):
    """Equal names without a letter are not equal sizes."""
    graph = relu(name, 3, name)

    bound = values.bind_inputs(graph, (np.zeros((2, 3, 5), np.float32),), {})

    assert {"x": (2, 3, 5)} == {each: array.shape for each, array in bound.items()}
    height, _, width = graph.type_of("y").shape
    assert ((None, 3, None), True) == (graph.inputs[0].type.shape, height != width)


def relu(*shape):
    """Return the graph of a ReLU of a shape."""
    takes = helper.make_tensor_value_info("x", 1, shape)
    gives = helper.make_tensor_value_info("y", 1, shape)
    node = helper.make_node("Relu", ["x"], ["y"])
    return loader.load(helper.make_model(helper.make_graph([node], "g", [takes], [gives])))


CONTRADICTED = (
    f"{HEAD} g (float[N,N] x) => (y) <float[4,3] w = {{ {', '.join(map(str, range(12)))} }},"
    " float[2,3] b = {1, 2, 3, 4, 5, 6}> { a = MatMul(x, w) y = Add(a, b) }"
)


def test_sizes_that_the_model_contradicts(caplog):
    """Where the model allows no equal sizes, others run as in onnxruntime, with one warning."""
    model = parser.parse_model(CONTRADICTED)
    network = msdump.load(model)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    results = [network(x) for _ in range(2)]

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [session.run(None, {"x": x})[0].tobytes()] * 2 == [each.tobytes() for each in results]
    expected = "<ModelProto>: input 'x': dimension 'N' is 4 on axis 1, but 2 in input 'x': the model itself"
    assert [True] == [expected in each.getMessage() for each in caplog.records]
