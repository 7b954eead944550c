"""Arithmetic and functions of one operand, element by element, with broadcasting.

What gradients write is what MindSpore's own rules write, and in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from msdump.training.body import Body, Value, operator
from msdump.training.operators.layouts import unbroadcast
from msdump.training.rules import (
    Backward,
    GradientOperator,
    Gradients,
    constant_zero,
    gradient,
    lowering,
    mindspore_gradient,
    write_gradient,
)
from msdump.training.writer import StepOperator, StepTensor, StepWriter


@operator("RealDiv")
def real_div(op: Body, x: Value, y: Value) -> Value:
    """Divide."""
    return x / y


@operator("TruncateDiv")
def truncate_div(op: Body, x: Value, y: Value) -> Value:
    """Divide, and drop what stands behind the point."""
    quotient = x / y
    return op.Where(quotient < 0.0, op.Ceil(quotient), op.Floor(quotient))


@operator("Square")
def square(op: Body, x: Value) -> Value:
    """Multiply by itself."""
    return x * x


@operator("AbsGrad")
def abs_grad(op: Body, x: Value, dy: Value) -> Value:
    """Return dy with the sign of x."""
    return dy * op.Sign(x)


@operator("SqrtGrad")
def sqrt_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return dy / 2y."""
    return dy * 0.5 / y


@operator("ReciprocalGrad")
def reciprocal_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return -dy y²."""
    return -dy * (y * y)


@operator("AsinGrad")
def asin_grad(op: Body, x: Value, dy: Value) -> Value:
    """Return dy / sqrt(1 - x²)."""
    return dy / op.Sqrt(1.0 - x * x)


@operator("ACosGrad")
def acos_grad(op: Body, x: Value, dy: Value) -> Value:
    """Return -dy / sqrt(1 - x²)."""
    return -(dy / op.Sqrt(1.0 - x * x))


@operator("AtanGrad")
def atan_grad(op: Body, x: Value, dy: Value) -> Value:
    """Return dy / (1 + x²)."""
    return dy / (x * x + 1.0)


@operator("AsinhGrad")
def asinh_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return dy / cosh(y)."""
    cosh = (op.Exp(y) + op.Exp(-y)) * 0.5
    return dy / cosh


@operator("AcoshGrad")
def acosh_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return dy / sinh(y)."""
    # as exponentials: runtimes have hyperbolic functions in few element types
    sinh = (op.Exp(y) - op.Exp(-y)) * 0.5
    return dy / sinh


@lowering("Max", "Min")
def _lower_extreme(op: StepWriter, node: StepOperator) -> None:
    """Write the largest or smallest of several as MindSpore does: of two at a time."""
    first, *rest = node.inputs
    if not rest:
        op.Identity(first, outputs=node.outputs)
        return
    for item in rest[:-1]:
        (first,) = op.emit(node.op_type, (first, item), {})
    op.emit(node.op_type, (first, rest[-1]), {}, outputs=node.outputs)


def of_operands(op: StepWriter, back: Backward, *parts: Callable[[], StepTensor]) -> Gradients:
    """Return the gradient of each operand that one is wanted of, summed over what was broadcast.

    Args:
        op: Writes the operators.
        back: The forward operator.
        parts: Write the gradients in the shape of the result; one that nobody wants is not written.
    """
    return tuple(
        unbroadcast(op, part(), back.node.input(slot)) if is_wanted else None
        for slot, (is_wanted, part) in enumerate(zip(back.wants, parts, strict=False))
    )


@gradient("Identity")
def _identity(_op: StepWriter, back: Backward) -> Gradients:
    return back.dy


@gradient("Add", "Sum")
def _add(op: StepWriter, back: Backward) -> Gradients:
    return of_operands(op, back, *[lambda: back.dy] * len(back.node.inputs))


@gradient("Sub")
def _sub(op: StepWriter, back: Backward) -> Gradients:
    return of_operands(op, back, lambda: back.dy, lambda: op.Neg(back.dy))


@gradient("Mul")
def _mul(op: StepWriter, back: Backward) -> Gradients:
    a, b = back.x, back.node.input(1)
    return of_operands(op, back, lambda: _times(op, back.dy, b), lambda: _times(op, back.dy, a))


def _times(op: StepWriter, dy: StepTensor, other: StepTensor) -> StepTensor:
    # MindSpore multiplies by a number behind the gradient, by a tensor in front of it
    return op.Mul(dy, other) if other.value is not None and not other.rank else op.Mul(other, dy)


@gradient("Div")
def _div(op: StepWriter, back: Backward) -> Gradients:
    quotient = op.Div(back.dy, back.node.input(1))
    return of_operands(op, back, lambda: quotient, lambda: op.Neg(op.Mul(quotient, back.y)))


@gradient("Mod")
def _mod(op: StepWriter, back: Backward) -> Gradients:
    # of floating-point operands, which have fmod 1: the quotient is cut off towards zero
    a, b = back.x, back.node.input(1)

    def of_divisor() -> StepTensor:
        quotient = op.call("TruncateDiv", a, b, like=back.y)
        return op.Mul(op.Neg(back.dy), quotient)

    return of_operands(op, back, lambda: back.dy, of_divisor)


@gradient("Pow")
def _pow(op: StepWriter, back: Backward) -> Gradients:
    base, exponent = back.x, back.node.input(1)

    def of_base() -> StepTensor:
        power, lower = _powers(op, base, exponent)
        return op.Mul(op.Mul(op.Pow(base, lower), power), back.dy)

    def of_exponent() -> StepTensor:
        # where the base is not positive, its logarithm counts as zero
        positive = op.Where(op.LessOrEqual(base, 0.0), 1.0, base)
        slope = op.Mul(op.Mul(back.y, op.Log(positive)), back.dy)
        return slope if base.dtype is exponent.dtype else op.Cast(slope, to=exponent.dtype.onnx)

    return of_operands(op, back, of_base, of_exponent)


def _powers(op: StepWriter, base: StepTensor, exponent: StepTensor) -> tuple[StepTensor, StepTensor]:
    """Return an exponent in the element type of its base, and the exponent less one."""
    if exponent.value is not None:
        power = exponent.value.astype(base.dtype.numpy)
        # 0 * x**-1 would be nan at zero; 0 * x**0 is the zero that is meant
        return op.constant(power), op.constant(np.where(power == 0, power, power - 1).astype(power.dtype))
    wide = exponent if exponent.dtype is base.dtype else op.Cast(exponent, to=base.dtype.onnx)
    return wide, op.Sub(wide, 1.0)


@gradient("Max", "Min")
def _extreme(op: StepWriter, back: Backward) -> Gradients:
    """Send the gradient to the operand that was taken; equal ones get half of it each."""
    if len(back.node.inputs) == 1:
        return back.dy
    a, b, dy = back.x, back.node.input(1), back.dy
    shared = op.Where(op.Equal(a, b), op.Div(dy, 2.0), dy)
    loses, wins = (op.Less, op.Greater) if back.node.op_type == "Max" else (op.Greater, op.Less)
    return of_operands(
        op, back, lambda: op.Where(loses(a, b), 0.0, shared), lambda: op.Where(wins(a, b), 0.0, shared)
    )


@gradient("Mean")
def _mean(op: StepWriter, back: Backward) -> Gradients:
    share = op.call("RealDiv", back.dy, float(len(back.node.inputs)), like=back.dy)
    return of_operands(op, back, *[lambda: share] * len(back.node.inputs))


@gradient("Where")
def _where(op: StepWriter, back: Backward) -> Gradients:
    condition, dy = back.x, back.dy
    return of_operands(
        op,
        back,
        lambda: condition,  # of no gradient, and not wanted
        lambda: op.Where(condition, dy, 0.0),
        lambda: op.Where(condition, 0.0, dy),
    )


gradient("Sign", "Floor", "Ceil", "Round", "Hardmax")(constant_zero)

_GRADIENTS: Final[Mapping[str, GradientOperator]] = {
    **{name: (f"{name}Grad", "x dy", {}) for name in ("Abs", "Asin", "Atan")},
    "Acos": ("ACosGrad", "x dy", {}),
    **{
        name: (f"{name}Grad", "y dy", {})
        for name in ("Sqrt", "Reciprocal", "Asinh", "Acosh", "Sigmoid", "Tanh")
    },
}


@gradient(*_GRADIENTS)
def _one_operator(op: StepWriter, back: Backward) -> Gradients:
    return write_gradient(op, back, _GRADIENTS[back.node.op_type])


def _square(op: StepWriter, x: StepTensor) -> StepTensor:
    return op.call("Square", x, like=x)


_SLOPES: Final[Mapping[str, Callable[[StepWriter, StepTensor], StepTensor]]] = {
    "Sin": lambda op, x: op.Cos(x),
    "Cos": lambda op, x: op.Neg(op.Sin(x)),
    "Tan": lambda op, x: _square(op, op.Reciprocal(op.Cos(x))),
    "Sinh": lambda op, x: op.Cosh(x),
    "Cosh": lambda op, x: op.Sinh(x),
    "Atanh": lambda op, x: op.Div(1.0, op.Sub(1.0, op.Pow(x, 2.0))),
    "Erf": lambda op, x: op.Mul(op.Exp(op.Neg(_square(op, x))), 2 / math.sqrt(math.pi)),
    "Softsign": lambda op, x: op.Div(1.0, _square(op, op.Add(op.Abs(x), 1.0))),
}
"""The slope of a function at x, for those whose gradient MindSpore decomposes."""


@gradient(*_SLOPES)
def _slope(op: StepWriter, back: Backward) -> Gradients:
    return op.Mul(_SLOPES[back.node.op_type](op, back.x), back.dy)


@gradient("Neg")
def _neg(op: StepWriter, back: Backward) -> Gradients:
    return op.Neg(back.dy)


@gradient("Exp")
def _exp(op: StepWriter, back: Backward) -> Gradients:
    return op.Mul(back.y, back.dy)


@gradient("Log")
def _log(op: StepWriter, back: Backward) -> Gradients:
    return op.Div(back.dy, back.x)


@mindspore_gradient("Square")
def _square_gradient(op: StepWriter, back: Backward) -> Gradients:
    # MindSpore writes the general power, x**1 included
    return op.Mul(back.dy, op.Mul(op.Pow(back.x, 1.0), 2.0))


@gradient("Cast", "CastLike")
def _cast(op: StepWriter, back: Backward) -> Gradients:
    return op.Cast(back.dy, to=back.x.dtype.onnx)
