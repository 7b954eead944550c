"""Operators that work element by element, as MindSpore has them."""

from __future__ import annotations

from msdump.training.lowering import keep, lowering
from msdump.training.symbols import StepOperator
from msdump.training.writer import StepWriter


@lowering("Max", "Min")
def _extreme(op: StepWriter, node: StepOperator) -> None:
    """Write the largest or smallest of several as MindSpore does: of two at a time."""
    first, *rest = node.inputs
    if not rest:
        op.emit("Identity", (first,), {}, outputs=node.outputs)
        return
    for item in rest[:-1]:
        (first,) = op.emit(node.op_type, (first, item), {})
    op.emit(node.op_type, (first, rest[-1]), {}, outputs=node.outputs)


@lowering("Clip")
def _clip(op: StepWriter, node: StepOperator) -> None:
    if node.primitive == "ReLU6":
        op.call("ReLU6", node.input(0), outputs=[node.outputs[0]])
    else:
        keep(op, node)
