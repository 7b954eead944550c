"""Checks of gradients for infinities and NaNs."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("IsFinite")
def is_finite(op: Body, x: str) -> str:
    """Tell of each element whether it is neither infinite nor NaN."""
    return str(op.Not(op.Or(op.IsInf(x), op.IsNaN(x))))


@operator("ReduceAll")
def reduce_all(op: Body, x: str, _axis: str, _keep_dims: str) -> str:
    """Tell whether all elements are true."""
    return str(op.Cast(op.ReduceMin(op.Cast(x, to=6), keepdims=0), to=9))


@operator("AllFinite")
def all_finite(op: Body, *gradients: str, count: int) -> str:  # noqa: ARG001 - tells functions apart
    """Tell whether any element of any gradient is infinite or NaN.

    The name says the opposite; MindSpore negates the result, too.
    """
    # x * 0 is NaN for those alone, and a sum with a NaN is one
    sums = [op.Cast(op.ReduceSum(op.Mul(x, op.CastLike(0.0, x)), keepdims=0), to=1) for x in gradients]
    return str(op.IsNaN(op.Sum(*sums)))
