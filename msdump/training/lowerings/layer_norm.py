"""Normalisations of each sample by itself as MindSpore has them: with mean and variance as outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.errors import GraphError
from msdump.training.lowering import lowering
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

_EPSILON = 1e-5


def layer_norm(
    op: StepWriter,
    x: StepTensor,
    parameters: tuple[StepTensor | None, StepTensor | None],
    axis: int,
    epsilon: float,
    *,
    outputs: Sequence[StepTensor] = (),
) -> tuple[StepTensor, StepTensor, StepTensor]:
    """Write MindSpore's LayerNorm; return its result, mean and variance.

    Args:
        op: Writes it.
        x: What is normalised.
        parameters: Scale and shift in the shape of the last axes; None: ones and zeros.
        axis: The first axis that is normalised.
        epsilon: What is added to the variance.
        outputs: The values that it writes, where they have names already.
    """
    gamma, beta = (
        op.constant(np.full(x.sizes_from(axis), neutral, x.dtype.numpy)) if parameter is None else parameter
        for parameter, neutral in zip(parameters, (1, 0), strict=True)
    )
    begin = axis % x.rank
    mean = StepTensor("", x.dtype, (*x.shape[:begin], *(1,) * (x.rank - begin)))
    result, mean, variance = op.call(
        "LayerNorm",
        *(x, gamma, beta, axis, axis, np.array(epsilon, np.float32)),
        like=[x, mean, mean],
        outputs=outputs,
        begin_norm_axis=axis,
        rank=x.rank,
    )
    return result, mean, variance


@lowering("LayerNormalization")
def _layer_norm(op: StepWriter, node: StepOperator) -> None:
    x, scale, y = node.input(0), node.input(1), node.outputs[0]
    shift = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - the third input
    axis, epsilon = node.attribute("axis", -1), node.attribute("epsilon", _EPSILON)
    if all(item is None or item.shape == x.shape[axis:] for item in (scale, shift)):
        _, mean, variance = layer_norm(op, x, (scale, shift), axis, epsilon, outputs=[y])
    else:  # scale and shift are broadcast: operators of their own
        normal, mean, variance = layer_norm(op, x, (None, None), axis, epsilon)
        (scaled,) = op.emit("Mul", (normal, scale), {}, outputs=1 if shift else [y])
        if shift is not None:
            op.emit("Add", (scaled, shift), {}, outputs=[y])
    _write_statistics(op, node, mean, variance)


def _write_statistics(op: StepWriter, node: StepOperator, mean: StepTensor, variance: StepTensor) -> None:
    """Write mean and 1 / standard deviation, where the model reads them."""
    means, inverses = node.output(1), node.output(2)
    if means is not None:
        op.emit("Cast", (mean,), {"to": means.dtype.onnx}, outputs=[means])
    if inverses is not None:
        epsilon = float(node.attribute("epsilon", _EPSILON))
        inverse = op.Reciprocal(op.Sqrt(op.Add(variance, epsilon)))
        op.emit("Cast", (inverse,), {"to": inverses.dtype.onnx}, outputs=[inverses])


def rms_norm(
    op: StepWriter, x: StepTensor, scale: StepTensor, *, axis: int, epsilon: float, y: StepTensor
) -> StepTensor:
    """Write MindSpore's RmsNorm; return 1 / root of the mean square."""
    begin = axis % x.rank
    is_plain = scale.shape == x.shape[begin:]
    gamma = scale if is_plain else op.constant(np.ones(x.sizes_from(begin), x.dtype.numpy))
    root = StepTensor("", x.dtype, (*x.shape[:begin], *(1,) * (x.rank - begin)))
    normal, inverse = op.call(
        "RmsNorm",
        *(x, gamma, np.array(epsilon, np.float32)),
        like=[x, root],
        outputs=[y] if is_plain else None,
        begin_norm_axis=axis,
        rank=x.rank,
    )
    if not is_plain:  # the scale is broadcast: an operator of its own
        op.emit("Mul", (normal, scale), {}, outputs=[y])
    result: StepTensor = inverse
    return result


@lowering("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(op: StepWriter, node: StepOperator) -> None:
    axis, epsilon = node.attribute("axis", -1), node.attribute("epsilon", _EPSILON)
    inverse = rms_norm(op, node.input(0), node.input(1), axis=axis, epsilon=epsilon, y=node.outputs[0])
    shown = node.output(1)
    if shown is not None:
        op.emit("Cast", (inverse,), {"to": shown.dtype.onnx}, outputs=[shown])


@lowering("GroupNormalization")
def _group_norm(op: StepWriter, node: StepOperator) -> None:
    x, y, groups = node.input(0), node.outputs[0], node.attributes["num_groups"]
    channels = x.sizes_from(1, 2)[0]
    gamma, beta = (_of_channels(op, node.input(slot), channels) for slot in (1, 2))
    statistics = StepTensor("", x.dtype, (x.shape[0], groups))
    op.call(
        "GroupNorm",
        *(x, groups, gamma, beta, np.array(node.attribute("epsilon", _EPSILON), np.float32)),
        like=[y, statistics, statistics],
        outputs=[y],
        num_groups=groups,
        rank=x.rank,
    )


def _of_channels(op: StepWriter, parameter: StepTensor, channels: int) -> StepTensor:
    """Return a parameter of each channel; before opset 21 there is one of each group."""
    (count,) = parameter.sizes()
    if count == channels:
        return parameter
    repeated = op.Expand(op.Unsqueeze(parameter, (1,)), (count, channels // count))
    result: StepTensor = op.Reshape(repeated, (channels,))
    return result


@lowering("InstanceNormalization")
def _instance_norm(op: StepWriter, node: StepOperator) -> None:
    x, y = node.input(0), node.outputs[0]
    statistics = StepTensor("", x.dtype, x.shape[:2])
    op.call(
        "InstanceNorm",
        *(x, node.input(1), node.input(2)),
        like=[y, statistics, statistics],
        outputs=[y],
        epsilon=float(node.attribute("epsilon", _EPSILON)),
        rank=x.rank,
    )


@lowering("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def _skip_norm(op: StepWriter, node: StepOperator) -> None:
    is_simple = node.op_type == "SkipSimplifiedLayerNormalization"
    if node.output(1) or node.output(2):
        raise GraphError(f"{node.place.path}/{node.primitive}: mean and variance as outputs have no gradient")
    x, skip, gamma = (node.input(slot) for slot in range(3))
    beta, bias = (None, *node.inputs[3:], None)[:2] if is_simple else (*node.inputs[3:], None, None)[:2]
    total = op.Add(x, skip)
    if bias is not None:
        total = op.Add(total, bias)
    epsilon = node.attribute("epsilon", 1e-12)
    if is_simple:
        rms_norm(op, total, gamma, axis=-1, epsilon=epsilon, y=node.outputs[0])
    else:
        layer_norm(op, total, (gamma, beta), -1, epsilon, outputs=node.outputs[:1])
    shown = node.output(3)
    if shown is not None:
        op.emit("Identity", (total,), {}, outputs=[shown])
