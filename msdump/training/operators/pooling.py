"""Pooling: averages, largest elements, norms, whole inputs."""

from __future__ import annotations

import math
from typing import Any, Final

from msdump.training.body import Body, Ints, Value, operator
from msdump.training.operators.layouts import shape_of
from msdump.training.operators.windows import VOLUMES, primitive, unreached, window_steps
from msdump.training.rules import Backward, Gradients, gradient, keep, lowering, mindspore_gradient
from msdump.training.writer import StepOperator, StepTensor, StepWriter


@operator("AvgPool1DGrad")
@operator("AvgPoolGrad")
def avg_pool_grad(op: Body, x: Value, _y: Value, dy: Value, **structure: Any) -> Value:
    """Spread the gradient of each window over its elements."""
    return _spread(op, dy, op.Shape(x), **structure)


@operator("AvgPool3DGrad", element=1)
def avg_pool_3d_grad(op: Body, shape: Value, dy: Value, **structure: Any) -> Value:
    """Spread the gradient of each window over its elements."""
    return _spread(op, dy, shape, **structure)


def _spread(
    op: Body,
    dy: Value,
    shape: Value,
    *,
    kernel_shape: Ints,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    ceil_mode: int,
    missing: Ints,
    count_include_pad: int = 0,
    divisor_override: int = 0,
) -> Value:
    """Spread the gradients of windows.

    ``missing``: rows and columns at the end of the padded input that no window reaches; negative: how far
    the last window reaches beyond it. ``divisor_override``: what sums are divided by, 0 for their number.
    """
    rank = len(kernel_shape)
    beyond = [max(-count, 0) for count in missing]
    reached = (*pads[:rank], *(pad + more for pad, more in zip(pads[rank:], beyond, strict=True)))
    windows = {"strides": strides, "dilations": dilations, "pads": reached}
    kernel = op.Expand(1.0, (1, 1, *kernel_shape))
    sizes = op.Slice(shape, (2,), (rank + 2,))
    if divisor_override or (not any(beyond) and (count_include_pad or not any(pads))):
        scaled = dy / float(divisor_override or math.prod(kernel_shape))
    else:  # as much as the operator itself gives to each element: an average of ones over their number
        ones = op.Expand(1.0, op.Concat((1, 1), sizes, axis=0))
        flags: dict[str, Any] = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        if any(step != 1 for step in dilations):  # AveragePool has them since opset 19
            flags["dilations"] = dilations
        average = op.AveragePool(ones, kernel_shape=kernel_shape, strides=strides, pads=pads, **flags)
        scaled = dy * (average / op.Conv(ones, kernel, **windows))
    planes = op.Reshape(scaled, op.Concat((-1, 1), op.Shape(dy, start=2), axis=0))
    left = [max(count, 0) for count in missing]
    return op.Reshape(op.ConvTranspose(planes, kernel, output_padding=left, **windows), shape)


@operator("AdaptiveAvgPool2DGrad")
@operator("AdaptiveAvgPool3DGrad")
def adaptive_avg_pool_grad(op: Body, dy: Value, shape: Value) -> Value:
    """Spread the gradient of the average of each channel."""
    count = op.ReduceProd(shape, keepdims=0) / op.Size(dy)
    return op.Expand(dy / op.CastLike(count, dy), shape)


@operator("AdaptiveMaxPool2D")
def adaptive_max_pool_2d(op: Body, x: Value) -> tuple[Value, Value]:
    """Return the largest element of each channel and where it is."""
    y = op.GlobalMaxPool(x)
    argmax = op.ArgMax(op.Reshape(x, (0, 0, -1)), axis=2)
    return y, op.Reshape(argmax, op.Shape(y))


@operator("AdaptiveMaxPool3D")
def adaptive_max_pool_3d(op: Body, x: Value) -> tuple[Value, Value]:
    """Return the largest element of each channel and, in Int32, where it is."""
    y, argmax = adaptive_max_pool_2d(op, x)
    return y, op.Cast(argmax, to=6)


@operator("AdaptiveMaxPool2DGrad")
@operator("AdaptiveMaxPool3DGrad")
def adaptive_max_pool_grad(op: Body, dy: Value, x: Value, argmax: Value) -> Value:
    """Send the gradient of each channel to its largest element."""
    zeros = op.Expand(0.0, op.Shape(op.Reshape(x, (0, 0, -1))))
    rows = (0, 0, 1)
    sent = op.ScatterElements(zeros, op.Reshape(argmax, rows), op.Reshape(dy, rows), axis=2)
    return op.Reshape(sent, op.Shape(x))


@operator("MaxPool3DGrad")
@operator("MaxPool1DGrad")
@operator("MaxPoolGrad")
def max_pool_grad(
    op: Body,
    x: Value,
    _y: Value,
    dy: Value,
    *,
    kernel_shape: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    ceil_mode: int,
) -> Value:
    """Send the gradient of each window to its largest element, the first one of several."""
    _, indices = op.MaxPool(
        x,
        kernel_shape=kernel_shape,
        strides=strides,
        pads=pads,
        dilations=dilations,
        ceil_mode=ceil_mode,
        outputs=2,
    )
    count, places = op.Reshape(op.Size(x), [1]), op.Reshape(indices, [-1])
    summed = op.scatter_sum("ScatterElements", count, places, op.Reshape(dy, [-1]), axis=0)
    return op.Reshape(summed, op.Shape(x))


@lowering("GlobalMaxPool")
def _lower_global_max_pool(op: StepWriter, node: StepOperator) -> None:
    x, y = node.x, node.y
    if node.primitive.startswith("Adaptive"):
        op.call(node.primitive, x, outputs=[y])
    else:
        keep(op, node)


_ADAPTIVE: Final = {4: "2D", 5: "3D"}
"""Ranks of data for which MindSpore pools the whole input by an adaptive operator."""


def _windows(node: StepOperator) -> dict[str, Any]:
    """Return window, strides, padding, dilations and rounding of a pooling operator."""
    window = tuple(node.attributes["kernel_shape"])
    strides, dilations, pads = window_steps(node, window)
    return {
        "kernel_shape": window,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil_mode": node.attribute("ceil_mode", 0),
    }


def _whole_window(x: StepTensor) -> dict[str, Any]:
    """Return the window that is the whole input."""
    window = x.sizes_from(2)
    ones, zeros = (1,) * len(window), (0,) * 2 * len(window)
    return {"kernel_shape": window, "strides": ones, "dilations": ones, "pads": zeros, "ceil_mode": 0}


@gradient("MaxPool", "GlobalMaxPool")
def _max_pool(op: StepWriter, back: Backward) -> Gradients:
    x = back.x
    windows = _windows(back.node) if back.node.op_type == "MaxPool" else _whole_window(x)
    return op.call(f"{primitive('MaxPool', x)}Grad", x, back.y, back.dy, like=x, **windows)


@mindspore_gradient("AdaptiveMaxPool2D", "AdaptiveMaxPool3D")
def _adaptive_max_pool(op: StepWriter, back: Backward) -> Gradients:
    x, argmax = back.x, back.node.outputs[1]
    return op.call(f"{back.node.op_type}Grad", back.dy, x, argmax, like=x)


@gradient("AveragePool")
def _average_pool(op: StepWriter, back: Backward) -> Gradients:
    node, structure = back.node, _windows(back.node)
    missing = unreached(node, structure["kernel_shape"], structure)
    include_pad = node.attribute("count_include_pad", 0)
    return _averaged(op, node, back.dy, **structure, missing=missing, count_include_pad=include_pad)


def _averaged(op: StepWriter, node: StepOperator, dy: StepTensor, **structure: Any) -> StepTensor:
    """Write the gradient of an average pooling."""
    x, y = node.x, node.y
    slots = (shape_of(op, x), dy) if x.rank == VOLUMES else (x, y, dy)
    return op.call(f"{primitive('AveragePool', x)}Grad", *slots, like=x, **structure)


@gradient("GlobalAveragePool")
def _global_average_pool(op: StepWriter, back: Backward) -> Gradients:
    x = back.x
    if x.rank in _ADAPTIVE:
        return op.call(f"AdaptiveAvgPool{_ADAPTIVE[x.rank]}Grad", back.dy, shape_of(op, x), like=x)
    whole = _whole_window(x)
    missing = (0,) * (x.rank - 2)
    return _averaged(op, back.node, back.dy, **whole, missing=missing, count_include_pad=0)


@gradient("LpPool")
def _lp_pool(op: StepWriter, back: Backward) -> Gradients:
    node, structure = back.node, _windows(back.node)
    missing = unreached(node, structure["kernel_shape"], structure)
    outer, inner = _norm_slopes(op, back)
    spread = _averaged(op, node, op.Mul(back.dy, outer), **structure, missing=missing, divisor_override=1)
    return op.Mul(spread, inner)


@gradient("GlobalLpPool")
def _global_lp_pool(op: StepWriter, back: Backward) -> Gradients:
    outer, inner = _norm_slopes(op, back)
    return op.Mul(op.Mul(back.dy, outer), inner)


def _norm_slopes(op: StepWriter, back: Backward) -> tuple[StepTensor, StepTensor]:
    """Return the slopes of a norm of order p, (sum |x|^p)^(1/p): that of the root and that of the powers.

    They are y^(1-p), 0 where the norm is 0, and sign(x) |x|^(p-1).
    """
    x, y, p = back.x, back.y, float(back.node.attribute("p", 2))
    is_zero = op.Equal(y, 0.0)
    outer = op.Where(is_zero, 0.0, op.Pow(op.Where(is_zero, 1.0, y), 1.0 - p))
    return outer, op.Mul(op.Sign(x), op.Pow(op.Abs(x), p - 1.0))
