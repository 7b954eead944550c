"""Gradients of functions of one operand: powers, logarithms, trigonometry, casts, cumulated sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from msdump.training.lowerings.reductions import cumulated_sum
from msdump.training.rules import Backward, Gradients, constant_zero, gradient, mindspore_gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

gradient("Sign", "Floor", "Ceil", "Round", "Hardmax")(constant_zero)

_OF_INPUT: Final = {"Abs": "AbsGrad", "Asin": "AsinGrad", "Acos": "ACosGrad", "Atan": "AtanGrad"}
"""Gradient operators of MindSpore's that take (x, dy)."""

_OF_OUTPUT: Final = {
    "Sqrt": "SqrtGrad",
    "Reciprocal": "ReciprocalGrad",
    "Asinh": "AsinhGrad",
    "Acosh": "AcoshGrad",
    "Sigmoid": "SigmoidGrad",
    "Tanh": "TanhGrad",
}
"""Gradient operators of MindSpore's that take (y, dy)."""


@gradient(*_OF_INPUT)
def _of_input(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    return (op.call(_OF_INPUT[back.node.op_type], x, back.dy, like=x),)


@gradient(*_OF_OUTPUT)
def _of_output(op: StepWriter, back: Backward) -> Gradients:
    y = back.node.outputs[0]
    return (op.call(_OF_OUTPUT[back.node.op_type], y, back.dy, like=y),)


def _square(op: StepWriter, x: StepTensor) -> StepTensor:
    result: StepTensor = op.call("Square", x, like=x)
    return result


def _reciprocal_square(op: StepWriter, x: StepTensor) -> StepTensor:
    return _square(op, op.Reciprocal(x))


def _softsign(op: StepWriter, x: StepTensor) -> StepTensor:
    result: StepTensor = op.Div(1.0, _square(op, op.Add(op.Abs(x), 1.0)))
    return result


def _atanh(op: StepWriter, x: StepTensor) -> StepTensor:
    result: StepTensor = op.Div(1.0, op.Sub(1.0, op.Pow(x, 2.0)))
    return result


def _erf(op: StepWriter, x: StepTensor) -> StepTensor:
    result: StepTensor = op.Mul(op.Exp(op.Neg(_square(op, x))), 2 / math.sqrt(math.pi))
    return result


_SLOPES: Final[Mapping[str, Callable[[StepWriter, StepTensor], StepTensor]]] = {
    "Sin": lambda op, x: op.Cos(x),
    "Cos": lambda op, x: op.Neg(op.Sin(x)),
    "Tan": lambda op, x: _reciprocal_square(op, op.Cos(x)),
    "Sinh": lambda op, x: op.Cosh(x),
    "Cosh": lambda op, x: op.Sinh(x),
    "Atanh": _atanh,
    "Erf": _erf,
    "Softsign": _softsign,
}
"""The slope of a function at x, for those whose gradient MindSpore decomposes."""


@gradient(*_SLOPES)
def _slope(op: StepWriter, back: Backward) -> Gradients:
    return (op.Mul(_SLOPES[back.node.op_type](op, back.node.input(0)), back.dy),)


@gradient("Neg")
def _neg(op: StepWriter, back: Backward) -> Gradients:
    return (op.Neg(back.dy),)


@gradient("Exp")
def _exp(op: StepWriter, back: Backward) -> Gradients:
    return (op.Mul(back.node.outputs[0], back.dy),)


@gradient("Log")
def _log(op: StepWriter, back: Backward) -> Gradients:
    return (op.Div(back.dy, back.node.input(0)),)


@mindspore_gradient("Square")
def _of_square(op: StepWriter, back: Backward) -> Gradients:
    # MindSpore writes the general power, x**1 included
    return (op.Mul(back.dy, op.Mul(op.Pow(back.node.input(0), 1.0), 2.0)),)


@gradient("Identity")
def _identity(_op: StepWriter, back: Backward) -> Gradients:
    return (back.dy,)


@gradient("Cast", "CastLike")
def _cast(op: StepWriter, back: Backward) -> Gradients:
    return (op.Cast(back.dy, to=back.node.input(0).dtype.onnx),)


@mindspore_gradient("CumSum")
def _cum_sum(op: StepWriter, back: Backward) -> Gradients:
    structure = back.node.attributes
    axis, is_exclusive = back.node.input(1), bool(structure["exclusive"])
    return (cumulated_sum(op, back.dy, axis, exclusive=is_exclusive, reverse=not structure["reverse"]),)
