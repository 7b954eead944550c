"""GE's operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from msdump.dtypes import DTYPES
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator

# GELU by tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); FastGelu: x * sigmoid(1.702 * x)
_TANH: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715
_FAST: Final = 1.702
_PAIR: Final = (2, 2)


def _plain(op_type: str, count: int = 1, **defaults: Any) -> GeOperator:
    return GeOperator(lambda call: call.node(op_type, *call.x), defaults, inputs=(count, count))


def _with_value(op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: call.node(op_type, call.x[0], call.number(call["value"])),
        {"value": REQUIRED},
        kind=op_type,
    )


def _comparison(op_type: str, *, negated: bool = False) -> GeOperator:
    def build(call: CallBody) -> str:
        comparison = call.node(op_type, *call.x)
        return call.truth(call.node("Not", comparison) if negated else comparison)

    return GeOperator(build, inputs=_PAIR)


def _unary(write: Callable[[CallBody, str], str], **defaults: Any) -> GeOperator:
    return GeOperator(lambda call: write(call, call.x[0]), defaults)


def _gelu(call: CallBody, x: str) -> str:
    cube = call.node("Mul", call.node("Mul", x, x), x)
    inner = call.node(
        "Mul", call.node("Add", x, call.node("Mul", cube, call.number(_CUBIC))), call.number(_TANH)
    )
    return _half_times(call, x, call.node("Tanh", inner))


def _gelu_exact(call: CallBody, x: str) -> str:
    if call["approximate"] == "tanh":
        return _gelu(call, x)
    return _half_times(call, x, call.node("Erf", call.node("Mul", x, call.number(math.sqrt(0.5)))))


def _half_times(call: CallBody, x: str, y: str) -> str:
    grown = call.node("Add", y, call.number(1))
    return call.node("Mul", call.node("Mul", x, call.number(0.5)), grown)


def _swish(call: CallBody, x: str, scale: float) -> str:
    return call.node("Mul", x, call.node("Sigmoid", call.node("Mul", x, call.number(scale))))


def _scaled(call: CallBody, x: str) -> str:
    """Return scale * x + shift, the argument of GE's Power, Exp and Log, which are Caffe's."""
    scaled = call.node("Mul", x, call.number(call["scale"])) if call["scale"] != 1 else x
    return call.node("Add", scaled, call.number(call["shift"])) if call["shift"] else scaled


def _exponential(call: CallBody, x: str) -> str:
    base = call["base"]  # -1: e
    inner = _scaled(call, x)
    return call.node("Exp", inner if base <= 0 else call.node("Mul", inner, call.number(math.log(base))))


def _logarithm(call: CallBody, x: str) -> str:
    base, logarithm = call["base"], call.node("Log", _scaled(call, x))
    return logarithm if base <= 0 else call.node("Mul", logarithm, call.number(1 / math.log(base)))


def _bias_add(call: CallBody) -> str:
    rank, (count,) = call.rank, call.inputs[1].shape
    # the bias belongs to the channels, which are the last axis of a matrix and of NHWC
    is_last = rank <= 2 or call["data_format"] == "NHWC"  # noqa: PLR2004 - a matrix has its columns last
    shape = [count] if is_last else [count, *(1 for _ in range(rank - 2))]
    return call.node("Add", call.x[0], call.node("Reshape", call.x[1], call.constant(shape)))


def _prelu(call: CallBody) -> str:
    shape = call.inputs[1].shape
    if len(shape) == 1 and shape[0] > 1:
        # one slope for each channel, broadcast over the axes behind it
        around = [shape[0], *(1 for _ in range(call.rank - 2))]
        return call.node("PRelu", call.x[0], call.node("Reshape", call.x[1], call.constant(around)))
    return call.node("PRelu", *call.x)


def _divided_down(call: CallBody) -> str:
    """Return the quotient rounded towards minus infinity."""
    if call.compute.kind == "f":
        return call.node("Floor", call.node("Div", *call.x))
    quotient = call.node("Div", *call.x)  # ONNX cuts towards zero
    remainder = call.node("Sub", call.x[0], call.node("Mul", quotient, call.x[1]))
    zero = call.number(0)
    differs = call.node("Xor", call.node("Less", remainder, zero), call.node("Less", call.x[1], zero))
    is_below = call.node("And", differs, call.node("Not", call.node("Equal", remainder, zero)))
    return call.node("Sub", quotient, call.node("Cast", is_below, to=call.inputs[0].dtype.onnx))


def _remainder(call: CallBody) -> str:
    if call.compute.kind != "f":
        return call.node("Mod", *call.x)
    return call.node(
        "Sub", call.x[0], call.node("Mul", call.node("Floor", call.node("Div", *call.x)), call.x[1])
    )


def _squared_difference(call: CallBody) -> str:
    difference = call.node("Sub", *call.x)
    return call.node("Mul", difference, difference)


def _filled(value: int) -> GeOperator:
    # static shapes: the operator is built for each call
    return GeOperator(
        lambda call: call.node("Identity", call.constant(np.full(call.inputs[0].shape, value), call.compute))
    )


def _checked_cast(call: CallBody) -> str:
    wanted = next((row for row in DTYPES if row.acl == call["dst_type"]), None)
    if wanted is None:
        raise InputError(
            f"operator {call.op_type!r}: attribute 'dst_type' = {call['dst_type']}: no aclDataType"
        )
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
    # ONNX has them under other names
    "RealDiv": _plain("Div", 2),
    "Inv": _plain("Reciprocal"),
    "Rint": _plain("Round"),
    "Maximum": _plain("Max", 2),
    "Minimum": _plain("Min", 2),
    # of several operators
    "Square": _unary(lambda call, x: call.node("Mul", x, x)),
    "Rsqrt": _unary(lambda call, x: call.node("Reciprocal", call.node("Sqrt", x))),
    "Muls": _with_value("Mul"),
    "Adds": _with_value("Add"),
    "FloorDiv": GeOperator(_divided_down, inputs=_PAIR),
    "FloorMod": GeOperator(_remainder, inputs=_PAIR),
    "SquaredDifference": GeOperator(_squared_difference, inputs=_PAIR),
    "Axpy": GeOperator(
        lambda call: call.node("Add", call.x[0], call.node("Mul", call.x[1], call.number(call["alpha"]))),
        {"alpha": REQUIRED},
        inputs=_PAIR,
    ),
    "AddN": GeOperator(lambda call: call.node("Sum", *call.x), {"N": None}, inputs=(1, 1 << 20)),
    "Power": _unary(
        lambda call, x: call.node("Pow", _scaled(call, x), call.number(call["power"])),
        power=1.0,
        scale=1.0,
        shift=0.0,
    ),
    "Exp": _unary(_exponential, base=-1.0, scale=1.0, shift=0.0),
    "Log": _unary(_logarithm, base=-1.0, scale=1.0, shift=0.0),
    **dict.fromkeys(
        ("Relu6", "ReLU6"),
        _unary(lambda call, x: call.node("Clip", x, call.number(0), call.number(6))),
    ),
    # activations
    "LeakyRelu": _unary(
        lambda call, x: call.node("LeakyRelu", x, alpha=call["negative_slope"]), negative_slope=0.0
    ),
    "PRelu": GeOperator(_prelu, inputs=_PAIR),
    "Gelu": _unary(_gelu),
    "GeluV2": _unary(_gelu_exact, approximate="none"),
    **dict.fromkeys(("FastGelu", "FastGeluV2"), _unary(lambda call, x: _swish(call, x, _FAST))),
    "Swish": _unary(lambda call, x: _swish(call, x, call["scale"]), scale=1.0),
    "BiasAdd": GeOperator(_bias_add, {"data_format": "NHWC"}, inputs=_PAIR),
    "ClipByValue": GeOperator(lambda call: call.node("Clip", *call.x), inputs=(3, 3)),
    # truth values
    "Equal": _comparison("Equal"),
    "NotEqual": _comparison("Equal", negated=True),
    "Greater": _comparison("Greater"),
    "GreaterEqual": _comparison("GreaterOrEqual"),
    "Less": _comparison("Less"),
    "LessEqual": _comparison("LessOrEqual"),
    "LogicalAnd": _comparison("And"),
    "LogicalOr": _comparison("Or"),
    "LogicalNot": GeOperator(lambda call: call.truth(call.node("Not", call.x[0]))),
    "IsNan": GeOperator(lambda call: call.truth(call.node("IsNaN", call.x[0]))),
    "Cast": GeOperator(_checked_cast, {"dst_type": REQUIRED}),
    "ZerosLike": _filled(0),
    "OnesLike": _filled(1),
}
"""Operators by GE's name."""
