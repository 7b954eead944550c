"""Tensors in another shape or order: Reshape and Transpose as MindSpore has them, with the data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msdump.training.lowering import keep, lowering
from msdump.training.symbols import Shape, StepOperator, StepTensor
from msdump.training.writer import StepWriter


def is_fixed(shape: Shape) -> bool:
    """Tell whether a Reshape can give this shape: one dimension at most is free."""
    return sum(not isinstance(size, int) for size in shape) <= 1


def joined(shape: Shape) -> int | None:
    """Return the size of several dimensions as one, None if one of them is free."""
    sizes = [size for size in shape if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(shape) else None


def reshaped(op: StepWriter, x: StepTensor, like: StepTensor, out: StepTensor | None = None) -> StepTensor:
    """Return a tensor in another shape, of which one dimension may be free.

    A reshaping of a reshaping is one of the first tensor, and equal ones are one operator, as MindSpore's
    passes leave them.

    Args:
        op: Writes the operator.
        x: What is reshaped.
        like: A tensor of that shape.
        out: The result, where it has a name already.

    Raises:
        GraphError: Several dimensions are free.
    """
    origin = op.origins.get(x.name, x)
    if out is None and origin.shape == like.shape:
        return origin
    if not is_fixed(like.shape):
        like.sizes()
    shape = tuple(size if isinstance(size, int) else -1 for size in like.shape)
    key = ("Reshape", origin.name, shape)
    if out is not None or key not in op.layouts:
        outputs = None if out is None else [out]
        kind = StepTensor("", x.dtype, like.shape)
        op.layouts[key] = op.call("Reshape", origin, like=kind, outputs=outputs, shape=shape)
        op.origins[op.layouts[key].name] = origin
    return op.layouts[key]


def as_matrix(op: StepWriter, x: StepTensor) -> StepTensor:
    """Return a tensor with all dimensions but the last one joined."""
    return reshaped(op, x, StepTensor("", x.dtype, (joined(x.shape[:-1]), x.shape[-1])))


def transposed(op: StepWriter, x: StepTensor, order: Sequence[int] | None = None) -> StepTensor:
    """Return a tensor with its dimensions in another order, the last two swapped unless it is given."""
    axes = tuple(range(x.rank))
    order = tuple(order) if order is not None else (*axes[:-2], x.rank - 1, x.rank - 2)
    key = ("Transpose", x.name, order)
    if key not in op.layouts:
        op.layouts[key] = op.Transpose(x, perm=order)
    return op.layouts[key]


@lowering("Reshape")
def _reshape(op: StepWriter, node: StepOperator) -> None:
    x, out = node.input(0), node.outputs[0]
    if node.constant(1) is None or not is_fixed(out.shape) or 0 in out.shape:
        keep(op, node)
        return
    shape = tuple(size if isinstance(size, int) else -1 for size in out.shape)
    op.origins[out.name] = origin = op.origins.get(x.name, x)
    op.layouts["Reshape", origin.name, shape] = op.call("Reshape", x, outputs=[out], shape=shape)


@lowering("Transpose")
def _transpose(op: StepWriter, node: StepOperator) -> None:
    x = node.input(0)
    order = tuple(node.attribute("perm", range(x.rank)[::-1]))
    keep(op, node)
    op.layouts["Transpose", x.name, order] = node.outputs[0]
