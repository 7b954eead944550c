"""Gradients of activations against numerical differences."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, analytic, check, numerical, one_operator

# none of them near a kink of any activation: 0, half numbers, 1, 3, 6
_X = (
    np.array([-7.3, -3.7, -2.6, -1.7, -0.8, -0.3, 0.2, 0.7, 1.6, 2.7, 3.4, 7.2], np.float32) + 0.013
).reshape(3, 4)
_RNG = np.random.default_rng(5)
_IMAGE = _RNG.standard_normal((2, 3, 2, 2)).astype(np.float32)


def _slopes(*shape: int) -> np.ndarray:
    return _RNG.uniform(0.1, 0.6, shape).astype(np.float32)


def _number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


CASES = {
    "Relu": (("Relu", [_X], {}), None),
    "LeakyRelu": (("LeakyRelu", [_X], {}), None),
    "LeakyRelu_alpha": (("LeakyRelu", [_X], {"alpha": 0.3}), None),
    "PRelu": (("PRelu", [_X, _slopes(3, 4)], {}), None),
    "PRelu_channels": (("PRelu", [_IMAGE, _slopes(3, 1, 1)], {}), None),
    "PRelu_one_slope": (("PRelu", [_IMAGE, _slopes(1)], {}), None),
    "PRelu_last_axis": (("PRelu", [_X, _slopes(4)], {}), None),
    "Elu": (("Elu", [_X], {}), None),
    "Elu_alpha": (("Elu", [_X], {"alpha": 0.4}), None),
    "Celu": (("Celu", [_X], {}), None),
    "Celu_alpha": (("Celu", [_X], {"alpha": 1.7}), None),
    "Selu": (("Selu", [_X], {}), None),
    "Selu_own_numbers": (("Selu", [_X], {"alpha": 0.8, "gamma": 2.0}), None),
    "ThresholdedRelu": (("ThresholdedRelu", [_X], {}), None),
    "ThresholdedRelu_alpha": (("ThresholdedRelu", [_X], {"alpha": 2.0}), None),
    "Gelu": (("Gelu", [_X], {}), None),
    "Gelu_tanh": (("Gelu", [_X], {"approximate": "tanh"}), None),
    "HardSwish": (("HardSwish", [_X], {}), None),
    "HardSigmoid": (("HardSigmoid", [_X], {}), None),
    "HardSigmoid_own_numbers": (("HardSigmoid", [_X], {"alpha": 0.1, "beta": 0.3}), None),
    "Softplus": (("Softplus", [_X], {}), None),
    "Mish": (("Mish", [_X], {}), None),
    "Swish": (("Swish", [_X], {}, 1, 24), None),
    "Swish_alpha": (("Swish", [_X], {"alpha": 1.6}, 1, 24), None),
    "Shrink_hard": (("Shrink", [_X], {"lambd": 1.5}), None),
    "Shrink_soft": (("Shrink", [_X], {"lambd": 1.5, "bias": 1.5}), None),
    "Shrink_other": (("Shrink", [_X], {"lambd": 0.5, "bias": 0.2}), None),
    "Clip": (("Clip", [_X, _number(-1), _number(2)], {}), None),
    "Clip_below": (("Clip", [_X, _number(-1)], {}), None),
    "Clip_above": (("Clip", [_X, None, _number(2)], {}), None),
    "Clip_nothing": (("Clip", [_X], {}), None),
    "Clip_relu6": (("Clip", [_X, _number(0), _number(6)], {}), None),
    "Clip_attributes": (("Clip", [_X], {"min": -1.0, "max": 2.0}, 1, 6), None),
    "Clip_attribute_relu6": (("Clip", [_X], {"min": 0.0, "max": 6.0}, 1, 6), None),
    "Softmax": (("Softmax", [_X], {}), None),
    "Softmax_first_axis": (("Softmax", [_X], {"axis": 0}), None),
    "Softmax_channels": (("Softmax", [_IMAGE], {"axis": 1}), None),
    "Softmax_negative": (("Softmax", [_IMAGE], {"axis": -2}), None),
    "LogSoftmax": (("LogSoftmax", [_X], {}), None),
    "LogSoftmax_channels": (("LogSoftmax", [_IMAGE], {"axis": 1}), None),
}

_BIAS = np.array([0.3, -0.4, 0.11, 0.7], np.float32)
_MICROSOFT = "com.microsoft"
_GELU = one_operator("Gelu", [_X], {})
_TANH_GELU = one_operator("Gelu", [_X], {"approximate": "tanh"})


def _with_bias(approximate: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Add", ["p0", "p1"], ["sum"]),
        helper.make_node("Gelu", ["sum"], ["y0"], approximate=approximate),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in (("p0", _X), ("p1", _BIAS))]
    graph = helper.make_graph(nodes, "gelu", [], [helper.make_empty_tensor_value_info("y0")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


EQUIVALENTS = {
    "Gelu": (("Gelu", [_X], {}, 1, 20, _MICROSOFT), _GELU),
    "BiasGelu": (("BiasGelu", [_X, _BIAS], {}, 1, 20, _MICROSOFT), _with_bias("none")),
    "FastGelu": (("FastGelu", [_X], {}, 1, 20, _MICROSOFT), _TANH_GELU),
    "FastGelu_bias": (("FastGelu", [_X, _BIAS], {}, 1, 20, _MICROSOFT), _with_bias("tanh")),
    "QuickGelu": (
        ("QuickGelu", [_X], {"alpha": 1.5}, 1, 20, _MICROSOFT),
        one_operator("Swish", [_X], {"alpha": 1.5}, opset=24),
    ),
}
"""Operators of onnxruntime's, and models of ONNX's that compute the same."""


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an activation agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)


@pytest.mark.parametrize("low_and_high", [("p1",), ("p2",), ("p1", "p2")])
def test_bounds_that_are_trained(low_and_high):
    """A bound of Clip has the gradient of all elements that it holds back."""
    arrays = [_X, _number(-1) if "p1" in low_and_high else None, _number(2) if "p2" in low_and_high else None]

    check(one_operator("Clip", arrays, {}), trainable=["p0", *low_and_high])


def test_relu6_is_an_operator_of_its_own():
    """A Clip between 0 and 6 is MindSpore's ReLU6, with MindSpore's gradient."""
    step = step_graph(one_operator(*CASES["Clip_relu6"][0]), WEIGHTED)

    slots = {node.op_type: len(node.input) for node in step.graph.node if node.op_type.startswith("ReLU6")}
    assert {"ReLU6": 1, "ReLU6Grad": 2} == slots


@pytest.mark.parametrize("case", EQUIVALENTS)
def test_gradients_of_onnxruntimes_operators(case):
    """Every gradient of an operator of onnxruntime's is that of what it stands for."""
    arguments, equivalent = EQUIVALENTS[case]
    model = one_operator(*arguments)
    weights = np.linspace(0.5, 1.5, _X.size, dtype=np.float32).reshape(_X.shape)

    gradients = analytic(model, weights)

    assert {f"p{slot}" for slot in range(len(arguments[1]))} == set(gradients)
    for name, gradient in gradients.items():
        assert gradient == pytest.approx(numerical(equivalent, weights, name), rel=1e-4, abs=1e-4)


def test_types_behind_an_operator_that_onnx_does_not_know():
    """Operators behind one of onnxruntime's are trained, though ONNX's inference has no types of them."""
    model = one_operator("Gelu", [_X], {}, domain=_MICROSOFT)
    model.graph.output[0].name = "y"
    model.graph.node.add(op_type="ReduceMean", input=["y0"], output=["mean"], name="mean")
    model.graph.node.add(op_type="Mul", input=["mean", "y0"], output=["y"], name="product")
    equivalent = onnx.ModelProto()
    equivalent.CopyFrom(model)
    equivalent.graph.node[0].domain = ""
    weights = np.linspace(0.5, 1.5, _X.size, dtype=np.float32).reshape(_X.shape)

    gradient = analytic(model, weights)["p0"]

    assert gradient == pytest.approx(numerical(equivalent, weights, "p0"), rel=1e-4, abs=1e-4)


def test_swish_of_exporters():
    """X sigmoid(x), written as two operators, has two gradients, which AddN sums."""
    nodes = [helper.make_node("Sigmoid", ["p0"], ["share"]), helper.make_node("Mul", ["p0", "share"], ["y0"])]
    weights = [numpy_helper.from_array(_X, "p0")]
    graph = helper.make_graph(nodes, "swish", [], [helper.make_empty_tensor_value_info("y0")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    check(model)

    types = [node.op_type for node in step_graph(model, WEIGHTED).graph.node]
    assert (1, 1) == (types.count("SigmoidGrad"), types.count("Sum"))
