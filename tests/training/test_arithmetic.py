"""Gradients of arithmetic against numerical differences, with broadcasting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from onnx import TensorProto

from tests.training.differences import analytic, check, normals, number, one_operator

_RNG = np.random.default_rng(11)


_normal = normals(_RNG)


def _positive(*shape):
    return _RNG.uniform(0.5, 2.0, shape).astype(np.float32)


def _floats(*values):
    return np.array(values, np.float32)


_A, _B, _ROW, _COLUMN = _normal(3, 4), _normal(3, 4), _normal(4), _normal(2, 1, 1)
_POSITIVE, _CHOICE = _positive(3, 4), _RNG.integers(0, 2, (3, 4)).astype(bool)
_TIED = _floats(1, 2, 3, 4)

CASES = {
    "Add": ("Add", [_A, _B], {}),
    "Add_row": ("Add", [_A, _ROW], {}),
    "Add_both_broadcast": ("Add", [_normal(3, 1), _normal(1, 4)], {}),
    "Add_more_axes": ("Add", [_A, _normal(2, 1, 1)], {}),
    "Add_itself": ("Add", [_A, number(2)], {}),
    "Sub": ("Sub", [_A, _B], {}),
    "Sub_row": ("Sub", [_ROW, _A], {}),
    "Sub_from_number": ("Sub", [number(1), _A], {}),
    "Mul": ("Mul", [_A, _B], {}),
    "Mul_column": ("Mul", [_COLUMN, _A], {}),
    "Mul_number": ("Mul", [_A, number(0.35)], {}),
    "Div": ("Div", [_A, _POSITIVE], {}),
    "Div_row": ("Div", [_normal(2, 3, 4), _positive(4)], {}),
    "Div_by_number": ("Div", [_A, number(8)], {}),
    "Div_number_by": ("Div", [number(8), _POSITIVE], {}),
    "Mod": ("Mod", [_floats(5.3, -5.3, 7.1, -7.1), _floats(2, 2, -3, -3)], {"fmod": 1}),
    "Mod_row": ("Mod", [_positive(3, 4) * 5, _floats(1.7, 0.3, 2.3, 1.1)], {"fmod": 1}),
    "Pow": ("Pow", [_POSITIVE, _A], {}),
    "Pow_row": ("Pow", [_POSITIVE, _ROW], {}),
    "Pow_of_number": ("Pow", [number(2.5), _A], {}),
    "Pow_square": ("Pow", [_A, number(2)], {}),
    "Pow_cube": ("Pow", [_A, np.array(3, np.int64)], {}),
    "Pow_root": ("Pow", [_POSITIVE, number(0.5)], {}),
    "Pow_exponents": ("Pow", [_normal(3, 4), np.array([1, 2, 3, 4], np.int32)], {}),
    "Pow_zero": ("Pow", [_floats(0.3, 0, 2), np.array([0, 0, 1], np.int64)], {}),
    "Max": ("Max", [_A, _B], {}),
    "Max_row": ("Max", [_A, _ROW], {}),
    "Max_tied": ("Max", [_TIED, _TIED[::-1].copy(), _floats(1, 3, 2, 5)], {}),
    "Max_of_one": ("Max", [_A], {}),
    "Max_number": ("Max", [_A, number(0)], {}),
    "Min": ("Min", [_A, _B], {}),
    "Min_several": ("Min", [_A, _B, _ROW, _normal(3, 1)], {}),
    "Min_number": ("Min", [number(0.1), _A], {}),
    "Sum": ("Sum", [_A, _B, _ROW], {}),
    "Sum_of_one": ("Sum", [_A], {}),
    "Mean": ("Mean", [_A, _ROW, _normal(3, 1)], {}),
    "Where": ("Where", [_CHOICE, _A, _B], {}),
    "Where_broadcast": ("Where", [_CHOICE, _ROW, _normal(2, 1, 1)], {}),
    "Where_number": ("Where", [_CHOICE, _A, number(0)], {}),
    "Identity": ("Identity", [_A], {}),
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
