"""Normalisations of each sample by itself: LayerNorm and RmsNorm, with their gradients."""

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
    scaled = op.Mul(dy, gamma)
    level = op.ReduceMean(scaled, axes, keepdims=1)
    slope = op.ReduceMean(op.Mul(scaled, normal), axes, keepdims=1)
    dx = op.Mul(op.Sub(op.Sub(scaled, level), op.Mul(normal, slope)), inverse)
    along = op.Mul(dy, normal)
    return dx, _summed(op, along, others), _summed(op, dy, others)


def _summed(op: Body, value: str, axes: list[int]) -> str:
    # an empty list of axes means all of them to ReduceSum
    return str(op.ReduceSum(value, axes, keepdims=0)) if axes else value
