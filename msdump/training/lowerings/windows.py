"""Convolutions as MindSpore has them: a bias is an operator of its own."""

from __future__ import annotations

from msdump.training.lowering import keep, lowering
from msdump.training.writer import StepOperator, StepWriter


@lowering("Conv")
def _conv(op: StepWriter, node: StepOperator) -> None:
    out = node.outputs[0]
    if len(node.inputs) < 3 or node.inputs[2] is None:  # noqa: PLR2004 - the third input
        keep(op, node)
        return
    (product,) = op.emit("Conv", node.inputs[:2], node.attributes)
    op.call("BiasAdd", product, node.input(2), 0, outputs=[out], rank=out.rank)
