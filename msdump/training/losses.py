"""The losses of a training step, under MindSpore's class names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import InputError, name_hint
from msdump.training.symbols import Shape, StepTensor
from msdump.training.writer import StepWriter


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss over the first output of a network.

    Attributes:
        cell: MindSpore's class, the scope's name.
        label: Returns element type and shape of the labels for an output of the network.
        write: Writes its operators; returns the loss, a scalar.
    """

    cell: str
    label: Callable[[StepTensor], tuple[DType, Shape]]
    write: Callable[[StepWriter, StepTensor, StepTensor], StepTensor]


def _classes(logits: StepTensor) -> tuple[DType, Shape]:
    return dtypes.from_name("int32"), logits.shape[:-1]


def _sparse_cross_entropy(op: StepWriter, logits: StepTensor, labels: StepTensor) -> StepTensor:
    if logits.rank > 2:  # noqa: PLR2004 - MindSpore's operator takes (n, classes)
        logits = op.call("Reshape", logits, shape=(-1, *logits.sizes_from(logits.rank - 1)))
        labels = op.call("Reshape", labels, shape=(-1,))
    scalar = StepTensor("", logits.dtype, ())
    loss: StepTensor = op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=scalar, is_grad=0)
    return loss


LOSSES: Final = {
    "softmax_cross_entropy": Loss("SoftmaxCrossEntropyWithLogits", _classes, _sparse_cross_entropy),
}
"""By the name that ``--loss`` takes."""


def loss_of(name: str | Loss) -> Loss:
    """Return a loss by its name.

    Raises:
        InputError: An unknown one.
    """
    if isinstance(name, Loss):
        return name
    if name not in LOSSES:
        raise InputError(f"unknown loss {name!r}: allowed are {', '.join(LOSSES)}{name_hint(name, LOSSES)}")
    return LOSSES[name]
