"""Gradients of reductions."""

from __future__ import annotations

import math

import numpy as np

from msdump.training.lowerings.layouts import reshaped
from msdump.training.lowerings.reductions import kept_shape, reduced, reduced_axes
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


def kept(op: StepWriter, back: Backward, tensor: StepTensor) -> StepTensor:
    """Return a result of a reduction, or its gradient, with the axes that went away, of size 1."""
    wide = kept_shape(back.node.input(0), reduced_axes(back.node))
    if tensor.shape == wide.shape:
        return tensor
    if sum(not isinstance(size, int) for size in wide.shape) > 1:
        result: StepTensor = op.Unsqueeze(tensor, list(reduced_axes(back.node)))
        return result
    return reshaped(op, tensor, wide)


def spread(op: StepWriter, back: Backward, tensor: StepTensor) -> StepTensor:
    """Return a result of a reduction, or its gradient, repeated over the axes that were reduced."""
    x, axes = back.node.input(0), reduced_axes(back.node)
    is_fixed = all(isinstance(size, int) for size in x.shape)
    if tensor.value is not None and is_fixed:  # the gradient of the loss itself: all of it is one constant
        return op.constant(np.full(x.sizes(), tensor.value.reshape(-1)[0], x.dtype.numpy))
    wide = kept(op, back, tensor)
    if any(not isinstance(x.shape[axis], int) for axis in axes):
        (result,) = op.emit("Expand", (wide, op.Shape(x)), {})
        return StepTensor(result.name, x.dtype, x.shape)
    multiples = [x.sizes_from(axis, axis + 1)[0] if axis in axes else 1 for axis in range(x.rank)]
    repeated: StepTensor = op.Tile(wide, multiples) if math.prod(multiples) > 1 else wide
    return repeated


@gradient("ReduceSum")
@mindspore_gradient("ReduceSum")
def _reduce_sum(op: StepWriter, back: Backward) -> Gradients:
    return (spread(op, back, back.dy),)


@gradient("ReduceMean")
@mindspore_gradient("ReduceMean")
def _reduce_mean(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    sizes = [x.shape[axis] for axis in reduced_axes(back.node)]
    dy = spread(op, back, back.dy)
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == len(sizes):
        return (op.call("RealDiv", dy, float(math.prod(fixed)), like=x),)
    count = op.Div(op.Size(x), op.Size(back.node.outputs[0]))
    return (op.call("RealDiv", dy, op.Cast(count, to=x.dtype.onnx), like=x),)


@mindspore_gradient("ReduceMax", "ReduceMin")
def _reduce_extreme(op: StepWriter, back: Backward) -> Gradients:
    """Send the gradient to the largest or smallest elements; equal ones share it."""
    x = back.node.input(0)
    y, dy = kept(op, back, back.node.outputs[0]), kept(op, back, back.dy)
    is_taken = op.Cast(op.Equal(y, x), to=x.dtype.onnx)
    count = reduced(op, "ReduceSum", is_taken, reduced_axes(back.node), keep_dims=True)
    return (op.Mul(op.Div(is_taken, count), dy),)


@mindspore_gradient("ReduceProd")
def _reduce_prod(op: StepWriter, back: Backward) -> Gradients:
    """Multiply the gradient by the product of all other elements, which holds where some are zero."""
    x, axes = back.node.input(0), reduced_axes(back.node)
    order = [*axes, *(axis for axis in range(x.rank) if axis not in axes)]
    dy = spread(op, back, back.dy)
    turned = op.Transpose(x, perm=order)
    count = math.prod(x.sizes_from(axis, axis + 1)[0] for axis in axes)
    rows = op.call("Reshape", turned, shape=(count, -1))
    front = op.call("CumProd", rows, 0, True, False, like=rows, reverse=0)
    behind = op.call("CumProd", rows, 0, True, True, like=rows, reverse=1)
    others = reshaped(op, op.Mul(front, behind), turned)
    return (op.Mul(op.Transpose(others, perm=np.argsort(order).tolist()), dy),)


@gradient("ReduceL1")
def _reduce_l1(op: StepWriter, back: Backward) -> Gradients:
    return (op.Mul(kept(op, back, back.dy), op.Sign(back.node.input(0))),)


@gradient("ReduceL2")
def _reduce_l2(op: StepWriter, back: Backward) -> Gradients:
    # vendor: nan where all elements are zero
    y = kept(op, back, back.node.outputs[0])
    scale = op.call("RealDiv", kept(op, back, back.dy), y, like=y)
    return (op.Mul(back.node.input(0), scale),)


@gradient("ReduceSumSquare")
def _reduce_sum_square(op: StepWriter, back: Backward) -> Gradients:
    return (op.Mul(op.Mul(kept(op, back, back.dy), back.node.input(0)), 2.0),)


@gradient("ReduceLogSum")
def _reduce_log_sum(op: StepWriter, back: Backward) -> Gradients:
    return (spread(op, back, op.Div(back.dy, op.Exp(back.node.outputs[0]))),)


@gradient("ReduceLogSumExp")
def _reduce_log_sum_exp(op: StepWriter, back: Backward) -> Gradients:
    share = op.Exp(op.Sub(back.node.input(0), kept(op, back, back.node.outputs[0])))
    return (op.Mul(share, kept(op, back, back.dy)),)
