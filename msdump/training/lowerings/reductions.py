"""Reductions and cumulated sums as MindSpore has them: axes and flags are inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.errors import GraphError
from msdump.training.lowering import keep, lowering
from msdump.training.symbols import Item, StepOperator, StepTensor
from msdump.training.writer import StepWriter


def reduced_axes(node: StepOperator) -> tuple[int, ...]:
    """Return the axes that a reduction takes away, from 0.

    Raises:
        GraphError: They are computed.
    """
    rank = node.input(0).rank
    is_given = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = node.constant(1) if is_given else np.array(node.attribute("axes", ()))
    if axes is None:
        raise GraphError(f"{node.place.path}/{node.primitive}: axes that are computed have no gradient")
    if axes.size:
        return tuple(sorted(int(axis) % rank for axis in axes.reshape(-1)))
    return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(rank))


def kept_shape(x: StepTensor, axes: Sequence[int]) -> StepTensor:
    """Return the type of a reduction of ``x`` that keeps its axes."""
    return StepTensor("", x.dtype, tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))


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
    result: StepTensor = op.call(
        name,
        *(x, axes, *flags),
        like=kept if keep_dims else StepTensor("", x.dtype, rest),
        outputs=None if out is None else [out],
        keep_dims=int(keep_dims),
    )
    return result


@lowering("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
def _reduction(op: StepWriter, node: StepOperator) -> None:
    x, out = node.input(0), node.outputs[0]
    if not x.is_float or (len(node.inputs) > 1 and node.inputs[1] is not None and node.constant(1) is None):
        keep(op, node)
        return
    axes = reduced_axes(node)
    if not axes:
        op.emit("Identity", (x,), {}, outputs=[out])
        return
    given = node.constant(1)
    listed = axes if given is None or not given.size else given
    reduced(op, node.op_type, x, listed, keep_dims=bool(node.attribute("keepdims", 1)), out=out)


def cumulated_sum(
    op: StepWriter,
    x: StepTensor,
    axis: Item,
    *,
    exclusive: bool,
    reverse: bool,
    out: StepTensor | None = None,
) -> StepTensor:
    """Write MindSpore's sum of everything in front, or behind."""
    result: StepTensor = op.call(
        "CumSum",
        *(x, axis, exclusive, reverse),
        like=x,
        outputs=None if out is None else [out],
        exclusive=int(exclusive),
        reverse=int(reverse),
    )
    return result


@lowering("CumSum")
def _cum_sum(op: StepWriter, node: StepOperator) -> None:
    is_exclusive, is_reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    x, axis = node.input(0), node.input(1)
    cumulated_sum(op, x, axis, exclusive=is_exclusive, reverse=is_reverse, out=node.outputs[0])
