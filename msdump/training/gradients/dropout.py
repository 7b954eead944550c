"""Gradients of dropout."""

from __future__ import annotations

from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.writer import StepWriter


@mindspore_gradient("Dropout")
def _dropout(op: StepWriter, back: Backward) -> Gradients:
    keep_prob, mask = back.node.input(1), back.node.outputs[1]
    if keep_prob.value is not None:
        share = float(str(keep_prob.value))  # 0.7, as MindSpore's attribute has it, for the number in float32
        return (op.call("DropoutGrad", back.dy, mask, like=back.dy, keep_prob=share),)
    if keep_prob.dtype is not mask.dtype:
        keep_prob = op.Cast(keep_prob, to=mask.dtype.onnx)
    return (op.Div(op.Mul(back.dy, mask), keep_prob),)


@gradient("Dropout")
def _no_dropout(_op: StepWriter, back: Backward) -> Gradients:
    return (back.dy,)
