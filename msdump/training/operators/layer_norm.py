"""Normalisations of each sample by itself, with their gradients."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("LayerNorm")
def layer_norm(
    op: Body,
    x: str,
    gamma: str,
    beta: str,
    _norm_axis: str,
    _params_axis: str,
    epsilon: str,
    *,
    begin_norm_axis: int,
    rank: int,
) -> tuple[str, str, str]:
    """Normalise over the last axes; return the result, mean and variance (not 1 / standard deviation)."""
    axes = list(range(begin_norm_axis % rank, rank))
    mean = op.ReduceMean(x, axes, keepdims=1)
    centered = op.Sub(x, mean)
    variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)
    deviation = op.Sqrt(op.Add(variance, op.CastLike(epsilon, x)))
    y = op.Add(op.Mul(op.Div(centered, deviation), gamma), beta)
    return y, mean, variance


@operator("LayerNormGrad")
def layer_norm_grad(
    op: Body,
    x: str,
    dy: str,
    variance: str,
    mean: str,
    gamma: str,
    _norm_axis: str,
    _params_axis: str,
    *,
    begin_norm_axis: int,
    rank: int,
    epsilon: float,
) -> tuple[str, str, str]:
    """Return the gradients of input, scale and shift."""
    begin = begin_norm_axis % rank
    axes, others = list(range(begin, rank)), list(range(begin))
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))
    normal = op.Mul(op.Sub(x, mean), inverse)
    dx = _centered_gradient(op, op.Mul(dy, gamma), normal, inverse, axes)
    return dx, _summed(op, op.Mul(dy, normal), others), _summed(op, dy, others)


def _centered_gradient(op: Body, dy: str, normal: str, inverse: str, axes: list[int]) -> str:
    """Return the gradient of what was made ``normal``, with mean 0 and variance 1 over some axes."""
    level = op.ReduceMean(dy, axes, keepdims=1)
    slope = op.ReduceMean(op.Mul(dy, normal), axes, keepdims=1)
    return str(op.Mul(op.Sub(op.Sub(dy, level), op.Mul(normal, slope)), inverse))


def _summed(op: Body, value: str, axes: list[int]) -> str:
    # an empty list of axes means all of them to ReduceSum
    return str(op.ReduceSum(value, axes, keepdims=0)) if axes else value


@operator("RmsNorm")
def rms_norm(
    op: Body, x: str, gamma: str, epsilon: str, *, begin_norm_axis: int, rank: int
) -> tuple[str, str]:
    """Divide by the root of the mean square over the last axes; return the result and 1 / that root."""
    axes = list(range(begin_norm_axis % rank, rank))
    square = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(square, op.CastLike(epsilon, x))))
    return op.Mul(op.Mul(x, inverse), gamma), inverse


@operator("RmsNormGrad")
def rms_norm_grad(
    op: Body, dy: str, x: str, rstd: str, gamma: str, *, begin_norm_axis: int, rank: int
) -> tuple[str, str]:
    """Return the gradients of input and scale."""
    begin = begin_norm_axis % rank
    normal = op.Mul(x, rstd)
    scaled = op.Mul(dy, gamma)
    slope = op.ReduceMean(op.Mul(scaled, normal), list(range(begin, rank)), keepdims=1)
    dx = op.Mul(op.Sub(scaled, op.Mul(normal, slope)), rstd)
    return dx, _summed(op, op.Mul(dy, normal), list(range(begin)))


@operator("GroupNorm")
def group_norm(
    op: Body,
    x: str,
    _num_groups: str,
    gamma: str,
    beta: str,
    epsilon: str,
    *,
    num_groups: int,
    rank: int,
) -> tuple[str, str, str]:
    """Normalise over groups of channels; return the result, mean and 1 / standard deviation."""
    centered, mean, variance = _centered(op, op.Reshape(x, (0, num_groups, -1)))
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.CastLike(epsilon, x))))
    normal = op.Reshape(op.Mul(centered, inverse), op.Shape(x))
    y = op.Add(op.Mul(normal, _wide(op, gamma, rank)), _wide(op, beta, rank))
    return y, op.Squeeze(mean, (2,)), op.Squeeze(inverse, (2,))


@operator("GroupNormGrad")
def group_norm_grad(
    op: Body,
    dy: str,
    x: str,
    mean: str,
    rstd: str,
    gamma: str,
    _num_groups: str,
    _dx: str,
    _dgamma: str,
    _dbeta: str,
    *,
    num_groups: int,
    rank: int,
) -> tuple[str, str, str]:
    """Return the gradients of input, scale and shift."""
    rows = (0, num_groups, -1)
    inverse = op.Unsqueeze(rstd, (2,))
    normal = op.Mul(op.Sub(op.Reshape(x, rows), op.Unsqueeze(mean, (2,))), inverse)
    return _channel_gradients(op, dy, gamma, normal, inverse, rows=rows, rank=rank)


@operator("InstanceNorm")
def instance_norm(
    op: Body, x: str, gamma: str, beta: str, *, epsilon: float, rank: int
) -> tuple[str, str, str]:
    """Normalise each channel of each sample; return the result, mean and variance."""
    centered, mean, variance = _centered(op, op.Reshape(x, (0, 0, -1)))
    normal = op.Reshape(op.Div(centered, op.Sqrt(op.Add(variance, epsilon))), op.Shape(x))
    y = op.Add(op.Mul(normal, _wide(op, gamma, rank)), _wide(op, beta, rank))
    return y, op.Squeeze(mean, (2,)), op.Squeeze(variance, (2,))


@operator("InstanceNormGrad")
def instance_norm_grad(
    op: Body, dy: str, x: str, gamma: str, mean: str, variance: str, *, epsilon: float, rank: int
) -> tuple[str, str, str]:
    """Return the gradients of input, scale and shift."""
    rows = (0, 0, -1)
    inverse = op.Unsqueeze(op.Reciprocal(op.Sqrt(op.Add(variance, epsilon))), (2,))
    normal = op.Mul(op.Sub(op.Reshape(x, rows), op.Unsqueeze(mean, (2,))), inverse)
    return _channel_gradients(op, dy, gamma, normal, inverse, rows=rows, rank=rank)


def _centered(op: Body, rows: str) -> tuple[str, str, str]:
    """Return rows (n, groups, elements) about their means, the means and the variances."""
    mean = op.ReduceMean(rows, (2,), keepdims=1)
    centered = op.Sub(rows, mean)
    return centered, mean, op.ReduceMean(op.Mul(centered, centered), (2,), keepdims=1)


def _channel_gradients(
    op: Body, dy: str, gamma: str, normal: str, inverse: str, *, rows: tuple[int, ...], rank: int
) -> tuple[str, str, str]:
    """Return the gradients of a normalisation of ``rows`` whose scale and shift belong to the channels."""
    scaled = op.Reshape(op.Mul(dy, _wide(op, gamma, rank)), rows)
    dx = op.Reshape(_centered_gradient(op, scaled, normal, inverse, [2]), op.Shape(dy))
    others = [axis for axis in range(rank) if axis != 1]
    along = op.Mul(dy, op.Reshape(normal, op.Shape(dy)))
    return dx, _summed(op, along, others), _summed(op, dy, others)


def _wide(op: Body, value: str, rank: int) -> str:
    """Return a value of each channel in the shape that it is broadcast from."""
    return str(op.Reshape(value, (-1, *(1,) * (rank - 2))))
