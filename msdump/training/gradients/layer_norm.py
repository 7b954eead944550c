"""Gradients of normalisations of each sample by itself."""

from __future__ import annotations

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.writer import StepWriter


@mindspore_gradient("LayerNorm")
def _layer_norm(op: StepWriter, back: Backward) -> Gradients:
    node = back.node
    if any(dy is not None for dy in back.dys[1:]):
        raise GraphError(f"{node.place.path}/LayerNorm: mean and variance have no gradient")
    x, gamma, axis, epsilon = node.input(0), node.input(1), node.input(3), node.constant(5)
    assert epsilon is not None, "the lowering gives a constant"
    _, mean, variance = node.outputs
    dx, dgamma, dbeta = op.call(
        "LayerNormGrad",
        *(x, back.dy, variance, mean, gamma, axis, axis),
        like=[x, gamma, gamma],
        **node.attributes,
        epsilon=float(epsilon),
    )
    return dx, dgamma, dbeta
