"""Pooling: averages, largest elements, whole inputs, and their gradients."""

from __future__ import annotations

import math
from typing import Any

from msdump.training.body import Body, operator

Ints = tuple[int, ...]


@operator("AvgPoolGrad")
def avg_pool_grad(op: Body, x: str, _y: str, dy: str, **structure: Any) -> str:
    """Spread the gradient of each window over its elements."""
    return _spread(op, dy, op.Shape(x), **structure)


@operator("AvgPool3DGrad", element=1)
def avg_pool_3d_grad(op: Body, shape: str, dy: str, **structure: Any) -> str:
    """Spread the gradient of each window over its elements."""
    return _spread(op, dy, shape, **structure)


def _spread(
    op: Body,
    dy: str,
    shape: str,
    *,
    kernel_shape: Ints,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    ceil_mode: int,
    missing: Ints,
    count_include_pad: int = 0,
    divisor_override: int = 0,
) -> str:
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
        scaled = op.Div(dy, float(divisor_override or math.prod(kernel_shape)))
    else:  # as much as the operator itself gives to each element: an average of ones over their number
        ones = op.Expand(1.0, op.Concat((1, 1), sizes, axis=0))
        flags: dict[str, Any] = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        if any(step != 1 for step in dilations):  # AveragePool has them since opset 19
            flags["dilations"] = dilations
        average = op.AveragePool(ones, kernel_shape=kernel_shape, strides=strides, pads=pads, **flags)
        scaled = op.Mul(dy, op.Div(average, op.Conv(ones, kernel, **windows)))
    planes = op.Reshape(scaled, op.Concat((-1, 1), op.Shape(dy, start=2), axis=0))
    left = [max(count, 0) for count in missing]
    return str(op.Reshape(op.ConvTranspose(planes, kernel, output_padding=left, **windows), shape))


@operator("AdaptiveAvgPool2DGrad")
@operator("AdaptiveAvgPool3DGrad")
def adaptive_avg_pool_grad(op: Body, dy: str, shape: str) -> str:
    """Spread the gradient of the average of each channel."""
    count = op.Div(op.ReduceProd(shape, keepdims=0), op.Size(dy))
    return str(op.Expand(op.Div(dy, op.CastLike(count, dy)), shape))


@operator("AdaptiveMaxPool2D")
def adaptive_max_pool_2d(op: Body, x: str) -> tuple[str, str]:
    """Return the largest element of each channel and where it is."""
    y = op.GlobalMaxPool(x)
    argmax = op.ArgMax(op.Reshape(x, (0, 0, -1)), axis=2)
    return y, op.Reshape(argmax, op.Shape(y))


@operator("AdaptiveMaxPool3D")
def adaptive_max_pool_3d(op: Body, x: str) -> tuple[str, str]:
    """Return the largest element of each channel and, in Int32, where it is."""
    y, argmax = adaptive_max_pool_2d(op, x)
    return y, op.Cast(argmax, to=6)


@operator("AdaptiveMaxPool2DGrad")
@operator("AdaptiveMaxPool3DGrad")
def adaptive_max_pool_grad(op: Body, dy: str, x: str, argmax: str) -> str:
    """Send the gradient of each channel to its largest element."""
    zeros = op.Expand(0.0, op.Shape(op.Reshape(x, (0, 0, -1))))
    rows = (0, 0, 1)
    sent = op.ScatterElements(zeros, op.Reshape(argmax, rows), op.Reshape(dy, rows), axis=2)
    return str(op.Reshape(sent, op.Shape(x)))


@operator("MaxPool3DGrad")
@operator("MaxPoolGrad")
def max_pool_grad(
    op: Body,
    x: str,
    _y: str,
    dy: str,
    *,
    kernel_shape: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    ceil_mode: int,
) -> str:
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
    return str(op.Reshape(summed, op.Shape(x)))
