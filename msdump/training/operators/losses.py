"""Losses, and their gradients."""

from __future__ import annotations

import numpy as np

from msdump.training.body import INT64, Body, operator


@operator("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(op: Body, logits: str, labels: str, *, is_grad: int) -> str:
    """Return the mean of -log softmax at the labels, or its gradient, (softmax - onehot) / n."""
    if not is_grad:
        index = op.Cast(labels, to=INT64)
        # a negative index would count from the last class: one behind them is refused
        index = op.Where(op.Less(index, 0), op.Gather(op.Shape(logits), 1), index)
        index = op.Unsqueeze(index, [1])
        taken = op.GatherElements(op.LogSoftmax(logits, axis=-1), index, axis=1)
        return str(op.Neg(op.ReduceMean(taken, [0, 1], keepdims=0)))
    shape = op.Shape(logits)
    count = op.Gather(shape, 0)
    classes = op.Gather(shape, 1)
    # in float32, and cast: runtimes have OneHot in few element types
    onehot = op.OneHot(op.Cast(labels, to=INT64), classes, np.array([0, 1], np.float32), axis=-1)
    difference = op.Sub(op.Softmax(logits, axis=-1), op.CastLike(onehot, logits))
    return str(op.Div(difference, op.CastLike(count, logits)))


@operator("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(op: Body, logits: str, labels: str) -> tuple[str, str]:
    """Return -sum(labels log softmax) of each row, and its gradient.

    vendor: the gradient is softmax - labels, which holds where the labels of a row sum to 1.
    """
    losses = op.Neg(op.ReduceSum(op.Mul(labels, op.LogSoftmax(logits, axis=-1)), [1], keepdims=0))
    return str(losses), str(op.Sub(op.Softmax(logits, axis=-1), labels))


@operator("BCEWithLogitsLoss")
def bce_with_logits(
    op: Body, logits: str, labels: str, weight: str, pos_weight: str, _reduction: str, *, reduction: str
) -> str:
    """Return weight (pos_weight labels log(1 / sigmoid) + (1 - labels) log(1 / (1 - sigmoid))), reduced.

    It is written by exponentials of negative numbers alone, which cannot overflow.
    """
    slope = op.Add(op.Mul(labels, op.Sub(pos_weight, 1.0)), 1.0)
    below = op.Max(op.Neg(logits), 0.0)
    decayed = op.Add(op.Log(op.Add(op.Exp(op.Neg(op.Abs(logits))), 1.0)), below)
    losses = op.Mul(weight, op.Add(op.Mul(op.Sub(1.0, labels), logits), op.Mul(slope, decayed)))
    return _reduced(op, losses, reduction)


@operator("OnesLike")
def ones_like(op: Body, x: str) -> str:
    """Return ones in the shape of a tensor."""
    return str(op.Expand(1.0, op.Shape(x)))


@operator("NLLLoss")
def nll_loss(
    op: Body,
    x: str,
    labels: str,
    weight: str,
    _reduction: str,
    ignored: str,
    *,
    reduction: str,
    ignores: int,
    rank: int,
) -> tuple[str, str]:
    """Return -x at the labels, each times the weight of its class, and the sum of these weights.

    The classes are the second axis. Labels that are ``ignored`` have no loss.
    """
    index, taken = _weights(op, labels, weight, ignored, ignores)
    picked = op.Squeeze(op.GatherElements(x, op.Unsqueeze(index, [1]), axis=1), [1])
    total = op.ReduceSum(taken, list(range(rank - 1)), keepdims=0)
    losses = op.Neg(op.Mul(picked, taken))
    if reduction == "mean":
        return str(op.Div(_reduced(op, losses, "sum"), total)), total
    return _reduced(op, losses, reduction), total


@operator("NLLLossGrad")
def nll_loss_grad(
    op: Body,
    x: str,
    dy: str,
    labels: str,
    weight: str,
    total: str,
    _reduction: str,
    ignored: str,
    *,
    reduction: str,
    ignores: int,
    rank: int,
) -> str:
    """Return -dy at the labels, each times the weight of its class, zero elsewhere."""
    index, taken = _weights(op, labels, weight, ignored, ignores)
    slope = op.Neg(op.Mul(taken, dy))
    scaled = op.Div(slope, total) if reduction == "mean" else slope
    classes = op.Reshape(op.Range(0, op.Gather(op.Shape(x), 1), 1), [1, -1, *(1,) * (rank - 2)])
    is_label = op.Equal(op.Unsqueeze(index, [1]), classes)
    return str(op.Where(is_label, op.Unsqueeze(scaled, [1]), 0.0))


def _weights(op: Body, labels: str, weight: str, ignored: str, ignores: int) -> tuple[str, str]:
    """Return the class and the weight of each element; class 0 and no weight where it is ignored."""
    index = op.Cast(labels, to=INT64)
    if not ignores:
        return index, op.Gather(weight, index)
    is_ignored = op.Equal(index, ignored)
    known = op.Where(is_ignored, 0, index)
    return known, op.Where(is_ignored, 0.0, op.Gather(weight, known))


def _reduced(op: Body, losses: str, reduction: str) -> str:
    if reduction == "none":
        return losses
    reduce = op.ReduceMean if reduction == "mean" else op.ReduceSum
    return str(reduce(losses, keepdims=0))
