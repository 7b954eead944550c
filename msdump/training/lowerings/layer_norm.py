"""Normalisations of each sample by itself as MindSpore has them: with mean and variance as outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.training.lowering import lowering
from msdump.training.writer import StepOperator, StepTensor, StepWriter

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
