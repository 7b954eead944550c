"""The losses of a training step, under MindSpore's class names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError, InputError, name_hint
from msdump.training.lowerings.layouts import as_matrix, joined, reshaped
from msdump.training.lowerings.losses import REDUCTIONS
from msdump.training.lowerings.reductions import reduced
from msdump.training.symbols import Shape, StepTensor
from msdump.training.writer import StepWriter


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss over the first output of a network.

    Attributes:
        cell: MindSpore's class, the scope's name.
        label: Returns element type and shape of the labels for an output of the network; None: the loss takes
            no labels.
        write: Writes its operators, for the output and the labels (without labels the output again); returns
            the loss, a scalar.
    """

    cell: str
    label: Callable[[StepTensor], tuple[DType, Shape]] | None
    write: Callable[[StepWriter, StepTensor, StepTensor], StepTensor]


def _classes(logits: StepTensor) -> tuple[DType, Shape]:
    return dtypes.from_name("int32"), logits.shape[:-1]


def _alike(output: StepTensor) -> tuple[DType, Shape]:
    return output.dtype, output.shape


def _sparse_cross_entropy(op: StepWriter, logits: StepTensor, labels: StepTensor) -> StepTensor:
    if logits.rank != 2:  # noqa: PLR2004 - MindSpore's operator takes (n, classes)
        rows = (joined(logits.shape[:-1]),)
        logits, labels = as_matrix(op, logits), reshaped(op, labels, StepTensor("", labels.dtype, rows))
    scalar = StepTensor("", logits.dtype, ())
    loss: StepTensor = op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=scalar, is_grad=0)
    return loss


def _dense_cross_entropy(op: StepWriter, logits: StepTensor, labels: StepTensor) -> StepTensor:
    """Write the loss of each row and its gradient, which MindSpore's operator both gives, and the mean."""
    if logits.rank != 2:  # noqa: PLR2004 - as above
        logits, labels = as_matrix(op, logits), as_matrix(op, labels)
    rows = StepTensor("", logits.dtype, logits.shape[:1])
    losses, _ = op.call("SoftmaxCrossEntropyWithLogits", logits, labels, like=[rows, logits])
    return reduced(op, "ReduceMean", losses, (0,), keep_dims=False)


def _mean_squared_error(op: StepWriter, output: StepTensor, labels: StepTensor) -> StepTensor:
    difference = op.Sub(output, labels)
    square = op.call("Square", difference, like=output)
    return reduced(op, "ReduceMean", square, range(output.rank), keep_dims=False)


def _binary_cross_entropy(op: StepWriter, logits: StepTensor, labels: StepTensor) -> StepTensor:
    ones = _ones_like(op, logits)  # the weight of each element, and that of the positive labels
    scalar = StepTensor("", logits.dtype, ())
    slots = (logits, labels, ones, ones, REDUCTIONS["mean"])
    loss: StepTensor = op.call("BCEWithLogitsLoss", *slots, like=scalar, reduction="mean")
    return loss


def _ones_like(op: StepWriter, x: StepTensor) -> StepTensor:
    """Return ones in a tensor's shape, a constant where it is known."""
    if all(isinstance(size, int) for size in x.shape):
        return op.constant(np.ones(x.sizes(), x.dtype.numpy))
    ones: StepTensor = op.call("OnesLike", x, like=x)
    return ones


def _own(op: StepWriter, output: StepTensor, _labels: StepTensor) -> StepTensor:
    """Return the output of a network that ends in a loss.

    Raises:
        GraphError: It is no floating-point number.
    """
    if not output.is_float or any(size != 1 for size in output.shape):
        raise GraphError(
            f"output {output.name!r} of type {output.dtype.name} and shape {output.shape} is no loss of its "
            f"own: one floating-point number is expected; other losses are {', '.join(LOSSES)}"
        )
    return reshaped(op, output, StepTensor("", output.dtype, ()))


LOSSES: Final = {
    "softmax_cross_entropy": Loss("SoftmaxCrossEntropyWithLogits", _classes, _sparse_cross_entropy),
    "dense_softmax_cross_entropy": Loss("SoftmaxCrossEntropyWithLogits", _alike, _dense_cross_entropy),
    "mse": Loss("MSELoss", _alike, _mean_squared_error),
    "bce_with_logits": Loss("BCEWithLogitsLoss", _alike, _binary_cross_entropy),
    "none": Loss("", None, _own),
}
"""By the name that ``--loss`` takes; with "none" the network's own first output is the loss."""


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
