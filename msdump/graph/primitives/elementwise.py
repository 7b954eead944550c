"""Operators element by element, with broadcasting."""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import DOUBLE, INT64, BodyFunction, Value, op, operator, operators
from msdump.graph.primitives.call import ARGUMENTS, Call


def _floor_div(x: Value, y: Value, *, is_whole: int) -> Value:
    return (x - op.Mod(x, y)) / y if is_whole else op.Floor(x / y)


def _shifted(build: BodyFunction) -> BodyFunction:
    return lambda x, bits: build(x, op.CastLike(op.Pow(np.array(2), op.Cast(bits, to=INT64)), x))


operators(
    {
        "Square": lambda x: x * x,
        "SqrtGrad": lambda y, dy: dy * 0.5 / y,
        "AsinGrad": lambda x, dy: dy / op.Sqrt(1.0 - x * x),
        "ACosGrad": lambda x, dy: -(dy / op.Sqrt(1.0 - x * x)),
        "AtanGrad": lambda x, dy: dy / (x * x + 1.0),
        # as exponentials: runtimes have hyperbolic functions in few element types
        "AsinhGrad": lambda y, dy: dy / ((op.Exp(y) + op.Exp(-y)) * 0.5),
        "AcoshGrad": lambda y, dy: dy / ((op.Exp(y) - op.Exp(-y)) * 0.5),
        "SigmoidGrad": lambda y, dy: dy * (y * (1.0 - y)),
        "TanhGrad": lambda y, dy: dy * (1.0 - y * y),
        "SoftplusGrad": lambda dy, x: dy * op.Sigmoid(x),
        "ReluGrad": lambda dy, y: op.Where(y > 0.0, dy, 0.0),
        "ReLU6Grad": lambda dy, x: op.Where(op.And(x > 0.0, x < 6.0), dy, 0.0),
        "LeakyReLUGradExt": lambda dy, x, slope: op.Where(x > 0.0, dy, dy * op.of_element(slope)),
        # y / scale + alpha is the slope of scale alpha (exp(x) - 1)
        "EluGrad": lambda dy, y, *, alpha=1.0, scale=1.0: op.Where(
            y > 0.0, dy, dy * ((y if scale == 1.0 else y / float(scale)) + float(alpha))
        ),
        "SoftShrinkGrad HShrinkGrad": lambda dy, x, lambd: op.Where(
            op.Abs(x) > op.of_element(lambd), dy, 0.0
        ),
        "LogSoftmaxGrad": lambda y, dy, axis: (
            dy - op.Exp(y) * op.ReduceSum(dy, op.Reshape(axis, [-1]), keepdims=1)
        ),
        "DropoutGrad": lambda dy, mask, *, keep_prob: dy * mask / keep_prob,
        "AddN": lambda *tensors: functools.reduce(op.Add, tensors),
        "AddExt": lambda x, y, alpha: x + y * op.CastLike(alpha, y),
        "SubExt": lambda x, y, alpha: x - y * op.CastLike(alpha, y),
        "Addcdiv": lambda x, a, b, value: x + op.CastLike(value, x) * a / b,
        "Addcmul": lambda x, a, b, value: x + op.CastLike(value, x) * a * b,
        "Lerp LerpScalar": lambda x, y, weight: x + op.CastLike(weight, x) * (y - x),
        "Hypot": lambda x, y: op.Sqrt(x * x + y * y),
        "Rsqrt": lambda x: op.Reciprocal(op.Sqrt(x)),
        "RsqrtGrad": lambda y, dy: dy * (y * y * y) * -0.5,
        "ReLU6": lambda x: op.Clip(x, 0.0, 6.0),
        "Trunc": lambda x: op.Sign(x) * op.Floor(op.Abs(x)),
        "NotEqual": lambda x, y: op.Not(op.Equal(x, y)),
        "Heaviside": lambda x, y: op.Where(op.Equal(x, 0.0), y, op.CastLike(x > 0.0, x)),
        "Xdivy": lambda x, y: op.Where(op.Equal(x, 0.0), 0.0, x / y),
        "Xlogy": lambda x, y: op.Where(op.Equal(x, 0.0), 0.0, x * op.Log(y)),
        "HShrink": lambda x, *, lambd: op.Shrink(x, lambd=float(lambd), bias=0.0),
        "SoftShrink": lambda x, *, lambd: op.Shrink(x, lambd=float(lambd), bias=float(lambd)),
        "Elu": lambda x, *, alpha=1.0: op.Elu(x, alpha=float(alpha)),
        "CeLU": lambda x, *, alpha=1.0: op.Celu(x, alpha=float(alpha)),
        "PReLU": lambda x, slopes, *, rank: op.PRelu(x, _of_channels(slopes, rank)),
        "Round": lambda x, *, decimals=0: (
            op.Round(x * 10.0**decimals) * 10.0**-decimals if decimals else op.Round(x)
        ),
        "LogSoftmax": lambda x, *, axis=-1: op.LogSoftmax(x, axis=axis),
        "FloorMod": lambda x, y, *, is_whole: op.Mod(x, y) if is_whole else x - op.Floor(x / y) * y,
        "FloorDiv": _floor_div,
        "Mod": lambda x, y: op.Mod(x, y, fmod=1),
        "LeftShift": _shifted(lambda x, power: x * power),
        "RightShift": _shifted(lambda x, power: _floor_div(x, power, is_whole=1)),
        "GeluExt": lambda x, *, approximate: op.Gelu(x, approximate=approximate),
        "IsFinite": lambda x: op.Not(op.Or(op.IsInf(x), op.IsNaN(x))),
    }
)


def _of_channels(slopes: Value, rank: int) -> Value:
    return op.Reshape(slopes, (-1, *(1,) * max(rank - 2, 0)))


@operator("IsClose")
def is_close(x: Value, y: Value, *, rtol: float, atol: float, equal_nan: int) -> Value:
    """Return whether elements differ by at most atol + rtol |y|."""
    x, y = (op.Cast(item, to=DOUBLE) for item in (x, y))
    bound = op.Abs(y) * np.array(rtol) + np.array(atol)
    is_near = op.And(op.LessOrEqual(op.Abs(x - y), bound), op.Not(op.IsInf(y)))
    is_same = op.Or(op.Equal(x, y), is_near)
    return op.Or(is_same, op.And(op.IsNaN(x), op.IsNaN(y))) if equal_nan else is_same


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
    slopes = _of_channels(weight, rank) if rank else weight
    dx = op.Where(is_positive, dy, dy * slopes)
    dw = op.Where(is_positive, 0.0, dy * x)
    summed = op.ReduceSum(dw, axes, keepdims=0) if axes else dw
    return dx, op.Reshape(summed, op.Shape(weight))


@operator("HSwishGrad")
def hswish_grad(dy: Value, x: Value) -> Value:
    """Return the gradient of x relu6(x + 3) / 6: dy (2x + 3) / 6 between -3 and 3, 0 below, dy above."""
    inner = (x * 2.0 + 3.0) / 6.0
    return dy * op.Where(x > 3.0, 1.0, op.Where(x < -3.0, 0.0, inner))


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
        tanh = op.Tanh(x * (squared * cubic + 1.0) * scale)
        slope = (squared * (3 * cubic) + 1.0) * scale
        inner = x * slope * (1.0 - tanh * tanh)
        return dy * ((tanh + 1.0 + inner) * 0.5)
    share = (op.Erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    return dy * (share + x * (op.Exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))))


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


def _slope_axes(call: Call) -> dict[str, Any]:
    """Return the axes along which a slope of PReLU repeats: all but the channels', if they have several."""
    is_single, rank = math.prod(call.sizes(2)) == 1, call.argument("rank")
    return {"axes": tuple(axis for axis in range(rank) if is_single or axis != 1), "rank": rank}


ARGUMENTS["PReLUGrad"] = _slope_axes
ARGUMENTS["Dropout"] = lambda call: {"generator_seed": call.argument("seed0", call.argument("Seed0", 0))}
