"""Normalisations: by the statistics of the batch, or of each sample by itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump.errors import GraphError
from msdump.graph.primitives import op
from msdump.training.operators.shapes import kept_shape
from msdump.training.rules import Backward, Gradients, gradient, lowering, mindspore_gradient
from msdump.training.writer import StepOperator, StepTensor


@lowering("BatchNormalization")
def _lower_batch_norm(node: StepOperator) -> None:
    x, gamma, beta, *moving = (node.input(slot) for slot in range(5))
    # a layer used twice updates the moving statistics twice
    mean, variance = (op.bindings.get(item.name, item) for item in moving)
    epsilon = float(node.attribute("epsilon", 1e-5))
    # MindSpore's momentum is the new value's share, ONNX's the old one's; rounded: 0.1, not 0.10000002
    momentum = round(1.0 - node.attribute("momentum", 0.9), 7)
    is_training = op.batch_statistics
    slots = (x, gamma, beta, mean, variance, is_training, epsilon, momentum)
    *_, new_mean, new_variance = op.call(
        "BatchNorm",
        *slots,
        like=[node.y, *[mean] * 6],
        outputs=[node.y],
        rank=x.rank,
        is_training=int(is_training),
    )
    if is_training:
        op.bindings |= {moving[0].name: new_mean, moving[1].name: new_variance}
    for slot, new in ((1, new_mean), (2, new_variance)):  # optional outputs in training form
        shown = node.output(slot)
        if shown is not None:
            op.Identity(new, outputs=[shown])


_EPSILON = 1e-5


@lowering("LayerNormalization", "RMSNormalization")
def _lower_layer_norm(node: StepOperator) -> None:
    x, scale, y, shift = node.x, node.input(1), node.y, node.optional(2)
    axis, epsilon = node.attribute("axis", -1), node.attribute("epsilon", _EPSILON)
    is_layer = node.op_type == "LayerNormalization"
    given: tuple[StepTensor | None, ...] = (scale, shift) if is_layer else (scale,)
    is_plain = all(item is None or item.shape == x.shape[axis:] for item in given)
    parameters = [
        op.constant(np.full(x.sizes_from(axis), neutral, x.dtype.numpy))
        if item is None or not is_plain
        else item
        for item, neutral in zip(given, (1, 0), strict=False)
    ]
    statistic = kept_shape(x, range(axis % x.rank, x.rank))
    normal, *statistics = op.call(
        "LayerNorm" if is_layer else "RmsNorm",
        x,
        *parameters,
        *((axis, axis) if is_layer else ()),
        epsilon,
        like=[x, *(statistic for _ in given)],
        outputs=[y] if is_plain else (),
        begin_norm_axis=axis,
        rank=x.rank,
    )
    if not is_plain:  # scale and shift are broadcast: operators of their own
        scaled = op.Mul(normal, scale, outputs=1 if shift else [y])
        if shift is not None:
            op.Add(scaled, shift, outputs=[y])
    shown_mean, deviation = node.output(1), node.output(2)
    if shown_mean is not None:
        op.Cast(statistics[0], to=shown_mean.dtype.onnx, outputs=[shown_mean])
    if deviation is not None:
        inverse = op.Reciprocal(op.Sqrt(statistics[1] + float(epsilon)))
        op.Cast(inverse, to=deviation.dtype.onnx, outputs=[deviation])


@lowering("GroupNormalization")
def _lower_group_norm(node: StepOperator) -> None:
    x, y, groups = node.x, node.y, node.attributes["num_groups"]
    channels = x.sizes_from(1, 2)[0]
    gamma, beta = (_of_channels(node.input(slot), channels) for slot in (1, 2))
    statistics = x.shaped((x.shape[0], groups))
    op.call(
        "GroupNorm",
        x,
        groups,
        gamma,
        beta,
        node.attribute("epsilon", _EPSILON),
        like=[y, statistics, statistics],
        outputs=[y],
        num_groups=groups,
        rank=x.rank,
    )


def _of_channels(parameter: StepTensor, channels: int) -> StepTensor:
    """Return a parameter per channel; before opset 21 it is per group, and repeated here."""
    (count,) = parameter.sizes()
    if count == channels:
        return parameter
    repeated = op.Expand(op.Unsqueeze(parameter, (1,)), (count, channels // count))
    return op.Reshape(repeated, (channels,))


@lowering("InstanceNormalization")
def _lower_instance_norm(node: StepOperator) -> None:
    x, y = node.x, node.y
    statistics = x.shaped(x.shape[:2])
    op.call(
        "InstanceNorm",
        x,
        node.input(1),
        node.input(2),
        like=[y, statistics, statistics],
        outputs=[y],
        epsilon=float(node.attribute("epsilon", _EPSILON)),
        rank=x.rank,
    )


@mindspore_gradient("BatchNorm")
def _batch_norm(back: Backward) -> Gradients:
    x, gamma, epsilon = back.x, back.input(1), back.input(6)
    _, _, reserve, mean, variance, *_ = back.outputs
    if not back.attributes["is_training"]:
        mean, variance = back.input(3), back.input(4)
    slots = (back.dy, x, gamma, mean, variance, reserve, back.input(5), epsilon, back.input(8))
    return op.call("BatchNormGrad", *slots, like=[x, gamma, gamma], **back.attributes)


@gradient("LRN")
def _lrn(back: Backward) -> Gradients:
    x = back.x
    numbers: dict[str, Any] = {name: float(back.attribute(name, default)) for name, default in _LRN.items()}
    size = back.attributes["size"]
    return op.call("LRNGrad", back.dy, x, back.y, like=x, size=size, **numbers)


_LRN: Final = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}


@mindspore_gradient("LayerNorm")
def _layer_norm(back: Backward) -> Gradients:
    dy = _only(back)
    x, gamma, axis, epsilon = back.x, back.input(1), back.input(3), back.constant(5)
    assert epsilon is not None, "the lowering gives a constant"
    _, mean, variance = back.outputs
    slots = (x, dy, variance, mean, gamma, axis, axis)
    return op.call(
        "LayerNormGrad",
        *slots,
        like=[x, gamma, gamma],
        **back.attributes,
        epsilon=float(epsilon),
    )


@mindspore_gradient("RmsNorm")
def _rms_norm(back: Backward) -> Gradients:
    dy = _only(back)
    x, gamma, rstd = back.x, back.input(1), back.outputs[1]
    return op.call("RmsNormGrad", dy, x, rstd, gamma, like=[x, gamma], **back.attributes)


@mindspore_gradient("GroupNorm")
def _group_norm(back: Backward) -> Gradients:
    dy = _only(back)
    x, count, gamma = (back.input(slot) for slot in range(3))
    _, mean, rstd = back.outputs
    wants = (back.wants[0], back.wants[2], back.wants[3])
    dx, dgamma, dbeta = op.call(
        "GroupNormGrad", dy, x, mean, rstd, gamma, count, *wants, like=[x, gamma, gamma], **back.attributes
    )
    return dx, None, dgamma, dbeta


@mindspore_gradient("InstanceNorm")
def _instance_norm(back: Backward) -> Gradients:
    dy = _only(back)
    x, gamma, (_, mean, variance) = back.x, back.input(1), back.outputs
    return op.call(
        "InstanceNormGrad", dy, x, gamma, mean, variance, like=[x, gamma, gamma], **back.attributes
    )


def _only(back: Backward) -> StepTensor:
    """Return the gradient of the first output; GraphError if the loss depends on the other outputs."""
    if any(dy is not None for dy in back.dys[1:]):
        raise GraphError(f"{back.place.path}/{back.op_type}: its statistics have no gradient")
    return back.dy
