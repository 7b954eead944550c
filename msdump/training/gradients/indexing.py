"""Gradients of gathers, scatters and the like: sums into the elements that were read."""

from __future__ import annotations

from msdump.errors import GraphError
from msdump.training.gradients.shapes import shape_of
from msdump.training.lowerings.layouts import transposed
from msdump.training.rules import Backward, Gradients, constant_zero, gradient, mindspore_gradient
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

gradient("OneHot", "EyeLike", "ConstantOfShape", "Range", "Shape", "Size", "NonZero")(constant_zero)
gradient("RandomNormalLike", "RandomUniformLike", "Bernoulli")(constant_zero)


@gradient("Gather")
@mindspore_gradient("Gather")
def _gather(op: StepWriter, back: Backward) -> Gradients:
    """Sum the rows of the gradient by their index; another axis than the first one is turned to the front."""
    x, indices, dy = back.node.input(0), back.node.input(1), back.dy
    axis = back.node.attribute("axis", 0) % x.rank
    (count,) = x.sizes_from(axis, axis + 1)
    looked_up = range(axis, axis + indices.rank)
    if axis:
        dy = transposed(op, dy, [*looked_up, *(other for other in range(dy.rank) if other not in looked_up)])
    rest = tuple(size for other, size in enumerate(x.shape) if other != axis)
    kind = StepTensor("", x.dtype, (count, *rest))
    dx = op.call("UnsortedSegmentSum", dy, indices, like=kind, num_segments=count, rank=indices.rank)
    return (transposed(op, dx, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)]) if axis else dx,)


@gradient("GatherElements")
def _gather_elements(op: StepWriter, back: Backward) -> Gradients:
    return (_into(op, back, back.node.input(1), back.dy, back.node.attribute("axis", 0)),)


@gradient("TopK")
def _top_k(op: StepWriter, back: Backward) -> Gradients:
    return (_into(op, back, back.node.outputs[1], back.dy, back.node.attribute("axis", -1)),)


def _into(op: StepWriter, back: Backward, indices: StepTensor, dy: StepTensor, axis: int) -> StepTensor:
    """Sum a gradient into the elements that indices along an axis tell."""
    x = back.node.input(0)
    result: StepTensor = op.call("GatherDGradV2", x, axis, indices, dy, like=x, dim=axis)
    return result


@gradient("GatherND")
def _gather_nd(op: StepWriter, back: Backward) -> Gradients:
    x, indices = back.node.input(0), back.node.input(1)
    batch_dims = back.node.attribute("batch_dims", 0)
    return (op.call("ScatterNd", indices, back.dy, shape_of(op, x), like=x, batch_dims=batch_dims),)


@gradient("ScatterElements", "ScatterND")
def _scatter(op: StepWriter, back: Backward) -> Gradients:
    """Return the gradient where the data are kept, and that of the updates at their places."""
    node, dy = back.node, back.dy
    x, indices, updates = (node.input(slot) for slot in range(3))
    reduction = node.attribute("reduction", "none")
    if reduction == "mul":
        raise GraphError(f"{node.place.path}/{node.primitive}: a reduction 'mul' has no gradient")
    if reduction in {"max", "min"}:
        return _of_extreme(op, back)
    dx = du = None
    if back.wants[0]:
        dx = dy
        if reduction == "none":
            zeros = op.call("ZerosLike", updates, like=updates)
            (dx,) = op.emit(node.op_type, (dy, indices, zeros), {"axis": node.attribute("axis", None)})
            dx = StepTensor(dx.name, x.dtype, x.shape)
    if back.wants[2]:
        du = _gathered(op, node, dy)
    return dx, None, du


def _of_extreme(op: StepWriter, back: Backward) -> Gradients:
    """Return the gradients of data and updates where they are the largest or smallest."""
    node, dy, y = back.node, back.dy, back.node.outputs[0]
    x, updates = node.input(0), node.input(2)
    zero = 0.0
    dx = op.Where(op.Equal(x, y), dy, zero) if back.wants[0] else None
    if not back.wants[2]:
        return (dx,)
    is_taken = op.Equal(updates, _gathered(op, node, y))
    return dx, None, op.Where(is_taken, _gathered(op, node, dy), zero)


def _gathered(op: StepWriter, node: StepOperator, values: StepTensor) -> StepTensor:
    """Return the elements of a tensor at the places where a scatter writes its updates."""
    indices, updates = node.input(1), node.input(2)
    if node.op_type == "ScatterND":
        (result,) = op.emit("GatherND", (values, indices), {})
    else:
        (result,) = op.emit("GatherElements", (values, indices), {"axis": node.attribute("axis", 0)})
    return StepTensor(result.name, values.dtype, updates.shape)
