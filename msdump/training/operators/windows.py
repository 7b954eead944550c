"""Convolutions and pooling: their gradients."""

from __future__ import annotations

from typing import Any

from msdump.training.body import Body, operator
from msdump.training.operators.convolutions import filter_gradient, input_gradient

Ints = tuple[int, ...]


@operator("Conv2DBackpropInput")
def conv2d_backprop_input(op: Body, dy: str, w: str, **structure: Any) -> str:
    """Return the gradient of a convolution's input."""
    return input_gradient(op, dy, w, **structure)


@operator("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: Body, dy: str, x: str, **structure: Any) -> str:
    """Return the gradient of a convolution's weight."""
    return filter_gradient(op, dy, x, **structure)


@operator("Conv3DBackpropInput")
def conv3d_backprop_input(op: Body, w: str, dy: str, **structure: Any) -> str:
    """Return the gradient of the input of a convolution of volumes."""
    return conv2d_backprop_input(op, dy, w, **structure)


@operator("Conv3DBackpropFilter")
def conv3d_backprop_filter(op: Body, x: str, dy: str, **structure: Any) -> str:
    """Return the gradient of the weight of a convolution of volumes."""
    return conv2d_backprop_filter(op, dy, x, **structure)


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
    flat = op.Expand(0.0, op.Reshape(op.Size(x), [1]))
    summed = op.ScatterElements(
        flat, op.Reshape(indices, [-1]), op.Reshape(dy, [-1]), axis=0, reduction="add"
    )
    return str(op.Reshape(summed, op.Shape(x)))
