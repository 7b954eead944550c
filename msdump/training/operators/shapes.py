"""Tensors in another shape or order, cut, joined, repeated, or summed over axes.

Reshape and Transpose are as MindSpore has them, with the data alone; of reductions axes and flags are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np

from msdump.errors import GraphError
from msdump.graph import MINDSPORE_DOMAIN
from msdump.graph.primitives import Ints, op, swapped
from msdump.training.rules import Backward, Gradients, Rule, gradient, gradients, keep, lowering
from msdump.training.writer import Item, Shape, StepOperator, StepTensor


def is_fixed(shape: Shape) -> bool:
    """Return whether a Reshape can give this shape: one dimension at most is free."""
    return sum(not isinstance(size, int) for size in shape) <= 1


def joined(shape: Sequence[int | str | None]) -> int | None:
    """Return the product of several dimensions, None if one of them is free."""
    sizes = [size for size in shape if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(shape) else None


def open_shape(shape: Shape) -> list[int]:
    """Return a shape as Reshape takes it: -1 for a free dimension."""
    return [size if isinstance(size, int) else -1 for size in shape]


def reshaped(x: StepTensor, like: StepTensor | Shape, out: StepTensor | None = None) -> StepTensor:
    """Return a tensor in another shape, of which one dimension may be free.

    A Reshape of a reshaped tensor reads the original tensor, and equal Reshapes are one operator, as after
    MindSpore's passes.

    Raises:
        GraphError: Several dimensions are free.
    """
    like = like if isinstance(like, StepTensor) else x.shaped(like)
    origin = op.origins.get(x.name, x)
    if out is None and origin.shape == like.shape:
        return origin
    if not is_fixed(like.shape):
        like.sizes()
    shape = tuple(open_shape(like.shape))
    key = ("Reshape", origin.name, shape)
    if out is not None or key not in op.layouts:
        kind = x.shaped(like.shape)
        op.layouts[key] = op.call("Reshape", origin, like=kind, outputs=[out], shape=shape)
        op.origins[op.layouts[key].name] = origin
    return op.layouts[key]


def as_matrix(x: StepTensor) -> StepTensor:
    """Return a tensor with all dimensions but the last one joined."""
    return reshaped(x, ((joined(x.shape[:-1]), x.shape[-1])))


def transposed(x: StepTensor, order: Sequence[int] | None = None) -> StepTensor:
    """Return a tensor with its dimensions in another order, the last two swapped unless it is given."""
    axes = tuple(range(x.rank))
    order = tuple(order) if order is not None else (*axes[:-2], x.rank - 1, x.rank - 2)
    key = ("Transpose", x.name, order)
    if key not in op.layouts:
        op.layouts[key] = op.Transpose(x, perm=order)
    return op.layouts[key]


def swapped_with_last(x: StepTensor, axis: int) -> StepTensor:
    """Return a tensor with an axis and the last one in each other's place; the last one: unchanged."""
    order = swapped(range(x.rank), axis)
    return x if order == [*range(x.rank)] else transposed(x, order)


@lowering("Reshape")
def _lower_reshape(node: StepOperator) -> None:
    x, out = node.x, node.y
    if node.constant(1) is None or not is_fixed(out.shape) or 0 in out.shape:
        keep(node)
        return
    shape = tuple(open_shape(out.shape))
    op.origins[out.name] = origin = op.origins.get(x.name, x)
    op.layouts["Reshape", origin.name, shape] = op.call("Reshape", x, outputs=[out], shape=shape)


@lowering("Transpose")
def _lower_transpose(node: StepOperator) -> None:
    x = node.x
    order = tuple(node.attribute("perm", range(x.rank)[::-1]))
    keep(node)
    op.layouts["Transpose", x.name, order] = node.y


def reduced_axes(node: StepOperator) -> tuple[int, ...]:
    """Return the axes of a reduction from 0; computed ones are a GraphError."""
    rank = node.x.rank
    axes = node.constant(1)
    if axes is None and node.optional(1) is not None:
        raise _computed(node, "axes")
    if axes is not None and axes.size:
        return tuple(sorted(int(axis) % rank for axis in axes.reshape(-1)))
    return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))


def kept_shape(x: StepTensor, axes: Sequence[int]) -> StepTensor:
    """Return type and shape of a reduction of ``x`` with keepdims."""
    return x.shaped(tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))


def reduced(
    name: str,
    x: StepTensor,
    axes: Sequence[int] | np.ndarray,
    *,
    keep_dims: bool,
    out: StepTensor | None = None,
) -> StepTensor:
    """Write one of MindSpore's reductions, ``ReduceSum`` for instance, over axes from either end; []: all."""
    taken = [int(axis) % x.rank for axis in (axes if len(axes) else range(x.rank))]
    kept = kept_shape(x, taken)
    rest = tuple(size for axis, size in enumerate(kept.shape) if axis not in taken)
    result = out or replace(kept if keep_dims else x.shaped(rest), name=op.value_name(name))
    op.emit(name, (x, np.array(axes, np.int64)), {"keepdims": int(keep_dims)}, outputs=[result])
    return result


def unbroadcast(dy: StepTensor, like: StepTensor) -> StepTensor:
    """Return the gradient of a tensor that was broadcast to ``dy``'s shape: the sum over its copies."""
    extra = dy.rank - like.rank
    axes = [
        axis
        for axis, size in enumerate(dy.shape)
        if axis < extra or (like.shape[axis - extra] == 1 and size != 1)
    ]
    if not axes:
        return dy
    total = reduced("ReduceSum", dy, axes, keep_dims=not extra)
    return total if total.rank == like.rank else reshaped(total, like)


def restored(dy: StepTensor, x: StepTensor) -> StepTensor:
    """Return a gradient in the shape of a forward tensor, with free dimensions or not."""
    if is_fixed(x.shape):
        return reshaped(dy, x)
    return op.Reshape(dy, op.Shape(x)).typed(x)


def shape_of(x: StepTensor, start: int = 0) -> StepTensor | list[int]:
    """Return the shape of a forward tensor from an axis on, computed where a dimension is free."""
    known = x.shaped(x.shape[start:])
    return list(known.sizes()) if known.is_fixed else op.Shape(x, start=start or None)


_BEYOND: Final = 2**31 - 1
"""An end from which on exporters mean the end of an axis of any size."""


Cuts = dict[int, tuple[int, int, int]]
"""Begin, end and step of a slice by axis."""


def cuts_of(node: StepOperator) -> Cuts | None:
    """Return begin, end and step of a slice by axis, None where they are computed."""
    begin, end, axes, steps = (node.constant(slot) for slot in range(1, 5))
    is_computed = any(node.constant(slot) is None and node.optional(slot) is not None for slot in (3, 4))
    if begin is None or end is None or is_computed:
        return None
    count = len(begin)
    numbers = range(count) if axes is None else [int(axis) % node.x.rank for axis in axes]
    strides = [1] * count if steps is None else steps.tolist()
    return dict(zip(numbers, zip(begin.tolist(), end.tolist(), strides, strict=True), strict=True))


def strided_slice(x: StepTensor, cuts: Cuts) -> list[Item]:
    """Return begin, end, strides, begin_mask and end_mask of a slice.

    They reach up to the last axis that is cut, as Python's ``x[:, 1:]``. A number that Python's slice leaves
    out is 0, with the bit of its axis in a mask.
    """
    begin, end, strides, masks = [], [], [], [0, 0]
    for axis in range(max(cuts, default=-1) + 1):
        first, last, step = cuts.get(axis, (0, _BEYOND, 1))
        size = x.shape[axis]
        most = size if isinstance(size, int) else _BEYOND - 1
        opens = first == 0 if step > 0 else first >= most
        closes = last > most if step > 0 else last < -most
        begin.append(0 if opens else first)
        end.append(0 if closes else last)
        strides.append(step)
        masks[0] |= opens << axis
        masks[1] |= closes << axis
    return [begin, end, strides, *masks]


def whole_pads(node: StepOperator) -> list[int] | None:
    """Return begins, then ends of a Pad for all axes, None where they are computed."""
    given, axes = node.constant(1), node.constant(3)
    if given is None or (axes is None and node.optional(3) is not None):
        return None
    pads = np.zeros((2, node.x.rank), np.int64)
    pads[:, range(node.x.rank) if axes is None else axes] = given.reshape(2, -1)
    listed: list[int] = pads.reshape(-1).tolist()
    return listed


def paddings(pads: Sequence[int]) -> list[int]:
    """Return the padding of PadV3: begin and end of each axis, the last axis first, up to the first padded.

    >>> paddings((0, 1, 2, 0, 3, 4))
    [2, 4, 1, 3]
    """
    rank = len(pads) // 2
    pairs = [(pads[axis], pads[rank + axis]) for axis in range(rank)]
    while len(pairs) > 1 and pairs[0] == (0, 0):
        pairs.pop(0)
    return [side for pair in reversed(pairs) for side in pair]


def constant(node: StepOperator, slot: int, title: str) -> np.ndarray:
    """Return a constant input; a computed one is a GraphError."""
    value = node.constant(slot)
    if value is None:
        raise _computed(node, title)
    return value


def _computed(node: StepOperator, title: str) -> GraphError:
    return GraphError(f"{node.place.path}/{node.primitive}: {title} that are computed have no gradient")


_OF_RESHAPE: Final[Rule] = lambda back: restored(back.dy, back.x)

gradients({"Reshape": _OF_RESHAPE}, domain=MINDSPORE_DOMAIN)
gradients(
    {
        **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _OF_RESHAPE),
        "Expand": lambda back: unbroadcast(back.dy, back.x),
        "SpaceToDepth": lambda back: op.DepthToSpace(back.dy, blocksize=back.attributes["blocksize"]),
        **dict.fromkeys(
            ("Trilu", "ReverseSequence"),
            lambda back: op.emit(back.op_type, (back.dy, *back.inputs[1:]), back.attributes),
        ),
    }
)


@gradient("Transpose")
def _transpose(back: Backward) -> Gradients:
    order = back.attribute("perm", range(back.dy.rank)[::-1])
    return transposed(back.dy, np.argsort(order).tolist())


@gradient("Tile")
def _tile(back: Backward) -> Gradients:
    """Sum over the copies: their number is a dimension of its own in front of each dimension."""
    x, repeats = back.x, constant(back, 1, "repeats").tolist()
    if set(repeats) <= {1}:
        return back.dy
    apart = tuple(chain.from_iterable(zip(repeats, x.shape, strict=True)))
    return reduced("ReduceSum", reshaped(back.dy, apart), range(0, len(apart), 2), keep_dims=False)


@gradient("Concat")
def _concat(back: Backward) -> Gradients:
    """Cut the gradient into one of each part."""
    axis = back.attributes["axis"] % back.dy.rank
    begin, gradients = 0, []
    for x, is_wanted in zip(back.inputs, back.wants, strict=True):
        assert x is not None, "a Concat has no optional inputs"
        (size,) = x.sizes_from(axis, axis + 1)
        begins = [begin if other == axis else 0 for other in range(x.rank)]
        sizes = open_shape(x.shape)
        gradients.append(op.call("Slice", back.dy, begins, sizes, like=x) if is_wanted else None)
        begin += size
    return gradients


@lowering("Split")
def _lower_split(node: StepOperator) -> None:
    """Write MindSpore's Split, which cuts equal parts; others are cut one by one, as by its ``ops.split``."""
    axis = node.attribute("axis", 0)
    sizes = [part.shape[axis] for part in node.outputs]
    is_known = len(node.outputs) > 1 and all(isinstance(size, int) for size in sizes) and not node.absent
    if is_known and len(set(sizes)) > 1:
        cut(node.x, sizes, axis, node.outputs)
    else:
        keep(node)


def cut(
    x: StepTensor, sizes: Sequence[Any], axis: int, outputs: Sequence[StepTensor] = ()
) -> list[StepTensor]:
    """Write a slice of each size along an axis, one behind the other."""
    ends = list(accumulate(sizes))
    return [
        op.Slice(x, [end - size], [end], [axis % x.rank], outputs=outputs[part : part + 1] if outputs else 1)
        for part, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


@gradient("Split")
def _split(back: Backward) -> Gradients:
    """Join the gradients of the parts; an unused part has zeros."""
    parts = [
        dy if dy is not None else op.call("ZerosLike", y, like=y)
        for dy, y in zip(back.dys, back.outputs, strict=True)
    ]
    return op.Concat(*parts, axis=back.attribute("axis", 0))


@gradient("Slice")
def _slice(back: Backward) -> Gradients:
    x, cuts = back.x, cuts_of(back)
    if cuts is None:
        begin, end = back.input(1), back.input(2)
        given = constant(back, 3, "axes") if back.optional(3) else range(begin.sizes()[0])
        axes = tuple(int(axis) % x.rank for axis in given)
        slots: Sequence[Any] = (begin, end, back.optional(4) or [1] * len(axes))
        structure: dict[str, Ints] = {"axes": axes, "pads": (), "cuts": ()}
    else:
        slots = strided_slice(x, cuts)[:3]
        numbers = tuple(chain.from_iterable(zip(*cuts.values(), strict=True)))
        structure = {"axes": tuple(cuts), "pads": _left_out(x, cuts), "cuts": numbers}
    return op.call("StridedSliceGrad", back.dy, shape_of(x), *slots, like=x, **structure)


def _left_out(x: StepTensor, cuts: Cuts) -> Ints:
    """Return the elements that a slice cuts off at begins and ends of all axes; () for steps other than 1."""
    begins, ends = [0] * x.rank, [0] * x.rank
    for axis, (first, last, step) in cuts.items():
        size = x.shape[axis]
        if step != 1 or not isinstance(size, int):
            return ()
        start, stop, _ = slice(first, last).indices(size)
        begins[axis], ends[axis] = start, size - max(stop, start)
    return (*begins, *ends)


@gradient("Pad")
def _pad(back: Backward) -> Gradients:
    """Cut off the padding; add gradients of copies to their elements."""
    x, dy, pads = back.x, back.dy, whole_pads(back)
    if pads is None:
        raise _computed(back, "pads" if back.constant(1) is None else "axes")
    mode = back.attribute("mode", "constant")
    if mode != "constant":
        return op.call("PadV3Grad", dy, paddings(pads), like=x, mode=mode, pads=tuple(pads))
    dx = op.Pad(dy, [-pad for pad in pads], 0.0).typed(x)
    if len(back.wants) < 3 or not back.wants[2]:
        return dx
    whole, inner = (reduced("ReduceSum", each, range(x.rank), keep_dims=False) for each in (dy, dx))
    return dx, None, reshaped(whole - inner, back.input(2))


@gradient("DepthToSpace")
def _depth_to_space(back: Backward) -> Gradients:
    x, block = back.x, back.attributes["blocksize"]
    if back.attribute("mode", "DCR") == "DCR":
        return op.SpaceToDepth(back.dy, blocksize=block)
    batch, depth, height, width = x.shape
    assert isinstance(depth, int), "a Reshape of the model has given the channels a size"
    blocks = (batch, depth // block**2, height, block, width, block)
    apart = reshaped(back.dy, blocks)
    return reshaped(transposed(apart, (0, 1, 3, 5, 2, 4)), x)
