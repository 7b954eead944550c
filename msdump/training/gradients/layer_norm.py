"""Gradients of normalisations of each sample by itself."""

from __future__ import annotations

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.writer import StepTensor, StepWriter


@mindspore_gradient("LayerNorm")
def _layer_norm(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, _only(back)
    x, gamma, axis, epsilon = node.input(0), node.input(1), node.input(3), node.constant(5)
    assert epsilon is not None, "the lowering gives a constant"
    _, mean, variance = node.outputs
    dx, dgamma, dbeta = op.call(
        "LayerNormGrad",
        *(x, dy, variance, mean, gamma, axis, axis),
        like=[x, gamma, gamma],
        **node.attributes,
        epsilon=float(epsilon),
    )
    return dx, dgamma, dbeta


@mindspore_gradient("RmsNorm")
def _rms_norm(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, _only(back)
    x, gamma, rstd = node.input(0), node.input(1), node.outputs[1]
    dx, dgamma = op.call("RmsNormGrad", dy, x, rstd, gamma, like=[x, gamma], **node.attributes)
    return dx, dgamma


@mindspore_gradient("GroupNorm")
def _group_norm(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, _only(back)
    x, count, gamma = (node.input(slot) for slot in range(3))
    _, mean, rstd = node.outputs
    wants = (back.wants[0], back.wants[2], back.wants[3])
    dx, dgamma, dbeta = op.call(
        "GroupNormGrad", *(dy, x, mean, rstd, gamma, count, *wants), like=[x, gamma, gamma], **node.attributes
    )
    return dx, None, dgamma, dbeta


@mindspore_gradient("InstanceNorm")
def _instance_norm(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, _only(back)
    x, gamma, (_, mean, variance) = node.input(0), node.input(1), node.outputs
    dx, dgamma, dbeta = op.call(
        "InstanceNormGrad", *(dy, x, gamma, mean, variance), like=[x, gamma, gamma], **node.attributes
    )
    return dx, dgamma, dbeta


def _only(back: Backward) -> StepTensor:
    """Return the gradient of the result; the loss must not depend on the statistics themselves."""
    if any(dy is not None for dy in back.dys[1:]):
        raise GraphError(f"{back.node.place.path}/{back.node.op_type}: its statistics have no gradient")
    return back.dy
