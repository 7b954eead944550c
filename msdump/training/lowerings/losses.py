"""Losses that a model ends in, as MindSpore has them: NLLLoss behind LogSoftmax, in one where it can be."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump.training.lowering import lowering
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

REDUCTIONS: Final = {"sum": 0, "mean": 1, "none": 2}
"""MindSpore's numbers of what a loss does with its elements."""


@lowering("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(op: StepWriter, node: StepOperator) -> None:
    """Write MindSpore's operator for the mean over rows, else a LogSoftmax and the loss of it."""
    scores, labels, loss = node.input(0), node.input(1), node.outputs[0]
    is_plain = node.attribute("reduction", "mean") == "mean" and node.attribute("ignore_index", None) is None
    if scores.rank == 2 and len(node.inputs) == len(node.outputs) + 1 == 2 and is_plain:  # noqa: PLR2004 - a matrix
        op.call("SparseSoftmaxCrossEntropyWithLogits", scores, labels, outputs=[loss], is_grad=0)
        return
    logarithms = op.call("LogSoftmax", scores, 1, like=scores, outputs=list(node.outputs[1:]) or None, axis=1)
    _write_loss(op, node, logarithms)


@lowering("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(op: StepWriter, node: StepOperator) -> None:
    _write_loss(op, node, node.input(0))


def _write_loss(op: StepWriter, node: StepOperator, x: StepTensor) -> None:
    """Write MindSpore's loss of logarithms; all classes weigh the same where the model has no weights."""
    reduction, ignored = node.attribute("reduction", "mean"), node.attribute("ignore_index", None)
    weight: Any = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - the third input
    if weight is None:
        weight = np.ones(x.sizes_from(1, 2), x.dtype.numpy)
    total = StepTensor("", x.dtype, ())
    op.call(
        "NLLLoss",
        *(x, node.input(1), weight, REDUCTIONS[reduction], -100 if ignored is None else ignored),
        like=[node.outputs[0], total],
        outputs=[node.outputs[0]],
        reduction=reduction,
        ignores=int(ignored is not None),
        rank=x.rank,
    )
