"""Operators element by element, with broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import DOUBLE, INT64, BodyFunction, Value, operator, operators
from msdump.graph.primitives.call import ARGUMENTS, Call
from msdump.graph.primitives.tape import op

operators(
    {
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
            lambda dy, y, *, alpha=1.0, scale=1.0: op.Where(
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


def floor_mod(x: Value, y: Value, *, is_whole: int) -> Value:
    """Return the rest of a division, with the sign of the divisor."""
    return op.Mod(x, y) if is_whole else x - op.Floor(x / y) * y


def floor_div(x: Value, y: Value, *, is_whole: int) -> Value:
    """Divide and round down."""
    return (x - op.Mod(x, y)) / y if is_whole else op.Floor(x / y)


def is_close(x: Value, y: Value, *, rtol: float, atol: float, equal_nan: int) -> Value:
    """Return whether elements differ by at most atol + rtol |y|."""
    x, y = (op.Cast(item, to=DOUBLE) for item in (x, y))
    bound = op.Abs(y) * np.array(rtol) + np.array(atol)
    is_near = op.And(op.LessOrEqual(op.Abs(x - y), bound), op.Not(op.IsInf(y)))
    is_same = op.Or(op.Equal(x, y), is_near)
    return op.Or(is_same, op.And(op.IsNaN(x), op.IsNaN(y))) if equal_nan else is_same


def _shifted(build: BodyFunction) -> BodyFunction:
    return lambda x, bits: build(x, op.CastLike(op.Pow(np.array(2), op.Cast(bits, to=INT64)), x))


operators(
    {
        "AddN": ("Add tensors.", lambda *tensors: functools.reduce(op.Add, tensors)),
        "AddExt": ("Return x + alpha y.", lambda x, y, alpha: x + y * op.CastLike(alpha, y)),
        "SubExt": ("Return x - alpha y.", lambda x, y, alpha: x - y * op.CastLike(alpha, y)),
        "Addcdiv": ("Return x + value a / b.", lambda x, a, b, value: x + op.CastLike(value, x) * a / b),
        "Addcmul": ("Return x + value a b.", lambda x, a, b, value: x + op.CastLike(value, x) * a * b),
        **dict.fromkeys(
            ("Lerp", "LerpScalar"),
            ("Return x + weight (y - x).", lambda x, y, weight: x + op.CastLike(weight, x) * (y - x)),
        ),
        "Hypot": ("Return sqrt(x² + y²).", lambda x, y: op.Sqrt(x * x + y * y)),
        "Rsqrt": ("Return 1 / sqrt(x).", lambda x: op.Reciprocal(op.Sqrt(x))),
        "RsqrtGrad": ("Return -dy y³ / 2.", lambda y, dy: dy * (y * y * y) * -0.5),
        "ReLU6": ("Limit to 0 and 6.", lambda x: op.Clip(x, 0.0, 6.0)),
        "Trunc": ("Cut off the fraction.", lambda x: op.Sign(x) * op.Floor(op.Abs(x))),
        "NotEqual": ("Return whether elements differ.", lambda x, y: op.Not(op.Equal(x, y))),
        "Heaviside": (
            "Return 0 below zero, 1 above, and a given value at zero.",
            lambda x, y: op.Where(op.Equal(x, 0.0), y, op.CastLike(x > 0.0, x)),
        ),
        "Xdivy": ("Return x / y, 0 where x is 0.", lambda x, y: op.Where(op.Equal(x, 0.0), 0.0, x / y)),
        "Xlogy": (
            "Return x log y, 0 where x is 0.",
            lambda x, y: op.Where(op.Equal(x, 0.0), 0.0, x * op.Log(y)),
        ),
        "HShrink": (
            "Return 0 between -lambd and lambd.",
            lambda x, *, lambd: op.Shrink(x, lambd=float(lambd), bias=0.0),
        ),
        "SoftShrink": (
            "Move towards 0 by lambd.",
            lambda x, *, lambd: op.Shrink(x, lambd=float(lambd), bias=float(lambd)),
        ),
        "Elu": (
            "Return alpha (exp(x) - 1) below 0.",
            lambda x, *, alpha=1.0: op.Elu(x, alpha=float(alpha)),
        ),
        "CeLU": (
            "Return alpha (exp(x / alpha) - 1) below 0.",
            lambda x, *, alpha=1.0: op.Celu(x, alpha=float(alpha)),
        ),
        "PReLU": (
            "Multiply negative elements by the slope of their channel.",
            lambda x, slopes, *, rank: op.PRelu(x, op.Reshape(slopes, (-1, *(1,) * max(rank - 2, 0)))),
        ),
        "Round": (
            "Round to a number of decimals, halves to even.",
            lambda x, *, decimals=0: (
                op.Round(x * 10.0**decimals) * 10.0**-decimals if decimals else op.Round(x)
            ),
        ),
        "LogSoftmax": (
            "Return the logarithm of softmax.",
            lambda x, *, axis=-1: op.LogSoftmax(x, axis=axis),
        ),
        "FloorMod": (str(floor_mod.__doc__), floor_mod),
        "FloorDiv": (str(floor_div.__doc__), floor_div),
        "IsClose": (str(is_close.__doc__), is_close),
        "Mod": (
            "Return the rest of a division, with the sign of the dividend.",
            lambda x, y: op.Mod(x, y, fmod=1),
        ),
        "LeftShift": ("Shift bits to the left.", _shifted(lambda x, power: x * power)),
        "RightShift": (
            "Shift bits to the right.",
            _shifted(lambda x, power: floor_div(x, power, is_whole=1)),
        ),
    }
)


@operator("GeluExt")
def gelu_ext(x: Value, *, approximate: str) -> Value:
    """Return x times the normal distribution, by the error function or by tanh."""
    return op.Gelu(x, approximate=approximate)


@operator("FillV2", element=1)
def fill(shape: Value, number: Value) -> Value:
    """Return a tensor of a shape, full of a number that float32 holds: runtimes repeat few element types."""
    return op.of_element(op.Expand(op.Cast(number, to=FLOAT32.onnx), shape))


@operator("PReLUGrad")
def prelu_grad(
    dy: Value, x: Value, weight: Value, *, axes: tuple[int, ...], rank: int = 0
) -> tuple[Value, Value]:
    """Return the gradients of input and slopes; the slopes repeat along some axes.

    ``rank``: that of the input where the slopes are a list, one of each channel.
    """
    is_positive = x > 0.0
    slopes = op.Reshape(weight, (-1, *(1,) * max(rank - 2, 0))) if rank else weight
    dx = op.Where(is_positive, dy, dy * slopes)
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
def hsigmoid_grad(dy: Value, x: Value, *, alpha: float = 1 / 6, beta: float = 0.5) -> Value:
    """Return dy alpha where alpha x + beta lies between 0 and 1, else 0."""
    line = x * float(alpha) + float(beta)
    return op.Where(op.And(line > 0.0, line < 1.0), dy * float(alpha), 0.0)


@operator("GeLUGrad")
def gelu_grad(dy: Value, x: Value, _y: Value, *, approximate: str = "tanh") -> Value:
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


def converting(op_type: str) -> Callable[..., Value]:
    """Return the body of an operator of ONNX's with operands of other element types than it takes.

    ``rank``: that of the first operand, where the second is a number; ``to``: element type to compute in;
    ``output_type``: that of the result.
    """

    def build(*operands: Value, rank: int = 0, to: int = 0, output_type: int = 0) -> Value:
        values = [op.Cast(item, to=to) if to else item for item in operands]
        if rank:
            values[1] = op.Reshape(values[1], (1,) * rank)
        result: Value = getattr(op, op_type)(*values)
        return op.Cast(result, to=output_type) if output_type else result

    return build


@operator("IsFinite")
def is_finite(x: Value) -> Value:
    """Return whether each element is neither infinite nor NaN."""
    return op.Not(op.Or(op.IsInf(x), op.IsNaN(x)))


def _slope_axes(call: Call) -> dict[str, Any]:
    """Return the axes along which a slope of PReLU repeats: all but the channels', if they have several."""
    is_single, rank = math.prod(call.sizes(2)) == 1, call.argument("rank")
    return {"axes": tuple(axis for axis in range(rank) if is_single or axis != 1), "rank": rank}


ARGUMENTS["PReLUGrad"] = _slope_axes
ARGUMENTS["Dropout"] = lambda call: {"generator_seed": call.argument("seed0", call.argument("Seed0", 0))}
