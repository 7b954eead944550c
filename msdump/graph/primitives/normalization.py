"""Normalisations: by the statistics of the batch, or of each sample by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from msdump.graph.primitives.body import Ints, Slots, Value, op, operator
from msdump.graph.primitives.call import ARGUMENTS, Call
from msdump.graph.primitives.plain import local_response

Results = tuple[Value, ...]


@operator("BatchNorm")
def batch_norm(slot: Slots, *, rank: int, is_training: int, epsilon: float = 0.0) -> Results:
    """Normalise by the statistics of the batch, and update the moving ones.

    Returns the result, mean and variance twice (``batch_mean``, ``reserve_space_1``, ...), and the moving
    mean and variance; the moving variance takes the unbiased one, n / (n - 1). Without training the moving
    statistics take the place of the batch's; with ``epsilon`` it is ONNX's operator, and nothing is updated.
    """
    x, moving = slot.x, (slot.mean, slot.variance)
    if epsilon and not is_training:
        return (op.BatchNormalization(x, slot.scale, slot.bias, *moving, epsilon=epsilon), *moving, *moving)
    offset, momentum = op.of_element(slot.epsilon), op.of_element(slot.momentum)
    centered, mean, variance = _of_channels(slot, rank, is_training)
    scale = slot.scale / op.Sqrt(variance + offset)
    y = centered * _wide(scale, rank) + _wide(slot.bias, rank)
    results = (y, mean, variance, mean, variance)
    if not is_training:
        return (*results, *moving)
    count = op.CastLike(op.Size(x) / op.Size(slot.scale), x)
    unbiased = variance * (count / op.Max(count - 1.0, 1.0))
    moved = (
        old * (1.0 - momentum) + new * momentum for old, new in zip(moving, (mean, unbiased), strict=True)
    )
    return (*results, *moved)


@operator("BatchNormExt")
def batch_norm_ext(slot: Slots, *, rank: int, is_training: int, epsilon: float) -> Results:
    """Normalise channels by batch or moving statistics; return mean and 1 / standard deviation, too."""
    centered, mean, variance = _of_channels(slot, rank, is_training)
    inverse = op.Reciprocal(op.Sqrt(variance + epsilon))
    return centered * _wide(slot.scale * inverse, rank) + _wide(slot.bias, rank), mean, inverse


def _of_channels(slot: Slots, rank: int, is_training: int) -> tuple[Value, Value, Value]:
    """Return the input less the mean of its channels, the mean and the variance; of the batch in training."""
    axes = _but_channels(rank)
    mean = op.ReduceMean(slot.x, axes, keepdims=0) if is_training else slot.mean
    centered = slot.x - _wide(mean, rank)
    variance = op.ReduceMean(centered * centered, axes, keepdims=0) if is_training else slot.variance
    return centered, mean, variance


def _but_channels(rank: int) -> list[int]:
    return [axis for axis in range(rank) if axis != 1]


@operator("BatchNormGrad")
def batch_norm_grad(slot: Slots, *, rank: int, is_training: int) -> Results:
    """Return the gradients of input, scale and shift of a normalisation.

    Without training its statistics are constants, else they depend on the input as well.
    """
    axes, dy, gamma = _but_channels(rank), slot.dout, slot.scale
    inverse = op.Reciprocal(op.Sqrt(slot.variance + op.of_element(slot.epsilon)))
    centered = slot.x - _wide(slot.mean, rank)
    dbeta = op.ReduceSum(dy, axes, keepdims=0)
    along = op.ReduceSum(dy * centered, axes, keepdims=0)
    dgamma = along * inverse
    scale = _wide(gamma * inverse, rank)
    if not is_training:
        return dy * scale, dgamma, dbeta
    count = op.CastLike(op.Size(slot.x) / op.Size(gamma), slot.x)
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
def layer_norm(slot: Slots, *, begin_norm_axis: int, rank: int, epsilon: float = 0.0) -> Results:
    """Normalise over the last axes; return the result, mean and variance (not 1 / standard deviation).

    With ``epsilon`` ONNX's operator normalises.
    """
    axes, x, affine = list(range(begin_norm_axis % rank, rank)), slot.x, (slot.gamma, slot.beta)
    if epsilon:
        y, mean, _ = op.LayerNormalization(x, *affine, axis=axes[0], epsilon=epsilon, outputs=3)
        centered = x - mean
        return y, mean, op.ReduceMean(centered * centered, axes, keepdims=1)
    centered, mean, variance = _centered(x, axes)
    deviation = op.Sqrt(variance + op.CastLike(slot.epsilon, x))
    return centered / deviation * affine[0] + affine[1], mean, variance


@operator("LayerNormExt")
def layer_norm_ext(slot: Slots, *, normalized_shape: Ints, rank: int) -> Results:
    """Normalise over the last axes; return the result, mean and 1 / standard deviation."""
    centered, mean, variance = _centered(slot.x, list(range(rank - len(normalized_shape), rank)))
    inverse = op.Reciprocal(op.Sqrt(variance + op.CastLike(slot.epsilon, slot.x)))
    return centered * inverse * slot.gamma + slot.beta, mean, inverse


@operator("LayerNormGrad")
def layer_norm_grad(slot: Slots, *, begin_norm_axis: int, rank: int, epsilon: float) -> Results:
    """Return the gradients of input, scale and shift."""
    begin, dy = begin_norm_axis % rank, slot.dout
    axes, others = list(range(begin, rank)), list(range(begin))
    inverse = op.Reciprocal(op.Sqrt(slot.variance + epsilon))
    normal = (slot.x - slot.mean) * inverse
    dx = _centered_gradient(dy * slot.gamma, normal, inverse, axes)
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
def rms_norm(x: Value, gamma: Value, epsilon: Value, *, begin_norm_axis: int, rank: int) -> Results:
    """Divide by the root of the mean square over the last axes; return the result and 1 / that root."""
    square = op.ReduceMean(x * x, list(range(begin_norm_axis % rank, rank)), keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(square + op.CastLike(epsilon, x)))
    return x * inverse * gamma, inverse


@operator("RmsNormGrad")
def rms_norm_grad(slot: Slots, *, begin_norm_axis: int, rank: int) -> Results:
    """Return the gradients of input and scale."""
    begin = begin_norm_axis % rank
    normal = slot.x * slot.rstd
    scaled = slot.dy * slot.gamma
    slope = op.ReduceMean(scaled * normal, list(range(begin, rank)), keepdims=1)
    dx = (scaled - normal * slope) * slot.rstd
    return dx, _summed(slot.dy * normal, list(range(begin)))


@operator("GroupNorm")
def group_norm(slot: Slots, *, num_groups: int, rank: int) -> Results:
    """Normalise over groups of channels; return the result, mean and 1 / standard deviation."""
    centered, mean, variance = _centered(op.Reshape(slot.x, (0, num_groups, -1)), [2])
    inverse = op.Reciprocal(op.Sqrt(variance + op.CastLike(slot.epsilon, slot.x)))
    normal = op.Reshape(centered * inverse, op.Shape(slot.x))
    y = normal * _wide(slot.weight, rank) + _wide(slot.bias, rank)
    return y, op.Squeeze(mean, (2,)), op.Squeeze(inverse, (2,))


@operator("GroupNormGrad")
def group_norm_grad(slot: Slots, *, num_groups: int, rank: int) -> Results:
    """Return the gradients of input, scale and shift."""
    return _channel_gradients(slot, slot.weight, slot.rstd, rows=(0, num_groups, -1), rank=rank)


@operator("InstanceNorm")
def instance_norm(
    x: Value, gamma: Value, beta: Value, *, epsilon: float, rank: int, is_flat: int = 0
) -> Results:
    """Normalise each channel of each sample; return the result, mean and variance.

    ``is_flat``: mean and variance have one axis for samples and channels.
    """
    centered, *statistics = _centered(op.Reshape(x, (0, 0, -1)), [2])
    normal = op.Reshape(centered / op.Sqrt(statistics[1] + epsilon), op.Shape(x))
    y = normal * _wide(gamma, rank) + _wide(beta, rank)
    return y, *(op.Reshape(each, (-1,)) if is_flat else op.Squeeze(each, (2,)) for each in statistics)


@operator("InstanceNormGrad")
def instance_norm_grad(slot: Slots, *, epsilon: float, rank: int) -> Results:
    """Return the gradients of input, scale and shift."""
    rstd = op.Reciprocal(op.Sqrt(slot.variance + epsilon))
    return _channel_gradients(slot, slot.gamma, rstd, rows=(0, 0, -1), rank=rank)


def _centered(x: Value, axes: list[int]) -> tuple[Value, Value, Value]:
    """Return a value less its mean over some axes, the mean and the variance."""
    mean = op.ReduceMean(x, axes, keepdims=1)
    centered = x - mean
    return centered, mean, op.ReduceMean(centered * centered, axes, keepdims=1)


def _channel_gradients(slot: Slots, gamma: Value, rstd: Value, *, rows: Ints, rank: int) -> Results:
    """Return the gradients of a normalisation of ``rows`` with scale and shift of channels."""
    dy, inverse = slot.dout, op.Unsqueeze(rstd, (2,))
    normal = (op.Reshape(slot.x, rows) - op.Unsqueeze(slot.mean, (2,))) * inverse
    scaled = op.Reshape(dy * _wide(gamma, rank), rows)
    dx = op.Reshape(_centered_gradient(scaled, normal, inverse, [2]), op.Shape(dy))
    others = _but_channels(rank)
    along = dy * op.Reshape(normal, op.Shape(dy))
    return dx, _summed(along, others), _summed(dy, others)


def _wide(value: Value, rank: int) -> Value:
    """Return a value of each channel in a shape that broadcasts over data of a rank: (C, 1, 1)."""
    return op.Reshape(value, (-1, *(1,) * (rank - 2)))


def _behind_gamma(call: Call) -> dict[str, Any]:
    """Return the arguments of a normalisation over as many last axes as its scale has."""
    rank, slot = call.argument("rank"), 1 if call.op_type == "RmsNorm" else 3
    return {"begin_norm_axis": rank - len(call.sizes(slot)), "rank": rank}


ARGUMENTS.update(
    LRNGrad=local_response,
    InstanceNorm=lambda call: {**{name: call.argument(name) for name in ("epsilon", "rank")}, "is_flat": 1},
    RmsNorm=_behind_gamma,
    RmsNormGrad=_behind_gamma,
)
