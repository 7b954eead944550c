"""Operators element by element, with broadcasting: arithmetic, functions, activations; softmaxes, dropout.

Gradients are written in the operators of MindSpore's own rules, and in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from msdump.graph.kernel import FLOAT32
from msdump.training.body import Body, Value, operator
from msdump.training.operators.shapes import reduced, unbroadcast
from msdump.training.rules import (
    Backward,
    Gradients,
    constant_zero,
    gradient,
    keep,
    lowering,
    mindspore_gradient,
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
    """Return the wanted gradient of each operand, summed over broadcast axes.

    The parts write the gradients in the shape of the result.
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


@operator("ReluGrad")
def relu_grad(op: Body, dy: Value, y: Value) -> Value:
    """Pass a gradient where the forward output is positive."""
    return op.Where(y > 0.0, dy, 0.0)


@operator("ReLU6")
def relu6(op: Body, x: Value) -> Value:
    """Cut off below 0 and above 6."""
    return op.Clip(x, 0.0, 6.0)


@operator("ReLU6Grad")
def relu6_grad(op: Body, dy: Value, x: Value) -> Value:
    """Pass a gradient where the input lies between 0 and 6."""
    return op.Where(_between(op, x, 0.0, 6.0), dy, 0.0)


@operator("LeakyReLUGradExt")
def leaky_relu_grad(op: Body, dy: Value, x: Value, negative_slope: Value, _is_result: Value) -> Value:
    """Pass a gradient where the input is positive, a share of it elsewhere."""
    return op.Where(x > 0.0, dy, dy * negative_slope)


@operator("PReLUGrad")
def prelu_grad(op: Body, dy: Value, x: Value, weight: Value, *, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Return the gradients of input and slopes; the slopes repeat along some axes."""
    is_positive = x > 0.0
    dx = op.Where(is_positive, dy, dy * weight)
    dw = op.Where(is_positive, 0.0, dy * x)
    summed = op.ReduceSum(dw, axes, keepdims=0) if axes else dw
    return dx, op.Reshape(summed, op.Shape(weight))


@operator("EluGrad")
def elu_grad(op: Body, dy: Value, y: Value, *, alpha: float) -> Value:
    """Return dy where the forward output is positive, elsewhere dy (y + alpha)."""
    return op.Where(y > 0.0, dy, dy * (y + float(alpha)))


@operator("SigmoidGrad")
def sigmoid_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return dy y (1 - y)."""
    return dy * (y * (1.0 - y))


@operator("TanhGrad")
def tanh_grad(op: Body, y: Value, dy: Value) -> Value:
    """Return dy (1 - y²)."""
    return dy * (1.0 - y * y)


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
    return op.Where(_between(op, line, 0.0, 1.0), dy * float(alpha), 0.0)


@operator("SoftplusGrad")
def softplus_grad(op: Body, dy: Value, x: Value) -> Value:
    """Return dy sigmoid(x)."""
    return dy * op.Sigmoid(x)


@operator("SoftShrinkGrad")
@operator("HShrinkGrad")
def shrink_grad(op: Body, dy: Value, x: Value, lambd: Value) -> Value:
    """Pass a gradient where the input is larger than a bound, or smaller than its negative."""
    return op.Where(op.Abs(x) > lambd, dy, 0.0)


@operator("GeLUGrad")
def gelu_grad(op: Body, dy: Value, x: Value, _y: Value, *, approximate: str) -> Value:
    """Return the gradient of x times the normal distribution, by the error function or by tanh."""
    if approximate == "tanh":
        return fast_gelu_grad(op, dy, x)
    share = (op.Erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    density = op.Exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return dy * (share + x * density)


@operator("Softmax")
def softmax(op: Body, x: Value, _axis: Value, *, axis: int) -> Value:
    """Return exp(x) over its sum along an axis."""
    return op.Softmax(x, axis=axis)


@operator("LogSoftmax")
def log_softmax(op: Body, x: Value, _axis: Value, *, axis: int) -> Value:
    """Return the logarithm of a softmax."""
    return op.LogSoftmax(x, axis=axis)


@operator("LogSoftmaxGrad")
def log_softmax_grad(op: Body, y: Value, dy: Value, axis: Value) -> Value:
    """Return dy - exp(y) sum(dy)."""
    return dy - op.Exp(y) * op.ReduceSum(dy, op.Reshape(axis, [-1]), keepdims=1)


@operator("FastGeLUGrad")
def fast_gelu_grad(op: Body, dy: Value, x: Value) -> Value:
    """Return the gradient of GeLU by tanh."""
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = x * x
    argument = x * (squared * cubic + 1.0) * scale
    tanh = op.Tanh(argument)
    slope = (squared * (3 * cubic) + 1.0) * scale
    inner = x * slope * (1.0 - tanh * tanh)
    return dy * ((tanh + 1.0 + inner) * 0.5)


def _between(op: Body, x: Value, low: float, high: float) -> Value:
    return op.And(x > low, x < high)


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


_MICROSOFT = "com.microsoft"


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


@gradient("LeakyRelu")
def _leaky_relu(op: StepWriter, back: Backward) -> Gradients:
    x, slope = back.x, float(back.node.attribute("alpha", 0.01))
    return op.call("LeakyReLUGradExt", back.dy, x, slope, False, like=x)


@gradient("PRelu")
def _prelu(op: StepWriter, back: Backward) -> Gradients:
    x, weight = back.x, back.node.input(1)
    padded = (1,) * (x.rank - weight.rank) + weight.shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1 and x.shape[axis] != 1)
    dx, dw = op.call("PReLUGrad", back.dy, x, weight, like=[x, weight], axes=axes)
    return dx, dw


@gradient("Celu")
def _celu(op: StepWriter, back: Backward) -> Gradients:
    x, y, alpha = back.x, back.y, float(back.node.attribute("alpha", 1.0))
    below = op.Add(op.call("RealDiv", y, alpha, like=y), 1.0)
    return op.Mul(back.dy, op.Where(op.GreaterOrEqual(x, 0.0), 1.0, below))


@gradient("Selu")
def _selu(op: StepWriter, back: Backward) -> Gradients:
    x, y = back.x, back.y
    alpha = float(back.node.attribute("alpha", 1.6732631921768188))
    gamma = float(back.node.attribute("gamma", 1.0507010221481323))
    return op.Mul(back.dy, op.Where(op.Greater(x, 0.0), gamma, op.Add(y, alpha * gamma)))


@gradient("ThresholdedRelu")
def _thresholded_relu(op: StepWriter, back: Backward) -> Gradients:
    x, threshold = back.x, float(back.node.attribute("alpha", 1.0))
    return op.Where(op.Greater(x, threshold), back.dy, 0.0)


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
@gradient("QuickGelu", domain=_MICROSOFT)
def _silu(op: StepWriter, back: Backward) -> Gradients:
    """Write the gradient of x sigmoid(alpha x), which has the slope of SiLU at alpha x."""
    x, alpha = back.x, float(back.node.attribute("alpha", 1.702 if back.node.domain else 1.0))
    return op.call("SiLUGrad", back.dy, x if alpha == 1.0 else op.Mul(x, alpha), like=x)


@gradient("Gelu")
@gradient("Gelu", domain=_MICROSOFT)
def _gelu(op: StepWriter, back: Backward) -> Gradients:
    return _gelu_grad(op, back, back.x, str(back.node.attribute("approximate", "none")))


@gradient("BiasGelu", domain=_MICROSOFT)
def _bias_gelu(op: StepWriter, back: Backward) -> Gradients:
    x, bias = back.x, back.node.input(1)
    total = _gelu_grad(op, back, op.Add(x, bias), "none")
    return unbroadcast(op, total, x), unbroadcast(op, total, bias)


def _gelu_grad(op: StepWriter, back: Backward, x: StepTensor, approximate: str) -> StepTensor:
    return op.call("GeLUGrad", back.dy, x, back.y, like=back.y, approximate=approximate)


@gradient("FastGelu", domain=_MICROSOFT)
def _fast_gelu(op: StepWriter, back: Backward) -> Gradients:
    x = back.x
    bias = back.node.optional(1)
    dx = op.call("FastGeLUGrad", back.dy, x if bias is None else op.Add(x, bias), like=back.dy)
    return dx, None if bias is None else unbroadcast(op, dx, bias)


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


@operator("DropoutGrad")
def dropout_grad(op: Body, dy: Value, mask: Value, *, keep_prob: float) -> Value:
    """Pass the gradient of what was kept."""
    return dy * mask / keep_prob


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


@gradient("Dropout")
def _dropout_of_nothing(_op: StepWriter, back: Backward) -> Gradients:
    return back.dy
