"""Convolutions and pooling: their gradients."""

from __future__ import annotations

from msdump.training.body import Body, operator

Ints = tuple[int, ...]


@operator("Conv3DBackpropInput")
@operator("Conv2DBackpropInput")
def conv2d_backprop_input(
    op: Body, dy: str, w: str, *, strides: Ints, pads: Ints, dilations: Ints, group: int, missing: Ints
) -> str:
    """Return the gradient of a convolution's input.

    ``missing``: rows and columns at the end of the padded input that no window reached.
    """
    return str(
        op.ConvTranspose(
            dy, w, strides=strides, pads=pads, dilations=dilations, group=group, output_padding=missing
        )
    )


@operator("Conv3DBackpropFilter")
@operator("Conv2DBackpropFilter")
def conv2d_backprop_filter(
    op: Body,
    dy: str,
    x: str,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int,
    window: Ints,
) -> str:
    """Return the gradient of a convolution's weight (out, in / group, *window).

    It is the convolution of the input with the output's gradient, batch and channels swapped: strides and
    dilations change places.
    """
    rank = len(window)
    swapped = [1, 0, *range(2, rank + 2)]
    # rows at the end that no window reached are cut off, or the result would be larger than the window
    parts = [
        op.Conv(item, other, strides=dilations, dilations=strides, pads=pads)
        for item, other in zip(
            _groups(op, op.Transpose(x, perm=swapped), group, 0),
            _groups(op, op.Transpose(dy, perm=swapped), group, 0),
            strict=True,
        )
    ]
    whole = [op.Slice(part, (0,) * rank, window, tuple(range(2, rank + 2))) for part in parts]
    turned = [op.Transpose(part, perm=swapped) for part in whole]
    return str(turned[0] if group == 1 else op.Concat(*turned, axis=0))


def _groups(op: Body, value: str, group: int, axis: int) -> tuple[str, ...]:
    if group == 1:
        return (value,)
    parts = op.Split(value, axis=axis, num_outputs=group, outputs=group)
    return tuple(parts)


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
    flat = op.Reshape(op.Sub(x, x), [-1])
    summed = op.ScatterElements(
        flat, op.Reshape(indices, [-1]), op.Reshape(dy, [-1]), axis=0, reduction="add"
    )
    return str(op.Reshape(summed, op.Shape(x)))
