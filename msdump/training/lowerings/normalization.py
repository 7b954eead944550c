"""Normalisations as they are in training: by the statistics of the batch."""

from __future__ import annotations

from msdump.training.lowering import lowering
from msdump.training.writer import StepOperator, StepWriter


@lowering("BatchNormalization")
def _batch_norm(op: StepWriter, node: StepOperator) -> None:
    x, gamma, beta, mean, variance = (node.input(slot) for slot in range(5))
    epsilon, momentum = node.attribute("epsilon", 1e-5), node.attribute("momentum", 0.9)
    *_, new_mean, new_variance = op.call(
        "BatchNorm",
        *(x, gamma, beta, mean, variance, True, float(epsilon), 1.0 - momentum, 0),
        like=[node.outputs[0], *[mean] * 6],
        outputs=[node.outputs[0]],
        rank=x.rank,
    )
    op.bindings[mean.name] = new_mean
    op.bindings[variance.name] = new_variance
