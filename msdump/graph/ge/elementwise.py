"""GE's operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from msdump.dtypes import DTYPES, from_name
from msdump.graph.body import BodyValue as Value
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator

# GELU by tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); FastGelu: x * sigmoid(1.702 * x)
_TANH: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715
_FAST: Final = 1.702
_PAIR: Final = (2, 2)
_BOOL: Final = from_name("bool")


def _plain(op_type: str, count: int = 1) -> GeOperator:
    return GeOperator(lambda call: getattr(call, op_type)(*call.x), inputs=(count, count))


def _with_value(op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: getattr(call, op_type)(call.x[0], call.number(call["value"])),
        {"value": REQUIRED},
        kind=op_type,
    )


def _truth(op_type: str, count: int = 2) -> GeOperator:
    return GeOperator(lambda call: call.typed(getattr(call, op_type)(*call.x), _BOOL), inputs=(count, count))


def _unary(build: Callable[[CallBody, Value], Value], **defaults: Any) -> GeOperator:
    return GeOperator(lambda call: build(call, call.x[0]), defaults)


def _binary(build: Callable[[CallBody, Value, Value], Value], **defaults: Any) -> GeOperator:
    return GeOperator(lambda call: build(call, *call.x), defaults, inputs=_PAIR)


def _gelu(call: CallBody, x: Value) -> Value:
    return x * 0.5 * (call.Tanh((x + x * x * x * _CUBIC) * _TANH) + 1.0)


def _gelu_exact(call: CallBody, x: Value) -> Value:
    if call["approximate"] == "tanh":
        return _gelu(call, x)
    return x * 0.5 * (call.Erf(x * math.sqrt(0.5)) + 1.0)


def _scaled(call: CallBody, x: Value) -> Value:
    """Return scale * x + shift, the argument of GE's Power, Exp and Log, which are Caffe's."""
    scaled = x * float(call["scale"]) if call["scale"] != 1 else x
    return scaled + float(call["shift"]) if call["shift"] else scaled


def _exponential(call: CallBody, x: Value) -> Value:
    base = call["base"]  # -1: e
    inner = _scaled(call, x)
    return call.Exp(inner if base <= 0 else inner * math.log(base))


def _logarithm(call: CallBody, x: Value) -> Value:
    base, logarithm = call["base"], call.Log(_scaled(call, x))
    return logarithm if base <= 0 else logarithm * (1 / math.log(base))


def _bias_add(call: CallBody, x: Value, bias: Value) -> Value:
    rank, (count,) = call.rank, call.inputs[1].shape
    # the bias belongs to the channels, which are the last axis of a matrix and of NHWC
    is_last = rank <= 2 or call["data_format"] == "NHWC"  # noqa: PLR2004 - a matrix has its columns last
    return x + call.Reshape(bias, [count] if is_last else [count] + [1] * (rank - 2))


def _prelu(call: CallBody, x: Value, slope: Value) -> Value:
    shape = call.inputs[1].shape
    if len(shape) == 1 and shape[0] > 1:
        # one slope for each channel, broadcast over the axes behind it
        slope = call.Reshape(slope, [shape[0]] + [1] * (call.rank - 2))
    return call.PRelu(x, slope)


def _divided_down(call: CallBody, x: Value, y: Value) -> Value:
    """Return the quotient rounded towards minus infinity."""
    quotient = x / y
    if call.compute.kind == "f":
        return call.Floor(quotient)
    remainder = x - quotient * y  # ONNX cuts towards zero
    differs = call.Xor(remainder < 0.0, y < 0.0)
    is_below = call.And(differs, call.Not(call.Equal(remainder, 0.0)))
    return quotient - call.Cast(is_below, to=call.inputs[0].dtype.onnx)


def _remainder(call: CallBody, x: Value, y: Value) -> Value:
    return x - call.Floor(x / y) * y if call.compute.kind == "f" else call.Mod(x, y)


def _squared_difference(_call: CallBody, x: Value, y: Value) -> Value:
    difference = x - y
    return difference * difference


def _filled(value: int) -> GeOperator:
    # the shape is a constant: each call has an operator of its own
    return GeOperator(
        lambda call: call.Identity(call.constant(np.full(call.inputs[0].shape, value, call.compute)))
    )


def _checked_cast(call: CallBody) -> Value:
    wanted = next((row for row in DTYPES if row.acl == call["dst_type"]), None)
    if wanted is None:
        raise call.fault(f"attribute 'dst_type' = {call['dst_type']}: must be a number of aclDataType")
    return call.cast(call.x[0], wanted)


TABLE: Final[dict[str, GeOperator]] = {
    **{
        name: _plain(name)
        for name in (
            *("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Sqrt", "Reciprocal", "Erf"),
            *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Selu", "Mish", "HardSwish"),
            *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
        )
    },
    **{name: _plain(name, 2) for name in ("Add", "Sub", "Mul", "Div", "Pow")},
    # ONNX operators with other names
    "RealDiv": _plain("Div", 2),
    "Inv": _plain("Reciprocal"),
    "Rint": _plain("Round"),
    "Maximum": _plain("Max", 2),
    "Minimum": _plain("Min", 2),
    # composed of several ONNX operators
    "Square": _unary(lambda _call, x: x * x),
    "Rsqrt": _unary(lambda call, x: call.Reciprocal(call.Sqrt(x))),
    "Muls": _with_value("Mul"),
    "Adds": _with_value("Add"),
    "FloorDiv": _binary(_divided_down),
    "FloorMod": _binary(_remainder),
    "SquaredDifference": _binary(_squared_difference),
    "Axpy": _binary(lambda call, x, y: x + y * call.number(call["alpha"]), alpha=REQUIRED),
    "AddN": GeOperator(lambda call: call.Sum(*call.x), {"N": None}, inputs=(1, 1 << 20)),
    "Power": _unary(
        lambda call, x: call.Pow(_scaled(call, x), call.number(call["power"])),
        power=1.0,
        scale=1.0,
        shift=0.0,
    ),
    "Exp": _unary(_exponential, base=-1.0, scale=1.0, shift=0.0),
    "Log": _unary(_logarithm, base=-1.0, scale=1.0, shift=0.0),
    **dict.fromkeys(("Relu6", "ReLU6"), _unary(lambda call, x: call.Clip(x, 0.0, 6.0))),
    # activations
    "LeakyRelu": _unary(lambda call, x: call.LeakyRelu(x, alpha=call["negative_slope"]), negative_slope=0.0),
    "PRelu": _binary(_prelu),
    "Gelu": _unary(_gelu),
    "GeluV2": _unary(_gelu_exact, approximate="none"),
    **dict.fromkeys(("FastGelu", "FastGeluV2"), _unary(lambda call, x: x * call.Sigmoid(x * _FAST))),
    "Swish": _unary(lambda call, x: x * call.Sigmoid(x * float(call["scale"])), scale=1.0),
    "BiasAdd": _binary(_bias_add, data_format="NHWC"),
    "ClipByValue": GeOperator(lambda call: call.Clip(*call.x), inputs=(3, 3)),
    # truth values
    "Equal": _truth("Equal"),
    "NotEqual": _binary(lambda call, x, y: call.typed(call.Not(call.Equal(x, y)), _BOOL)),
    "Greater": _truth("Greater"),
    "GreaterEqual": _truth("GreaterOrEqual"),
    "Less": _truth("Less"),
    "LessEqual": _truth("LessOrEqual"),
    "LogicalAnd": _truth("And"),
    "LogicalOr": _truth("Or"),
    "LogicalNot": _truth("Not", 1),
    "IsNan": _truth("IsNaN", 1),
    "Cast": GeOperator(_checked_cast, {"dst_type": REQUIRED}),
    "ZerosLike": _filled(0),
    "OnesLike": _filled(1),
}
"""Operators by GE's name."""
