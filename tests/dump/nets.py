"""Networks of the tests, built node by node."""

import json

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.world import ROOT

GOLDEN = ROOT / "tests" / "golden"
FLOAT = onnx.TensorProto.FLOAT
OPSET = 20
IR = 10

_LONG_SCOPES = "/".join(
    [
        *(
            f"block_number_{n}_quite_long-AnotherVeryLongClassNameForScope{n - 1}"
            if n
            else "block_number_0_quite_long-L0"
            for n in (4, 3, 2, 1, 0)
        ),
        "a_rather_long_block_name_zero-Dense",
    ]
)
_LONG_WEIGHTS = ".".join(
    [*(f"block_number_{n}_quite_long" for n in (4, 3, 2, 1, 0)), "a_rather_long_block_name_zero"]
)


def golden(name):
    """Return a file of expected data."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def weights(network):
    """Return the weights that the reference's network had, dense ones transposed as MatMul reads them."""
    return {name: np.array(item, np.float32) for name, item in golden("weights")[network].items()}


def value(name, shape=None, dtype=FLOAT):
    """Return a graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op_type, inputs, outputs, name="", **attributes):
    """Return a node; names are given as words in one string, "-" for an absent one."""
    split = [["" if part == "-" else part for part in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op_type, *split, name=name, **attributes)


def model(nodes, inputs, outputs, initializers=None, *, opset=OPSET):
    """Return a model; types of outputs that are given as names are inferred."""
    graph = helper.make_graph(
        nodes,
        "graph",
        inputs,
        [onnx.ValueInfoProto(name=item) if isinstance(item, str) else item for item in outputs],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR)


def with_weight(network, name, change):
    """Return a model with a function applied to one of its weights."""
    changed = onnx.ModelProto()
    changed.CopyFrom(network)
    tensor = next(each for each in changed.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))
    return changed


def without(network, name):
    """Return a model without a node: its readers read its first input."""
    changed = onnx.ModelProto()
    changed.CopyFrom(network)
    gone = next(each for each in changed.graph.node if each.name == name)
    for reader in changed.graph.node:
        reader.input[:] = [gone.input[0] if value == gone.output[0] else value for value in reader.input]
    changed.graph.node.remove(gone)
    return changed


def scalar(number, name):
    """Return a Constant node of one float."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.float32(number), name))


def mini():
    """Convolution, ReLU, flatten, dense: the reference's smallest network."""
    nodes = [
        node("Conv", "x conv1.weight", "conv", "conv1-Conv2d/Conv"),
        node("Relu", "conv", "relu", "relu-ReLU/Relu"),
        node("Flatten", "relu", "flat", "flatten-Flatten/Flatten"),
        node("MatMul", "flat fc.weight", "product", "fc-Dense/MatMul"),
        node("Add", "product fc.bias", "output", "fc-Dense/Add"),
    ]
    return model(nodes, [value("x", ["n", 1, 6, 6])], ["output"], weights("mini"))


def mini_feeds():
    """Return the input that the reference gave its smallest network."""
    return {"x": np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)}


def long_names():
    """Return one dense layer below six long scopes."""
    weight, bias = f"{_LONG_WEIGHTS}.weight", f"{_LONG_WEIGHTS}.bias"
    nodes = [
        node("MatMul", f"x {weight}", "product", f"{_LONG_SCOPES}/MatMul"),
        node("Add", f"product {bias}", "output", f"{_LONG_SCOPES}/Add"),
    ]
    arrays = weights("longname")
    return model(nodes, [value("x", [2, 4])], ["output"], {weight: arrays["weight"], bias: arrays["bias"]})


def zero_size():
    """Split and join of a tensor without elements."""
    nodes = [node("Split", "x", "a b c", axis=1, num_outputs=3), node("Concat", "x x", "joined", axis=0)]
    return model(nodes, [value("x", ["n", 3])], ["joined", "a", "b", "c"])


def dense():
    """Return one dense layer of four inputs, network A of the reference's two."""
    nodes = [
        node("MatMul", "x fc.weight", "product", "fc-Dense/MatMul"),
        node("Add", "product fc.bias", "output", "fc-Dense/Add"),
    ]
    return model(nodes, [value("x", ["n", 4])], ["output"], weights("multigraph"))


def exp_plus_one():
    """Return the exponential plus a constant, network B of the reference's two."""
    nodes = [node("Exp", "x", "power"), scalar(1, "one"), node("Add", "power one", "output")]
    return model(nodes, [value("x", ["n", 3])], ["output"])


def cosine():
    """Return one operator."""
    return model([node("Cos", "x", "output")], [value("x", ["n", 4])], ["output"])


def gather():
    """Return a model with a third operator that fails if an index is out of range."""
    nodes = [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Gather", "b i", "c"), node("Relu", "c", "y")]
    return model(nodes, [value("x", [2, 3]), value("i", [1], onnx.TensorProto.INT64)], ["y"])


def gather_feeds(index):
    """Return the inputs of that model; an index from 2 on is out of range."""
    return {"x": np.array([[1, 2, 3], [4, 5, 6]], np.float32), "i": np.array([index])}
