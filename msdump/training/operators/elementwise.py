"""Operators element by element, with broadcasting: arithmetic, functions, activations; softmaxes, dropout.

Gradients are written in the operators of MindSpore's own rules, and in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from msdump.graph import MINDSPORE_DOMAIN
from msdump.graph.primitives import op
from msdump.training.operators.shapes import reduced, shape_of, swapped_with_last, unbroadcast
from msdump.training.rules import (
    Backward,
    Gradients,
    constant_zero,
    gradient,
    gradients,
    keep,
    lowering,
    mindspore_gradient,
)
from msdump.training.writer import StepOperator, StepTensor


@lowering("Max", "Min")
def _lower_extreme(node: StepOperator) -> None:
    """Write the largest or smallest of several as MindSpore does: of two at a time."""
    first, *rest = node.inputs
    if not rest:
        op.Identity(first, outputs=node.outputs)
        return
    for item in rest[:-1]:
        (first,) = op.emit(node.op_type, (first, item), {})
    op.emit(node.op_type, (first, rest[-1]), {}, outputs=node.outputs)


def of_operands(back: Backward, *parts: Callable[[], StepTensor]) -> Gradients:
    """Return the gradient of each operand that needs one, summed over broadcast axes.

    ``parts`` write the gradient of each operand in the shape of the result.
    """
    return tuple(
        unbroadcast(part(), back.input(slot)) if is_wanted else None
        for slot, (is_wanted, part) in enumerate(zip(back.wants, parts, strict=False))
    )


def _is_number(operand: StepTensor) -> bool:
    """Return whether an operand is a constant scalar, for which MindSpore has operators of its own."""
    return operand.value is not None and not operand.rank


def _shares(back: Backward, dy: StepTensor) -> Gradients:
    """Return the same gradient for each operand of a sum."""
    return of_operands(back, *[lambda: dy] * len(back.inputs))


gradients(
    {
        **dict.fromkeys(("Identity", "Dropout"), lambda back: back.dy),
        **dict.fromkeys(("Add", "Sum"), lambda back: _shares(back, back.dy)),
        "Mean": lambda back: _shares(back, _quotient(back.dy, len(back.inputs))),
        "Sub": lambda back: of_operands(back, lambda: back.dy, lambda: -back.dy),
        "Mul": lambda back: of_operands(
            back,
            # Muls, by a number, has the gradient first, Mul the other operand
            lambda: back.dy * back.input(1) if _is_number(back.input(1)) else back.input(1) * back.dy,
            lambda: back.x * back.dy,
        ),
        "Div": lambda back: of_operands(
            back, lambda: back.dy / back.input(1), lambda: -back.dy * (back.y / back.input(1))
        ),
        "Neg": lambda back: -back.dy,
        "Abs": lambda back: back.dy * op.Sign(back.x),
        "Reciprocal": lambda back: -back.dy * (back.y * back.y),
        "Exp": lambda back: back.dy * back.y,
        "Log": lambda back: back.dy / back.x,
        "Sin": lambda back: back.dy * op.Cos(back.x),
        "Cos": lambda back: back.dy * -op.Sin(back.x),
        "Tan": lambda back: back.dy * (1.0 + _square(back.y)),
        "Sinh": lambda back: op.Cosh(back.x) * back.dy,
        "Cosh": lambda back: op.Sinh(back.x) * back.dy,
        "Atanh": lambda back: back.dy / (1.0 - _square(back.x)),
        "Erf": lambda back: back.dy * (2 / math.sqrt(math.pi)) * op.Exp(-op.Pow(back.x, 2.0)),
        "Softsign": lambda back: back.dy * (1.0 / _square(1.0 + op.Abs(back.x))),
        **dict.fromkeys(("Cast", "CastLike"), lambda back: op.Cast(back.dy, to=back.x.dtype.onnx)),
        "LeakyRelu": lambda back: op.call(
            "LeakyReLUGradExt", back.dy, back.x, float(back.attribute("alpha", 0.01)), False, like=back.x
        ),
        "ThresholdedRelu": lambda back: op.Where(back.x > float(back.attribute("alpha", 1.0)), back.dy, 0.0),
    }
)

# MindSpore writes the general power, x**1 included
gradients({"Square": lambda back: back.dy * (op.Pow(back.x, 1.0) * 2.0)}, domain=MINDSPORE_DOMAIN)


def _quotient(dy: StepTensor, divisor: float) -> StepTensor:
    return op.call("RealDiv", dy, float(divisor), like=dy)


@gradient("Selu")
def _selu(back: Backward) -> Gradients:
    alpha = float(back.attribute("alpha", 1.6732631921768188))
    gamma = float(back.attribute("gamma", 1.0507010221481323))
    return op.call("EluGrad", back.dy, back.y, like=back.y, alpha=alpha, scale=gamma) * gamma


@gradient("Pow")
def _pow(back: Backward) -> Gradients:
    base, exponent = back.x, back.input(1)

    def of_base() -> StepTensor:
        power, lower = _powers(base, exponent)
        if _is_number(power):  # MindSpore's PowTensorScalar
            return back.dy * (op.Pow(base, lower) * power)
        return power * op.Pow(base, lower) * back.dy

    def of_exponent() -> StepTensor:
        # where the base is not positive, its logarithm counts as zero
        positive = op.Where(op.LessOrEqual(base, 0.0), 1.0, base)
        slope = back.y * op.Log(positive) * back.dy
        return slope if base.dtype is exponent.dtype else op.Cast(slope, to=exponent.dtype.onnx)

    return of_operands(back, of_base, of_exponent)


def _powers(base: StepTensor, exponent: StepTensor) -> tuple[StepTensor, StepTensor]:
    """Return an exponent in the element type of its base, and the exponent less one."""
    if exponent.value is not None:
        power = exponent.value.astype(base.dtype.numpy)
        # exponent 0 stays 0: 0 * x**-1 would be NaN at x = 0, 0 * x**0 is 0
        return op.constant(power), op.constant(np.where(power == 0, power, power - 1).astype(power.dtype))
    wide = exponent if exponent.dtype is base.dtype else op.Cast(exponent, to=base.dtype.onnx)
    return wide, wide - 1.0


@gradient("Max", "Min")
def _extreme(back: Backward) -> Gradients:
    """Give the gradient to the larger (Max) or smaller operand; equal operands get half each."""
    if len(back.inputs) == 1:
        return back.dy
    a, b, dy = back.x, back.input(1), back.dy
    shared = op.Where(op.Equal(a, b), dy / 2.0, dy)
    zeros = op.call("FillV2", shape_of(dy), np.zeros((), dy.dtype.numpy), like=dy)
    loses, wins = (op.Less, op.Greater) if back.op_type == "Max" else (op.Greater, op.Less)
    return of_operands(
        back, lambda: op.Where(loses(a, b), zeros, shared), lambda: op.Where(wins(a, b), zeros, shared)
    )


@gradient("Where")
def _where(back: Backward) -> Gradients:
    condition, dy = back.x, back.dy
    zeros = op.call("ZerosLike", dy, like=dy)
    return of_operands(
        back,
        lambda: condition,  # never called: a condition needs no gradient
        lambda: op.Where(condition, dy, zeros),
        lambda: op.Where(condition, zeros, dy),
    )


gradient("Sign", "Floor", "Ceil", "Round", "Hardmax")(constant_zero)

GradientOperator = tuple[str, Mapping[str, float]]
"""Inputs of MindSpore's operator that gives a gradient (``"dy x"``), its attributes with their defaults."""

_GRADIENTS: Final[Mapping[str, GradientOperator]] = {
    **dict.fromkeys(("Asin", "Acos", "Atan"), ("x dy", {})),
    **dict.fromkeys(("Sqrt", "Asinh", "Acosh", "Sigmoid", "Tanh"), ("y dy", {})),
    **dict.fromkeys(("HardSwish", "Softplus"), ("dy x", {})),
    "Relu": ("dy y", {}),
    "Elu": ("dy y", {"alpha": 1.0}),
    "HardSigmoid": ("dy x", {"alpha": 0.2, "beta": 0.5}),
}


@gradient(*_GRADIENTS)
def _one_operator(back: Backward) -> Gradients:
    slots, defaults = _GRADIENTS[back.op_type]
    attributes: dict[str, Any] = {
        key: float(back.attribute(key, default)) for key, default in defaults.items()
    }
    inputs = [getattr(back, slot) for slot in slots.split()]
    # MindSpore spells ReLU in another way there
    name = "ReluGrad" if back.primitive == "ReLU" else f"{back.primitive}Grad"
    return op.call(name, *inputs, like=back.x if "x" in slots else back.y, **attributes)


def _square(x: StepTensor) -> StepTensor:
    return op.call("Square", x, like=x)


@lowering("Clip")
def _lower_clip(node: StepOperator) -> None:
    x, out = node.x, node.y
    bounds = [node.constant(slot) for slot in (1, 2)]
    # a conversion of attributes to inputs writes float32 whatever the type of the tensor is
    typed = [
        item if bound is None else op.constant(bound.astype(x.dtype.numpy))
        for item, bound in zip(node.inputs[1:], bounds, strict=False)
    ]
    op.emit("Clip", (x, *typed), {}, outputs=[out])


@gradient("Clip")
def _clip(back: Backward) -> Gradients:
    """Give the gradient to x between the bounds (inclusive), beyond a bound to that bound."""
    x, dy = back.x, back.dy
    if back.primitive == "ReLU6":
        return op.call("ReLU6Grad", dy, x, like=x)
    low, high = (*back.inputs[1:], None, None)[:2]
    wants_low, wants_high = (*back.wants[1:], False, False)[:2]
    dx = dlow = dhigh = None
    if back.wants[0]:
        inside = [] if low is None else [op.GreaterOrEqual(x, low)]
        inside += [] if high is None else [op.LessOrEqual(x, high)]
        dx = op.Where(op.And(*inside) if len(inside) > 1 else inside[0], dy, 0.0) if inside else dy
    if low is not None and wants_low:
        is_below = x < low
        is_taken = is_below if high is None else op.And(is_below, low < high)
        dlow = unbroadcast(op.Where(is_taken, dy, 0.0), low)
    if high is not None and wants_high:
        is_above = (x if low is None else op.Max(x, low)) > high
        dhigh = unbroadcast(op.Where(is_above, dy, 0.0), high)
    return dx, dlow, dhigh


@gradient("PRelu")
def _prelu(back: Backward) -> Gradients:
    x, weight = back.x, back.input(1)
    padded = (1,) * (x.rank - weight.rank) + weight.shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1 and x.shape[axis] != 1)
    return op.call("PReLUGrad", back.dy, x, weight, like=[x, weight], axes=axes)


@gradient("Celu")
def _celu(back: Backward) -> Gradients:
    x, y, alpha = back.x, back.y, float(back.attribute("alpha", 1.0))
    below = _quotient(y, alpha) + 1.0
    return back.dy * op.Where(op.GreaterOrEqual(x, 0.0), 1.0, below)


@gradient("Mish")
def _mish(back: Backward) -> Gradients:
    x, dy = back.x, back.dy
    tanh = op.Tanh(op.Softplus(x))
    inner = op.call("TanhGrad", tanh, x * dy, like=x)
    return tanh * dy + op.call("SoftplusGrad", inner, x, like=x)


@gradient("Shrink")
def _shrink(back: Backward) -> Gradients:
    x, bound = back.x, float(back.attribute("lambd", 0.5))
    name = "SoftShrinkGrad" if back.primitive == "SoftShrink" else "HShrinkGrad"
    return op.call(name, back.dy, x, bound, like=x)


@gradient("Swish")
def _silu(back: Backward) -> Gradients:
    """Write the gradient of x sigmoid(alpha x), which has the slope of SiLU at alpha x."""
    dy, alpha = back.dy, float(back.attribute("alpha", 1.0))
    x = back.x if alpha == 1.0 else back.x * alpha
    sigmoid = op.Sigmoid(x)
    along, rest = x * dy, sigmoid * dy
    return op.call("SigmoidGrad", sigmoid, along, like=x) + rest


@gradient("Gelu")
def _gelu(back: Backward) -> Gradients:
    approximate = str(back.attribute("approximate", "none"))
    return op.call("GeLUGrad", back.dy, back.x, back.y, like=back.y, approximate=approximate)


@gradient("Softmax")
def _softmax(back: Backward) -> Gradients:
    """Write MindSpore's SoftmaxBackward, which works along the last axis: another one is swapped with it."""
    axis = back.attribute("axis", -1)
    y, dy = swapped_with_last(back.y, axis), swapped_with_last(back.dy, axis)
    dx = y * (dy - reduced("ReduceSum", y * dy, [-1], keep_dims=True))
    return swapped_with_last(dx, axis)


@gradient("LogSoftmax")
def _log_softmax(back: Backward) -> Gradients:
    y, axis = back.y, back.attribute("axis", -1)
    return op.call("LogSoftmaxGrad", y, back.dy, axis, like=y)


@lowering("Dropout")
def _lower_dropout(node: StepOperator) -> None:
    """Write MindSpore's Dropout, unless the model has a ratio of 0 or a constant false ``training_mode``.

    A model without the input ``training_mode`` (inference form) is trained with dropout.
    """
    if not op.drops and not node.output(1):
        op.Identity(*node.inputs[:1], outputs=node.outputs)
        return
    kept = _kept_share(node)
    if kept.value is not None and kept.value == 1:
        keep(node)
        return
    x, (y, *masks) = node.x, node.outputs
    seed = node.attribute("seed", None)
    _, mask = op.call(
        "Dropout",
        x,
        kept,
        1,
        0,
        like=[y, x],
        outputs=[y],
        generator_seed=op.next_seed() if seed is None else seed,
    )
    if masks:
        op.Cast(mask, to=masks[0].dtype.onnx, outputs=masks)


def _kept_share(node: StepOperator) -> StepTensor:
    """Return the share of kept elements, a constant if ratio and training mode are constants."""
    ratio, training = (node.optional(slot) for slot in (1, 2))
    dropped = op.constant(np.array(0.5, np.float32)) if ratio is None else ratio
    if training is not None and training.value is not None and not training.value:
        return op.constant(np.array(1, np.float32))
    if dropped.value is None:
        share = 1.0 - op.Cast(dropped, to=1)
    else:
        share = op.constant(np.array(1 - dropped.value.astype(np.float32), np.float32).reshape(()))
    if training is not None and training.value is None:
        share = op.Where(training, share, 1.0)
    return share


@mindspore_gradient("Dropout")
def _dropout(back: Backward) -> Gradients:
    keep_prob, mask = back.input(1), back.outputs[1]
    if keep_prob.value is not None:
        share = float(str(keep_prob.value))  # MindSpore's attribute is 0.7, not float32's 0.699999988
        return op.call("DropoutGrad", back.dy, mask, like=back.dy, keep_prob=share)
    if keep_prob.dtype is not mask.dtype:
        keep_prob = op.Cast(keep_prob, to=mask.dtype.onnx)
    return back.dy * mask / keep_prob
