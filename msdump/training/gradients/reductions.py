"""Gradients of reductions."""

from __future__ import annotations

import math

import numpy as np

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import StepTensor, StepWriter


def reduced_axes(back: Backward) -> tuple[int, ...]:
    """Return the axes that a reduction takes away, from 0."""
    node, rank = back.node, back.node.input(0).rank
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = node.constant(1) if given else np.array(node.attribute("axes", ()))
    if given and axes is None:
        raise GraphError(f"{node.place.path}/{node.primitive}: axes that are computed have no gradient")
    if node.attribute("noop_with_empty_axes", 0) and (axes is None or not axes.size):
        return ()
    if axes is None or not axes.size:
        return tuple(range(rank))
    return tuple(sorted(int(axis) % rank for axis in axes.reshape(-1)))


def spread(op: StepWriter, back: Backward) -> StepTensor:
    """Return the gradient of a reduction's result, repeated over the axes that it reduced."""
    x, axes = back.node.input(0), reduced_axes(back)
    if back.dy.value is not None:  # the gradient of the loss itself: all of it is one constant
        return op.constant(np.full(x.sizes(), back.dy.value.reshape(-1)[0], x.dtype.numpy))
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    dy = back.dy
    if dy.shape != kept:
        shape = tuple(size if isinstance(size, int) else -1 for size in kept)
        dy = op.call("Reshape", dy, like=StepTensor("", x.dtype, kept), shape=shape)
    multiples = [x.sizes_from(axis, axis + 1)[0] if axis in axes else 1 for axis in range(x.rank)]
    result: StepTensor = op.Tile(dy, multiples) if math.prod(multiples) > 1 else dy
    return result


@gradient("ReduceSum")
def _reduce_sum(op: StepWriter, back: Backward) -> Gradients:
    return (spread(op, back),)


@gradient("ReduceMean")
def _reduce_mean(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    count = math.prod(x.sizes_from(axis, axis + 1)[0] for axis in reduced_axes(back))
    return (op.call("RealDiv", spread(op, back), float(count), like=x),)
