"""ATen's fused attention operators, decomposed into plain ones, which the ONNX exporter knows.

``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` use them for inference.
"""
# ruff: noqa: FBT001, FBT002, PLR0917 - the operators' own parameters

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

_aten = torch.ops.aten

_OF_KEYS: Final = 1
"""``mask_type`` of a mask (batch, key); others broadcast to (batch, head, query, key)."""


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return an encoder layer's output (batch, position, feature): attention and a feed-forward network.

    Each has a residual connection and a layer normalisation, before it (``norm_first``) or behind it.
    """

    def norm_1(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + forward(x))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the projected output (batch, position, feature) and the attention weights.

    The weights are (batch, query, key), with ``average_attn_weights`` false (batch, head, query, key), and
    an empty tensor where none are needed.
    """
    # query, key and value have their weights, and biases, in one tensor each
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (_heads(functional.linear(x, weight, bias), num_head) for x, weight, bias in parts)
    scores = (q / math.sqrt(embed_dim // num_head)) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = mask[:, None, None, :] if mask_type == _OF_KEYS else mask
        scores = scores.masked_fill(hidden.to(torch.bool), -math.inf)
    weights = scores.softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    projected = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return projected, query.new_empty([0])
    return projected, weights.mean(1) if average_attn_weights else weights


def _heads(x: Tensor, number: int) -> Tensor:
    """Return features (batch, position, feature) split as (batch, head, position, feature of the head)."""
    return x.unflatten(-1, (number, -1)).transpose(1, 2)


DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    _aten._transformer_encoder_layer_fwd.default: encoder_layer,  # noqa: SLF001 - torch's name
    _aten._native_multi_head_attention.default: attention,  # noqa: SLF001 - torch's name
}
"""Operator -> the function that is exported in its place."""
