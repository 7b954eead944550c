"""Losses of a training step under MindSpore's class names, losses that models end in, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph.kernel import FLOAT32
from msdump.graph.primitives import op
from msdump.training import options
from msdump.training.operators.shapes import as_matrix, joined, reduced, reshaped
from msdump.training.options import Options, Rules
from msdump.training.rules import Backward, Gradients, lowering, mindspore_gradient
from msdump.training.writer import Item, Shape, StepOperator, StepTensor


@lowering("SoftmaxCrossEntropyLoss")
def _lower_softmax_cross_entropy_loss(node: StepOperator) -> None:
    """Write MindSpore's operator for the plain mean over rows of a matrix, else LogSoftmax and NLLLoss."""
    scores, labels, loss = node.x, node.input(1), node.y
    is_plain = node.attribute("reduction", "mean") == "mean" and node.attribute("ignore_index", None) is None
    if scores.rank == 2 and len(node.inputs) == len(node.outputs) + 1 == 2 and is_plain:
        op.call("SparseSoftmaxCrossEntropyWithLogits", scores, labels, outputs=[loss], is_grad=0)
        return
    logarithms = op.LogSoftmax(scores, axis=1, outputs=list(node.outputs[1:]) or 1)
    _write_nll_loss(node, logarithms)


@lowering("NegativeLogLikelihoodLoss")
def _lower_negative_log_likelihood(node: StepOperator) -> None:
    _write_nll_loss(node, node.x)


def _write_nll_loss(node: StepOperator, x: StepTensor) -> None:
    """Write NLLLoss; if the model has no class weights, all classes have weight 1."""
    reduction, ignored = node.attribute("reduction", "mean"), node.attribute("ignore_index", None)
    weight: Any = node.optional(2)
    if weight is None:
        weight = np.ones(x.sizes_from(1, 2), x.dtype.numpy)
    total = x.shaped(())
    op.call(
        "NLLLoss",
        x,
        node.input(1),
        weight,
        reduction,
        -100 if ignored is None else ignored,
        like=[node.y, total],
        outputs=[node.y],
        reduction=reduction,
        ignores=int(ignored is not None),
        rank=x.rank,
    )


@mindspore_gradient("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy_gradient(back: Backward) -> Gradients:
    logits, labels = back.x, back.input(1)
    gradient = op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=logits, is_grad=1)
    # the gradient of the loss itself, 1 or the loss scale, is no input of the operator
    return gradient * back.dy


@mindspore_gradient("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy_gradient(back: Backward) -> Gradients:
    """Scale the gradient that the forward operator has as its output, row by row; none for labels."""
    gradient = back.outputs[1]
    return gradient * op.Unsqueeze(back.dy, [-1])


@mindspore_gradient("BCEWithLogitsLoss")
def _binary_cross_entropy_gradient(back: Backward) -> Gradients:
    """Write ((labels ones + 1 - labels) sigmoid - labels ones) dy ones / n, n for a mean.

    MindSpore's kernels but Ascend's have no BinaryCrossEntropyWithLogitsBackward: operators replace it so
    late that no pass leaves out products with ones, which are the weights of elements and of positive labels.
    """
    logits, labels = back.x, back.input(1)
    weight, pos_weight = (op.call("OnesLike", labels, like=labels) for _ in range(2))
    sigmoid = op.Sigmoid(logits)
    positive = labels * pos_weight
    slope = (positive + 1.0 - labels) * sigmoid
    dx = op.Mul(op.Mul(slope - positive, back.dy), weight)
    if back.attributes["reduction"] == "mean":
        count = joined(logits.shape)
        divisor = op.Cast(op.Size(logits), to=logits.dtype.onnx) if count is None else float(count)
        dx = op.call("RealDiv", dx, divisor, like=logits)
    return dx


@mindspore_gradient("SmoothL1Loss")
def _smooth_l1_gradient(back: Backward) -> Gradients:
    prediction, target, *settings = back.inputs
    slots = (prediction, target, back.dy, *settings)
    return op.call("SmoothL1LossGrad", *slots, like=prediction, **back.attributes)


@mindspore_gradient("NLLLoss")
def _nll_loss(back: Backward) -> Gradients:
    x = back.x
    labels, weight, reduction, ignored = (back.input(slot) for slot in range(1, 5))
    slots = (x, back.dy, labels, weight, back.outputs[1], reduction, ignored)
    return op.call("NLLLossGrad", *slots, like=x, **back.attributes)


@dataclass(frozen=True, slots=True)
class Reduction(Options):
    """Option of a loss of many elements or rows."""

    # ``mean`` or ``sum`` of all losses; ``none``: each is returned, and the gradient is that of their sum
    reduction: str = "mean"
    rules: ClassVar[Rules] = {"reduction": options.one_of(("mean", "sum", "none"))}


@dataclass(frozen=True, slots=True)
class SmoothL1Options(Reduction):
    """Options of SmoothL1Loss."""

    beta: float = 1.0  # the error from which the loss is linear
    rules: ClassVar[Rules] = {"beta": options.above(0), **Reduction.rules}


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss over the first output of a network."""

    cell: str  # MindSpore's class, the scope's name
    # returns element type and shape of the labels for an output of the network; None: no labels
    label: Callable[[StepTensor], tuple[DType, Shape]] | None
    # writes the operators for output and labels (without labels: output twice); returns the loss, a tensor of
    # any shape. It takes the options as keywords
    write: Callable[..., StepTensor]
    options: type[Options] = Options  # class of the options


def _classes(logits: StepTensor) -> tuple[DType, Shape]:
    return dtypes.from_name("int32"), _logits(logits).shape[:-1]


def _probabilities(logits: StepTensor) -> tuple[DType, Shape]:
    return _alike(_logits(logits))


def _logits(output: StepTensor) -> StepTensor:
    """Return an output with classes as last dimension; GraphError for a scalar."""
    if not output.shape:
        raise GraphError(
            f"output {output.name!r} is one number and has no classes; "
            "losses without classes are mse, l1, smooth_l1 and bce_with_logits, and none for a network that "
            "ends in its loss"
        )
    return output


def _alike(output: StepTensor) -> tuple[DType, Shape]:
    return output.dtype, output.shape


def _reduced(losses: StepTensor, reduction: str) -> StepTensor:
    """Reduce losses in float32, and return them in their own type, as MindSpore's ``LossBase.get_loss``."""
    dtype = losses.dtype
    if dtype is not FLOAT32:
        losses = op.Cast(losses, to=FLOAT32.onnx)
    if reduction != "none":
        name = "ReduceMean" if reduction == "mean" else "ReduceSum"
        losses = reduced(name, losses, range(losses.rank), keep_dims=False)
    return losses if dtype is FLOAT32 else op.Cast(losses, to=dtype.onnx)


def _sparse_cross_entropy(logits: StepTensor, labels: StepTensor, reduction: str = "mean") -> StepTensor:
    """Write MindSpore's operator of the mean, or the dense loss of one-hot labels."""
    if logits.rank != 2:
        flat = (joined(logits.shape[:-1]),)
        logits, labels = as_matrix(logits), reshaped(labels, (flat))
    if reduction == "mean":
        scalar = logits.shaped(())
        return op.call("SparseSoftmaxCrossEntropyWithLogits", logits, labels, like=scalar, is_grad=0)
    values = (np.array(number, logits.dtype.numpy) for number in (1, 0))
    (classes,) = logits.sizes_from(1)
    rows = op.call("OneHot", labels, *values, -1, like=logits, depth=classes)
    return _dense_cross_entropy(logits, rows, reduction)


def _dense_cross_entropy(logits: StepTensor, labels: StepTensor, reduction: str = "mean") -> StepTensor:
    """Write MindSpore's operator, which returns loss and gradient of each row."""
    if logits.rank != 2:
        logits, labels = as_matrix(logits), as_matrix(labels)
    rows = logits.shaped(logits.shape[:1])
    losses, _ = op.call("SoftmaxCrossEntropyWithLogits", logits, labels, like=[rows, logits])
    return _reduced(losses, reduction)


def _mean_squared_error(output: StepTensor, labels: StepTensor, reduction: str = "mean") -> StepTensor:
    return _reduced(op.call("Square", output - labels, like=output), reduction)


def _absolute_error(output: StepTensor, labels: StepTensor, reduction: str = "mean") -> StepTensor:
    return _reduced(op.Abs(output - labels), reduction)


def _smooth_absolute_error(
    output: StepTensor, labels: StepTensor, reduction: str = "mean", beta: float = 1.0
) -> StepTensor:
    return _reducing("SmoothL1Loss", reduction, output, labels, np.array(beta, np.float32))


def _binary_cross_entropy(logits: StepTensor, labels: StepTensor, reduction: str = "mean") -> StepTensor:
    # weights of elements and of positive labels are absent
    return _reducing("BCEWithLogitsLoss", reduction, logits, labels, None, None)


def _reducing(name: str, reduction: str, output: StepTensor, *slots: Item) -> StepTensor:
    """Write an operator that reduces its losses itself."""
    like = output if reduction == "none" else output.shaped(())
    loss: StepTensor = op.call(name, output, *slots, reduction, like=like, reduction=reduction)
    return loss


def _own(output: StepTensor, _labels: StepTensor) -> StepTensor:
    """Return the output of a network that ends in its loss; GraphError unless it is one float."""
    if not output.is_float or any(size != 1 for size in output.shape):
        raise GraphError(
            f"output {output.name!r} of type {output.dtype.name} and shape {output.shape} is not a loss; "
            f"must be one floating-point number; other losses are {', '.join(LOSSES)}"
        )
    return reshaped(output, (()))


_CROSS_ENTROPY: Final = "SoftmaxCrossEntropyWithLogits"

LOSSES: Final = {
    "softmax_cross_entropy": Loss(_CROSS_ENTROPY, _classes, _sparse_cross_entropy, Reduction),
    "dense_softmax_cross_entropy": Loss(_CROSS_ENTROPY, _probabilities, _dense_cross_entropy, Reduction),
    "mse": Loss("MSELoss", _alike, _mean_squared_error, Reduction),
    "l1": Loss("L1Loss", _alike, _absolute_error, Reduction),
    "smooth_l1": Loss("SmoothL1Loss", _alike, _smooth_absolute_error, SmoothL1Options),
    "bce_with_logits": Loss("BCEWithLogitsLoss", _alike, _binary_cross_entropy, Reduction),
    "none": Loss("", None, _own),
}
"""By the name that ``--loss`` takes; with "none" the network's own first output is the loss."""


def loss_of(choice: str | Loss) -> Loss:
    """Return a loss; InputError for an unknown name or option, or a wrong value."""
    if isinstance(choice, Loss):
        return choice
    chosen = options.parsed(choice, {name: loss.options for name, loss in LOSSES.items()}, "loss")
    loss = LOSSES[choice.partition(":")[0]]
    return replace(loss, write=partial(loss.write, **asdict(chosen)))
