"""Tensors in another shape or order, or summed over axes: the operators that all families write.

Reshape and Transpose are as MindSpore has them, with the data alone; of reductions axes and flags are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from msdump.errors import GraphError
from msdump.training.body import Body, Value, operator
from msdump.training.rules import keep, lowering
from msdump.training.writer import Item, Shape, StepOperator, StepTensor, StepWriter


@operator("Reshape")
def reshape_body(op: Body, x: Value, *, shape: tuple[int, ...]) -> Value:
    """Give a tensor another shape."""
    return op.Reshape(x, shape)


def is_fixed(shape: Shape) -> bool:
    """Tell whether a Reshape can give this shape: one dimension at most is free."""
    return sum(not isinstance(size, int) for size in shape) <= 1


def joined(shape: Sequence[int | str | None]) -> int | None:
    """Return the size of several dimensions as one, None if one of them is free."""
    sizes = [size for size in shape if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(shape) else None


def open_shape(shape: Shape) -> list[int]:
    """Return a shape as Reshape takes it: -1 for a free dimension."""
    return [size if isinstance(size, int) else -1 for size in shape]


def reshaped(
    op: StepWriter, x: StepTensor, like: StepTensor | Shape, out: StepTensor | None = None
) -> StepTensor:
    """Return a tensor in another shape, of which one dimension may be free.

    A reshaping of a reshaping is one of the first tensor, and equal ones are one operator, as MindSpore's
    passes leave them.

    Args:
        op: Writes the operator.
        x: What is reshaped.
        like: The shape, or a tensor of it.
        out: The result, where it has a name already.

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


def as_matrix(op: StepWriter, x: StepTensor) -> StepTensor:
    """Return a tensor with all dimensions but the last one joined."""
    return reshaped(op, x, ((joined(x.shape[:-1]), x.shape[-1])))


def transposed(op: StepWriter, x: StepTensor, order: Sequence[int] | None = None) -> StepTensor:
    """Return a tensor with its dimensions in another order, the last two swapped unless it is given."""
    axes = tuple(range(x.rank))
    order = tuple(order) if order is not None else (*axes[:-2], x.rank - 1, x.rank - 2)
    key = ("Transpose", x.name, order)
    if key not in op.layouts:
        op.layouts[key] = op.Transpose(x, perm=order)
    return op.layouts[key]


@lowering("Reshape")
def _lower_reshape(op: StepWriter, node: StepOperator) -> None:
    x, out = node.x, node.y
    if node.constant(1) is None or not is_fixed(out.shape) or 0 in out.shape:
        keep(op, node)
        return
    shape = tuple(open_shape(out.shape))
    op.origins[out.name] = origin = op.origins.get(x.name, x)
    op.layouts["Reshape", origin.name, shape] = op.call("Reshape", x, outputs=[out], shape=shape)


@lowering("Transpose")
def _lower_transpose(op: StepWriter, node: StepOperator) -> None:
    x = node.x
    order = tuple(node.attribute("perm", range(x.rank)[::-1]))
    keep(op, node)
    op.layouts["Transpose", x.name, order] = node.y


def reduced_axes(node: StepOperator) -> tuple[int, ...]:
    """Return the axes that a reduction takes away, from 0.

    Raises:
        GraphError: They are computed.
    """
    rank = node.x.rank
    axes = np.array(node.attribute("axes", ())) if node.optional(1) is None else node.constant(1)
    if axes is None:
        raise GraphError(f"{node.place.path}/{node.primitive}: axes that are computed have no gradient")
    if axes.size:
        return tuple(sorted(int(axis) % rank for axis in axes.reshape(-1)))
    return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))


def kept_shape(x: StepTensor, axes: Sequence[int]) -> StepTensor:
    """Return the type of a reduction of ``x`` that keeps its axes."""
    return x.shaped(tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))


def reduced(
    op: StepWriter,
    name: str,
    x: StepTensor,
    axes: Sequence[int] | np.ndarray,
    *,
    keep_dims: bool,
    out: StepTensor | None = None,
) -> StepTensor:
    """Write one of MindSpore's reductions.

    Args:
        op: Writes the operator.
        name: ``ReduceSum``, ``ReduceMean``, ``ReduceMax``, ``ReduceMin`` or ``ReduceProd``.
        x: What is reduced.
        axes: The axes, from either end.
        keep_dims: Whether they stay, of size 1.
        out: The result, where it has a name already.
    """
    flags: tuple[Item, ...] = (keep_dims, False) if name == "ReduceSum" else (keep_dims,)
    taken = [int(axis) % x.rank for axis in axes]
    kept = kept_shape(x, taken)
    rest = tuple(size for axis, size in enumerate(kept.shape) if axis not in taken)
    return op.call(
        name,
        *(x, axes, *flags),
        like=kept if keep_dims else x.shaped(rest),
        outputs=[out],
        keep_dims=int(keep_dims),
    )


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
    result = op.Reshape(dy, op.Shape(x))
    return StepTensor(result.name, x.dtype, x.shape)


def shape_of(op: StepWriter, x: StepTensor) -> StepTensor | list[int]:
    """Return the shape of a forward tensor, computed where a dimension is free."""
    return list(x.sizes()) if x.is_fixed else op.Shape(x)
