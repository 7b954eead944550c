"""A BERT-like encoder: embeddings, twelve transformer layers, a pooler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import GELU, CellList, Dense, Embedding, LayerNorm, truncated_normal
from sample_nets.tracing import parameter


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of the encoder.

    Attributes:
        vocabulary: Number of tokens.
        sequence: Tokens per example.
        hidden: Length of a token's vector.
        heads: Attention heads; they share ``hidden``.
        layers: Number of transformer layers.
    """

    vocabulary: int = 30522
    sequence: int = 128
    hidden: int = 768
    heads: int = 12
    layers: int = 12


class BertEmbeddings(nn.Module):
    """The sum of word, position and segment vectors, normalised."""

    def __init__(self, config: BertConfig) -> None:
        """Make the tables."""
        super().__init__()
        self.word_embeddings = Embedding(config.vocabulary, config.hidden)
        self.token_type_embeddings = Embedding(2, config.hidden)
        self.position_embeddings = parameter((config.sequence, config.hidden), truncated_normal(0.02))
        self.layernorm = LayerNorm(config.hidden)

    def forward(self, op: OpBuilder, input_ids: Any, token_type_ids: Any) -> Any:
        """Map ids (N, sequence) to vectors (N, sequence, hidden)."""
        words = self.word_embeddings(op, input_ids)
        types = self.token_type_embeddings(op, token_type_ids)
        x = op.Add(words, types)
        x = op.Add(x, self.position_embeddings)
        return self.layernorm(op, x)


class BertSelfAttention(nn.Module):
    """Scaled dot products of every token with every other."""

    def __init__(self, config: BertConfig) -> None:
        """Make the projections."""
        super().__init__()
        init = truncated_normal(1.0 / config.hidden**0.5)
        self.query_layer = Dense(config.hidden, config.hidden, init)
        self.key_layer = Dense(config.hidden, config.hidden, init)
        self.value_layer = Dense(config.hidden, config.hidden, init)
        self.split = [0, 0, config.heads, config.hidden // config.heads]
        self.merged = [0, 0, config.hidden]
        self.scale = (config.hidden / config.heads) ** -0.5

    def forward(self, op: OpBuilder, x: Any, mask: Any) -> Any:
        """Map (N, sequence, hidden); the mask (N, 1, 1, sequence) is added to the scores."""
        query = op.Transpose(op.Reshape(self.query_layer(op, x), self.split), perm=[0, 2, 1, 3])
        key = op.Transpose(op.Reshape(self.key_layer(op, x), self.split), perm=[0, 2, 3, 1])
        value = op.Transpose(op.Reshape(self.value_layer(op, x), self.split), perm=[0, 2, 1, 3])
        scores = op.Mul(op.MatMul(query, key), self.scale)
        weights = op.Softmax(op.Add(scores, mask), axis=-1)
        context = op.Transpose(op.MatMul(weights, value), perm=[0, 2, 1, 3])
        return op.Reshape(context, self.merged)


class BertOutput(nn.Module):
    """A dense layer, the short cut and a normalisation."""

    def __init__(self, size_in: int, hidden: int) -> None:
        """Make the layers."""
        super().__init__()
        self.dense = Dense(size_in, hidden, truncated_normal(1.0 / size_in**0.5))
        self.layernorm = LayerNorm(hidden)

    def forward(self, op: OpBuilder, x: Any, short_cut: Any) -> Any:
        """Map (N, sequence, in) to (N, sequence, hidden)."""
        x = op.Add(self.dense(op, x), short_cut)
        return self.layernorm(op, x)


class BertEncoderCell(nn.Module):
    """Attention and a dense layer four times as wide, each with its short cut."""

    def __init__(self, config: BertConfig) -> None:
        """Make the layers."""
        super().__init__()
        wide = 4 * config.hidden
        self.attention = BertSelfAttention(config)
        self.attention_output = BertOutput(config.hidden, config.hidden)
        self.intermediate = Dense(config.hidden, wide, truncated_normal(1.0 / config.hidden**0.5))
        self.gelu = GELU()
        self.output = BertOutput(wide, config.hidden)

    def forward(self, op: OpBuilder, x: Any, mask: Any) -> Any:
        """Map (N, sequence, hidden)."""
        attended = self.attention(op, x, mask)
        x = self.attention_output(op, attended, x)
        wide = self.gelu(op, self.intermediate(op, x))
        return self.output(op, wide, x)


class BertModel(nn.Module):
    """The encoder with its two usual results."""

    def __init__(self, config: BertConfig) -> None:
        """Make the layers."""
        super().__init__()
        self.embeddings = BertEmbeddings(config)
        self.layers = CellList(*(BertEncoderCell(config) for _ in range(config.layers)))
        self.pooler = Dense(config.hidden, config.hidden, truncated_normal(0.02))

    def forward(self, op: OpBuilder, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        """Return the vectors (N, sequence, hidden) and the pooled first one (N, hidden)."""
        mask = op.Cast(op.Unsqueeze(attention_mask, [1, 2]), to=ir.DataType.FLOAT)
        mask = op.Mul(op.Sub(1.0, mask), -10000.0)
        x = self.embeddings(op, input_ids, token_type_ids)
        x = self.layers(op, x, mask)
        first = op.Gather(x, 0, axis=1)
        return x, op.Tanh(self.pooler(op, first))


OUTPUTS = ("last_hidden_state", "pooler_output")


def network(config: BertConfig | None = None) -> BertModel:
    """Return the network, by default with BERT-base's sizes."""
    return BertModel(config or BertConfig())


def inputs(batch: int | str, config: BertConfig | None = None) -> tuple[ir.Value, ...]:
    """Return the graph inputs, all int64 (batch, sequence)."""
    shape = [batch, (config or BertConfig()).sequence]
    names = ("input_ids", "attention_mask", "token_type_ids")
    return tuple(ir.val(name, ir.DataType.INT64, shape) for name in names)
