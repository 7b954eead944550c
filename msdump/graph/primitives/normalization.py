"""Normalisations: by the statistics of the batch, or of each sample by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from msdump.graph.primitives.body import Ints, Value, operator
from msdump.graph.primitives.call import ARGUMENTS, Call
from msdump.graph.primitives.tape import op


@operator("BatchNorm")
def batch_norm(
    x: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_variance: Value,
    _training: Value,
    offset: Value,
    momentum: Value,
    *,
    rank: int,
    is_training: int,
    epsilon: float = 0.0,
) -> tuple[Value, ...]:
    """Normalise by the statistics of the batch, and update the moving ones.

    Returns the result, mean and variance twice (``batch_mean``, ``reserve_space_1``, ...), and the moving
    mean and variance; the moving variance takes the unbiased one, n / (n - 1). Without training the moving
    statistics take the place of the batch's; with ``epsilon`` it is ONNX's operator, and nothing is updated.
    """
    if epsilon and not is_training:
        y = op.BatchNormalization(x, gamma, beta, moving_mean, moving_variance, epsilon=epsilon)
        return (y, moving_mean, moving_variance, moving_mean, moving_variance)
    axes = _but_channels(rank)
    offset, momentum = op.of_element(offset), op.of_element(momentum)
    mean = op.ReduceMean(x, axes, keepdims=0) if is_training else moving_mean
    centered = x - _wide(mean, rank)
    variance = op.ReduceMean(centered * centered, axes, keepdims=0) if is_training else moving_variance
    scale = gamma / op.Sqrt(variance + offset)
    y = centered * _wide(scale, rank) + _wide(beta, rank)
    results = (y, mean, variance, mean, variance)
    if not is_training:
        return (*results, moving_mean, moving_variance)
    count = op.CastLike(op.Size(x) / op.Size(gamma), x)
    unbiased = variance * (count / op.Max(count - 1.0, 1.0))
    moved = (
        old * (1.0 - momentum) + new * momentum
        for old, new in ((moving_mean, mean), (moving_variance, unbiased))
    )
    return (*results, *moved)


def _but_channels(rank: int) -> list[int]:
    return [axis for axis in range(rank) if axis != 1]


@operator("BatchNormGrad")
def batch_norm_grad(
    dy: Value,
    x: Value,
    gamma: Value,
    mean: Value,
    variance: Value,
    _reserve: Value,
    _training: Value,
    epsilon: Value,
    *,
    rank: int,
    is_training: int,
) -> tuple[Value, ...]:
    """Return the gradients of input, scale and shift of a normalisation.

    Without training its statistics are constants, else they depend on the input as well.
    """
    axes = _but_channels(rank)
    inverse = op.Reciprocal(op.Sqrt(variance + op.of_element(epsilon)))
    centered = x - _wide(mean, rank)
    dbeta = op.ReduceSum(dy, axes, keepdims=0)
    along = op.ReduceSum(dy * centered, axes, keepdims=0)
    dgamma = along * inverse
    scale = _wide(gamma * inverse, rank)
    if not is_training:
        return dy * scale, dgamma, dbeta
    count = op.CastLike(op.Size(x) / op.Size(gamma), x)
    slope = along * (inverse * inverse) / count
    level = _wide(dbeta / count, rank)
    inner = dy - level - centered * _wide(slope, rank)
    return inner * scale, dgamma, dbeta


@operator("LRNGrad")
def lrn_grad(dy: Value, x: Value, _y: Value, *, size: int, alpha: float, beta: float, bias: float) -> Value:
    """Return the gradient of x / (bias + alpha / size * the squares of the channels around)^beta."""
    before, after = (size - 1) // 2, size // 2
    sums = _channel_sums(x * x, size, before, after)
    base = sums * float(np.float32(alpha / size)) + bias
    inner = dy * x * op.Pow(base, -beta - 1.0)
    # the window of channels that read a channel mirrors the window of channels that it reads
    shared = _channel_sums(inner, size, after, before) * float(2 * alpha * beta / size)
    return dy * op.Pow(base, -beta) - x * shared


def _channel_sums(x: Value, size: int, before: int, after: int) -> Value:
    """Return for each element the sum over the channels around it."""
    planes = op.Concat(op.Shape(x, start=0, end=1), (1,), op.Shape(x, start=1, end=2), (-1,), axis=0)
    flat = op.Reshape(x, planes)
    kernel = op.Expand(1.0, (1, 1, size, 1))
    return op.Reshape(op.Conv(flat, kernel, pads=(before, 0, after, 0)), op.Shape(x))


@operator("LayerNorm")
def layer_norm_body(
    x: Value,
    gamma: Value,
    beta: Value,
    _norm_axis: Value,
    _params_axis: Value,
    offset: Value,
    *,
    begin_norm_axis: int,
    rank: int,
    epsilon: float = 0.0,
) -> tuple[Value, Value, Value]:
    """Normalise over the last axes; return the result, mean and variance (not 1 / standard deviation).

    With ``epsilon`` ONNX's operator normalises.
    """
    axes = list(range(begin_norm_axis % rank, rank))
    if epsilon:
        y, mean, _ = op.LayerNormalization(x, gamma, beta, axis=axes[0], epsilon=epsilon, outputs=3)
        centered = x - mean
        return y, mean, op.ReduceMean(centered * centered, axes, keepdims=1)
    centered, mean, variance = _centered(x, axes)
    deviation = op.Sqrt(variance + op.CastLike(offset, x))
    y = centered / deviation * gamma + beta
    return y, mean, variance


@operator("LayerNormExt")
def layer_norm_ext(
    x: Value, _shape: Value, gamma: Value, beta: Value, epsilon: Value, *, normalized_shape: Ints, rank: int
) -> tuple[Value, Value, Value]:
    """Normalise over the last axes; return the result, mean and 1 / standard deviation."""
    centered, mean, variance = _centered(x, list(range(rank - len(normalized_shape), rank)))
    inverse = op.Reciprocal(op.Sqrt(variance + op.CastLike(epsilon, x)))
    return centered * inverse * gamma + beta, mean, inverse


@operator("BatchNormExt")
def batch_norm_ext(
    x: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_variance: Value,
    *,
    rank: int,
    is_training: int,
    epsilon: float,
) -> tuple[Value, Value, Value]:
    """Normalise channels by batch or moving statistics; return mean and 1 / standard deviation, too."""
    axes = _but_channels(rank)
    mean = op.ReduceMean(x, axes, keepdims=0) if is_training else moving_mean
    centered = x - _wide(mean, rank)
    variance = op.ReduceMean(centered * centered, axes, keepdims=0) if is_training else moving_variance
    inverse = op.Reciprocal(op.Sqrt(variance + epsilon))
    return centered * _wide(gamma * inverse, rank) + _wide(beta, rank), mean, inverse


@operator("LayerNormGrad")
def layer_norm_grad(
    x: Value,
    dy: Value,
    variance: Value,
    mean: Value,
    gamma: Value,
    *,
    begin_norm_axis: int,
    rank: int,
    epsilon: float,
) -> tuple[Value, Value, Value]:
    """Return the gradients of input, scale and shift."""
    begin = begin_norm_axis % rank
    axes, others = list(range(begin, rank)), list(range(begin))
    inverse = op.Reciprocal(op.Sqrt(variance + epsilon))
    normal = (x - mean) * inverse
    dx = _centered_gradient(dy * gamma, normal, inverse, axes)
    return dx, _summed(dy * normal, others), _summed(dy, others)


def _centered_gradient(dy: Value, normal: Value, inverse: Value, axes: list[int]) -> Value:
    """Return the gradient of the input of a normalisation to mean 0 and variance 1 over some axes."""
    level = op.ReduceMean(dy, axes, keepdims=1)
    slope = op.ReduceMean(dy * normal, axes, keepdims=1)
    return (dy - level - normal * slope) * inverse


def _summed(value: Value, axes: list[int]) -> Value:
    # an empty list of axes means all of them to ReduceSum
    return op.ReduceSum(value, axes, keepdims=0) if axes else value


@operator("RmsNorm")
def rms_norm_body(
    x: Value, gamma: Value, epsilon: Value, *, begin_norm_axis: int, rank: int
) -> tuple[Value, Value]:
    """Divide by the root of the mean square over the last axes; return the result and 1 / that root."""
    axes = list(range(begin_norm_axis % rank, rank))
    square = op.ReduceMean(x * x, axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(square + op.CastLike(epsilon, x)))
    return x * inverse * gamma, inverse


@operator("RmsNormGrad")
def rms_norm_grad(
    dy: Value, x: Value, rstd: Value, gamma: Value, *, begin_norm_axis: int, rank: int
) -> tuple[Value, Value]:
    """Return the gradients of input and scale."""
    begin = begin_norm_axis % rank
    normal = x * rstd
    scaled = dy * gamma
    slope = op.ReduceMean(scaled * normal, list(range(begin, rank)), keepdims=1)
    dx = (scaled - normal * slope) * rstd
    return dx, _summed(dy * normal, list(range(begin)))


@operator("GroupNorm")
def group_norm(
    x: Value,
    _num_groups: Value,
    gamma: Value,
    beta: Value,
    epsilon: Value,
    *,
    num_groups: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Normalise over groups of channels; return the result, mean and 1 / standard deviation."""
    centered, mean, variance = _centered(op.Reshape(x, (0, num_groups, -1)), [2])
    inverse = op.Reciprocal(op.Sqrt(variance + op.CastLike(epsilon, x)))
    normal = op.Reshape(centered * inverse, op.Shape(x))
    y = normal * _wide(gamma, rank) + _wide(beta, rank)
    return y, op.Squeeze(mean, (2,)), op.Squeeze(inverse, (2,))


@operator("GroupNormGrad")
def group_norm_grad(
    dy: Value, x: Value, mean: Value, rstd: Value, gamma: Value, *, num_groups: int, rank: int
) -> tuple[Value, Value, Value]:
    """Return the gradients of input, scale and shift."""
    return _channel_gradients(dy, x, gamma, mean, rstd, rows=(0, num_groups, -1), rank=rank)


@operator("InstanceNorm")
def instance_norm(
    x: Value, gamma: Value, beta: Value, *, epsilon: float, rank: int, is_flat: int = 0
) -> tuple[Value, Value, Value]:
    """Normalise each channel of each sample; return the result, mean and variance.

    ``is_flat``: mean and variance have one axis for samples and channels.
    """
    centered, mean, variance = _centered(op.Reshape(x, (0, 0, -1)), [2])
    normal = op.Reshape(centered / op.Sqrt(variance + epsilon), op.Shape(x))
    y = normal * _wide(gamma, rank) + _wide(beta, rank)
    if is_flat:
        return y, op.Reshape(mean, (-1,)), op.Reshape(variance, (-1,))
    return y, op.Squeeze(mean, (2,)), op.Squeeze(variance, (2,))


@operator("InstanceNormGrad")
def instance_norm_grad(
    dy: Value, x: Value, gamma: Value, mean: Value, variance: Value, *, epsilon: float, rank: int
) -> tuple[Value, Value, Value]:
    """Return the gradients of input, scale and shift."""
    rstd = op.Reciprocal(op.Sqrt(variance + epsilon))
    return _channel_gradients(dy, x, gamma, mean, rstd, rows=(0, 0, -1), rank=rank)


def _centered(x: Value, axes: list[int]) -> tuple[Value, Value, Value]:
    """Return a value less its mean over some axes, the mean and the variance."""
    mean = op.ReduceMean(x, axes, keepdims=1)
    centered = x - mean
    return centered, mean, op.ReduceMean(centered * centered, axes, keepdims=1)


def _channel_gradients(
    dy: Value, x: Value, gamma: Value, mean: Value, rstd: Value, *, rows: tuple[int, ...], rank: int
) -> tuple[Value, Value, Value]:
    """Return the gradients of a normalisation of ``rows`` with scale and shift of channels."""
    inverse = op.Unsqueeze(rstd, (2,))
    normal = (op.Reshape(x, rows) - op.Unsqueeze(mean, (2,))) * inverse
    scaled = op.Reshape(dy * _wide(gamma, rank), rows)
    dx = op.Reshape(_centered_gradient(scaled, normal, inverse, [2]), op.Shape(dy))
    others = _but_channels(rank)
    along = dy * op.Reshape(normal, op.Shape(dy))
    return dx, _summed(along, others), _summed(dy, others)


def _wide(value: Value, rank: int) -> Value:
    """Return a value of each channel in a shape that broadcasts over data of a rank: (C, 1, 1)."""
    return op.Reshape(value, (-1, *(1,) * (rank - 2)))


ARGUMENTS["LRNGrad"] = lambda call: {
    "size": 2 * call.argument("depth_radius") + 1,
    "alpha": call.argument("alpha") * (2 * call.argument("depth_radius") + 1),
    "beta": call.argument("beta"),
    "bias": call.argument("bias"),
}
ARGUMENTS["InstanceNorm"] = lambda call: {
    "epsilon": call.argument("epsilon"),
    "rank": call.argument("rank"),
    "is_flat": 1,
}


def _behind_gamma(slot: int) -> Callable[[Call], dict[str, Any]]:
    """Return the arguments of a normalisation over as many last axes as its scale has, by its slot."""

    def arguments(call: Call) -> dict[str, Any]:
        rank = call.argument("rank")
        return {"begin_norm_axis": rank - len(call.sizes(slot)), "rank": rank}

    return arguments


ARGUMENTS.update(RmsNorm=_behind_gamma(1), RmsNormGrad=_behind_gamma(3))
