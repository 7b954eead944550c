"""Operators that work element by element, as MindSpore has them."""

from __future__ import annotations

from msdump.training.lowering import lowering
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
    x, out = node.input(0), node.outputs[0]
    bounds = [node.constant(slot) for slot in (1, 2)]
    if [None if bound is None else float(bound) for bound in bounds] == [0.0, 6.0]:
        op.call("ReLU6", x, outputs=[out])
        return
    # a conversion of attributes to inputs writes float32 whatever the type of the tensor is
    typed = [
        item if bound is None else op.constant(bound.astype(x.dtype.numpy))
        for item, bound in zip(node.inputs[1:], bounds, strict=False)
    ]
    op.emit("Clip", (x, *typed), {}, outputs=[out], primitive="ClipByValue")
