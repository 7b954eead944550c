"""Normalisations in training: by the statistics of the batch, and their gradients."""

from __future__ import annotations

import numpy as np

from msdump.training.body import Body, operator


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
    is_training: int,
) -> tuple[str, ...]:
    """Normalise by the statistics of the batch, and update the moving ones.

    Returns the result, mean and variance twice (``batch_mean``, ``reserve_space_1``, ...), and the moving
    mean and variance; the moving variance takes the unbiased one, n / (n - 1). Without training the moving
    statistics take the place of the batch's and stay as they are.
    """
    axes = [axis for axis in range(rank) if axis != 1]
    wide = [-1, *(1,) * (rank - 2)]
    mean = op.ReduceMean(x, axes, keepdims=0) if is_training else moving_mean
    centered = op.Sub(x, op.Reshape(mean, wide))
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=0) if is_training else moving_variance
    scale = op.Div(gamma, op.Sqrt(op.Add(variance, epsilon)))
    y = op.Add(op.Mul(centered, op.Reshape(scale, wide)), op.Reshape(beta, wide))
    results = (y, mean, variance, mean, variance)
    if not is_training:
        return (*results, moving_mean, moving_variance)
    count = op.CastLike(op.Div(op.Size(x), op.Size(gamma)), x)
    unbiased = op.Mul(variance, op.Div(count, op.Max(op.Sub(count, 1.0), 1.0)))
    return (
        *results,
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
    is_training: int,
) -> tuple[str, ...]:
    """Return the gradients of input, scale and shift of a normalisation.

    Without training its statistics are constants, else they depend on the input as well.
    """
    axes = [axis for axis in range(rank) if axis != 1]
    wide = [-1, *(1,) * (rank - 2)]
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))
    centered = op.Sub(x, op.Reshape(mean, wide))
    dbeta = op.ReduceSum(dy, axes, keepdims=0)
    along = op.ReduceSum(op.Mul(dy, centered), axes, keepdims=0)
    dgamma = op.Mul(along, inverse)
    scale = op.Reshape(op.Mul(gamma, inverse), wide)
    if not is_training:
        return op.Mul(dy, scale), dgamma, dbeta
    count = op.CastLike(op.Div(op.Size(x), op.Size(gamma)), x)
    slope = op.Div(op.Mul(along, op.Mul(inverse, inverse)), count)
    level = op.Reshape(op.Div(dbeta, count), wide)
    inner = op.Sub(op.Sub(dy, level), op.Mul(centered, op.Reshape(slope, wide)))
    return op.Mul(inner, scale), dgamma, dbeta


@operator("LRNGrad")
def lrn_grad(op: Body, dy: str, x: str, _y: str, *, size: int, alpha: float, beta: float, bias: float) -> str:
    """Return the gradient of x / (bias + alpha / size * the squares of the channels around)^beta."""
    before, after = (size - 1) // 2, size // 2
    sums = _channel_sums(op, op.Mul(x, x), size, before, after)
    base = op.Add(op.Mul(sums, float(np.float32(alpha / size))), bias)
    inner = op.Mul(op.Mul(dy, x), op.Pow(base, -beta - 1.0))
    # a channel reads those before it as often as those behind it are read by it: the window is mirrored
    shared = op.Mul(_channel_sums(op, inner, size, after, before), float(2 * alpha * beta / size))
    return str(op.Sub(op.Mul(dy, op.Pow(base, -beta)), op.Mul(x, shared)))


def _channel_sums(op: Body, x: str, size: int, before: int, after: int) -> str:
    """Return for each element the sum over the channels around it."""
    planes = op.Concat(op.Shape(x, start=0, end=1), (1,), op.Shape(x, start=1, end=2), (-1,), axis=0)
    flat = op.Reshape(x, planes)
    kernel = op.Expand(1.0, (1, 1, size, 1))
    return str(op.Reshape(op.Conv(flat, kernel, pads=(before, 0, after, 0)), op.Shape(x)))


@operator("L2NormalizeGrad")
def l2_normalize_grad(op: Body, x: str, y: str, dy: str, *, axis: int) -> str:
    """Return the gradient of x / |x|, 0 where x is 0."""
    norm = op.ReduceL2(x, [axis], keepdims=1)
    along = op.ReduceSum(op.Mul(dy, y), [axis], keepdims=1)
    return str(op.Where(op.Equal(norm, 0.0), 0.0, op.Div(op.Sub(dy, op.Mul(y, along)), norm)))
