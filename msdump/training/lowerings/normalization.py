"""Normalisations as they are in training: by the statistics of the batch."""

from __future__ import annotations

from msdump.training.lowering import lowering
from msdump.training.symbols import StepOperator
from msdump.training.writer import StepWriter


@lowering("BatchNormalization")
def _batch_norm(op: StepWriter, node: StepOperator) -> None:
    x, gamma, beta, *moving = (node.input(slot) for slot in range(5))
    # a layer that is used twice moves its statistics twice
    mean, variance = (op.bindings.get(item.name, item) for item in moving)
    epsilon = float(node.attribute("epsilon", 1e-5))
    # MindSpore counts the share of the new value, ONNX that of the old one; 0.1, not 1 - float32(0.9)
    momentum = round(1.0 - node.attribute("momentum", 0.9), 7)
    is_training = op.batch_statistics
    *_, new_mean, new_variance = op.call(
        "BatchNorm",
        *(x, gamma, beta, mean, variance, is_training, epsilon, momentum, 0),
        like=[node.outputs[0], *[mean] * 6],
        outputs=[node.outputs[0]],
        rank=x.rank,
        is_training=int(is_training),
    )
    if is_training:
        op.bindings |= {moving[0].name: new_mean, moving[1].name: new_variance}
    for slot, new in ((1, new_mean), (2, new_variance)):  # a model in training form may show them
        shown = node.output(slot)
        if shown is not None:
            op.emit("Identity", (new,), {}, outputs=[shown])


@lowering("MeanVarianceNormalization")
def _mean_variance(op: StepWriter, node: StepOperator) -> None:
    """Write the steps that ONNX defines the operator by."""
    x, axes = node.input(0), list(node.attribute("axes", (0, 2, 3)))
    centered = op.Sub(x, op.ReduceMean(x, axes))
    deviation = op.Sqrt(op.ReduceMean(op.Mul(centered, centered), axes))
    op.emit("Div", (centered, op.Add(deviation, 1e-9)), {}, outputs=node.outputs)
