"""Dropout as MindSpore has it: the share that is kept, and a mask of numbers."""

from __future__ import annotations

import numpy as np

from msdump.training.lowering import keep, lowering
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

_DEFAULT_RATIO = np.float32(0.5)


@lowering("Dropout")
def _dropout(op: StepWriter, node: StepOperator) -> None:
    """Write MindSpore's Dropout, unless the model says that nothing is dropped.

    A model in inference form, which does not say ``training_mode`` at all, is trained with dropout.
    """
    if not op.drops and not node.output(1):
        op.emit("Identity", node.inputs[:1], {}, outputs=node.outputs)
        return
    kept = _kept(op, node)
    if kept.value is not None and kept.value == 1:
        keep(op, node)
        return
    x, (y, *masks) = node.input(0), node.outputs
    seed = node.attribute("seed", None)
    _, mask = op.call(
        "Dropout",
        *(x, kept, 1, 0),
        like=[y, x],
        outputs=[y],
        generator_seed=op.next_seed() if seed is None else seed,
    )
    if masks:
        op.emit("Cast", (mask,), {"to": masks[0].dtype.onnx}, outputs=masks)


def _kept(op: StepWriter, node: StepOperator) -> StepTensor:
    """Return the share that is kept, a constant where the model's inputs are constants."""
    ratio, training = (node.inputs[slot] if slot < len(node.inputs) else None for slot in (1, 2))
    dropped = op.constant(np.array(_DEFAULT_RATIO)) if ratio is None else ratio
    if training is not None and training.value is not None and not training.value:
        return op.constant(np.array(1, np.float32))
    if dropped.value is None:
        share = op.Sub(1.0, op.Cast(dropped, to=1))
    else:
        share = op.constant(np.array(1 - dropped.value.astype(np.float32), np.float32).reshape(()))
    if training is not None and training.value is None:
        share = op.Where(training, share, 1.0)
    result: StepTensor = share
    return result
