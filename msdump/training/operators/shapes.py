"""Slices, pads, joins and repeats: gradients are cut out, moved back, or summed over what was repeated."""

from __future__ import annotations

from itertools import accumulate, chain

import numpy as np

from msdump.errors import GraphError
from msdump.training.body import Body, Ints, Value, operator
from msdump.training.operators.layouts import (
    open_shape,
    reduced,
    reshaped,
    restored,
    shape_of,
    transposed,
    unbroadcast,
)
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.writer import StepOperator, StepTensor, StepWriter


@operator("ZerosLike")
def zeros_like(op: Body, x: Value) -> Value:
    """Return zeros in the shape of a tensor."""
    return op.Expand(0.0, op.Shape(x))


@operator("Slice")
def slice_of(op: Body, x: Value, begin: Value, size: Value) -> Value:
    """Return ``size`` elements along each axis from ``begin`` on; -1: all that follow."""
    whole = op.Shape(x)
    return op.Slice(x, begin, op.Where(size < 0, whole, begin + size))


@operator("StridedSliceGrad")
def strided_slice_grad(
    op: Body, dy: Value, shape: Value, begin: Value, end: Value, strides: Value, *, axes: Ints, pads: Ints
) -> Value:
    """Return a gradient at the places that a slice took, zero elsewhere.

    ``pads``: how much the slice left out at the begins, then at the ends, where its strides are 1.
    """
    if pads:
        return op.Pad(dy, pads)
    return scattered(op, dy, op.Slice(numbered(op, shape), begin, end, axes, strides), shape)


@operator("PadV3Grad")
def pad_v3_grad(op: Body, dy: Value, _paddings: Value, *, mode: str, pads: Ints) -> Value:
    """Sum the gradient of a padded tensor over all places that an element was copied to.

    ``pads``: begins, then ends, of all axes.
    """
    rank = len(pads) // 2
    shape = op.Shape(dy) - [pads[axis] + pads[rank + axis] for axis in range(rank)]
    return scattered(op, dy, op.Pad(numbered(op, shape), pads, mode=mode), shape)


def numbered(op: Body, shape: Value) -> Value:
    """Return a tensor of a shape whose elements are numbered."""
    count = op.ReduceProd(shape, keepdims=0)
    return op.Reshape(op.Range(0, count, 1), shape)


def scattered(op: Body, dy: Value, numbers: Value, shape: Value) -> Value:
    """Sum a gradient into the elements of a shape that have these numbers."""
    places, values = op.Reshape(numbers, [-1]), op.Reshape(dy, [-1])
    total = op.scatter_sum("ScatterElements", op.ReduceProd(shape, keepdims=1), places, values, axis=0)
    return op.Reshape(total, shape)


def constant(node: StepOperator, slot: int, title: str) -> np.ndarray:
    """Return an input that must be a constant.

    Raises:
        GraphError: It is computed.
    """
    value = node.constant(slot)
    if value is None:
        raise GraphError(f"{node.place.path}/{node.primitive}: {title} that are computed have no gradient")
    return value


@gradient("Flatten", "Reshape", "Squeeze", "Unsqueeze")
@mindspore_gradient("Reshape")
def _reshape(op: StepWriter, back: Backward) -> Gradients:
    return restored(op, back.dy, back.x)


@gradient("Transpose")
def _transpose(op: StepWriter, back: Backward) -> Gradients:
    order = back.node.attribute("perm", range(back.dy.rank)[::-1])
    return transposed(op, back.dy, np.argsort(order).tolist())


@gradient("Expand")
def _expand(op: StepWriter, back: Backward) -> Gradients:
    return unbroadcast(op, back.dy, back.x)


@gradient("Tile")
def _tile(op: StepWriter, back: Backward) -> Gradients:
    """Sum over the copies: their number is a dimension of its own in front of each dimension."""
    x = back.x
    repeats = constant(back.node, 1, "repeats").tolist()
    copied = [axis for axis, count in enumerate(repeats) if count != 1]
    if not copied:
        return back.dy
    parts = [(repeats[axis], size) if axis in copied else (size,) for axis, size in enumerate(x.shape)]
    apart = tuple(chain.from_iterable(parts))
    starts = [0, *accumulate(len(part) for part in parts)]
    axes = [starts[axis] for axis in copied]
    return reduced(op, "ReduceSum", reshaped(op, back.dy, apart), axes, keep_dims=False)


@gradient("Concat")
def _concat(op: StepWriter, back: Backward) -> Gradients:
    """Cut the gradient into those of the parts."""
    axis = back.node.attributes["axis"] % back.dy.rank
    begin, gradients = 0, []
    for x, is_wanted in zip(back.node.inputs, back.wants, strict=True):
        assert x is not None, "a Concat has no optional inputs"
        (size,) = x.sizes_from(axis, axis + 1)
        begins = [begin if other == axis else 0 for other in range(x.rank)]
        sizes = open_shape(x.shape)
        gradients.append(op.call("Slice", back.dy, begins, sizes, like=x) if is_wanted else None)
        begin += size
    return gradients


@gradient("Split")
def _split(op: StepWriter, back: Backward) -> Gradients:
    """Join the gradients of the parts; a part that nobody uses has zeros."""
    parts = [
        dy if dy is not None else op.call("ZerosLike", y, like=y)
        for dy, y in zip(back.dys, back.node.outputs, strict=True)
    ]
    return op.Concat(*parts, axis=back.node.attribute("axis", 0))


@gradient("Slice")
def _slice(op: StepWriter, back: Backward) -> Gradients:
    node, x = back.node, back.x
    begin, end = node.input(1), node.input(2)
    axes = _axes(node, 3, range(len(begin.value)) if begin.value is not None else range(begin.sizes()[0]))
    steps = node.optional(4) or [1] * len(axes)
    slots = (back.dy, shape_of(op, x), begin, end, steps)
    return op.call("StridedSliceGrad", *slots, like=x, axes=axes, pads=_left_out(node, axes))


def _left_out(node: StepOperator, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return how much a slice leaves out at the begins and ends of all axes, empty unless its steps are 1."""
    x = node.x
    begin, end, steps = node.constant(1), node.constant(2), node.constant(4)
    if begin is None or end is None or (node.optional(4) and (steps is None or (steps != 1).any())):
        return ()
    begins, ends = [0] * x.rank, [0] * x.rank
    for axis, first, last in zip(axes, begin.tolist(), end.tolist(), strict=True):
        size = x.shape[axis]
        if not isinstance(size, int):
            return ()
        start, stop, _ = slice(first, last).indices(size)
        begins[axis], ends[axis] = start, size - max(stop, start)
    return (*begins, *ends)


def _axes(node: StepOperator, slot: int, default: range) -> tuple[int, ...]:
    """Return the axes that an operator names, from 0."""
    rank = node.x.rank
    axes = constant(node, slot, "axes").tolist() if node.optional(slot) else default
    return tuple(axis % rank for axis in axes)


@gradient("Pad")
def _pad(op: StepWriter, back: Backward) -> Gradients:
    """Cut off what was padded; what was copied from the tensor goes back to where it came from."""
    node, x, dy = back.node, back.x, back.dy
    given = constant(node, 1, "pads").tolist()
    axes = _axes(node, 3, range(x.rank))
    pads = [0] * 2 * x.rank
    for number, axis in enumerate(axes):
        pads[axis], pads[x.rank + axis] = given[number], given[len(axes) + number]
    mode = node.attribute("mode", "constant")
    if mode != "constant":
        return op.call("PadV3Grad", dy, pads, like=x, mode=mode, pads=tuple(pads))
    cut = op.Pad(dy, [-pad for pad in pads])
    dx = StepTensor(cut.name, x.dtype, x.shape)
    if len(back.wants) < 3 or not back.wants[2]:
        return dx
    padding = op.Sub(_sum_of_all(op, dy), _sum_of_all(op, dx))
    return dx, None, reshaped(op, padding, node.input(2))


def _sum_of_all(op: StepWriter, x: StepTensor) -> StepTensor:
    return reduced(op, "ReduceSum", x, range(x.rank), keep_dims=False)


@gradient("DepthToSpace")
def _depth_to_space(op: StepWriter, back: Backward) -> Gradients:
    x, block = back.x, back.node.attributes["blocksize"]
    if back.node.attribute("mode", "DCR") == "DCR":
        return op.SpaceToDepth(back.dy, blocksize=block)
    batch, depth, height, width = x.shape
    assert isinstance(depth, int), "a Reshape of the model has given the channels a size"
    blocks = (batch, depth // block**2, height, block, width, block)
    apart = reshaped(op, back.dy, blocks)
    return reshaped(op, transposed(op, apart, (0, 1, 3, 5, 2, 4)), x)


@gradient("SpaceToDepth")
def _space_to_depth(op: StepWriter, back: Backward) -> Gradients:
    return op.DepthToSpace(back.dy, blocksize=back.node.attributes["blocksize"])


@gradient("Trilu", "ReverseSequence")
def _likewise(op: StepWriter, back: Backward) -> Gradients:
    return op.emit(back.node.op_type, (back.dy, *back.node.inputs[1:]), back.node.attributes)
