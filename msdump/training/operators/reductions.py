"""Reductions and cumulated sums with MindSpore's slots: axes and flags are inputs."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("ReduceSum")
def reduce_sum(op: Body, x: str, axis: str, _keep_dims: str, _skip_mode: str, *, keep_dims: int) -> str:
    """Sum over axes."""
    return str(op.ReduceSum(x, op.Reshape(axis, [-1]), keepdims=keep_dims))


@operator("ReduceMean")
def reduce_mean(op: Body, x: str, axis: str, _keep_dims: str, *, keep_dims: int) -> str:
    """Average over axes."""
    return str(op.ReduceMean(x, op.Reshape(axis, [-1]), keepdims=keep_dims))


@operator("ReduceMax")
def reduce_max(op: Body, x: str, axis: str, _keep_dims: str, *, keep_dims: int) -> str:
    """Return the largest over axes."""
    return str(op.ReduceMax(x, op.Reshape(axis, [-1]), keepdims=keep_dims))


@operator("ReduceMin")
def reduce_min(op: Body, x: str, axis: str, _keep_dims: str, *, keep_dims: int) -> str:
    """Return the smallest over axes."""
    return str(op.ReduceMin(x, op.Reshape(axis, [-1]), keepdims=keep_dims))


@operator("ReduceProd")
def reduce_prod(op: Body, x: str, axis: str, _keep_dims: str, *, keep_dims: int) -> str:
    """Multiply over axes."""
    return str(op.ReduceProd(x, op.Reshape(axis, [-1]), keepdims=keep_dims))


@operator("CumSum")
def cum_sum(
    op: Body, x: str, axis: str, _exclusive: str, _reverse: str, *, exclusive: int, reverse: int
) -> str:
    """Sum everything up to each element, or from it on."""
    return str(op.CumSum(x, axis, exclusive=exclusive, reverse=reverse))


@operator("CumProd")
def cum_prod(op: Body, x: str, _axis: str, _exclusive: str, _reverse: str, *, reverse: int) -> str:
    """Multiply the rows of a matrix in front of each row, or behind it, without the row itself."""
    count = op.Gather(op.Shape(x), 0)
    rows = op.Range(0, count, 1)
    row, factor = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])
    is_factor = op.Less(row, factor) if reverse else op.Greater(row, factor)
    factors = op.Where(op.Unsqueeze(is_factor, [2]), op.Unsqueeze(x, [0]), 1.0)
    return str(op.ReduceProd(factors, [1], keepdims=0))
