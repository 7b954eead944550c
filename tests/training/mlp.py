"""A perceptron in the layers of MindSpore, small enough to be followed in numpy."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

FEATURES, HIDDEN, CLASSES = 8, 6, 4
BATCH = 5


def mlp(*, features=FEATURES, has_norm=False, ends_in_float32=False):
    """Return Dense, LayerNorm if ``has_norm``, ReLU, Dense, of the class MLP.

    Args:
        features: Number of inputs of the first layer.
        has_norm: Whether there is a LayerNorm.
        ends_in_float32: Whether the network itself casts its result to float32.
    """
    random = np.random.default_rng(1)
    weights = {
        "fc1.weight": random.normal(0, 0.3, (HIDDEN, features)),
        "fc1.bias": random.normal(0, 0.1, HIDDEN),
        "norm.gamma": np.ones(HIDDEN),
        "norm.beta": np.zeros(HIDDEN),
        "fc2.weight": random.normal(0, 0.3, (CLASSES, HIDDEN)),
        "fc2.bias": random.normal(0, 0.1, CLASSES),
    }
    nodes = [_node("Gemm", ["x", "fc1.weight", "fc1.bias"], "h", "fc1", "Dense", transB=1)]
    if has_norm:
        nodes.append(
            _node("LayerNormalization", ["h", "norm.gamma", "norm.beta"], "n", "norm", "LayerNorm", axis=-1)
        )
    nodes.append(_node("Relu", [nodes[-1].output[0]], "r", "relu", "ReLU"))
    nodes.append(_node("Gemm", ["r", "fc2.weight", "fc2.bias"], "s", "fc2", "Dense", transB=1))
    if ends_in_float32:
        nodes.append(_node("Cast", ["s"], "scores", "", "", to=onnx.TensorProto.FLOAT))
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, ["N", CLASSES])],
        [
            numpy_helper.from_array(array.astype(np.float32), name)
            for name, array in weights.items()
            if name in read
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _node(op_type, inputs, output, name, kind, **attributes):
    node = helper.make_node(op_type, inputs, [output], name=output, **attributes)
    names, kinds = (["", name, ""], ["MLP", kind, ""]) if name else (["", ""], ["MLP", ""])
    node.metadata_props.add(key="pkg.onnxscript.name_scopes", value=repr(names))
    node.metadata_props.add(key="pkg.onnxscript.class_hierarchy", value=repr(kinds))
    return node


def batch(step, features=FEATURES):
    """Return the images and labels of a step."""
    random = np.random.default_rng(step)
    return (
        random.normal(0, 1, (BATCH, features)).astype(np.float32),
        random.integers(0, CLASSES, BATCH).astype(np.int32),
    )
