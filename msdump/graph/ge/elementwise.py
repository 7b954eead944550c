"""GE's operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from msdump.dtypes import DTYPES
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator

_TANH: Final = math.sqrt(2 / math.pi)
_CUBIC: Final = 0.044715
_FAST: Final = 1.702
_PAIR: Final = (2, 2)


def _plain(op_type: str, count: int = 1, **defaults: Any) -> GeOperator:
    """Return an operator that is ONNX's under another name."""
    return GeOperator(lambda b: b.node(op_type, *b.x), defaults, inputs=(count, count))


def _with_value(op_type: str) -> GeOperator:
    """Return an operator whose second operand is the attribute ``value``."""
    return GeOperator(
        lambda b: b.node(op_type, b.x[0], b.number(b["value"])), {"value": REQUIRED}, kind=op_type
    )


def _comparison(op_type: str, *, negated: bool = False) -> GeOperator:
    def build(b: CallBody) -> str:
        found = b.node(op_type, *b.x)
        return b.truth(b.node("Not", found) if negated else found)

    return GeOperator(build, inputs=_PAIR)


def _of_one(write: Callable[[CallBody, str], str], **defaults: Any) -> GeOperator:
    return GeOperator(lambda b: write(b, b.x[0]), defaults)


def _gelu(b: CallBody, x: str) -> str:
    cube = b.node("Mul", b.node("Mul", x, x), x)
    inner = b.node("Mul", b.node("Add", x, b.node("Mul", cube, b.number(_CUBIC))), b.number(_TANH))
    grown = b.node("Add", b.node("Tanh", inner), b.number(1))
    return b.node("Mul", b.node("Mul", x, b.number(0.5)), grown)


def _gelu_exact(b: CallBody, x: str) -> str:
    if b["approximate"] == "tanh":
        return _gelu(b, x)
    grown = b.node("Add", b.node("Erf", b.node("Mul", x, b.number(math.sqrt(0.5)))), b.number(1))
    return b.node("Mul", b.node("Mul", x, b.number(0.5)), grown)


def _swish(b: CallBody, x: str, scale: float) -> str:
    return b.node("Mul", x, b.node("Sigmoid", b.node("Mul", x, b.number(scale))))


def _scaled(b: CallBody, x: str) -> str:
    scaled = b.node("Mul", x, b.number(b["scale"])) if b["scale"] != 1 else x
    return b.node("Add", scaled, b.number(b["shift"])) if b["shift"] else scaled


def _power(b: CallBody, x: str) -> str:
    return b.node("Pow", _scaled(b, x), b.number(b["power"]))


def _exponential(b: CallBody, x: str) -> str:
    base = b["base"]
    inner = _scaled(b, x)
    return b.node("Exp", inner if base <= 0 else b.node("Mul", inner, b.number(math.log(base))))


def _logarithm(b: CallBody, x: str) -> str:
    base, found = b["base"], b.node("Log", _scaled(b, x))
    return found if base <= 0 else b.node("Mul", found, b.number(1 / math.log(base)))


def _clip_relu6(b: CallBody, x: str) -> str:
    return b.node("Clip", x, b.number(0), b.number(6))


def _bias_add(b: CallBody) -> str:
    rank, (count,) = b.rank, b.inputs[1].shape
    is_last = rank <= 2 or b["data_format"] == "NHWC"  # noqa: PLR2004 - a matrix has its columns last
    shape = [count] if is_last else [count, *(1 for _ in range(rank - 2))]
    return b.node("Add", b.x[0], b.node("Reshape", b.x[1], b.constant(shape)))


def _prelu(b: CallBody) -> str:
    shape = b.inputs[1].shape
    if len(shape) == 1 and shape[0] > 1:
        around = [shape[0], *(1 for _ in range(b.rank - 2))]
        return b.node("PRelu", b.x[0], b.node("Reshape", b.x[1], b.constant(around)))
    return b.node("PRelu", *b.x)


def _divided_down(b: CallBody) -> str:
    if b.compute.kind == "f":
        return b.node("Floor", b.node("Div", *b.x))
    quotient = b.node("Div", *b.x)  # ONNX cuts towards zero
    rest = b.node("Sub", b.x[0], b.node("Mul", quotient, b.x[1]))
    zero = b.number(0)
    differs = b.node("Xor", b.node("Less", rest, zero), b.node("Less", b.x[1], zero))
    is_below = b.node("And", differs, b.node("Not", b.node("Equal", rest, zero)))
    return b.node("Sub", quotient, b.node("Cast", is_below, to=b.inputs[0].dtype.onnx))


def _remainder(b: CallBody) -> str:
    if b.compute.kind != "f":
        return b.node("Mod", *b.x)
    return b.node("Sub", b.x[0], b.node("Mul", b.node("Floor", b.node("Div", *b.x)), b.x[1]))


def _squared_difference(b: CallBody) -> str:
    difference = b.node("Sub", *b.x)
    return b.node("Mul", difference, difference)


def _axpy(b: CallBody) -> str:
    return b.node("Add", b.x[0], b.node("Mul", b.x[1], b.number(b["alpha"])))


def _filled(value: int) -> GeOperator:
    def build(b: CallBody) -> str:
        array = np.full(b.inputs[0].shape, value, b.compute)
        made = b.constant(array, array.dtype)
        return b.node("Identity", made)

    return GeOperator(build)


def _checked_cast(b: CallBody) -> str:

    wanted = next((row for row in DTYPES if row.acl == b["dst_type"]), None)
    if wanted is None:
        raise InputError(f"operator {b.op_type!r}: attribute 'dst_type' = {b['dst_type']}: no aclDataType")
    return b.cast(b.x[0], wanted)


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
    "RealDiv": _plain("Div", 2),
    "Inv": _plain("Reciprocal"),
    "Rint": _plain("Round"),
    "Maximum": _plain("Max", 2),
    "Minimum": _plain("Min", 2),
    "Square": _of_one(lambda b, x: b.node("Mul", x, x)),
    "Rsqrt": _of_one(lambda b, x: b.node("Reciprocal", b.node("Sqrt", x))),
    "Muls": _with_value("Mul"),
    "Adds": _with_value("Add"),
    "FloorDiv": GeOperator(_divided_down, inputs=_PAIR),
    "FloorMod": GeOperator(_remainder, inputs=_PAIR),
    "SquaredDifference": GeOperator(_squared_difference, inputs=_PAIR),
    "Axpy": GeOperator(_axpy, {"alpha": REQUIRED}, inputs=_PAIR),
    "AddN": GeOperator(lambda b: b.node("Sum", *b.x), {"N": None}, inputs=(1, 1 << 20)),
    "Power": _of_one(_power, power=1.0, scale=1.0, shift=0.0),
    "Exp": _of_one(_exponential, base=-1.0, scale=1.0, shift=0.0),
    "Log": _of_one(_logarithm, base=-1.0, scale=1.0, shift=0.0),
    "Relu6": _of_one(_clip_relu6),
    "ReLU6": _of_one(_clip_relu6),
    "LeakyRelu": _of_one(lambda b, x: b.node("LeakyRelu", x, alpha=b["negative_slope"]), negative_slope=0.0),
    "PRelu": GeOperator(_prelu, inputs=_PAIR),
    "Gelu": _of_one(_gelu),
    "GeluV2": _of_one(_gelu_exact, approximate="none"),
    "FastGelu": _of_one(lambda b, x: _swish(b, x, _FAST)),
    "FastGeluV2": _of_one(lambda b, x: _swish(b, x, _FAST)),
    "Swish": _of_one(lambda b, x: _swish(b, x, b["scale"]), scale=1.0),
    "BiasAdd": GeOperator(_bias_add, {"data_format": "NHWC"}, inputs=_PAIR),
    "ClipByValue": GeOperator(lambda b: b.node("Clip", *b.x), inputs=(3, 3)),
    "Equal": _comparison("Equal"),
    "NotEqual": _comparison("Equal", negated=True),
    "Greater": _comparison("Greater"),
    "GreaterEqual": _comparison("GreaterOrEqual"),
    "Less": _comparison("Less"),
    "LessEqual": _comparison("LessOrEqual"),
    "LogicalAnd": _comparison("And"),
    "LogicalOr": _comparison("Or"),
    "LogicalNot": GeOperator(lambda b: b.truth(b.node("Not", b.x[0]))),
    "IsNan": GeOperator(lambda b: b.truth(b.node("IsNaN", b.x[0]))),
    "Cast": GeOperator(_checked_cast, {"dst_type": REQUIRED}),
    "ZerosLike": _filled(0),
    "OnesLike": _filled(1),
}
"""Operators by GE's name."""
