"""Look-ups as MindSpore has them: Gather with its axis and the number of batch dimensions as inputs."""

from __future__ import annotations

from msdump.training.lowering import keep, lowering
from msdump.training.lowerings.layouts import is_fixed, joined, reshaped
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter


@lowering("Gather")
def _gather(op: StepWriter, node: StepOperator) -> None:
    """Write a look-up; in a table by ids of several dimensions it is MindSpore's nn.Embedding."""
    x, indices, out = node.input(0), node.input(1), node.outputs[0]
    axis = node.attribute("axis", 0) % x.rank
    if not x.is_float:
        keep(op, node)
    elif axis == 0 and x.rank == 2 and indices.rank > 1 and is_fixed(out.shape):  # noqa: PLR2004 - a table
        count = joined(indices.shape)
        flat = reshaped(op, indices, StepTensor("", indices.dtype, (count,)))
        rows = StepTensor("", x.dtype, (count, *x.shape[1:]))
        reshaped(op, op.call("Gather", x, flat, 0, 0, like=rows, axis=0), out, out)
    else:
        op.call("Gather", x, indices, axis, 0, outputs=[out], axis=axis)
