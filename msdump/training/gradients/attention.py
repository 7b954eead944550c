"""Gradients of attention and of what stands around it."""

from __future__ import annotations

from msdump.errors import GraphError
from msdump.training.gradients.shapes import unbroadcast
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


@mindspore_gradient("FlashAttentionScore")
def _attention(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, back.dys[3]
    assert dy is not None, "only the attention is read"
    shift, mask = node.inputs[3], node.inputs[6]
    highest, total, rest, attention = node.outputs
    query, key, value = (node.input(slot) for slot in range(3))
    likes = [query, key, value]
    if shift is not None:
        places = (query.shape[0], node.attributes["head_num"], query.shape[-2], key.shape[-2])
        likes.append(StepTensor("", query.dtype, places))
    dq, dk, dv, *dshift = op.call(
        "FlashAttentionScoreGrad",
        *(query, key, value, dy, shift, None, None, mask, highest, total, rest, attention),
        like=likes,
        **node.attributes,
    )
    if shift is None or not back.wants[3]:
        return dq, dk, dv
    return dq, dk, dv, unbroadcast(op, dshift[0], shift)


@gradient("RotaryEmbedding")
@gradient("RotaryEmbedding", domain="com.microsoft")
def _rotary_embedding(op: StepWriter, back: Backward) -> Gradients:
    """Turn the gradient back: by the same angles, their sines negated."""
    node = back.node
    tables = (1, 2) if not node.domain else (2, 3)
    if any(back.wants[slot] for slot in tables):
        raise GraphError(f"{node.place.path}/RotaryEmbedding: its cosines and sines have no gradient")
    inputs = [back.dy, *node.inputs[1:]]
    inputs[tables[1]] = op.Neg(node.input(tables[1]))
    x = node.input(0)
    dx = StepTensor(op.free_name(f"{node.op_type}.gradient"), x.dtype, x.shape)
    return op.emit(node.op_type, inputs, node.attributes, outputs=[dx], domain=node.domain)
