"""Activations, and their gradients."""

from __future__ import annotations

import math

from msdump.training.body import Body, operator


@operator("ReluGrad")
def relu_grad(op: Body, dy: str, y: str) -> str:
    """Pass a gradient where the forward output is positive."""
    return str(op.Where(op.Greater(y, 0.0), dy, 0.0))


@operator("ReLU6")
def relu6(op: Body, x: str) -> str:
    """Cut off below 0 and above 6."""
    return str(op.Clip(x, 0.0, 6.0))


@operator("ReLU6Grad")
def relu6_grad(op: Body, dy: str, x: str) -> str:
    """Pass a gradient where the input lies between 0 and 6."""
    return str(op.Where(_between(op, x, 0.0, 6.0), dy, 0.0))


@operator("LeakyReLUGradExt")
def leaky_relu_grad(op: Body, dy: str, x: str, negative_slope: str, _is_result: str) -> str:
    """Pass a gradient where the input is positive, a share of it elsewhere."""
    return str(op.Where(op.Greater(x, 0.0), dy, op.Mul(dy, negative_slope)))


@operator("PReLUGrad")
def prelu_grad(op: Body, dy: str, x: str, weight: str, *, axes: tuple[int, ...]) -> tuple[str, str]:
    """Return the gradients of input and slopes; the slopes repeat along some axes."""
    is_positive = op.Greater(x, 0.0)
    dx = op.Where(is_positive, dy, op.Mul(dy, weight))
    dw = op.Where(is_positive, 0.0, op.Mul(dy, x))
    summed = op.ReduceSum(dw, axes, keepdims=0) if axes else dw
    return str(dx), str(op.Reshape(summed, op.Shape(weight)))


@operator("EluGrad")
def elu_grad(op: Body, dy: str, y: str, *, alpha: float) -> str:
    """Return dy where the forward output is positive, elsewhere dy (y + alpha)."""
    return str(op.Where(op.Greater(y, 0.0), dy, op.Mul(dy, op.Add(y, float(alpha)))))


@operator("SigmoidGrad")
def sigmoid_grad(op: Body, y: str, dy: str) -> str:
    """Return dy y (1 - y)."""
    return str(op.Mul(dy, op.Mul(y, op.Sub(1.0, y))))


@operator("TanhGrad")
def tanh_grad(op: Body, y: str, dy: str) -> str:
    """Return dy (1 - y²)."""
    return str(op.Mul(dy, op.Sub(1.0, op.Mul(y, y))))


@operator("SiLUGrad")
def silu_grad(op: Body, dy: str, x: str) -> str:
    """Return dy s (1 + x (1 - s)) with s = sigmoid(x)."""
    s = op.Sigmoid(x)
    return str(op.Mul(dy, op.Mul(s, op.Add(op.Mul(x, op.Sub(1.0, s)), 1.0))))


@operator("HSwishGrad")
def hswish_grad(op: Body, dy: str, x: str) -> str:
    """Return the gradient of x relu6(x + 3) / 6: dy (2x + 3) / 6 between -3 and 3, 0 below, dy above."""
    inner = op.Div(op.Add(op.Mul(x, 2.0), 3.0), 6.0)
    slope = op.Where(op.Greater(x, 3.0), 1.0, op.Where(op.Less(x, -3.0), 0.0, inner))
    return str(op.Mul(dy, slope))


@operator("HSigmoidGrad")
def hsigmoid_grad(op: Body, dy: str, x: str, *, alpha: float, beta: float) -> str:
    """Return dy alpha where alpha x + beta lies between 0 and 1, else 0."""
    line = op.Add(op.Mul(x, float(alpha)), float(beta))
    return str(op.Where(_between(op, line, 0.0, 1.0), op.Mul(dy, float(alpha)), 0.0))


@operator("SoftplusGrad")
def softplus_grad(op: Body, dy: str, x: str) -> str:
    """Return dy sigmoid(x)."""
    return str(op.Mul(dy, op.Sigmoid(x)))


@operator("SoftShrinkGrad")
@operator("HShrinkGrad")
def shrink_grad(op: Body, dy: str, x: str, lambd: str) -> str:
    """Pass a gradient where the input is larger than a bound, or smaller than its negative."""
    return str(op.Where(op.Greater(op.Abs(x), lambd), dy, 0.0))


@operator("GeLUGrad")
def gelu_grad(op: Body, dy: str, x: str, _y: str, *, approximate: str) -> str:
    """Return the gradient of x times the normal distribution, by the error function or by tanh."""
    return _tanh_gelu_grad(op, dy, x) if approximate == "tanh" else _erf_gelu_grad(op, dy, x)


@operator("FastGeLUGrad")
def fast_gelu_grad(op: Body, dy: str, x: str) -> str:
    """Return the gradient of GeLU by tanh."""
    return _tanh_gelu_grad(op, dy, x)


@operator("Softmax")
def softmax(op: Body, x: str, _axis: str, *, axis: int) -> str:
    """Return exp(x) over its sum along an axis."""
    return str(op.Softmax(x, axis=axis))


@operator("LogSoftmax")
def log_softmax(op: Body, x: str, _axis: str, *, axis: int) -> str:
    """Return the logarithm of a softmax."""
    return str(op.LogSoftmax(x, axis=axis))


@operator("LogSoftmaxGrad")
def log_softmax_grad(op: Body, y: str, dy: str, axis: str) -> str:
    """Return dy - exp(y) sum(dy)."""
    return str(op.Sub(dy, op.Mul(op.Exp(y), op.ReduceSum(dy, op.Reshape(axis, [-1]), keepdims=1))))


def _erf_gelu_grad(op: Body, dy: str, x: str) -> str:
    share = op.Mul(op.Add(op.Erf(op.Mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = op.Mul(op.Exp(op.Mul(op.Mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return str(op.Mul(dy, op.Add(share, op.Mul(x, density))))


def _tanh_gelu_grad(op: Body, dy: str, x: str) -> str:
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    squared = op.Mul(x, x)
    argument = op.Mul(op.Mul(x, op.Add(op.Mul(squared, cubic), 1.0)), scale)
    tanh = op.Tanh(argument)
    slope = op.Mul(op.Add(op.Mul(squared, 3 * cubic), 1.0), scale)
    inner = op.Mul(op.Mul(x, slope), op.Sub(1.0, op.Mul(tanh, tanh)))
    return str(op.Mul(dy, op.Mul(op.Add(op.Add(tanh, 1.0), inner), 0.5)))


def _between(op: Body, x: str, low: float, high: float) -> str:
    return str(op.And(op.Greater(x, low), op.Less(x, high)))
