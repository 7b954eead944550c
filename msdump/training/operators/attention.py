"""Attention as MindSpore has it: one operator, FlashAttentionScore; rotary embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msdump.errors import GraphError
from msdump.graph.kernel import FLOAT32
from msdump.training.body import Value, operator
from msdump.training.operators.shapes import unbroadcast
from msdump.training.rules import Backward, Gradients, gradient, lowering, mindspore_gradient
from msdump.training.tape import op
from msdump.training.writer import StepOperator

_COPIES = 8
"""How often MindSpore's operator repeats the maximum and the sum of each row."""

_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class _Attention:
    """Common parts of the bodies of attention and its gradient: heads, scores, masks.

    Attributes:
        input_layout: ``BNSD`` (batch, heads, places, elements), or ``BSH`` with heads side by side.
        head_num: Heads of the query.
        kv_head_num: Heads of key and value, each of which serves several of the query's.
        head_size: Elements of a head of the query and the key.
        value_size: Elements of a head of the value.
        has_shift: Whether a tensor is added to the products of query and key, after ``softcap``.
        has_mask: Whether a mask excludes places.
        is_causal: Whether a place attends to no later place.
        softcap: Smooth limit of the products; 0 for none.
    """

    input_layout: str
    head_num: int
    kv_head_num: int
    head_size: int
    value_size: int
    has_shift: int
    has_mask: int
    is_causal: int
    softcap: float

    def split(self, value: Value, heads: int) -> Value:
        """Return a value (batch, heads, places, elements)."""
        if self.input_layout == "BNSD":
            return value
        return op.Transpose(op.Reshape(value, (0, 0, heads, -1)), perm=[0, 2, 1, 3])

    def joined(self, value: Value) -> Value:
        """Return a value (batch, heads, places, elements) in the layout of the inputs."""
        if self.input_layout == "BNSD":
            return value
        return op.Reshape(op.Transpose(value, perm=[0, 2, 1, 3]), (0, 0, -1))

    def parts(self, query: Value, key: Value, value: Value) -> tuple[Value, Value, Value]:
        """Return query, key and value, the last two with a head for each of the query's."""
        q = self.split(query, self.head_num)
        return q, self._repeated(key, self.head_size), self._repeated(value, self.value_size)

    def _repeated(self, value: Value, size: int) -> Value:
        value = self.split(value, self.kv_head_num)
        if self.head_num == self.kv_head_num:
            return value
        copies = (1, 1, self.head_num // self.kv_head_num, 1, 1)
        return op.Reshape(op.Tile(op.Unsqueeze(value, (2,)), copies), (0, self.head_num, -1, size))

    def summed(self, gradient: Value, size: int) -> Value:
        """Return the gradient of key or value, summed over its copies."""
        if self.head_num != self.kv_head_num:
            groups = (0, self.kv_head_num, self.head_num // self.kv_head_num, -1, size)
            gradient = op.ReduceSum(op.Reshape(gradient, groups), (2,), keepdims=0)
        return self.joined(gradient)

    def scores(self, q: Value, k: Value, shift: Value, mask: Value) -> tuple[Value, Value | None]:
        """Return the scores, and the derivative of their soft limit (None without ``softcap``)."""
        scores, slope = op.MatMul(q, _turned(k)), None
        if self.softcap:
            level = op.Tanh(scores / self.softcap)
            scores, slope = level * self.softcap, 1.0 - level * level
        if self.has_shift:
            scores = scores + shift
        return self.masked(scores, mask, _LOWEST), slope

    def masked(self, scores: Value, mask: Value, number: float) -> Value:
        """Return scores, or their gradient, with a number at masked places."""
        masks = [mask] if self.has_mask else []
        if self.is_causal:
            rows, columns = (
                op.Range(0, op.Squeeze(op.Shape(scores, start=axis, end=axis + 1), (0,)), 1)
                for axis in (2, 3)
            )
            masks.append(op.Unsqueeze(columns, (0,)) > op.Unsqueeze(rows, (1,)))
        for each in masks:
            scores = op.Where(each, number, scores)
        return scores


def _turned(matrices: Value) -> Value:
    return op.Transpose(matrices, perm=[0, 1, 3, 2])


@operator("FlashAttentionScore")
def flash_attention_score(
    query: Value,
    key: Value,
    value: Value,
    real_shift: Value,
    _drop_mask: Value,
    _padding_mask: Value,
    attn_mask: Value,
    *,
    scale_value: float,
    **structure: Any,
) -> tuple[Value, Value, Value, Value]:
    """Return softmax(scale query key^T + shift) value.

    The other results are the maximum and the sum of each row, eight times, and one that the vendor's kernel
    does not use. ``attn_mask`` is true where nothing is attended to. A row that attends to no place is zero,
    as ONNX defines it, and the vendor's kernel with ``inner_precise`` 2. Its maximum is 0 and its sum 1 here,
    so that its gradient is zero, too.
    """
    heads = _Attention(**structure)
    q, k, v = heads.parts(query, key, value)
    scores, _ = heads.scores(q * scale_value, k, real_shift, attn_mask)
    highest = op.ReduceMax(scores, (-1,), keepdims=1)
    is_empty = op.LessOrEqual(op.Cast(highest, to=FLOAT32.onnx), np.array(_LOWEST, np.float32))
    highest = op.Where(is_empty, 0.0, highest)
    powers = op.Exp(scores - highest)
    total = op.Where(is_empty, 1.0, op.ReduceSum(powers, (-1,), keepdims=1))
    attention = heads.joined(op.MatMul(powers / total, v))
    copies = (1, 1, 1, _COPIES)
    return op.Tile(highest, copies), op.Tile(total, copies), op.Expand(0.0, (1,)), attention


@operator("FlashAttentionScoreGrad")
def flash_attention_score_grad(
    query: Value,
    key: Value,
    value: Value,
    dy: Value,
    pse_shift: Value,
    _drop_mask: Value,
    _padding_mask: Value,
    attn_mask: Value,
    softmax_max: Value,
    softmax_sum: Value,
    _softmax_in: Value,
    attention_in: Value,
    *,
    scale_value: float,
    **structure: Any,
) -> tuple[Value, ...]:
    """Return the gradients of query, key and value, and of the shift where there is one."""
    heads = _Attention(**structure)
    q, k, v = heads.parts(query, key, value)
    scores, slope = heads.scores(q * scale_value, k, pse_shift, attn_mask)
    highest, total = (op.Slice(item, (0,), (1,), (3,)) for item in (softmax_max, softmax_sum))
    shares = op.Exp(scores - highest) / total
    dattention, out = (heads.split(item, heads.head_num) for item in (dy, attention_in))
    dshares = op.MatMul(dattention, _turned(v))
    level = op.ReduceSum(dattention * out, (-1,), keepdims=1)
    dshift = heads.masked(shares * (dshares - level), attn_mask, 0.0)
    dscores = dshift if slope is None else dshift * slope
    dq = op.MatMul(dscores, k) * scale_value
    dk = op.MatMul(_turned(dscores), q) * scale_value
    dv = op.MatMul(_turned(shares), dattention)
    results = (heads.joined(dq), heads.summed(dk, heads.head_size), heads.summed(dv, heads.value_size))
    return (*results, dshift) if heads.has_shift else results


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
    statistics = query.shaped((query.shape[0], heads, query.shape[-2], _COPIES))
    op.call(
        "FlashAttentionScore",
        *(query, key, value, shift, None, None, mask),
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
    dq, dk, dv, *dshift = op.call(
        "FlashAttentionScoreGrad",
        *(query, key, value, dy, shift, None, None, mask, highest, total, rest, attention),
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
