"""Convolutions and pooling as MindSpore has them: a bias is an operator of its own."""

from __future__ import annotations

from msdump.training.lowering import keep, lowering
from msdump.training.symbols import StepOperator
from msdump.training.writer import StepWriter


@lowering("Conv", "ConvTranspose")
def _conv(op: StepWriter, node: StepOperator) -> None:
    out = node.outputs[0]
    if len(node.inputs) < 3 or node.inputs[2] is None:  # noqa: PLR2004 - the third input
        keep(op, node)
        return
    (product,) = op.emit(node.op_type, node.inputs[:2], node.attributes)
    op.call("BiasAdd", product, node.input(2), 0, outputs=[out], rank=out.rank)


@lowering("GlobalMaxPool")
def _global_max_pool(op: StepWriter, node: StepOperator) -> None:
    x, y = node.input(0), node.outputs[0]
    if node.primitive.startswith("Adaptive"):
        op.call(node.primitive, x, outputs=[y])
    else:
        keep(op, node)
