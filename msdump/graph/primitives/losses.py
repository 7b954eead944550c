"""Losses and their gradients."""

from __future__ import annotations

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import INT64, Ints, Slots, Value, op, operator


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
def one_hot(slot: Slots, *, depth: int, axis: int = -1, rank: int = 0) -> Value:
    """Return ``on_value`` at the index in each row, ``off_value`` elsewhere and at an index of no class.

    ``axis``: the new one; ``rank``: that of the indices.
    """
    classes = op.Range(0, depth, 1)
    if axis >= 0:
        classes = op.Reshape(classes, [-1, *[1] * (rank - axis)])
    is_class = op.Equal(op.Unsqueeze(op.Cast(slot.indices, to=INT64), [axis]), classes)
    # float32 with a cast: onnxruntime has Where for few element types
    on, off = (op.Cast(value, to=FLOAT32.onnx) for value in (slot.on_value, slot.off_value))
    return op.CastLike(op.Where(is_class, on, off), slot.on_value)


@operator("BCEWithLogitsLoss")
def bce_with_logits(logits: Value, labels: Value, *weights: Value, reduction: str, given: Ints = ()) -> Value:
    """Return labels log(1 / sigmoid) + (1 - labels) log(1 / (1 - sigmoid)), reduced.

    Only exponentials of negative numbers occur, which cannot overflow. ``given``: by slot whether there are
    weights of elements, and of positive labels.
    """
    below = op.Max(-logits, 0.0)
    decayed = op.Log(op.Exp(-op.Abs(logits)) + 1.0) + below
    if any(given[3:4]):
        decayed = decayed * ((weights[1] - 1.0) * labels + 1.0)
    losses = (1.0 - labels) * logits + decayed
    return _reduced_losses(losses * weights[0] if any(given[2:3]) else losses, reduction)


@operator("BinaryCrossEntropy")
def binary_cross_entropy(x: Value, target: Value, weight: Value, *, reduction: str, given: Ints) -> Value:
    """Return -(target log x + (1 - target) log(1 - x)), each times a weight, reduced."""
    losses = -(target * op.Log(x + _LEAST) + (1.0 - target) * op.Log(1.0 - x + _LEAST))
    return _reduced_losses(losses * weight if given[2] else losses, reduction)


@operator("BinaryCrossEntropyGrad")
def binary_cross_entropy_grad(
    x: Value, target: Value, dy: Value, weight: Value, *, reduction: str, given: Ints
) -> Value:
    """Return dy (x - target) / (x (1 - x)), each times a weight; divided by their number for a mean."""
    slope = (x - target) / op.Max(x * (1.0 - x), _LEAST) * dy
    slope = slope * weight if given[3] else slope
    return slope / op.CastLike(op.Size(x), x) if reduction == "mean" else slope


_LEAST = 1e-12
"""MindSpore's distance from the logarithm of 0 and from division by 0."""


@operator("KLDivLoss")
def kl_div_loss(x: Value, target: Value, *, reduction: str) -> Value:
    """Return target (log target - x), 0 where the target is 0, reduced."""
    losses = op.Where(target > 0.0, target * (op.Log(target) - x), 0.0)
    if reduction == "batchmean":
        return _reduced_losses(losses, "sum") / op.CastLike(op.Gather(op.Shape(x), 0), x)
    return _reduced_losses(losses, reduction)


@operator("KLDivLossGrad")
def kl_div_loss_grad(dy: Value, x: Value, target: Value, *, reduction: str) -> Value:
    """Return -dy target where the target is above 0, over the number of losses that a mean has."""
    slope = op.Where(target > 0.0, -(target * dy), 0.0)
    if reduction in {"none", "sum"}:
        return slope
    count = op.Size(x) if reduction == "mean" else op.Gather(op.Shape(x), 0)
    return slope / op.CastLike(count, x)


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


@operator("NLLLoss")
def nll_loss(slot: Slots, *, reduction: str, ignores: int = 1, rank: int) -> tuple[Value, Value]:
    """Return -x at the labels, each times the weight of its class, and the sum of these weights.

    The classes are the second axis. Labels that are ``ignored`` have no loss.
    """
    index, taken = _class_weights(slot, ignores)
    picked = op.Squeeze(op.GatherElements(slot.logits, op.Unsqueeze(index, [1]), axis=1), [1])
    total = op.ReduceSum(taken, list(range(rank - 1)), keepdims=0)
    losses = -(picked * taken)
    if reduction == "mean":
        return _reduced_losses(losses, "sum") / total, total
    return _reduced_losses(losses, reduction), total


@operator("NLLLossGrad")
def nll_loss_grad(slot: Slots, *, reduction: str, ignores: int = 1, rank: int) -> Value:
    """Return -dy at the labels, each times the weight of its class, zero elsewhere."""
    index, taken = _class_weights(slot, ignores)
    slope = -(taken * slot.dout)
    scaled = slope / slot.total_weight if reduction == "mean" else slope
    classes = op.Reshape(op.Range(0, op.Gather(op.Shape(slot.logits), 1), 1), [1, -1, *(1,) * (rank - 2)])
    is_label = op.Equal(op.Unsqueeze(index, [1]), classes)
    return op.Where(is_label, op.Unsqueeze(scaled, [1]), 0.0)


def _class_weights(slot: Slots, ignores: int) -> tuple[Value, Value]:
    """Return class and weight of each label; of ignored labels class 0 and weight 0."""
    index = op.Cast(slot.labels, to=INT64)
    if not ignores:
        return index, op.Gather(slot.weight, index)
    is_ignored = op.Equal(index, slot.ignore_index)
    known = op.Where(is_ignored, 0, index)
    return known, op.Where(is_ignored, 0.0, op.Gather(slot.weight, known))


def _reduced_losses(losses: Value, reduction: str) -> Value:
    if reduction == "none":
        return losses
    reduce = op.ReduceMean if reduction == "mean" else op.ReduceSum
    return reduce(losses, keepdims=0)
