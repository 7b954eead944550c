"""Gradients of normalisations."""

from __future__ import annotations

from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.writer import StepWriter


@mindspore_gradient("BatchNorm")
def _batch_norm(op: StepWriter, back: Backward) -> Gradients:
    node = back.node
    x, gamma, epsilon = node.input(0), node.input(1), node.input(6)
    _, _, reserve, mean, variance, *_ = node.outputs
    if not node.attributes["is_training"]:
        mean, variance = node.input(3), node.input(4)
    slots = (back.dy, x, gamma, mean, variance, reserve, node.input(5), epsilon, node.input(8))
    dx, dgamma, dbeta = op.call("BatchNormGrad", *slots, like=[x, gamma, gamma], **node.attributes)
    return dx, dgamma, dbeta
