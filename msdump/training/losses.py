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
from msdump.training import options
from msdump.training.body import INT64, Value, operator
from msdump.training.operators.shapes import as_matrix, joined, reduced, reshaped
from msdump.training.options import Options, Rules
from msdump.training.rules import Backward, Gradients, lowering, mindspore_gradient
from msdump.training.tape import op
from msdump.training.writer import Item, Shape, StepOperator, StepTensor


@operator("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(logits: Value, labels: Value, *, is_grad: int) -> Value:
    """Return the mean of -log softmax at the labels, or its gradient, (softmax - onehot) / n."""
    if not is_grad:
        index = op.Cast(labels, to=INT64)
        # a negative label would count from the last class: an index behind the classes makes it fail
        index = op.Where(index < 0, op.Gather(op.Shape(logits), 1), index)
        index = op.Unsqueeze(index, [1])
        taken = op.GatherElements(op.LogSoftmax(logits, axis=-1), index, axis=1)
        return -op.ReduceMean(taken, [0, 1], keepdims=0)
    shape = op.Shape(logits)
    count = op.Gather(shape, 0)
    classes = op.Gather(shape, 1)
    # float32 with a cast: runtimes have OneHot for few element types
    onehot = op.OneHot(op.Cast(labels, to=INT64), classes, np.array([0, 1], np.float32), axis=-1)
    difference = op.Softmax(logits, axis=-1) - op.CastLike(onehot, logits)
    return difference / op.CastLike(count, logits)


@operator("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(logits: Value, labels: Value) -> tuple[Value, Value]:
    """Return -sum(labels log softmax) of each row, and its gradient.

    vendor: the gradient is softmax - labels, which holds where the labels of a row sum to 1.
    """
    losses = -op.ReduceSum(labels * op.LogSoftmax(logits, axis=-1), [1], keepdims=0)
    return losses, op.Softmax(logits, axis=-1) - labels


@operator("OneHot", element=2)
def one_hot(
    indices: Value, _depth: Value, on_value: Value, off_value: Value, _axis: Value, *, depth: int
) -> Value:
    """Return ``on_value`` at the index in each row, ``off_value`` elsewhere and at an index of no class."""
    classes = op.Range(0, depth, 1)
    is_class = op.Equal(op.Unsqueeze(op.Cast(indices, to=INT64), [-1]), classes)
    # float32 with a cast: onnxruntime has Where for few element types
    on, off = (op.Cast(value, to=FLOAT32.onnx) for value in (on_value, off_value))
    return op.CastLike(op.Where(is_class, on, off), on_value)


@operator("BCEWithLogitsLoss")
def bce_with_logits(logits: Value, labels: Value, *_: Value, reduction: str) -> Value:
    """Return labels log(1 / sigmoid) + (1 - labels) log(1 / (1 - sigmoid)), reduced.

    Only exponentials of negative numbers occur, which cannot overflow.
    """
    below = op.Max(-logits, 0.0)
    decayed = op.Log(op.Exp(-op.Abs(logits)) + 1.0) + below
    return _reduced_losses((1.0 - labels) * logits + decayed, reduction)


@operator("SmoothL1Loss")
def smooth_l1_loss(prediction: Value, target: Value, beta: Value, *_: Value, reduction: str) -> Value:
    """Return error^2 / 2 beta where the error is below beta, else error - beta / 2, reduced."""
    error, beta = op.Abs(prediction - target), op.CastLike(beta, prediction)
    is_small = error < beta
    return _reduced_losses(op.Where(is_small, error * error * 0.5 / beta, error - beta * 0.5), reduction)


@operator("SmoothL1LossGrad")
def smooth_l1_loss_grad(
    prediction: Value, target: Value, dy: Value, beta: Value, *_: Value, reduction: str
) -> Value:
    """Return dy times the error / beta, between -1 and 1; divided by the number of elements for a mean."""
    error, beta = prediction - target, op.CastLike(beta, prediction)
    slope = op.Max(op.Min(error / beta, 1.0), -1.0) * dy
    return slope / op.CastLike(op.Size(prediction), prediction) if reduction == "mean" else slope


@operator("OnesLike")
def ones_like(x: Value) -> Value:
    """Return ones in the shape of a tensor."""
    return op.Expand(1.0, op.Shape(x))


@operator("NLLLoss")
def nll_loss(
    x: Value,
    labels: Value,
    weight: Value,
    _reduction: Value,
    ignored: Value,
    *,
    reduction: str,
    ignores: int,
    rank: int,
) -> tuple[Value, Value]:
    """Return -x at the labels, each times the weight of its class, and the sum of these weights.

    The classes are the second axis. Labels that are ``ignored`` have no loss.
    """
    index, taken = _class_weights(labels, weight, ignored, ignores)
    picked = op.Squeeze(op.GatherElements(x, op.Unsqueeze(index, [1]), axis=1), [1])
    total = op.ReduceSum(taken, list(range(rank - 1)), keepdims=0)
    losses = -(picked * taken)
    if reduction == "mean":
        return _reduced_losses(losses, "sum") / total, total
    return _reduced_losses(losses, reduction), total


@operator("NLLLossGrad")
def nll_loss_grad(
    x: Value,
    dy: Value,
    labels: Value,
    weight: Value,
    total: Value,
    _reduction: Value,
    ignored: Value,
    *,
    reduction: str,
    ignores: int,
    rank: int,
) -> Value:
    """Return -dy at the labels, each times the weight of its class, zero elsewhere."""
    index, taken = _class_weights(labels, weight, ignored, ignores)
    slope = -(taken * dy)
    scaled = slope / total if reduction == "mean" else slope
    classes = op.Reshape(op.Range(0, op.Gather(op.Shape(x), 1), 1), [1, -1, *(1,) * (rank - 2)])
    is_label = op.Equal(op.Unsqueeze(index, [1]), classes)
    return op.Where(is_label, op.Unsqueeze(scaled, [1]), 0.0)


def _class_weights(labels: Value, weight: Value, ignored: Value, ignores: int) -> tuple[Value, Value]:
    """Return class and weight of each label; of ignored labels class 0 and weight 0."""
    index = op.Cast(labels, to=INT64)
    if not ignores:
        return index, op.Gather(weight, index)
    is_ignored = op.Equal(index, ignored)
    known = op.Where(is_ignored, 0, index)
    return known, op.Where(is_ignored, 0.0, op.Gather(weight, known))


def _reduced_losses(losses: Value, reduction: str) -> Value:
    if reduction == "none":
        return losses
    reduce = op.ReduceMean if reduction == "mean" else op.ReduceSum
    return reduce(losses, keepdims=0)


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
        *(x, node.input(1), weight, reduction, -100 if ignored is None else ignored),
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
    """Option of a loss of many elements or rows.

    Attributes:
        reduction: ``mean`` or ``sum`` of all losses; ``none``: each is returned, and the gradient is that of
            their sum.
    """

    reduction: str = "mean"
    rules: ClassVar[Rules] = {"reduction": options.one_of(("mean", "sum", "none"))}


@dataclass(frozen=True, slots=True)
class SmoothL1Options(Reduction):
    """Options of SmoothL1Loss.

    Attributes:
        beta: The error from which the loss is linear.
    """

    beta: float = 1.0
    rules: ClassVar[Rules] = {"beta": options.above(0), **Reduction.rules}


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss over the first output of a network.

    Attributes:
        cell: MindSpore's class, the scope's name.
        label: Returns element type and shape of the labels for an output of the network; None: no labels.
        write: Writes the operators for output and labels (without labels: output twice); returns the loss, a
            tensor of any shape. It takes the options as keywords.
        options: Their class.
    """

    cell: str
    label: Callable[[StepTensor], tuple[DType, Shape]] | None
    write: Callable[..., StepTensor]
    options: type[Options] = Options


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
    """Return a loss.

    Args:
        choice: Its name, and behind a colon its options, ``smooth_l1:sum,beta=0.5``; or a loss.

    Raises:
        InputError: An unknown name or option, or a value that it does not take.
    """
    if isinstance(choice, Loss):
        return choice
    chosen = options.parsed(choice, {name: loss.options for name, loss in LOSSES.items()}, "loss")
    loss = LOSSES[choice.partition(":")[0]]
    return replace(loss, write=partial(loss.write, **asdict(chosen)))
