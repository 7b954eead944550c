"""Gradients that only change shape: reshaped, or summed back over what was broadcast."""

from __future__ import annotations

from msdump.training.lowerings.reductions import reduced
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import StepTensor, StepWriter


def reshaped(op: StepWriter, dy: StepTensor, like: StepTensor) -> StepTensor:
    """Return a gradient in the shape of a forward tensor, of which one dimension may be free."""
    if dy.shape == like.shape:
        return dy
    free = [size for size in like.shape if not isinstance(size, int)]
    if len(free) > 1:
        like.sizes()
    shape = tuple(size if isinstance(size, int) else -1 for size in like.shape)
    result: StepTensor = op.call("Reshape", dy, like=like, shape=shape)
    return result


def unbroadcast(op: StepWriter, dy: StepTensor, like: StepTensor) -> StepTensor:
    """Return the gradient of a tensor that was broadcast to ``dy``'s shape: the sum over what it repeats."""
    extra = dy.rank - like.rank
    axes = [
        axis
        for axis, size in enumerate(dy.shape)
        if axis < extra or (like.shape[axis - extra] == 1 and size != 1)
    ]
    if axes:
        dy = reduced(op, "ReduceSum", dy, axes, keep_dims=not extra)
    return reshaped(op, dy, like)


@gradient("Flatten", "Reshape", "Squeeze", "Unsqueeze")
def _reshape(op: StepWriter, back: Backward) -> Gradients:
    return (reshaped(op, back.dy, back.node.input(0)),)
