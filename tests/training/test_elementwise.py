"""Gradients of arithmetic, of functions of one operand and of activations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from onnx import TensorProto

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, analytic, bindings_of, check, normals, number, one_operator

_RANDOM = np.random.default_rng(11)


_normal = normals(_RANDOM)


def _positive(*shape):
    return _RANDOM.uniform(0.5, 2.0, shape).astype(np.float32)


def _floats(*values):
    return np.array(values, np.float32)


_A, _B, _ROW, _COLUMN = _normal(3, 4), _normal(3, 4), _normal(4), _normal(2, 1, 1)
_POSITIVE, _CHOICE = _positive(3, 4), _RANDOM.integers(0, 2, (3, 4)).astype(bool)
_TIED = _floats(1, 2, 3, 4)

CASES = {
    "Sub_row": ("Sub", [_ROW, _A], {}),
    "Mul_number": ("Mul", [_A, number(0.35)], {}),
    "Div_by_number": ("Div", [_A, number(8)], {}),
    "Pow": ("Pow", [_POSITIVE, _A], {}),
    "Pow_root": ("Pow", [_POSITIVE, number(0.5)], {}),
    "Pow_exponents": ("Pow", [_normal(3, 4), np.array([1, 2, 3, 4], np.int32)], {}),
    "Pow_zero": ("Pow", [_floats(0.3, 0, 2), np.array([0, 0, 1], np.int64)], {}),
    "Max_tied": ("Max", [_TIED, _TIED[::-1].copy(), _floats(1, 3, 2, 5)], {}),
    "Max_number": ("Max", [_A, number(0)], {}),
    "Min_several": ("Min", [_A, _B, _ROW, _normal(3, 1)], {}),
    "Sum_of_one": ("Sum", [_A], {}),
    "Where_broadcast": ("Where", [_CHOICE, _ROW, _normal(2, 1, 1)], {}),
    "Cast": ("Cast", [_A], {"to": TensorProto.DOUBLE}),
    "CastLike": ("CastLike", [_A, np.zeros(2, np.float64)], {}),
}


def test_of_equal_operands_each_has_half():
    """Operands of Max that are equal share the gradient."""
    model = one_operator("Max", [_floats(1, 5), _floats(1, 2)], {})

    gradients = analytic(model, _floats(1, 1))

    assert [0.5, 1.0] == gradients["p0"].tolist()
    assert [0.5, 0.0] == gradients["p1"].tolist()


def test_power_of_zero_has_a_finite_gradient():
    """A base of zero gives its exponent no gradient, and no nan."""
    model = one_operator("Pow", [_floats(0, 2), _floats(2, 2)], {})

    gradients = analytic(model, _floats(1, 1))

    assert [0.0, 4.0] == gradients["p0"].tolist()
    assert [0.0, pytest.approx(4 * np.log(2))] == gradients["p1"].tolist()


@settings(max_examples=25)
@given(
    st.sampled_from(["Add", "Sub", "Mul", "Div", "Max"]),
    mutually_broadcastable_shapes(num_shapes=2, max_dims=3),
)
def test_any_shapes_are_broadcast_back(op_type, shapes):
    """Whatever shapes two operands have, each gradient has the shape of its operand and is right."""
    operands = [_positive(*shape) for shape in shapes.input_shapes]

    check(one_operator(op_type, operands, {}), trainable=["p0", "p1"])


def _grid(low, high):
    """Return numbers between two bounds, none of them round."""
    return np.linspace(low + 0.0131, high - 0.0217, 12).astype(np.float32).reshape(3, 4)


_ANY = _grid(-3, 3)

_AXIS = np.array(1, np.int64)
FUNCTIONS = {
    "Erf": ("Erf", [_ANY], {}),
    "Exp_of_vector": ("Exp", [_ANY[0]], {}),
    "CumSum": ("CumSum", [_ANY, _AXIS], {}),
    "CumSum_exclusive": ("CumSum", [_ANY, _AXIS], {"exclusive": 1}),
    "CumSum_reverse": ("CumSum", [_ANY, np.array(-2, np.int64)], {"reverse": 1}),
    "CumSum_both": ("CumSum", [_ANY, np.array(0, np.int32)], {"reverse": 1, "exclusive": 1}),
}

CONSTANTS = {name: ((name, [_ANY], {}),) for name in ("Sign", "Floor", "Ceil", "Round", "Hardmax")}
"""Operators with a gradient of zero wherever they have one."""


@pytest.mark.parametrize("case", CONSTANTS)
def test_what_is_constant_trains_nothing(case):
    """A parameter behind a function without slope is not updated."""
    step = step_graph(one_operator(*CONSTANTS[case][0]), WEIGHTED)

    assert ["global_step"] == [*bindings_of(step)]


# none of them near a kink of any activation: 0, half numbers, 1, 3, 6
_X = (
    np.array([-7.3, -3.7, -2.6, -1.7, -0.8, -0.3, 0.2, 0.7, 1.6, 2.7, 3.4, 7.2], np.float32) + 0.013
).reshape(3, 4)
_RNG = np.random.default_rng(5)
_IMAGE = _RNG.standard_normal((2, 3, 2, 2)).astype(np.float32)


def _slopes(*shape):
    return _RNG.uniform(0.1, 0.6, shape).astype(np.float32)


ACTIVATIONS = {
    "Relu": ("Relu", [_X], {}),
    "PRelu_channels": ("PRelu", [_IMAGE, _slopes(3, 1, 1)], {}),
    "PRelu_one_slope": ("PRelu", [_IMAGE, _slopes(1)], {}),
    "ThresholdedRelu": ("ThresholdedRelu", [_X], {}),
    "Gelu": ("Gelu", [_X], {}),
    "Gelu_tanh": ("Gelu", [_X], {"approximate": "tanh"}),
    "HardSwish": ("HardSwish", [_X], {}),
    "Mish": ("Mish", [_X], {}),
    "Swish_alpha": ("Swish", [_X], {"alpha": 1.6}, 1, 24),
    "Clip_relu6": ("Clip", [_X, number(0), number(6)], {}),
    "Clip_attributes": ("Clip", [_X], {"min": -1.0, "max": 2.0}, 1, 6),
    "Clip_attribute_relu6": ("Clip", [_X], {"min": 0.0, "max": 6.0}, 1, 6),
    "Softmax_channels": ("Softmax", [_IMAGE], {"axis": 1}),
}


@pytest.mark.parametrize("low_and_high", [("p1",), ("p2",), ("p1", "p2")])
def test_bounds_that_are_trained(low_and_high):
    """A bound of Clip has the gradient of all elements that it holds back."""
    arrays = [_X, number(-1) if "p1" in low_and_high else None, number(2) if "p2" in low_and_high else None]

    check(one_operator("Clip", arrays, {}), trainable=["p0", *low_and_high])


def test_relu6_is_an_operator_of_its_own():
    """A Clip between 0 and 6 is MindSpore's ReLU6, with MindSpore's gradient."""
    step = step_graph(one_operator(*ACTIVATIONS["Clip_relu6"]), WEIGHTED)

    slots = {node.op_type: len(node.input) for node in step.graph.node if node.op_type.startswith("ReLU6")}
    assert {"ReLU6": 1, "ReLU6Grad": 2} == slots
