"""Attention as one operator, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from msdump.training.body import Body, operator

_COPIES = 8
"""How often MindSpore's operator repeats the maximum and the sum of each row."""

_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class _Heads:
    """How attention is cut into heads.

    Attributes:
        layout: ``BNSD`` (batch, heads, places, elements), or ``BSH``, whose heads lie side by side.
        heads: Heads of the query.
        kv_heads: Heads of key and value, each of which serves several of the query's.
        size: Elements of a head of the query and the key.
        value_size: Elements of a head of the value.
    """

    layout: str
    heads: int
    kv_heads: int
    size: int
    value_size: int

    def split(self, op: Body, value: str, heads: int) -> str:
        """Return a value (batch, heads, places, elements)."""
        if self.layout == "BNSD":
            return value
        return str(op.Transpose(op.Reshape(value, (0, 0, heads, -1)), perm=[0, 2, 1, 3]))

    def joined(self, op: Body, value: str) -> str:
        """Return a value (batch, heads, places, elements) in the layout of the inputs."""
        if self.layout == "BNSD":
            return value
        return str(op.Reshape(op.Transpose(value, perm=[0, 2, 1, 3]), (0, 0, -1)))

    def repeated(self, op: Body, value: str, size: int) -> str:
        """Return key or value with a head for each of the query's."""
        value = self.split(op, value, self.kv_heads)
        if self.heads == self.kv_heads:
            return value
        copies = op.Tile(op.Unsqueeze(value, (2,)), (1, 1, self.heads // self.kv_heads, 1, 1))
        return str(op.Reshape(copies, (0, self.heads, -1, size)))

    def summed(self, op: Body, gradient: str, size: int) -> str:
        """Return the gradient of what was repeated."""
        if self.heads != self.kv_heads:
            groups = (0, self.kv_heads, self.heads // self.kv_heads, -1, size)
            gradient = op.ReduceSum(op.Reshape(gradient, groups), (2,), keepdims=0)
        return self.joined(op, gradient)


@operator("FlashAttentionScore")
def flash_attention_score(
    op: Body,
    query: str,
    key: str,
    value: str,
    real_shift: str,
    _drop_mask: str,
    _padding_mask: str,
    attn_mask: str,
    *,
    scale_value: float,
    **structure: Any,
) -> tuple[str, str, str, str]:
    """Return softmax(scale query key^T + shift) value.

    The other results are the maximum and the sum of each row, eight times, and one that the vendor's kernel
    does not use. ``attn_mask`` is true where nothing is attended to.
    """
    heads, scoring = _Scoring.of(structure)
    q, k, v = _parts(op, heads, query, key, value)
    scores, _ = scoring.write(op, op.Mul(q, scale_value), k, real_shift, attn_mask)
    highest = op.ReduceMax(scores, (-1,), keepdims=1)
    powers = op.Exp(op.Sub(scores, highest))
    total = op.ReduceSum(powers, (-1,), keepdims=1)
    attention = heads.joined(op, op.MatMul(op.Div(powers, total), v))
    copies = (1, 1, 1, _COPIES)
    return op.Tile(highest, copies), op.Tile(total, copies), op.Expand(0.0, (1,)), attention


@operator("FlashAttentionScoreGrad")
def flash_attention_score_grad(
    op: Body,
    query: str,
    key: str,
    value: str,
    dy: str,
    pse_shift: str,
    _drop_mask: str,
    _padding_mask: str,
    attn_mask: str,
    softmax_max: str,
    softmax_sum: str,
    _softmax_in: str,
    attention_in: str,
    *,
    scale_value: float,
    **structure: Any,
) -> tuple[str, ...]:
    """Return the gradients of query, key and value, and of the shift where there is one."""
    heads, scoring = _Scoring.of(structure)
    q, k, v = _parts(op, heads, query, key, value)
    scores, slope = scoring.write(op, op.Mul(q, scale_value), k, pse_shift, attn_mask)
    highest, total = (op.Slice(item, (0,), (1,), (3,)) for item in (softmax_max, softmax_sum))
    shares = op.Div(op.Exp(op.Sub(scores, highest)), total)
    dattention, out = heads.split(op, dy, heads.heads), heads.split(op, attention_in, heads.heads)
    dshares = op.MatMul(dattention, _turned(op, v))
    level = op.ReduceSum(op.Mul(dattention, out), (-1,), keepdims=1)
    dshift = scoring.unmasked(op, op.Mul(shares, op.Sub(dshares, level)), attn_mask)
    dscores = op.Mul(dshift, slope) if slope else dshift
    dq = op.Mul(op.MatMul(dscores, k), scale_value)
    dk = op.Mul(op.MatMul(_turned(op, dscores), q), scale_value)
    dv = op.MatMul(_turned(op, shares), dattention)
    results = (
        heads.joined(op, dq),
        heads.summed(op, dk, heads.size),
        heads.summed(op, dv, heads.value_size),
    )
    return (*results, dshift) if scoring.has_shift else results


@dataclass(frozen=True, slots=True)
class _Scoring:
    """What is done to the products of query and key.

    Attributes:
        has_shift: Whether something is added, once they are limited.
        has_mask: Whether a mask takes some away.
        is_causal: Whether each place attends to none behind it.
        softcap: What they are limited by, smoothly; 0 for not at all.
    """

    has_shift: bool
    has_mask: bool
    is_causal: bool
    softcap: float

    @staticmethod
    def of(structure: dict[str, Any]) -> tuple[_Heads, _Scoring]:
        """Return heads and scoring from the operator's attributes."""
        names = ("head_num", "kv_head_num", "head_size", "value_size")
        heads = _Heads(structure["input_layout"], *(structure[name] for name in names))
        has_shift, has_mask, is_causal = (
            bool(structure[name]) for name in ("has_shift", "has_mask", "is_causal")
        )
        return heads, _Scoring(has_shift, has_mask, is_causal, structure["softcap"])

    def write(self, op: Body, q: str, k: str, shift: str, mask: str) -> tuple[str, str]:
        """Return the scores, and the slope of their limit, "" without one."""
        scores, slope = op.MatMul(q, _turned(op, k)), ""
        if self.softcap:
            level = op.Tanh(op.Div(scores, self.softcap))
            scores, slope = op.Mul(level, self.softcap), op.Sub(1.0, op.Mul(level, level))
        if self.has_shift:
            scores = op.Add(scores, shift)
        for masked in self._masks(op, scores, mask):
            scores = op.Where(masked, _LOWEST, scores)
        return scores, slope

    def unmasked(self, op: Body, gradient: str, mask: str) -> str:
        """Return the gradient of the scores before masks."""
        for masked in self._masks(op, gradient, mask):
            gradient = op.Where(masked, 0.0, gradient)
        return gradient

    def _masks(self, op: Body, scores: str, mask: str) -> list[str]:
        masks = [mask] if self.has_mask else []
        if self.is_causal:
            rows, columns = (
                op.Range(0, op.Squeeze(op.Shape(scores, start=axis, end=axis + 1), (0,)), 1)
                for axis in (2, 3)
            )
            masks.append(op.Greater(op.Unsqueeze(columns, (0,)), op.Unsqueeze(rows, (1,))))
        return masks


def _parts(op: Body, heads: _Heads, query: str, key: str, value: str) -> tuple[str, str, str]:
    return (
        heads.split(op, query, heads.heads),
        heads.repeated(op, key, heads.size),
        heads.repeated(op, value, heads.value_size),
    )


def _turned(op: Body, matrices: str) -> str:
    return str(op.Transpose(matrices, perm=[0, 1, 3, 2]))
