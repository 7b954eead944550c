"""Gathers and scatters: gradients are sums into the elements that were read."""

from __future__ import annotations

import numpy as np

from msdump.errors import GraphError
from msdump.graph.primitives import INT32, op, swapped
from msdump.training.operators.shapes import (
    as_matrix,
    is_fixed,
    joined,
    reshaped,
    restored,
    shape_of,
    swapped_with_last,
    transposed,
)
from msdump.training.rules import Backward, Gradients, constant_zero, gradient, keep, lowering
from msdump.training.writer import StepOperator, StepTensor


@lowering("Gather")
def _lower_gather(node: StepOperator) -> None:
    """Write a Gather; of matrix rows by indices of several dimensions, as MindSpore's nn.Embedding does."""
    x, indices, out = node.x, node.input(1), node.y
    is_first = node.attribute("axis", 0) % x.rank == 0
    if x.is_float and is_first and x.rank == 2 and indices.rank > 1 and is_fixed(out.shape):
        flat = reshaped(indices, ((joined(indices.shape),)))
        reshaped(op.Gather(x, flat, axis=0), out, out)
    else:
        keep(node)


gradient("OneHot", "EyeLike", "ConstantOfShape", "Range", "Shape", "Size", "NonZero")(constant_zero)

gradient("RandomNormalLike", "RandomUniformLike", "Bernoulli")(constant_zero)


@gradient("Gather")
def _gather(back: Backward) -> Gradients:
    """Sum the gradient's rows by index; an axis other than the first is transposed to the front and back."""
    x, indices, dy = back.x, back.input(1), back.dy
    axis = back.attribute("axis", 0) % x.rank
    (count,) = x.sizes_from(axis, axis + 1)
    looked_up = range(axis, axis + indices.rank)
    if axis:
        dy = transposed(dy, [*looked_up, *(other for other in range(dy.rank) if other not in looked_up)])
    rest = tuple(size for other, size in enumerate(x.shape) if other != axis)
    kind = x.shaped((count, *rest))
    dx = op.call("UnsortedSegmentSum", dy, indices, like=kind, num_segments=count, rank=indices.rank)
    return transposed(dx, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)]) if axis else dx


@gradient("GatherElements")
def _gather_elements(back: Backward) -> Gradients:
    x, axis = back.x, back.attribute("axis", 0)
    return op.call("GatherDGradV2", x, axis, back.input(1), back.dy, like=x, dim=axis)


@gradient("TopK")
def _top_k(back: Backward) -> Gradients:
    """Scatter the gradient to the largest elements, by their numbers in all rows.

    Rows are the last axis: another one is swapped with it.
    """
    x, axis = back.x, back.attribute("axis", -1)
    places, dy = swapped_with_last(back.outputs[1], axis), swapped_with_last(back.dy, axis)
    size = joined(x.shape)
    if size is None:
        starts = op.Range(0, op.Size(x), op.Gather(op.Shape(x), axis))
        numbers = places + op.Reshape(starts, op.Concat(op.Shape(places, end=-1), [1], axis=0))
        total = op.Reshape(op.Size(x), [1])
    else:
        numbers = as_matrix(places) + np.arange(0, size, x.sizes()[axis]).reshape(-1, 1)
        total = [size]
    numbers = reshaped(numbers, (joined(dy.shape), 1))
    flat = _scatter_nd(numbers, reshaped(dy, (joined(dy.shape),)), total)
    # the order of free dimensions has to be computed
    turned = x.shaped(tuple(swapped(x.shape, axis))) if is_fixed(x.shape) else swapped_with_last(x, axis)
    return swapped_with_last(restored(flat, turned), axis)


@gradient("GatherND")
def _gather_nd(back: Backward) -> Gradients:
    x, indices = back.x, back.input(1)
    batch_dims = back.attribute("batch_dims", 0)
    return _scatter_nd(indices, back.dy, shape_of(x), batch_dims).typed(x)


def _scatter_nd(
    indices: StepTensor, updates: StepTensor, shape: StepTensor | list[int], batch_dims: int = 0
) -> StepTensor:
    """Write ScatterNd, of which a shape is an input only where it is computed."""
    known, computed = (tuple(shape), ()) if isinstance(shape, list) else ((), (shape,))
    result: StepTensor = op.call("ScatterNd", indices, updates, *computed, shape=known, batch_dims=batch_dims)
    return result


@gradient("ScatterElements", "ScatterND")
def _scatter(back: Backward) -> Gradients:
    """Return the gradient of data, zero at overwritten places, and of updates, gathered from these places."""
    dy = back.dy
    x, indices, updates = (back.input(slot) for slot in range(3))
    reduction = back.attribute("reduction", "none")
    if reduction == "mul":
        raise GraphError(f"{back.place.path}/{back.primitive}: a reduction 'mul' has no gradient")
    if reduction in {"max", "min"}:
        return _of_extreme(back)
    dx = du = None
    if back.wants[0]:
        dx = dy
        if reduction == "none" or back.op_type == "ScatterElements":
            zeros = op.call("ZerosLike", updates, like=updates)
            (dx,) = op.emit(back.op_type, (dy, indices, zeros), back.attributes)
            dx = dx.typed(x)
    if back.wants[2]:
        du = _gathered(back, dy)
    return dx, None, du


def _of_extreme(back: Backward) -> Gradients:
    """Return the gradients for reductions max and min: data and updates that equal the result share it."""
    dy, x, indices, updates = back.dy, *(back.input(slot) for slot in range(3))
    in_data = op.Cast(op.Equal(x, back.y), to=INT32)
    in_updates = op.Cast(op.Equal(updates, _gathered(back, back.y)), to=INT32)
    if back.op_type == "ScatterND":
        count = in_data + _scatter_nd(indices, in_updates, shape_of(x)).typed(in_data)
    else:
        (count,) = op.emit(
            back.op_type, (in_data, indices, in_updates), {**back.attributes, "reduction": "add"}
        )
    share = op.Cast(count, to=dy.dtype.onnx)
    dx = du = None
    if back.wants[0]:
        dx = op.call("RealDiv", dy * op.Cast(in_data, to=dy.dtype.onnx), share, like=x)
    if back.wants[2]:
        part = _gathered(back, op.call("RealDiv", dy, share, like=x))
        du = part * op.Cast(in_updates, to=dy.dtype.onnx)
    return dx, None, du


def _gathered(node: StepOperator, values: StepTensor) -> StepTensor:
    """Return the elements of a tensor at the places where a scatter writes its updates."""
    indices, updates = node.input(1), node.input(2)
    if node.op_type == "ScatterND":
        result = op.GatherND(values, indices)
    else:
        result = op.GatherElements(values, indices, axis=node.attribute("axis", 0))
    return StepTensor(result.name, values.dtype, updates.shape)
