"""Gradients of arithmetic against numerical differences, with broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from onnx import TensorProto

from tests.training.differences import analytic, check, one_operator

_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _positive(*shape: int) -> np.ndarray:
    return _RNG.uniform(0.5, 2.0, shape).astype(np.float32)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


_A, _B, _ROW, _COLUMN = _normal(3, 4), _normal(3, 4), _normal(4), _normal(2, 1, 1)
_POSITIVE, _CHOICE = _positive(3, 4), _RNG.integers(0, 2, (3, 4)).astype(bool)
_TIED = _floats(1, 2, 3, 4)

CASES = {
    "Add": (("Add", [_A, _B], {}), None),
    "Add_row": (("Add", [_A, _ROW], {}), None),
    "Add_both_broadcast": (("Add", [_normal(3, 1), _normal(1, 4)], {}), None),
    "Add_more_axes": (("Add", [_A, _normal(2, 1, 1)], {}), None),
    "Add_itself": (("Add", [_A, _number(2)], {}), None),
    "Sub": (("Sub", [_A, _B], {}), None),
    "Sub_row": (("Sub", [_ROW, _A], {}), None),
    "Sub_from_number": (("Sub", [_number(1), _A], {}), None),
    "Mul": (("Mul", [_A, _B], {}), None),
    "Mul_column": (("Mul", [_COLUMN, _A], {}), None),
    "Mul_number": (("Mul", [_A, _number(0.35)], {}), None),
    "Div": (("Div", [_A, _POSITIVE], {}), None),
    "Div_row": (("Div", [_normal(2, 3, 4), _positive(4)], {}), None),
    "Div_by_number": (("Div", [_A, _number(8)], {}), None),
    "Div_number_by": (("Div", [_number(8), _POSITIVE], {}), None),
    "Mod": (("Mod", [_floats(5.3, -5.3, 7.1, -7.1), _floats(2, 2, -3, -3)], {"fmod": 1}), None),
    "Mod_row": (("Mod", [_positive(3, 4) * 5, _floats(1.7, 0.3, 2.3, 1.1)], {"fmod": 1}), None),
    "Pow": (("Pow", [_POSITIVE, _A], {}), None),
    "Pow_row": (("Pow", [_POSITIVE, _ROW], {}), None),
    "Pow_of_number": (("Pow", [_number(2.5), _A], {}), None),
    "Pow_square": (("Pow", [_A, _number(2)], {}), None),
    "Pow_cube": (("Pow", [_A, np.array(3, np.int64)], {}), None),
    "Pow_root": (("Pow", [_POSITIVE, _number(0.5)], {}), None),
    "Pow_exponents": (("Pow", [_normal(3, 4), np.array([1, 2, 3, 4], np.int32)], {}), None),
    "Pow_zero": (("Pow", [_floats(0.3, 0, 2), np.array([0, 0, 1], np.int64)], {}), None),
    "Max": (("Max", [_A, _B], {}), None),
    "Max_row": (("Max", [_A, _ROW], {}), None),
    "Max_tied": (("Max", [_TIED, _TIED[::-1].copy(), _floats(1, 3, 2, 5)], {}), None),
    "Max_of_one": (("Max", [_A], {}), None),
    "Max_number": (("Max", [_A, _number(0)], {}), None),
    "Min": (("Min", [_A, _B], {}), None),
    "Min_several": (("Min", [_A, _B, _ROW, _normal(3, 1)], {}), None),
    "Min_number": (("Min", [_number(0.1), _A], {}), None),
    "Sum": (("Sum", [_A, _B, _ROW], {}), None),
    "Sum_of_one": (("Sum", [_A], {}), None),
    "Mean": (("Mean", [_A, _ROW, _normal(3, 1)], {}), None),
    "Where": (("Where", [_CHOICE, _A, _B], {}), None),
    "Where_broadcast": (("Where", [_CHOICE, _ROW, _normal(2, 1, 1)], {}), None),
    "Where_number": (("Where", [_CHOICE, _A, _number(0)], {}), None),
    "Identity": (("Identity", [_A], {}), None),
    "Cast": (("Cast", [_A], {"to": TensorProto.DOUBLE}), None),
    "CastLike": (("CastLike", [_A, np.zeros(2, np.float64)], {}), None),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)


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

    check(one_operator(op_type, operands, {}), shapes.result_shape, trainable=["p0", "p1"])
