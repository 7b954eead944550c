"""Gradients of activations against numerical differences."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, analytic, check, number, numerical, one_operator

# none of them near a kink of any activation: 0, half numbers, 1, 3, 6
_X = (
    np.array([-7.3, -3.7, -2.6, -1.7, -0.8, -0.3, 0.2, 0.7, 1.6, 2.7, 3.4, 7.2], np.float32) + 0.013
).reshape(3, 4)
_RNG = np.random.default_rng(5)
_IMAGE = _RNG.standard_normal((2, 3, 2, 2)).astype(np.float32)


def _slopes(*shape):
    return _RNG.uniform(0.1, 0.6, shape).astype(np.float32)


CASES = {
    "Relu": ("Relu", [_X], {}),
    "LeakyRelu": ("LeakyRelu", [_X], {}),
    "LeakyRelu_alpha": ("LeakyRelu", [_X], {"alpha": 0.3}),
    "PRelu": ("PRelu", [_X, _slopes(3, 4)], {}),
    "PRelu_channels": ("PRelu", [_IMAGE, _slopes(3, 1, 1)], {}),
    "PRelu_one_slope": ("PRelu", [_IMAGE, _slopes(1)], {}),
    "PRelu_last_axis": ("PRelu", [_X, _slopes(4)], {}),
    "Elu": ("Elu", [_X], {}),
    "Elu_alpha": ("Elu", [_X], {"alpha": 0.4}),
    "Celu": ("Celu", [_X], {}),
    "Celu_alpha": ("Celu", [_X], {"alpha": 1.7}),
    "Selu": ("Selu", [_X], {}),
    "Selu_own_numbers": ("Selu", [_X], {"alpha": 0.8, "gamma": 2.0}),
    "ThresholdedRelu": ("ThresholdedRelu", [_X], {}),
    "ThresholdedRelu_alpha": ("ThresholdedRelu", [_X], {"alpha": 2.0}),
    "Gelu": ("Gelu", [_X], {}),
    "Gelu_tanh": ("Gelu", [_X], {"approximate": "tanh"}),
    "HardSwish": ("HardSwish", [_X], {}),
    "HardSigmoid": ("HardSigmoid", [_X], {}),
    "HardSigmoid_own_numbers": ("HardSigmoid", [_X], {"alpha": 0.1, "beta": 0.3}),
    "Softplus": ("Softplus", [_X], {}),
    "Mish": ("Mish", [_X], {}),
    "Swish": ("Swish", [_X], {}, 1, 24),
    "Swish_alpha": ("Swish", [_X], {"alpha": 1.6}, 1, 24),
    "Shrink_hard": ("Shrink", [_X], {"lambd": 1.5}),
    "Shrink_soft": ("Shrink", [_X], {"lambd": 1.5, "bias": 1.5}),
    "Shrink_other": ("Shrink", [_X], {"lambd": 0.5, "bias": 0.2}),
    "Clip": ("Clip", [_X, number(-1), number(2)], {}),
    "Clip_below": ("Clip", [_X, number(-1)], {}),
    "Clip_above": ("Clip", [_X, None, number(2)], {}),
    "Clip_nothing": ("Clip", [_X], {}),
    "Clip_relu6": ("Clip", [_X, number(0), number(6)], {}),
    "Clip_attributes": ("Clip", [_X], {"min": -1.0, "max": 2.0}, 1, 6),
    "Clip_attribute_relu6": ("Clip", [_X], {"min": 0.0, "max": 6.0}, 1, 6),
    "Softmax": ("Softmax", [_X], {}),
    "Softmax_first_axis": ("Softmax", [_X], {"axis": 0}),
    "Softmax_channels": ("Softmax", [_IMAGE], {"axis": 1}),
    "Softmax_negative": ("Softmax", [_IMAGE], {"axis": -2}),
    "LogSoftmax": ("LogSoftmax", [_X], {}),
    "LogSoftmax_channels": ("LogSoftmax", [_IMAGE], {"axis": 1}),
}

_BIAS = np.array([0.3, -0.4, 0.11, 0.7], np.float32)
_MICROSOFT = "com.microsoft"
_GELU = one_operator("Gelu", [_X], {})
_TANH_GELU = one_operator("Gelu", [_X], {"approximate": "tanh"})


def _with_bias(approximate):
    text = f'gelu () => (float[3,4] y0) {{ sum = Add(p0, p1) y0 = Gelu<approximate = "{approximate}">(sum) }}'
    return parsed(text, p0=_X, p1=_BIAS)


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


@pytest.mark.parametrize("low_and_high", [("p1",), ("p2",), ("p1", "p2")])
def test_bounds_that_are_trained(low_and_high):
    """A bound of Clip has the gradient of all elements that it holds back."""
    arrays = [_X, number(-1) if "p1" in low_and_high else None, number(2) if "p2" in low_and_high else None]

    check(one_operator("Clip", arrays, {}), trainable=["p0", *low_and_high])


def test_relu6_is_an_operator_of_its_own():
    """A Clip between 0 and 6 is MindSpore's ReLU6, with MindSpore's gradient."""
    step = step_graph(one_operator(*CASES["Clip_relu6"]), WEIGHTED)

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
    model = parsed("swish () => (float[3,4] y0) { share = Sigmoid(p0) y0 = Mul(p0, share) }", p0=_X)

    check(model)

    types = [node.op_type for node in step_graph(model, WEIGHTED).graph.node]
    assert (1, 1) == (types.count("SigmoidGrad"), types.count("Sum"))
