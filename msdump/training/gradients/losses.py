"""Gradients of losses."""

from __future__ import annotations

from msdump.training.lowerings.layouts import joined
from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


def _scaled(op: StepWriter, gradient: StepTensor, dy: StepTensor) -> StepTensor:
    """Return a gradient times that of the loss itself; 1 leaves it as it is."""
    if dy.value is not None and dy.value.size == 1 and dy.value == 1:
        return gradient
    result: StepTensor = op.Mul(gradient, dy)
    return result


@mindspore_gradient("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(op: StepWriter, back: Backward) -> Gradients:
    logits, labels = back.node.input(0), back.node.input(1)
    gradient = op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=logits, is_grad=1)
    # the gradient of the loss itself, 1 or the loss scale, is no input of the operator
    return (_scaled(op, gradient, back.dy),)


@mindspore_gradient("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(op: StepWriter, back: Backward) -> Gradients:
    """Scale the gradient that the forward operator gave, row by row; labels have none."""
    gradient = back.node.outputs[1]
    return (op.Mul(gradient, op.Unsqueeze(back.dy, [-1])),)


@mindspore_gradient("BCEWithLogitsLoss")
def _binary_cross_entropy(op: StepWriter, back: Backward) -> Gradients:
    """Write ((pos_weight labels + 1 - labels) sigmoid - pos_weight labels) dy weight / n."""
    logits, labels, weight, pos_weight = (back.node.input(slot) for slot in range(4))
    positive = op.Mul(labels, pos_weight)
    slope = op.Mul(op.Sub(op.Add(positive, 1.0), labels), op.Sigmoid(logits))
    dx = op.Mul(_scaled(op, op.Sub(slope, positive), back.dy), weight)
    if back.node.attributes["reduction"] == "mean":
        count = joined(logits.shape)
        divisor = op.Cast(op.Size(logits), to=logits.dtype.onnx) if count is None else float(count)
        dx = op.call("RealDiv", dx, divisor, like=logits)
    return (dx,)


@mindspore_gradient("NLLLoss")
def _nll_loss(op: StepWriter, back: Backward) -> Gradients:
    node, x = back.node, back.node.input(0)
    labels, weight, reduction, ignored = (node.input(slot) for slot in range(1, 5))
    slots = (x, back.dy, labels, weight, node.outputs[1], reduction, ignored)
    return (op.call("NLLLossGrad", *slots, like=x, **node.attributes),)
