"""Operators element by element, with broadcasting: arithmetic, functions, activations; softmaxes, dropout.

Gradients are written in the operators of MindSpore's own rules, and in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from msdump.graph import MINDSPORE_DOMAIN
from msdump.graph.kernel import FLOAT32
from msdump.training.body import Body, Value, operator, operators
from msdump.training.operators.shapes import reduced, unbroadcast
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
from msdump.training.writer import StepOperator, StepTensor, StepWriter

operators(
    {
        "RealDiv": ("Divide.", lambda op, x, y: x / y),
        "Square": ("Multiply by itself.", lambda op, x: x * x),
        "AbsGrad": ("Return dy with the sign of x.", lambda op, x, dy: dy * op.Sign(x)),
        "SqrtGrad": ("Return dy / 2y.", lambda op, y, dy: dy * 0.5 / y),
        "ReciprocalGrad": ("Return -dy y².", lambda op, y, dy: -dy * (y * y)),
        "AsinGrad": ("Return dy / sqrt(1 - x²).", lambda op, x, dy: dy / op.Sqrt(1.0 - x * x)),
        "ACosGrad": ("Return -dy / sqrt(1 - x²).", lambda op, x, dy: -(dy / op.Sqrt(1.0 - x * x))),
        "AtanGrad": ("Return dy / (1 + x²).", lambda op, x, dy: dy / (x * x + 1.0)),
        # as exponentials: runtimes have hyperbolic functions in few element types
        "AsinhGrad": ("Return dy / cosh(y).", lambda op, y, dy: dy / ((op.Exp(y) + op.Exp(-y)) * 0.5)),
        "AcoshGrad": ("Return dy / sinh(y).", lambda op, y, dy: dy / ((op.Exp(y) - op.Exp(-y)) * 0.5)),
        "SigmoidGrad": ("Return dy y (1 - y).", lambda op, y, dy: dy * (y * (1.0 - y))),
        "TanhGrad": ("Return dy (1 - y²).", lambda op, y, dy: dy * (1.0 - y * y)),
        "SoftplusGrad": ("Return dy sigmoid(x).", lambda op, dy, x: dy * op.Sigmoid(x)),
        "ReluGrad": (
            "Pass a gradient where the forward output is positive.",
            lambda op, dy, y: op.Where(y > 0.0, dy, 0.0),
        ),
        "ReLU6": ("Cut off below 0 and above 6.", lambda op, x: op.Clip(x, 0.0, 6.0)),
        "ReLU6Grad": (
            "Pass a gradient where the input lies between 0 and 6.",
            lambda op, dy, x: op.Where(op.And(x > 0.0, x < 6.0), dy, 0.0),
        ),
        "LeakyReLUGradExt": (
            "Pass a gradient where the input is positive, a share of it elsewhere.",
            lambda op, dy, x, negative_slope, _is_result: op.Where(x > 0.0, dy, dy * negative_slope),
        ),
        "EluGrad": (
            "Return dy where the forward output is positive, elsewhere dy (y + alpha).",
            lambda op, dy, y, *, alpha: op.Where(y > 0.0, dy, dy * (y + float(alpha))),
        ),
        **dict.fromkeys(
            ("SoftShrinkGrad", "HShrinkGrad"),
            (
                "Pass a gradient where the input is larger than a bound, or smaller than its negative.",
                lambda op, dy, x, lambd: op.Where(op.Abs(x) > lambd, dy, 0.0),
            ),
        ),
        "Softmax": (
            "Return exp(x) over its sum along an axis.",
            lambda op, x, _axis, *, axis: op.Softmax(x, axis=axis),
        ),
        "LogSoftmax": (
            "Return the logarithm of a softmax.",
            lambda op, x, _axis, *, axis: op.LogSoftmax(x, axis=axis),
        ),
        "LogSoftmaxGrad": (
            "Return dy - exp(y) sum(dy).",
            lambda op, y, dy, axis: dy - op.Exp(y) * op.ReduceSum(dy, op.Reshape(axis, [-1]), keepdims=1),
        ),
        "DropoutGrad": (
            "Pass the gradient of the kept elements.",
            lambda op, dy, mask, *, keep_prob: dy * mask / keep_prob,
        ),
    }
)


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
    """Return the wanted gradient of each operand, summed over broadcast axes.

    The parts write the gradients in the shape of the result.
    """
    return tuple(
        unbroadcast(op, part(), back.node.input(slot)) if is_wanted else None
        for slot, (is_wanted, part) in enumerate(zip(back.wants, parts, strict=False))
    )


def _times(op: StepWriter, dy: StepTensor, other: StepTensor) -> StepTensor:
    # MindSpore multiplies by a number behind the gradient, by a tensor in front of it
    return op.Mul(dy, other) if other.value is not None and not other.rank else op.Mul(other, dy)


def _shares(op: StepWriter, back: Backward, dy: StepTensor) -> Gradients:
    """Return the same gradient for each operand of a sum."""
    return of_operands(op, back, *[lambda: dy] * len(back.node.inputs))


gradients(
    {
        **dict.fromkeys(("Identity", "Dropout"), lambda op, back: back.dy),
        **dict.fromkeys(("Add", "Sum"), lambda op, back: _shares(op, back, back.dy)),
        "Mean": lambda op, back: _shares(op, back, _quotient(op, back.dy, len(back.node.inputs))),
        "Sub": lambda op, back: of_operands(op, back, lambda: back.dy, lambda: op.Neg(back.dy)),
        "Mul": lambda op, back: of_operands(
            op,
            back,
            lambda: _times(op, back.dy, back.node.input(1)),
            lambda: _times(op, back.dy, back.x),
        ),
        "Neg": lambda op, back: op.Neg(back.dy),
        "Exp": lambda op, back: op.Mul(back.y, back.dy),
        "Log": lambda op, back: op.Div(back.dy, back.x),
        **dict.fromkeys(("Cast", "CastLike"), lambda op, back: op.Cast(back.dy, to=back.x.dtype.onnx)),
        "LeakyRelu": lambda op, back: op.call(
            "LeakyReLUGradExt", back.dy, back.x, float(back.node.attribute("alpha", 0.01)), False, like=back.x
        ),
        "ThresholdedRelu": lambda op, back: op.Where(
            op.Greater(back.x, float(back.node.attribute("alpha", 1.0))), back.dy, 0.0
        ),
    }
)

# MindSpore writes the general power, x**1 included
gradients(
    {"Square": lambda op, back: op.Mul(back.dy, op.Mul(op.Pow(back.x, 1.0), 2.0))}, domain=MINDSPORE_DOMAIN
)


def _quotient(op: StepWriter, dy: StepTensor, divisor: float) -> StepTensor:
    return op.call("RealDiv", dy, float(divisor), like=dy)


@gradient("Selu")
def _selu(op: StepWriter, back: Backward) -> Gradients:
    x, y = back.x, back.y
    alpha = float(back.node.attribute("alpha", 1.6732631921768188))
    gamma = float(back.node.attribute("gamma", 1.0507010221481323))
    return op.Mul(back.dy, op.Where(op.Greater(x, 0.0), gamma, op.Add(y, alpha * gamma)))


@gradient("Div")
def _div(op: StepWriter, back: Backward) -> Gradients:
    quotient = op.Div(back.dy, back.node.input(1))
    return of_operands(op, back, lambda: quotient, lambda: op.Neg(op.Mul(quotient, back.y)))


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

GradientOperator = tuple[str, str, Mapping[str, float]]
"""MindSpore's operator that gives a gradient, its inputs (``"dy x"``), its attributes with their defaults."""

_GRADIENTS: Final[Mapping[str, GradientOperator]] = {
    **{name: (f"{name}Grad", "x dy", {}) for name in ("Abs", "Asin", "Atan")},
    "Acos": ("ACosGrad", "x dy", {}),
    **{
        name: (f"{name}Grad", "y dy", {})
        for name in ("Sqrt", "Reciprocal", "Asinh", "Acosh", "Sigmoid", "Tanh")
    },
    "Relu": ("ReluGrad", "dy y", {}),
    "ReLU6": ("ReLU6Grad", "dy x", {}),
    "Elu": ("EluGrad", "dy y", {"alpha": 1.0}),
    "HardSwish": ("HSwishGrad", "dy x", {}),
    "HardSigmoid": ("HSigmoidGrad", "dy x", {"alpha": 0.2, "beta": 0.5}),
    "Softplus": ("SoftplusGrad", "dy x", {}),
}


@gradient(*(name for name in _GRADIENTS if name != "ReLU6"))
@mindspore_gradient("ReLU6")
def _one_operator(op: StepWriter, back: Backward) -> Gradients:
    name, slots, defaults = _GRADIENTS[back.node.op_type]
    attributes: dict[str, Any] = {
        key: float(back.node.attribute(key, default)) for key, default in defaults.items()
    }
    inputs = [getattr(back, slot) for slot in slots.split()]
    return op.call(name, *inputs, like=back.x if "x" in slots else back.y, **attributes)


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
"""The slope of a function at x, where MindSpore decomposes the gradient."""


@gradient(*_SLOPES)
def _slope(op: StepWriter, back: Backward) -> Gradients:
    return op.Mul(_SLOPES[back.node.op_type](op, back.x), back.dy)


@operator("PReLUGrad")
def prelu_grad(op: Body, dy: Value, x: Value, weight: Value, *, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Return the gradients of input and slopes; the slopes repeat along some axes."""
    is_positive = x > 0.0
    dx = op.Where(is_positive, dy, dy * weight)
    dw = op.Where(is_positive, 0.0, dy * x)
    summed = op.ReduceSum(dw, axes, keepdims=0) if axes else dw
    return dx, op.Reshape(summed, op.Shape(weight))


@operator("SiLUGrad")
def silu_grad(op: Body, dy: Value, x: Value) -> Value:
    """Return dy s (1 + x (1 - s)) with s = sigmoid(x)."""
    s = op.Sigmoid(x)
    return dy * (s * (x * (1.0 - s) + 1.0))


@operator("HSwishGrad")
def hswish_grad(op: Body, dy: Value, x: Value) -> Value:
    """Return the gradient of x relu6(x + 3) / 6: dy (2x + 3) / 6 between -3 and 3, 0 below, dy above."""
    inner = (x * 2.0 + 3.0) / 6.0
    slope = op.Where(x > 3.0, 1.0, op.Where(x < -3.0, 0.0, inner))
    return dy * slope


@operator("HSigmoidGrad")
def hsigmoid_grad(op: Body, dy: Value, x: Value, *, alpha: float, beta: float) -> Value:
    """Return dy alpha where alpha x + beta lies between 0 and 1, else 0."""
    line = x * float(alpha) + float(beta)
    return op.Where(op.And(line > 0.0, line < 1.0), dy * float(alpha), 0.0)


@operator("GeLUGrad")
def gelu_grad(op: Body, dy: Value, x: Value, _y: Value, *, approximate: str) -> Value:
    """Return the gradient of x times the normal distribution, by the error function or by tanh."""
    if approximate == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        squared = x * x
        argument = x * (squared * cubic + 1.0) * scale
        tanh = op.Tanh(argument)
        slope = (squared * (3 * cubic) + 1.0) * scale
        inner = x * slope * (1.0 - tanh * tanh)
        return dy * ((tanh + 1.0 + inner) * 0.5)
    share = (op.Erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    density = op.Exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return dy * (share + x * density)


@lowering("Softmax", "LogSoftmax")
def _lower_softmax(op: StepWriter, node: StepOperator) -> None:
    axis = node.attribute("axis", -1)
    slot = [axis] if node.op_type == "Softmax" else axis
    op.call(node.op_type, node.x, slot, outputs=node.outputs, axis=axis)


@lowering("Clip")
def _lower_clip(op: StepWriter, node: StepOperator) -> None:
    x, out = node.x, node.y
    bounds = [node.constant(slot) for slot in (1, 2)]
    if [None if bound is None else float(bound) for bound in bounds] == [0.0, 6.0]:
        op.call("ReLU6", x, outputs=[out])
        return
    # a conversion of attributes to inputs writes float32 whatever the type of the tensor is
    typed = [
        item if bound is None else op.constant(bound.astype(x.dtype.numpy))
        for item, bound in zip(node.inputs[1:], bounds, strict=False)
    ]
    op.emit("Clip", (x, *typed), {}, outputs=[out], primitive="ClipByValue")


@gradient("Clip")
def _clip(op: StepWriter, back: Backward) -> Gradients:
    """Pass the gradient between the bounds, themselves included; beyond, it is that of the bound."""
    x, dy = back.x, back.dy
    low, high = (*back.node.inputs[1:], None, None)[:2]
    wants_low, wants_high = (*back.wants[1:], False, False)[:2]
    dx = dlow = dhigh = None
    if back.wants[0]:
        inside = [] if low is None else [op.GreaterOrEqual(x, low)]
        inside += [] if high is None else [op.LessOrEqual(x, high)]
        dx = op.Where(op.And(*inside) if len(inside) > 1 else inside[0], dy, 0.0) if inside else dy
    if low is not None and wants_low:
        is_below = op.Less(x, low)
        is_taken = is_below if high is None else op.And(is_below, op.Less(low, high))
        dlow = unbroadcast(op, op.Where(is_taken, dy, 0.0), low)
    if high is not None and wants_high:
        is_above = op.Greater(x if low is None else op.Max(x, low), high)
        dhigh = unbroadcast(op, op.Where(is_above, dy, 0.0), high)
    return dx, dlow, dhigh


@gradient("PRelu")
def _prelu(op: StepWriter, back: Backward) -> Gradients:
    x, weight = back.x, back.node.input(1)
    padded = (1,) * (x.rank - weight.rank) + weight.shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1 and x.shape[axis] != 1)
    return op.call("PReLUGrad", back.dy, x, weight, like=[x, weight], axes=axes)


@gradient("Celu")
def _celu(op: StepWriter, back: Backward) -> Gradients:
    x, y, alpha = back.x, back.y, float(back.node.attribute("alpha", 1.0))
    below = op.Add(_quotient(op, y, alpha), 1.0)
    return op.Mul(back.dy, op.Where(op.GreaterOrEqual(x, 0.0), 1.0, below))


@gradient("Mish")
def _mish(op: StepWriter, back: Backward) -> Gradients:
    x, dy = back.x, back.dy
    tanh = op.Tanh(op.Softplus(x))
    inner = op.call("TanhGrad", tanh, op.Mul(x, dy), like=x)
    return op.Add(op.Mul(tanh, dy), op.call("SoftplusGrad", inner, x, like=x))


@gradient("Shrink")
def _shrink(op: StepWriter, back: Backward) -> Gradients:
    x, bound = back.x, float(back.node.attribute("lambd", 0.5))
    name = "SoftShrinkGrad" if back.node.primitive == "SoftShrink" else "HShrinkGrad"
    return op.call(name, back.dy, x, bound, like=x)


@gradient("Swish")
def _silu(op: StepWriter, back: Backward) -> Gradients:
    """Write the gradient of x sigmoid(alpha x), which has the slope of SiLU at alpha x."""
    x, alpha = back.x, float(back.node.attribute("alpha", 1.0))
    return op.call("SiLUGrad", back.dy, x if alpha == 1.0 else op.Mul(x, alpha), like=x)


@gradient("Gelu")
def _gelu(op: StepWriter, back: Backward) -> Gradients:
    approximate = str(back.node.attribute("approximate", "none"))
    return op.call("GeLUGrad", back.dy, back.x, back.y, like=back.y, approximate=approximate)


@mindspore_gradient("Softmax")
def _softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.y, back.node.attributes["axis"]
    total = reduced(op, "ReduceSum", op.Mul(y, back.dy), [axis], keep_dims=True)
    return op.Mul(y, op.Sub(back.dy, total))


@mindspore_gradient("LogSoftmax")
def _log_softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.y, back.node.attributes["axis"]
    return op.call("LogSoftmaxGrad", y, back.dy, axis, like=y)


@operator("Dropout")
def dropout(
    op: Body, x: Value, keep_prob: Value, _seed0: Value, _seed1: Value, *, generator_seed: int
) -> tuple[Value, Value]:
    """Keep some elements, divided by the share that is kept; return them and the mask of zeros and ones.

    The random numbers go on from step to step, so that each has a mask of its own.
    """
    numbers = op.RandomUniformLike(x, dtype=FLOAT32.onnx, seed=float(generator_seed))
    mask = op.CastLike(numbers < keep_prob, x)
    return x * mask / op.CastLike(keep_prob, x), mask


@lowering("Dropout")
def _lower_dropout(op: StepWriter, node: StepOperator) -> None:
    """Write MindSpore's Dropout, unless the model says that nothing is dropped.

    A model in inference form, which does not say ``training_mode`` at all, is trained with dropout.
    """
    if not op.drops and not node.output(1):
        op.Identity(*node.inputs[:1], outputs=node.outputs)
        return
    kept = _kept_share(op, node)
    if kept.value is not None and kept.value == 1:
        keep(op, node)
        return
    x, (y, *masks) = node.x, node.outputs
    seed = node.attribute("seed", None)
    _, mask = op.call(
        "Dropout",
        *(x, kept, 1, 0),
        like=[y, x],
        outputs=[y],
        generator_seed=op.next_seed() if seed is None else seed,
    )
    if masks:
        op.Cast(mask, to=masks[0].dtype.onnx, outputs=masks)


def _kept_share(op: StepWriter, node: StepOperator) -> StepTensor:
    """Return the share that is kept, a constant where the model's inputs are constants."""
    ratio, training = (node.optional(slot) for slot in (1, 2))
    dropped = op.constant(np.array(0.5, np.float32)) if ratio is None else ratio
    if training is not None and training.value is not None and not training.value:
        return op.constant(np.array(1, np.float32))
    if dropped.value is None:
        share = op.Sub(1.0, op.Cast(dropped, to=1))
    else:
        share = op.constant(np.array(1 - dropped.value.astype(np.float32), np.float32).reshape(()))
    if training is not None and training.value is None:
        share = op.Where(training, share, 1.0)
    return share


@mindspore_gradient("Dropout")
def _dropout(op: StepWriter, back: Backward) -> Gradients:
    keep_prob, mask = back.node.input(1), back.node.outputs[1]
    if keep_prob.value is not None:
        share = float(str(keep_prob.value))  # 0.7, as MindSpore's attribute has it, for the number in float32
        return op.call("DropoutGrad", back.dy, mask, like=back.dy, keep_prob=share)
    if keep_prob.dtype is not mask.dtype:
        keep_prob = op.Cast(keep_prob, to=mask.dtype.onnx)
    return op.Div(op.Mul(back.dy, mask), keep_prob)
