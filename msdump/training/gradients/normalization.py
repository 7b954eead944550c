"""Gradients of normalisations."""

from __future__ import annotations

from typing import Any, Final

from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
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


@gradient("LRN")
def _lrn(op: StepWriter, back: Backward) -> Gradients:
    node, x = back.node, back.node.input(0)
    numbers: dict[str, Any] = {name: float(node.attribute(name, default)) for name, default in _LRN.items()}
    size = node.attributes["size"]
    return (op.call("LRNGrad", back.dy, x, node.outputs[0], like=x, size=size, **numbers),)


_LRN: Final = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}


@gradient("LpNormalization")
def _lp_normalization(op: StepWriter, back: Backward) -> Gradients:
    x, y, dy = back.node.input(0), back.node.outputs[0], back.dy
    axis = back.node.attribute("axis", -1)
    if back.node.attribute("p", 2) == 2:
        return (op.call("L2NormalizeGrad", x, y, dy, like=x, axis=axis),)
    norm = op.ReduceSum(op.Abs(x), [axis], keepdims=1)
    along = op.ReduceSum(op.Mul(dy, y), [axis], keepdims=1)
    slope = op.Div(op.Sub(dy, op.Mul(op.Sign(x), along)), op.Where(op.Equal(norm, 0.0), 1.0, norm))
    return (op.Where(op.Equal(norm, 0.0), 0.0, slope),)
