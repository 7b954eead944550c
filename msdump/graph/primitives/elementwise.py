"""Operators element by element, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import Value, operator, operators
from msdump.graph.primitives.tape import op

operators(
    {
        "RealDiv": ("Divide.", lambda x, y: x / y),
        "Square": ("Multiply by itself.", lambda x: x * x),
        "SqrtGrad": ("Return dy / 2y.", lambda y, dy: dy * 0.5 / y),
        "AsinGrad": ("Return dy / sqrt(1 - x²).", lambda x, dy: dy / op.Sqrt(1.0 - x * x)),
        "ACosGrad": ("Return -dy / sqrt(1 - x²).", lambda x, dy: -(dy / op.Sqrt(1.0 - x * x))),
        "AtanGrad": ("Return dy / (1 + x²).", lambda x, dy: dy / (x * x + 1.0)),
        # as exponentials: runtimes have hyperbolic functions in few element types
        "AsinhGrad": ("Return dy / cosh(y).", lambda y, dy: dy / ((op.Exp(y) + op.Exp(-y)) * 0.5)),
        "AcoshGrad": ("Return dy / sinh(y).", lambda y, dy: dy / ((op.Exp(y) - op.Exp(-y)) * 0.5)),
        "SigmoidGrad": ("Return dy y (1 - y).", lambda y, dy: dy * (y * (1.0 - y))),
        "TanhGrad": ("Return dy (1 - y²).", lambda y, dy: dy * (1.0 - y * y)),
        "SoftplusGrad": ("Return dy sigmoid(x).", lambda dy, x: dy * op.Sigmoid(x)),
        "ReluGrad": (
            "Pass a gradient where the forward output is positive.",
            lambda dy, y: op.Where(y > 0.0, dy, 0.0),
        ),
        "ReLU6Grad": (
            "Pass a gradient where the input lies between 0 and 6.",
            lambda dy, x: op.Where(op.And(x > 0.0, x < 6.0), dy, 0.0),
        ),
        "LeakyReLUGradExt": (
            "Pass a gradient where the input is positive, a share of it elsewhere.",
            lambda dy, x, negative_slope: op.Where(x > 0.0, dy, dy * op.of_element(negative_slope)),
        ),
        "EluGrad": (
            "Return dy where the forward output is positive, elsewhere dy (y / scale + alpha).",
            lambda dy, y, *, alpha, scale=1.0: op.Where(
                y > 0.0, dy, dy * ((y if scale == 1.0 else y / float(scale)) + float(alpha))
            ),
        ),
        **dict.fromkeys(
            ("SoftShrinkGrad", "HShrinkGrad"),
            (
                "Pass a gradient where the input is larger than a bound, or smaller than its negative.",
                lambda dy, x, lambd: op.Where(op.Abs(x) > op.of_element(lambd), dy, 0.0),
            ),
        ),
        "LogSoftmaxGrad": (
            "Return dy - exp(y) sum(dy).",
            lambda y, dy, axis: dy - op.Exp(y) * op.ReduceSum(dy, op.Reshape(axis, [-1]), keepdims=1),
        ),
        "DropoutGrad": (
            "Pass the gradient of the kept elements.",
            lambda dy, mask, *, keep_prob: dy * mask / keep_prob,
        ),
    }
)


@operator("FillV2", element=1)
def fill(shape: Value, number: Value) -> Value:
    """Return a tensor of a shape, full of a number that float32 holds: runtimes repeat few element types."""
    return op.of_element(op.Expand(op.Cast(number, to=FLOAT32.onnx), shape))


@operator("PReLUGrad")
def prelu_grad(dy: Value, x: Value, weight: Value, *, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Return the gradients of input and slopes; the slopes repeat along some axes."""
    is_positive = x > 0.0
    dx = op.Where(is_positive, dy, dy * weight)
    dw = op.Where(is_positive, 0.0, dy * x)
    summed = op.ReduceSum(dw, axes, keepdims=0) if axes else dw
    return dx, op.Reshape(summed, op.Shape(weight))


@operator("HSwishGrad")
def hswish_grad(dy: Value, x: Value) -> Value:
    """Return the gradient of x relu6(x + 3) / 6: dy (2x + 3) / 6 between -3 and 3, 0 below, dy above."""
    inner = (x * 2.0 + 3.0) / 6.0
    slope = op.Where(x > 3.0, 1.0, op.Where(x < -3.0, 0.0, inner))
    return dy * slope


@operator("HSigmoidGrad")
def hsigmoid_grad(dy: Value, x: Value, *, alpha: float, beta: float) -> Value:
    """Return dy alpha where alpha x + beta lies between 0 and 1, else 0."""
    line = x * float(alpha) + float(beta)
    return op.Where(op.And(line > 0.0, line < 1.0), dy * float(alpha), 0.0)


@operator("GeLUGrad")
def gelu_grad(dy: Value, x: Value, _y: Value, *, approximate: str) -> Value:
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


_DROPPING_OPSET: Final = 22
"""From this opset on onnxruntime has one kernel that draws numbers, ONNX's Dropout, which draws others."""


@operator("Dropout")
def dropout(x: Value, keep_prob: Value, *, generator_seed: int) -> tuple[Value, Value]:
    """Keep some elements, divided by the share that is kept; return them and the mask of zeros and ones.

    The random numbers go on from step to step, so that each has a mask of its own.
    """
    if op.opset < _DROPPING_OPSET:
        is_kept = op.RandomUniformLike(x, dtype=FLOAT32.onnx, seed=float(generator_seed)) < keep_prob
    else:
        ones = op.Expand(np.ones((), np.float32), op.Shape(x))
        dropped = op.Sub(np.ones((), np.float32), keep_prob)
        _, is_kept = op.Dropout(ones, dropped, np.array(True), seed=int(generator_seed), outputs=2)
    mask = op.CastLike(is_kept, x)
    return x * mask / op.CastLike(keep_prob, x), mask


NUMBER_TYPES: Final = {"Mul": "Mul", "Div": "Div", "Maximum": "Max", "Minimum": "Min"}
"""ONNX's operators of a tensor and a single number, by MindSpore's names."""


def _number_body(op_type: str) -> Callable[..., Value]:
    def build(x: Value, number: Value, *, rank: int = 0, to: int = 0) -> Value:
        if to:
            x, number = op.Cast(x, to=to), op.Cast(number, to=to)
        result: Value = getattr(op, op_type)(x, op.Reshape(number, (1,) * rank) if rank else number)
        return result

    return build


operators(
    {
        name: (f"Return {name} of a tensor and a number.", _number_body(op_type))
        for name, op_type in NUMBER_TYPES.items()
    }
)


@operator("IsFinite")
def is_finite(x: Value) -> Value:
    """Return whether each element is neither infinite nor NaN."""
    return op.Not(op.Or(op.IsInf(x), op.IsNaN(x)))
