"""Attention as MindSpore has it: one operator, FlashAttentionScore."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from msdump.errors import GraphError
from msdump.training.lowering import lowering
from msdump.training.lowerings.dense import multiplied
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter


def _optional(node: StepOperator, slot: int) -> StepTensor | None:
    return node.inputs[slot] if slot < len(node.inputs) else None


def _refuse(node: StepOperator, slots: dict[int, str], outputs: dict[int, str]) -> None:
    """Raise for inputs and outputs that only inference has."""
    present = [name for slot, name in slots.items() if _optional(node, slot) is not None]
    present += [name for slot, name in outputs.items() if node.output(slot) is not None]
    if present:
        raise GraphError(f"{node.place.path}/{node.op_type}: with {', '.join(present)} it has no gradient")


@lowering("Attention")
def _attention(op: StepWriter, node: StepOperator) -> None:
    _refuse(
        node,
        {4: "past_key", 5: "past_value", 6: "nonpad_kv_seqlen"},
        {1: "present_key", 2: "present_value", 3: "qk_matmul_output"},
    )
    query, key, value = (node.input(slot) for slot in range(3))
    mask = _optional(node, 3)
    is_bool = mask is not None and not mask.is_float
    score(
        op,
        (query, key, value),
        node.outputs[0],
        heads=node.attribute("q_num_heads", query.shape[1]),
        kv_heads=node.attribute("kv_num_heads", key.shape[1]),
        scale=node.attribute("scale", 0.0),
        shift=None if is_bool else mask,
        mask=op.Not(mask) if is_bool else None,
        is_causal=node.attribute("is_causal", 0),
        softcap=node.attribute("softcap", 0.0),
    )


def score(
    op: StepWriter,
    inputs: tuple[StepTensor, StepTensor, StepTensor],
    y: StepTensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float = 0.0,
    shift: StepTensor | None = None,
    mask: StepTensor | None = None,
    is_causal: int = 0,
    softcap: float = 0.0,
) -> None:
    """Write a FlashAttentionScore.

    Args:
        op: Writes it.
        inputs: Query, key and value, (batch, heads, places, elements) or (batch, places, all heads).
        y: The value that it writes.
        heads: Heads of the query.
        kv_heads: Heads of key and value.
        scale: Factor of the products; 0 for 1 / root of a head's size.
        shift: Is added to the products.
        mask: Where nothing is attended to, Bool.
        is_causal: Whether each place attends to none behind it.
        softcap: Limit of the products; 0 for none.
    """
    query, key, value = inputs
    is_split = query.rank == 4  # noqa: PLR2004 - batch, heads, places, elements
    (width,), (value_width,) = query.sizes_from(-1), value.sizes_from(-1)
    size = width if is_split else width // heads
    rows = (query.shape[0], heads, query.shape[-2], 8)
    statistics = StepTensor("", query.dtype, rows)
    op.call(
        "FlashAttentionScore",
        *(query, key, value, shift, None, None, mask),
        like=[statistics, statistics, StepTensor("", query.dtype, (1,)), y],
        outputs=[None, None, None, y],
        scale_value=float(scale or 1 / math.sqrt(size)),
        input_layout="BNSD" if is_split else "BSH",
        head_num=heads,
        kv_head_num=kv_heads,
        head_size=size,
        value_size=value_width if is_split else value_width // kv_heads,
        has_shift=int(shift is not None),
        has_mask=int(mask is not None),
        is_causal=int(is_causal),
        softcap=float(softcap),
    )


@lowering("MultiHeadAttention", domain="com.microsoft")
def _multi_head_attention(op: StepWriter, node: StepOperator) -> None:
    _refuse(node, {6: "past_key", 7: "past_value"}, {1: "present_key", 2: "present_value"})
    query, key, value = (node.input(slot) for slot in range(3))
    if query.rank != 3 or key.rank != 3:  # noqa: PLR2004 - batch, places, all heads
        raise GraphError(f"{node.place.path}/{node.op_type}: packed query, key and value have no gradient")
    bias = _optional(node, 3)
    parts = [query, key, value]
    if bias is not None:
        widths = [item.sizes_from(2)[0] for item in parts]
        pieces = op.Split(bias, widths, axis=0, outputs=3)
        parts = [op.Add(item, piece) for item, piece in zip(parts, pieces, strict=True)]
    _score_of_microsoft(op, node, parts, padding=4)


@lowering("Attention", domain="com.microsoft")
def _packed_attention(op: StepWriter, node: StepOperator) -> None:
    """Write the product with the weights of query, key and value, which lie side by side, and attention."""
    _refuse(node, {4: "past", 6: "past_sequence_length"}, {1: "present"})
    if node.attribute("do_rotary", 0):
        raise GraphError(f"{node.place.path}/{node.op_type}: with rotary embeddings it has no gradient")
    product, bias = multiplied(op, node.input(0), node.input(1)), _optional(node, 2)
    if bias is not None:
        product = op.Add(product, bias)
    (width,) = product.sizes_from(2)
    widths = list(node.attribute("qkv_hidden_sizes", (width // 3,) * 3))
    _score_of_microsoft(op, node, op.Split(product, widths, axis=2, outputs=3), padding=3)


def _score_of_microsoft(
    op: StepWriter, node: StepOperator, parts: Sequence[StepTensor], *, padding: int
) -> None:
    """Write attention of query, key and value.

    Args:
        op: Writes it.
        node: The operator that is replaced.
        parts: Query, key and value.
        padding: Slot of the mask of places, 0 where nothing is attended to.
    """
    query, key, value = parts
    places, mask, heads = _optional(node, padding), None, node.attributes["num_heads"]
    if places is not None:
        if places.rank != 2:  # noqa: PLR2004 - batch, places
            raise GraphError(f"{node.place.path}/{node.op_type}: a mask of lengths has no gradient")
        mask = op.Unsqueeze(op.Equal(places, np.zeros((), places.dtype.numpy)), (1, 2))
    score(
        op,
        (query, key, value),
        node.outputs[0],
        heads=heads,
        kv_heads=heads,
        scale=node.attribute("scale", 0.0),
        shift=_optional(node, 5),
        mask=mask,
        is_causal=node.attribute("unidirectional", 0),
    )
