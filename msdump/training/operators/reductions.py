"""Reductions and cumulated sums as MindSpore has them: axes and flags are inputs."""

from __future__ import annotations

import math

import numpy as np

from msdump.graph.primitives import op
from msdump.training.operators.shapes import is_fixed, joined, kept_shape, reduced, reduced_axes, reshaped
from msdump.training.rules import Backward, Gradients, gradient, gradients, keep, lowering
from msdump.training.writer import StepOperator, StepTensor


@lowering("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
def _lower_reduction(node: StepOperator) -> None:
    is_computed = node.optional(1) is not None and node.constant(1) is None
    if node.x.is_float and not is_computed and not reduced_axes(node):
        op.Identity(node.x, outputs=[node.y])
    else:
        keep(node)


@gradient("CumSum")
def _cum_sum(back: Backward) -> Gradients:
    exclusive, reverse = back.attribute("exclusive", 0), 1 - back.attribute("reverse", 0)
    return op.CumSum(back.dy, back.input(1), exclusive=exclusive, reverse=reverse)


def kept(back: Backward, tensor: StepTensor) -> StepTensor:
    """Return a result of a reduction, or its gradient, with reduced axes as dimensions of size 1."""
    wide = kept_shape(back.x, reduced_axes(back))
    if tensor.shape == wide.shape:
        return tensor
    if is_fixed(wide.shape):
        return reshaped(tensor, wide)
    return op.Unsqueeze(tensor, list(reduced_axes(back)))


def _expanded(back: Backward, tensor: StepTensor) -> StepTensor:
    """Return a result of a norm, or its gradient, with reduced axes as dimensions, added one by one."""
    if tensor.rank < back.x.rank:
        for axis in reduced_axes(back):
            tensor = op.Unsqueeze(tensor, [axis])
    return tensor


def spread(back: Backward, tensor: StepTensor) -> StepTensor:
    """Return a result of a reduction, or its gradient, repeated over the axes that were reduced."""
    x, axes = back.x, reduced_axes(back)
    if tensor.value is not None and x.is_fixed:  # the loss's own gradient: one filled constant
        return op.constant(np.full(x.sizes(), tensor.value.reshape(-1)[0], x.dtype.numpy))
    wide = kept(back, tensor)
    if any(not isinstance(x.shape[axis], int) for axis in axes):
        result = op.Expand(wide, op.Shape(x))
        return result.typed(x)
    multiples = [x.sizes_from(axis, axis + 1)[0] if axis in axes else 1 for axis in range(x.rank)]
    return op.Tile(wide, multiples) if math.prod(multiples) > 1 else wide


gradients(
    {
        "ReduceSum": lambda back: spread(back, back.dy),
        "ReduceL1": lambda back: _expanded(back, back.dy) * op.Sign(back.x),
        "ReduceSumSquare": lambda back: kept(back, back.dy) * back.x * 2.0,
        "ReduceLogSum": lambda back: spread(back, back.dy / op.Exp(back.y)),
        "ReduceLogSumExp": lambda back: op.Exp(back.x - kept(back, back.y)) * kept(back, back.dy),
    }
)


@gradient("ReduceMean")
def _reduce_mean(back: Backward) -> Gradients:
    x, dy = back.x, spread(back, back.dy)
    count = joined([x.shape[axis] for axis in reduced_axes(back)])
    if count is not None:
        return op.call("RealDiv", dy, float(count), like=x)
    number = op.Size(x) / op.Size(back.y)
    return op.call("RealDiv", dy, op.Cast(number, to=x.dtype.onnx), like=x)


@gradient("ReduceMax", "ReduceMin")
def _reduce_extreme(back: Backward) -> Gradients:
    """Send the gradient to the largest or smallest elements; equal ones share it."""
    x = back.x
    y, dy = kept(back, back.y), kept(back, back.dy)
    is_taken = op.Cast(op.Equal(y, x), to=x.dtype.onnx)
    axes = back.constant(1)
    count = reduced("ReduceSum", is_taken, () if axes is None else axes, keep_dims=True)
    return dy / count * is_taken


@gradient("ReduceProd")
def _reduce_prod(back: Backward) -> Gradients:
    """Multiply the gradient by the product of all other elements, which holds where some are zero."""
    x, axes = back.x, reduced_axes(back)
    order = [*axes, *(axis for axis in range(x.rank) if axis not in axes)]
    dy = spread(back, back.dy)
    turned = op.Transpose(x, perm=order)
    count = math.prod(x.sizes_from(axis, axis + 1)[0] for axis in axes)
    rows = op.call("Reshape", turned, shape=(count, -1))
    front = op.call("CumProd", rows, 0, True, False, like=rows, reverse=0)
    behind = op.call("CumProd", rows, 0, True, True, like=rows, reverse=1)
    others = reshaped(front * behind, turned)
    return op.Transpose(others, perm=np.argsort(order).tolist()) * dy


@gradient("ReduceL2")
def _reduce_l2(back: Backward) -> Gradients:
    # vendor: nan where all elements are zero
    dy, y = _expanded(back, back.dy), _expanded(back, back.y)
    return back.x * op.call("RealDiv", dy, y, like=y)
