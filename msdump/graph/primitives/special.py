"""Functions that ONNX has not, by series and fractions, in float64: errors stay below float32's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import DOUBLE, BodyFunction, Value, op, operators

_ERFC: Final = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196,
    1.00002368, -1.26551223,
)  # fmt: skip
"""Chebyshev's coefficients of log(erfc(x) exp(x²) / t) in t = 1 / (1 + x / 2), the highest first."""

_ERFINV: Final = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL: Final = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
"""Giles' coefficients of erfinv(x) / x in w = -log(1 - x²): in w - 2.5 below 5, else in sqrt(w) - 3."""

_STEPS: Final = 8
"""How far arguments of Gamma are moved up, to where its series holds."""

_GAMMA: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
"""Stirling's coefficients of log Gamma in 1 / x, 1 / x³, ..."""


def _in_type(number: int, build: Callable[..., Value]) -> BodyFunction:
    """Return a body that computes in an element type, given by ONNX's number."""
    return lambda *operands: op.CastLike(build(*(op.Cast(x, to=number) for x in operands)), operands[0])


def _constant(number: float) -> Value:
    return op.constant(np.array(number, np.float64))


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Return the value of a polynomial, with the coefficient of the highest power first."""
    total = _constant(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + _constant(coefficient)
    return total


def _erfc(x: Value) -> Value:
    size = op.Abs(x)
    t = op.Reciprocal(size * _constant(0.5) + _constant(1))
    tail = t * op.Exp(_polynomial(t, _ERFC) - size * size)
    return op.Where(x < _constant(0), _constant(2) - tail, tail)


def _erfinv(x: Value) -> Value:
    w = -op.Log((_constant(1) - x) * (_constant(1) + x))
    center = _polynomial(w - _constant(2.5), _ERFINV)
    tail = _polynomial(op.Sqrt(w) - _constant(3), _ERFINV_TAIL)
    # at 1 and -1 w is infinite, where the polynomial is not monotonous
    tail = op.Where(op.IsInf(w), w, tail)
    return x * op.Where(w < _constant(5), center, tail)


def _lgamma(x: Value) -> Value:
    """Log Gamma(x) = log(pi / |sin(pi x)|) - log Gamma(1 - x) below 1/2."""
    one, is_low = _constant(1), x < _constant(0.5)
    moved = op.Where(is_low, one - x, x)
    product = moved
    for step in range(1, _STEPS):
        product = product * (moved + _constant(step))
    high = moved + _constant(_STEPS)
    inverse = op.Reciprocal(high)
    series = inverse * _polynomial(inverse * inverse, _GAMMA[::-1])
    stirling = (high - _constant(0.5)) * op.Log(high) - high + _constant(math.log(2 * math.pi) / 2) + series
    # of large arguments the product overflows, and no move is needed
    value = op.Where(op.IsInf(product), stirling, stirling - op.Log(product))
    # sin(pi x) of the fraction alone: it is 0 at whole numbers
    sine = op.Sin((x - op.Floor(x)) * _constant(math.pi))
    return op.Where(is_low, _constant(math.log(math.pi)) - op.Log(op.Abs(sine)) - value, value)


def _digamma(x: Value) -> Value:
    """psi(x) = psi(1 - x) - pi / tan(pi x) below 1/2, NaN at whole numbers up to 0."""
    one, is_low = _constant(1), x < _constant(0.5)
    moved = op.Where(is_low, one - x, x)
    total = op.Reciprocal(moved)
    for step in range(1, _STEPS):
        total = total + op.Reciprocal(moved + _constant(step))
    high = moved + _constant(_STEPS)
    inverse = op.Reciprocal(high)
    square = inverse * inverse
    slopes = [coefficient * (2 * place + 1) for place, coefficient in enumerate(_GAMMA)]
    value = op.Log(high) - inverse * _constant(0.5) - square * _polynomial(square, slopes[::-1]) - total
    angle = (x - op.Floor(x)) * _constant(math.pi)
    mirrored = value - op.Cos(angle) / op.Sin(angle) * _constant(math.pi)
    is_pole = op.And(op.Equal(x, op.Floor(x)), is_low)
    return op.Where(is_pole, _constant(math.nan), op.Where(is_low, mirrored, value))


def _atan2(y: Value, x: Value) -> Value:
    """atan(y / x), half a turn further where x is negative."""
    at_origin = op.And(op.Equal(y, 0.0), op.Equal(x, 0.0))
    angle = op.Where(at_origin, 0.0, op.Atan(y / x))
    return angle + op.Where(x < 0.0, op.Where(y < 0.0, -math.pi, math.pi), 0.0)


operators(
    {
        "Expm1": _in_type(DOUBLE, lambda x: op.Exp(x) - _constant(1)),
        "Log1p": _in_type(DOUBLE, lambda x: op.Log(x + _constant(1))),
        "Erfc": _in_type(DOUBLE, _erfc),
        "Erfinv": _in_type(DOUBLE, _erfinv),
        "Lgamma": _in_type(DOUBLE, _lgamma),
        "Digamma": _in_type(DOUBLE, _digamma),
        "Atan2": _in_type(FLOAT32.onnx, _atan2),
    }
)
