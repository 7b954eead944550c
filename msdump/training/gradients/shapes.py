"""Gradients that only change shape or order: reshaped, turned, cut, or summed over what was repeated."""

from __future__ import annotations

from itertools import accumulate, chain

import numpy as np

from msdump.errors import GraphError
from msdump.training.lowerings.layouts import is_fixed, reshaped, transposed
from msdump.training.lowerings.reductions import reduced
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter


def unbroadcast(op: StepWriter, dy: StepTensor, like: StepTensor) -> StepTensor:
    """Return the gradient of a tensor that was broadcast to ``dy``'s shape: the sum over what it repeats."""
    extra = dy.rank - like.rank
    axes = [
        axis
        for axis, size in enumerate(dy.shape)
        if axis < extra or (like.shape[axis - extra] == 1 and size != 1)
    ]
    if not axes:
        return dy
    total = reduced(op, "ReduceSum", dy, axes, keep_dims=not extra)
    return total if total.rank == like.rank else reshaped(op, total, like)


def restored(op: StepWriter, dy: StepTensor, x: StepTensor) -> StepTensor:
    """Return a gradient in the shape of a forward tensor, any of whose dimensions may be free."""
    if is_fixed(x.shape):
        return reshaped(op, dy, x)
    (result,) = op.emit("Reshape", (dy, op.Shape(x)), {})
    return StepTensor(result.name, x.dtype, x.shape)


def shape_of(op: StepWriter, x: StepTensor) -> StepTensor | list[int]:
    """Return the shape of a forward tensor, computed where a dimension is free."""
    sizes = [size for size in x.shape if isinstance(size, int)]
    if len(sizes) == x.rank:
        return sizes
    computed: StepTensor = op.Shape(x)
    return computed


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
    return (restored(op, back.dy, back.node.input(0)),)


@gradient("Transpose")
def _transpose(op: StepWriter, back: Backward) -> Gradients:
    order = back.node.attribute("perm", range(back.dy.rank)[::-1])
    return (transposed(op, back.dy, np.argsort(order).tolist()),)


@gradient("Expand")
def _expand(op: StepWriter, back: Backward) -> Gradients:
    return (unbroadcast(op, back.dy, back.node.input(0)),)


@gradient("Tile")
def _tile(op: StepWriter, back: Backward) -> Gradients:
    """Sum over the copies: their number is a dimension of its own in front of each dimension."""
    x = back.node.input(0)
    repeats = constant(back.node, 1, "repeats").tolist()
    copied = [axis for axis, count in enumerate(repeats) if count != 1]
    if not copied:
        return (back.dy,)
    parts = [(repeats[axis], size) if axis in copied else (size,) for axis, size in enumerate(x.shape)]
    apart = StepTensor("", x.dtype, tuple(chain.from_iterable(parts)))
    starts = [0, *accumulate(len(part) for part in parts)]
    axes = [starts[axis] for axis in copied]
    return (reduced(op, "ReduceSum", reshaped(op, back.dy, apart), axes, keep_dims=False),)


@gradient("Concat")
def _concat(op: StepWriter, back: Backward) -> Gradients:
    """Cut the gradient into those of the parts."""
    axis = back.node.attributes["axis"] % back.dy.rank
    begin, gradients = 0, []
    for x, is_wanted in zip(back.node.inputs, back.wants, strict=True):
        assert x is not None, "a Concat has no optional inputs"
        (size,) = x.sizes_from(axis, axis + 1)
        begins = [begin if other == axis else 0 for other in range(x.rank)]
        sizes = [length if isinstance(length, int) else -1 for length in x.shape]
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
    (joined,) = op.emit("Concat", parts, {"axis": back.node.attribute("axis", 0)})
    return (joined,)


@gradient("Slice")
def _slice(op: StepWriter, back: Backward) -> Gradients:
    node, x = back.node, back.node.input(0)
    begin, end = node.input(1), node.input(2)
    axes = _axes(node, 3, range(len(begin.value)) if begin.value is not None else range(begin.sizes()[0]))
    steps = node.inputs[4] if len(node.inputs) > 4 and node.inputs[4] is not None else [1] * len(axes)
    slots = (back.dy, shape_of(op, x), begin, end, steps)
    return (op.call("StridedSliceGrad", *slots, like=x, axes=axes, pads=_left_out(node, axes)),)


def _left_out(node: StepOperator, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return how much a slice leaves out at the begins and ends of all axes, empty unless its steps are 1."""
    x = node.input(0)
    begin, end, steps = node.constant(1), node.constant(2), node.constant(4)
    has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
    if begin is None or end is None or (has_steps and (steps is None or (steps != 1).any())):
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
    rank = node.input(0).rank
    has_axes = len(node.inputs) > slot and node.inputs[slot] is not None
    axes = constant(node, slot, "axes").tolist() if has_axes else default
    return tuple(axis % rank for axis in axes)


@gradient("Pad")
def _pad(op: StepWriter, back: Backward) -> Gradients:
    """Cut off what was padded; what was copied from the tensor goes back to where it came from."""
    node, x, dy = back.node, back.node.input(0), back.dy
    given = constant(node, 1, "pads").tolist()
    axes = _axes(node, 3, range(x.rank))
    pads = [0] * 2 * x.rank
    for number, axis in enumerate(axes):
        pads[axis], pads[x.rank + axis] = given[number], given[len(axes) + number]
    mode = node.attribute("mode", "constant")
    if mode != "constant":
        return (op.call("PadV3Grad", dy, pads, like=x, mode=mode, pads=tuple(pads)),)
    cut = op.Pad(dy, [-pad for pad in pads])
    dx = StepTensor(cut.name, x.dtype, x.shape)
    if len(back.wants) < 3 or not back.wants[2]:
        return (dx,)
    padding = op.Sub(_total(op, dy), _total(op, dx))
    return dx, None, reshaped(op, padding, node.input(2))


def _total(op: StepWriter, x: StepTensor) -> StepTensor:
    return reduced(op, "ReduceSum", x, range(x.rank), keep_dims=False)


@gradient("DepthToSpace")
def _depth_to_space(op: StepWriter, back: Backward) -> Gradients:
    x, block = back.node.input(0), back.node.attributes["blocksize"]
    if back.node.attribute("mode", "DCR") == "DCR":
        return (op.SpaceToDepth(back.dy, blocksize=block),)
    batch, depth, height, width = x.shape
    assert isinstance(depth, int), "a Reshape of the model has given the channels a size"
    blocks = (batch, depth // block**2, height, block, width, block)
    apart = reshaped(op, back.dy, StepTensor("", x.dtype, blocks))
    return (reshaped(op, transposed(op, apart, (0, 1, 3, 5, 2, 4)), x),)


@gradient("SpaceToDepth")
def _space_to_depth(op: StepWriter, back: Backward) -> Gradients:
    return (op.DepthToSpace(back.dy, blocksize=back.node.attributes["blocksize"]),)


@gradient("Trilu")
def _trilu(op: StepWriter, back: Backward) -> Gradients:
    (dx,) = op.emit("Trilu", (back.dy, *back.node.inputs[1:]), back.node.attributes)
    return (dx,)


@gradient("ReverseSequence")
def _reverse_sequence(op: StepWriter, back: Backward) -> Gradients:
    (dx,) = op.emit("ReverseSequence", (back.dy, *back.node.inputs[1:]), back.node.attributes)
    return (dx,)
