"""Gradients of activations."""

from __future__ import annotations

from msdump.training.gradients.shapes import unbroadcast
from msdump.training.lowerings.reductions import reduced
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

_MICROSOFT = "com.microsoft"


@gradient("Relu")
def _relu(op: StepWriter, back: Backward) -> Gradients:
    y = back.node.outputs[0]
    return (op.call("ReluGrad", back.dy, y, like=y),)


@mindspore_gradient("ReLU6")
def _relu6(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    return (op.call("ReLU6Grad", back.dy, x, like=x),)


@gradient("Clip")
def _clip(op: StepWriter, back: Backward) -> Gradients:
    """Pass the gradient between the bounds, themselves included; beyond, it is that of the bound."""
    x, dy = back.node.input(0), back.dy
    low, high = (*back.node.inputs[1:], None, None)[:2]
    wants_low, wants_high = (*back.wants[1:], False, False)[:2]
    dx = dlow = dhigh = None
    if back.wants[0]:
        tests = [
            None if low is None else op.GreaterOrEqual(x, low),
            None if high is None else op.LessOrEqual(x, high),
        ]
        inside = [test for test in tests if test is not None]
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
    x, slope = back.node.input(0), float(back.node.attribute("alpha", 0.01))
    return (op.call("LeakyReLUGradExt", back.dy, x, slope, False, like=x),)


@gradient("PRelu")
def _prelu(op: StepWriter, back: Backward) -> Gradients:
    x, weight = back.node.input(0), back.node.input(1)
    padded = (1,) * (x.rank - weight.rank) + weight.shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1 and x.shape[axis] != 1)
    dx, dw = op.call("PReLUGrad", back.dy, x, weight, like=[x, weight], axes=axes)
    return dx, dw


@gradient("Elu")
def _elu(op: StepWriter, back: Backward) -> Gradients:
    y = back.node.outputs[0]
    return (op.call("EluGrad", back.dy, y, like=y, alpha=float(back.node.attribute("alpha", 1.0))),)


@gradient("Celu")
def _celu(op: StepWriter, back: Backward) -> Gradients:
    x, y, alpha = back.node.input(0), back.node.outputs[0], float(back.node.attribute("alpha", 1.0))
    below = op.Add(op.call("RealDiv", y, alpha, like=y), 1.0)
    return (op.Mul(back.dy, op.Where(op.GreaterOrEqual(x, 0.0), 1.0, below)),)


@gradient("Selu")
def _selu(op: StepWriter, back: Backward) -> Gradients:
    x, y = back.node.input(0), back.node.outputs[0]
    alpha = float(back.node.attribute("alpha", 1.6732631921768188))
    gamma = float(back.node.attribute("gamma", 1.0507010221481323))
    return (op.Mul(back.dy, op.Where(op.Greater(x, 0.0), gamma, op.Add(y, alpha * gamma))),)


@gradient("ThresholdedRelu")
def _thresholded_relu(op: StepWriter, back: Backward) -> Gradients:
    x, threshold = back.node.input(0), float(back.node.attribute("alpha", 1.0))
    return (op.Where(op.Greater(x, threshold), back.dy, 0.0),)


@gradient("HardSwish")
def _hard_swish(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    return (op.call("HSwishGrad", back.dy, x, like=x),)


@gradient("HardSigmoid")
def _hard_sigmoid(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    alpha, beta = float(back.node.attribute("alpha", 0.2)), float(back.node.attribute("beta", 0.5))
    return (op.call("HSigmoidGrad", back.dy, x, like=x, alpha=alpha, beta=beta),)


@gradient("Softplus")
def _softplus(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    return (op.call("SoftplusGrad", back.dy, x, like=x),)


@gradient("Mish")
def _mish(op: StepWriter, back: Backward) -> Gradients:
    x, dy = back.node.input(0), back.dy
    tanh = op.Tanh(op.Softplus(x))
    inner = op.call("TanhGrad", tanh, op.Mul(x, dy), like=x)
    return (op.Add(op.Mul(tanh, dy), op.call("SoftplusGrad", inner, x, like=x)),)


@gradient("Shrink")
def _shrink(op: StepWriter, back: Backward) -> Gradients:
    x, bound = back.node.input(0), float(back.node.attribute("lambd", 0.5))
    name = "SoftShrinkGrad" if back.node.primitive == "SoftShrink" else "HShrinkGrad"
    return (op.call(name, back.dy, x, bound, like=x),)


@gradient("Swish")
def _swish(op: StepWriter, back: Backward) -> Gradients:
    return (_silu_grad(op, back, float(back.node.attribute("alpha", 1.0))),)


@gradient("QuickGelu", domain=_MICROSOFT)
def _quick_gelu(op: StepWriter, back: Backward) -> Gradients:
    return (_silu_grad(op, back, float(back.node.attribute("alpha", 1.702))),)


def _silu_grad(op: StepWriter, back: Backward, alpha: float) -> StepTensor:
    """Return the gradient of x sigmoid(alpha x), which has the slope of SiLU at alpha x."""
    x = back.node.input(0)
    scaled = x if alpha == 1.0 else op.Mul(x, alpha)
    result: StepTensor = op.call("SiLUGrad", back.dy, scaled, like=x)
    return result


@gradient("Gelu")
@gradient("Gelu", domain=_MICROSOFT)
def _gelu(op: StepWriter, back: Backward) -> Gradients:
    approximate = str(back.node.attribute("approximate", "none"))
    return (_gelu_grad(op, back, back.node.input(0), approximate),)


@gradient("BiasGelu", domain=_MICROSOFT)
def _bias_gelu(op: StepWriter, back: Backward) -> Gradients:
    x, bias = back.node.input(0), back.node.input(1)
    total = _gelu_grad(op, back, op.Add(x, bias), "none")
    return unbroadcast(op, total, x), unbroadcast(op, total, bias)


def _gelu_grad(op: StepWriter, back: Backward, x: StepTensor, approximate: str) -> StepTensor:
    y = back.node.outputs[0]
    result: StepTensor = op.call("GeLUGrad", back.dy, x, y, like=y, approximate=approximate)
    return result


@gradient("FastGelu", domain=_MICROSOFT)
def _fast_gelu(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    bias = back.node.inputs[1] if len(back.node.inputs) > 1 else None
    dx = op.call("FastGeLUGrad", back.dy, x if bias is None else op.Add(x, bias), like=back.dy)
    return dx, None if bias is None else unbroadcast(op, dx, bias)


@mindspore_gradient("Softmax")
def _softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.node.outputs[0], back.node.attributes["axis"]
    total = reduced(op, "ReduceSum", op.Mul(y, back.dy), [axis], keep_dims=True)
    return (op.Mul(y, op.Sub(back.dy, total)),)


@mindspore_gradient("LogSoftmax")
def _log_softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.node.outputs[0], back.node.attributes["axis"]
    return (op.call("LogSoftmaxGrad", y, back.dy, axis, like=y),)
