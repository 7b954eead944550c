"""Gradients of arithmetic of two and more operands, element by element, with broadcasting.

What is written is what MindSpore's own rules write, and in their order; see ``functions`` for operators of
one operand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from msdump.training.gradients.shapes import unbroadcast
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

Part = Callable[[], StepTensor]
"""Writes the gradient of one operand in the shape of the result."""


def of_operands(op: StepWriter, back: Backward, *parts: Part) -> Gradients:
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


@gradient("Add", "Sum")
def _add(op: StepWriter, back: Backward) -> Gradients:
    return of_operands(op, back, *[lambda: back.dy] * len(back.node.inputs))


@gradient("Sub")
def _sub(op: StepWriter, back: Backward) -> Gradients:
    return of_operands(op, back, lambda: back.dy, lambda: op.Neg(back.dy))


@gradient("Mul")
def _mul(op: StepWriter, back: Backward) -> Gradients:
    a, b = back.node.input(0), back.node.input(1)
    return of_operands(op, back, lambda: _times(op, back.dy, b), lambda: _times(op, back.dy, a))


def _times(op: StepWriter, dy: StepTensor, other: StepTensor) -> StepTensor:
    # MindSpore multiplies by a number behind the gradient, by a tensor in front of it
    result: StepTensor = (
        op.Mul(dy, other) if other.value is not None and not other.rank else op.Mul(other, dy)
    )
    return result


@gradient("Div")
def _div(op: StepWriter, back: Backward) -> Gradients:
    quotient = op.Div(back.dy, back.node.input(1))
    return of_operands(op, back, lambda: quotient, lambda: op.Neg(op.Mul(quotient, back.node.outputs[0])))


@gradient("Mod")
def _mod(op: StepWriter, back: Backward) -> Gradients:
    # of floating-point operands, which have fmod 1: the quotient is cut off towards zero
    a, b = back.node.input(0), back.node.input(1)

    def of_divisor() -> StepTensor:
        quotient = op.call("TruncateDiv", a, b, like=back.node.outputs[0])
        result: StepTensor = op.Mul(op.Neg(back.dy), quotient)
        return result

    return of_operands(op, back, lambda: back.dy, of_divisor)


@gradient("Pow")
def _pow(op: StepWriter, back: Backward) -> Gradients:
    base, exponent = back.node.input(0), back.node.input(1)

    def of_base() -> StepTensor:
        power, lower = _powers(op, base, exponent)
        result: StepTensor = op.Mul(op.Mul(op.Pow(base, lower), power), back.dy)
        return result

    def of_exponent() -> StepTensor:
        # where the base is not positive, its logarithm counts as zero
        positive = op.Where(op.LessOrEqual(base, 0.0), 1.0, base)
        slope = op.Mul(op.Mul(back.node.outputs[0], op.Log(positive)), back.dy)
        result: StepTensor = slope if base.dtype is exponent.dtype else op.Cast(slope, to=exponent.dtype.onnx)
        return result

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
        return (back.dy,)
    a, b, dy = back.node.input(0), back.node.input(1), back.dy
    shared = op.Where(op.Equal(a, b), op.Div(dy, 2.0), dy)
    loses, wins = (op.Less, op.Greater) if back.node.op_type == "Max" else (op.Greater, op.Less)
    return of_operands(
        op,
        back,
        lambda: op.Where(loses(a, b), 0.0, shared),
        lambda: op.Where(wins(a, b), 0.0, shared),
    )


@gradient("Mean")
def _mean(op: StepWriter, back: Backward) -> Gradients:
    share = op.call("RealDiv", back.dy, float(len(back.node.inputs)), like=back.dy)
    return of_operands(op, back, *[lambda: share] * len(back.node.inputs))


@gradient("Where")
def _where(op: StepWriter, back: Backward) -> Gradients:
    condition, dy = back.node.input(0), back.dy
    return of_operands(
        op,
        back,
        lambda: condition,  # of no gradient, and not wanted
        lambda: op.Where(condition, dy, 0.0),
        lambda: op.Where(condition, 0.0, dy),
    )
