"""Losses, and their gradients."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(op: Body, logits: str, labels: str, *, is_grad: int) -> str:
    """Return the mean of -log softmax at the labels, or its gradient, (softmax - onehot) / n."""
    if not is_grad:
        return str(op.SoftmaxCrossEntropyLoss(logits, labels, reduction="mean"))
    shape = op.Shape(logits)
    count = op.Gather(shape, 0)
    classes = op.Gather(shape, 1)
    values = op.CastLike([0.0, 1.0], logits)
    onehot = op.OneHot(op.Cast(labels, to=7), classes, values, axis=-1)
    return str(op.Div(op.Sub(op.Softmax(logits, axis=-1), onehot), op.CastLike(count, logits)))
