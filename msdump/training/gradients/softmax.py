"""Gradients of softmaxes."""

from __future__ import annotations

from msdump.training.lowerings.reductions import reduced
from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.writer import StepWriter


@mindspore_gradient("Softmax")
def _softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.node.outputs[0], back.node.attributes["axis"]
    total = reduced(op, "ReduceSum", op.Mul(y, back.dy), [axis], keep_dims=True)
    return (op.Mul(y, op.Sub(back.dy, total)),)


@mindspore_gradient("LogSoftmax")
def _log_softmax(op: StepWriter, back: Backward) -> Gradients:
    y, axis = back.node.outputs[0], back.node.attributes["axis"]
    return (op.call("LogSoftmaxGrad", y, back.dy, axis, like=y),)
