"""Convolutions and pooling: their gradients, and what training adds to the forward operators."""

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


@operator("BatchNorm")
def batch_norm(
    op: Body,
    x: str,
    gamma: str,
    beta: str,
    moving_mean: str,
    moving_variance: str,
    _training: str,
    epsilon: str,
    momentum: str,
    _format: str,
    *,
    rank: int,
) -> tuple[str, ...]:
    """Normalise by the statistics of the batch, and update the moving ones.

    Returns the result, mean and variance twice (``batch_mean``, ``reserve_space_1``, ...), and the moving
    mean and variance; the moving variance takes the unbiased one, n / (n - 1).
    """
    axes = [axis for axis in range(rank) if axis != 1]
    wide = [-1, *(1,) * (rank - 2)]
    mean = op.ReduceMean(x, axes, keepdims=0)
    centered = op.Sub(x, op.Reshape(mean, wide))
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=0)
    scale = op.Div(gamma, op.Sqrt(op.Add(variance, epsilon)))
    y = op.Add(op.Mul(centered, op.Reshape(scale, wide)), op.Reshape(beta, wide))
    count = op.CastLike(op.Div(op.Size(x), op.Size(gamma)), x)
    unbiased = op.Mul(variance, op.Div(count, op.Max(op.Sub(count, 1.0), 1.0)))
    return (
        *(y, mean, variance, mean, variance),
        _moved(op, moving_mean, mean, momentum),
        _moved(op, moving_variance, unbiased, momentum),
    )


def _moved(op: Body, old: str, new: str, momentum: str) -> str:
    return str(op.Add(op.Mul(old, op.Sub(1.0, momentum)), op.Mul(new, momentum)))


@operator("BatchNormGrad")
def batch_norm_grad(
    op: Body,
    dy: str,
    x: str,
    gamma: str,
    mean: str,
    variance: str,
    _reserve: str,
    _training: str,
    epsilon: str,
    _format: str,
    *,
    rank: int,
) -> tuple[str, ...]:
    """Return the gradients of input, scale and shift of a normalisation by the batch's statistics."""
    axes = [axis for axis in range(rank) if axis != 1]
    wide = [-1, *(1,) * (rank - 2)]
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))
    centered = op.Sub(x, op.Reshape(mean, wide))
    dbeta = op.ReduceSum(dy, axes, keepdims=0)
    along = op.ReduceSum(op.Mul(dy, centered), axes, keepdims=0)
    dgamma = op.Mul(along, inverse)
    count = op.CastLike(op.Div(op.Size(x), op.Size(gamma)), x)
    slope = op.Div(op.Mul(along, op.Mul(inverse, inverse)), count)
    level = op.Reshape(op.Div(dbeta, count), wide)
    inner = op.Sub(op.Sub(dy, level), op.Mul(centered, op.Reshape(slope, wide)))
    return str(op.Mul(inner, op.Reshape(op.Mul(gamma, inverse), wide))), dgamma, dbeta
