"""Attention as MindSpore has it: one operator, FlashAttentionScore; rotary embeddings."""

from __future__ import annotations

import math
from dataclasses import replace

from msdump.errors import GraphError
from msdump.graph.primitives import ROW_COPIES, op
from msdump.training.operators.shapes import unbroadcast
from msdump.training.rules import Backward, Gradients, gradient, lowering, mindspore_gradient
from msdump.training.writer import StepOperator

_INFERENCE_INPUTS = {4: "past_key", 5: "past_value", 6: "nonpad_kv_seqlen"}

_INFERENCE_OUTPUTS = {1: "present_key", 2: "present_value", 3: "qk_matmul_output"}


@lowering("Attention")
def _lower_attention(node: StepOperator) -> None:
    present = [name for slot, name in _INFERENCE_INPUTS.items() if node.optional(slot) is not None]
    present += [name for slot, name in _INFERENCE_OUTPUTS.items() if node.output(slot) is not None]
    if present:
        raise GraphError(f"{node.place.path}/{node.op_type}: with {', '.join(present)} it has no gradient")
    query, key, value = (node.input(slot) for slot in range(3))
    given = node.optional(3)
    shift, mask = (given, None) if given is None or given.is_float else (None, op.Not(given))
    is_split = query.rank == 4  # (batch, heads, places, elements), else the elements of all heads together
    heads = node.attribute("q_num_heads", query.shape[1])
    kv_heads = node.attribute("kv_num_heads", key.shape[1])
    (width,), (value_width,) = query.sizes_from(-1), value.sizes_from(-1)
    size = width if is_split else width // heads
    statistics = query.shaped((query.shape[0], heads, query.shape[-2], ROW_COPIES))
    slots = (query, key, value, shift, None, None, mask)
    op.call(
        "FlashAttentionScore",
        *slots,
        like=[statistics, statistics, query.shaped((1,)), node.y],
        outputs=[None, None, None, node.y],
        scale_value=float(node.attribute("scale", 0.0) or 1 / math.sqrt(size)),
        input_layout="BNSD" if is_split else "BSH",
        head_num=heads,
        kv_head_num=kv_heads,
        head_size=size,
        value_size=value_width if is_split else value_width // kv_heads,
        has_shift=int(shift is not None),
        has_mask=int(mask is not None),
        is_causal=int(node.attribute("is_causal", 0)),
        softcap=float(node.attribute("softcap", 0.0)),
    )


@mindspore_gradient("FlashAttentionScore")
def _attention(back: Backward) -> Gradients:
    dy = back.dys[3]
    assert dy is not None, "only the attention is read"
    shift, mask = back.inputs[3], back.inputs[6]
    highest, total, rest, attention = back.outputs
    query, key, value = (back.input(slot) for slot in range(3))
    likes = [query, key, value]
    if shift is not None:
        places = (query.shape[0], back.attributes["head_num"], query.shape[-2], key.shape[-2])
        likes.append(query.shaped(places))
    slots = (query, key, value, dy, shift, None, None, mask, highest, total, rest, attention)
    dq, dk, dv, *dshift = op.call(
        "FlashAttentionScoreGrad",
        *slots,
        like=likes,
        **back.attributes,
    )
    if shift is None or not back.wants[3]:
        return dq, dk, dv
    return dq, dk, dv, unbroadcast(dshift[0], shift)


@gradient("RotaryEmbedding")
def _rotary_embedding(back: Backward) -> Gradients:
    """Rotate the gradient by the negative angles: the operator with negated sines."""
    x = back.x
    if any(back.wants[1:3]):
        raise GraphError(f"{back.place.path}/RotaryEmbedding: its cosines and sines have no gradient")
    cosines, sines = back.input(1), -back.input(2)
    dx = replace(x, name=op.free_name(f"{back.op_type}.gradient"), value=None)
    return op.emit(back.op_type, (back.dy, cosines, sines, *back.inputs[3:]), back.attributes, outputs=[dx])
