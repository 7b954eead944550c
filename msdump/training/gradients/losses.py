"""Gradients of losses."""

from __future__ import annotations

from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.writer import StepWriter


@mindspore_gradient("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(op: StepWriter, back: Backward) -> Gradients:
    logits, labels = back.node.input(0), back.node.input(1)
    gradient = op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=logits, is_grad=1)
    # the gradient of the loss itself, 1 or the loss scale, is no input of the operator
    if back.dy.value is not None and back.dy.value == 1:
        return (gradient,)
    return (op.Mul(gradient, back.dy),)
