"""Elementwise operators in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind, nothing

_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has no error function
_SQRT_HALF: Final = math.sqrt(0.5)
_GELU_TANH: Final = math.sqrt(2 / math.pi)
_GELU_CUBE: Final = 0.044715


def erf(x: Array) -> Array:
    """Return the error function of every element."""
    return np.asarray(_erf(x)).astype(np.float64)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), which no element overflows."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x))."""
    return np.asarray(np.logaddexp(0, x))


def _gelu(call: Call) -> tuple[Array]:
    x = call[0]
    if call.attribute("approximate", "none") == "tanh":
        return (0.5 * x * (1 + np.tanh(_GELU_TANH * (x + _GELU_CUBE * x**3))),)
    return (0.5 * x * (1 + erf(x * _SQRT_HALF)),)


def _clip(call: Call) -> tuple[Array]:
    low, high = (
        bound if bound is not None else call.attribute(name, default)
        for bound, name, default in (
            (call.optional(1), "min", -np.inf),
            (call.optional(2), "max", np.inf),
        )
    )
    x = call[0]
    if x.dtype.kind != "f":  # infinite bounds would make floats of integers
        low, high = (None if bound in {-np.inf, np.inf} else bound for bound in (low, high))
    return (np.asarray(x if low is None and high is None else np.clip(x, low, high)),)


def _divided(call: Call) -> tuple[Array]:
    x, y = call[0], call[1]
    if x.dtype.kind == "f":
        return (x / y,)
    quotient = np.abs(x.astype(object)) // np.abs(y.astype(object))  # integers: towards zero
    return ((quotient * (np.sign(x) * np.sign(y)).astype(object)).astype(x.dtype),)


def _folded(function: Callable[[Array, Array], Array]) -> Callable[[Call], tuple[Array]]:
    def compute(call: Call) -> tuple[Array]:
        result = call[0]
        for slot in range(1, len(call.inputs)):
            result = function(result, call[slot])
        return (result,)

    return compute


def _mean(call: Call) -> tuple[Array]:
    (total,) = _folded(np.add)(call)
    return (total / len(call.inputs),)


def _unary(function: Callable[[Array], Any]) -> Callable[[Call], tuple[Array]]:
    return lambda call: (np.asarray(function(call[0])),)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Call], tuple[Array]]:
    return lambda call: (function(call[0], call[1]),)


def _shaped(function: Callable[..., Array], **defaults: float) -> Callable[[Call], tuple[Array]]:
    """Return an activation with attributes, which come behind the input in the order of their defaults."""

    def compute(call: Call) -> tuple[Array]:
        values: list[Any] = [call.attribute(name, default) for name, default in defaults.items()]
        return (function(call[0], *values),)

    return compute


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return gamma * _elu(x, alpha)


def _celu(x: Array, alpha: float) -> Array:
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha)))


def _exponential(**defaults: float) -> Callable[[Call], Array]:
    """Return what the exponential is worth from which kernels take 1, where an input is negative."""

    def between(call: Call) -> Array:
        size = np.prod([abs(call.attribute(name, default)) for name, default in defaults.items()])
        return np.asarray(np.where(call[0] < 0, size, 0.0))

    return between


def _each(
    make: Callable[..., Callable[[Call], tuple[Array, ...]]], functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[[Call], tuple[Array, ...]]]:
    return {name: make(function) for name, function in functions.items()}


_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875

_EXACT: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    **_each(_unary, {
        "Identity": np.asarray, "Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil,
        "Round": np.rint, "Sign": np.sign, "Not": np.logical_not, "IsNaN": np.isnan,
        "Relu": lambda x: np.maximum(x, 0),
    }),
    **_each(_binary, {
        "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
        "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    }),
    "Max": _folded(np.maximum),
    "Min": _folded(np.minimum),
    "Where": lambda call: (np.where(call[0], call[1], call[2]),),
    "Clip": _clip,
    "ThresholdedRelu": _shaped(lambda x, alpha: np.where(x > alpha, x, 0.0), alpha=1.0),
}  # fmt: skip

_ROUNDED: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _divided,
    "Sqrt": _unary(np.sqrt),
    "Reciprocal": _unary(np.reciprocal),
    "LeakyRelu": _shaped(lambda x, alpha: np.where(x >= 0, x, alpha * x), alpha=0.01),
    "PRelu": _binary(lambda x, slope: np.where(x >= 0, x, slope * x)),
}

_LINEAR: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {"Sum": _folded(np.add), "Mean": _mean}

_SMOOTH: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    **_each(_unary, {
        "Exp": np.exp, "Log": np.log, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin,
        "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Asinh": np.arcsinh,
        "Acosh": np.arccosh, "Atanh": np.arctanh, "Tanh": np.tanh, "Erf": erf, "Sigmoid": sigmoid,
        "Softplus": softplus, "Softsign": lambda x: x / (1 + np.abs(x)),
        "Mish": lambda x: x * np.tanh(softplus(x)),
        "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    }),
    "Pow": _binary(lambda x, y: np.power(x, y.astype(x.dtype))),
    "Gelu": _gelu,
    "Swish": _shaped(lambda x, alpha: x * sigmoid(alpha * x), alpha=1.0),
    "Elu": _shaped(_elu, alpha=1.0),
    "Selu": _shaped(_selu, alpha=_SELU_ALPHA, gamma=_SELU_GAMMA),
    "Celu": _shaped(_celu, alpha=1.0),
    "HardSigmoid": _shaped(lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), alpha=0.2, beta=0.5),
}  # fmt: skip

_BETWEEN: Final[Mapping[str, Callable[[Call], Array]]] = {
    "Elu": _exponential(alpha=1.0),
    "Selu": _exponential(alpha=_SELU_ALPHA, gamma=_SELU_GAMMA),
    "Celu": _exponential(alpha=1.0),
}

DEFINITIONS: Final[Mapping[str, Definition]] = {
    **{name: Definition(compute, Kind.EXACT) for name, compute in _EXACT.items()},
    **{name: Definition(compute, Kind.ROUNDED) for name, compute in _ROUNDED.items()},
    **{
        name: Definition(compute, Kind.LINEAR, lambda call: len(call.inputs))
        for name, compute in _LINEAR.items()
    },
    **{
        name: Definition(compute, Kind.SMOOTH, between=_BETWEEN.get(name, nothing))
        for name, compute in _SMOOTH.items()
    },
}
"""The operators of ONNX whose every element depends on one element of each input."""
