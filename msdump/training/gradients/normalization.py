"""Gradients of normalisations."""

from __future__ import annotations

from typing import Any, Final

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepTensor
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
