"""GPT-2 small with its language model head, cut into operators as exporters of PyTorch write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import CellList, Dense, Embedding, LayerNorm
from sample_nets.tracing import Initializer, parameter

_CUBE: Final = 0.044715
_ROOT: Final = 0.7978845608028654
"""Factors of the tangent's GELU."""

_MASKED: Final = -3.4e38


@dataclass(frozen=True, slots=True)
class Gpt2Config:
    """The sizes of the decoder.

    Attributes:
        vocabulary: Number of tokens.
        sequence: Tokens per example.
        hidden: Length of a token's vector.
        heads: Attention heads; they share ``hidden``.
        layers: Number of blocks.
        is_whole: Normalisations and GELUs are one operator each, as newer exporters write them.
    """

    vocabulary: int = 50257
    sequence: int = 128
    hidden: int = 768
    heads: int = 12
    layers: int = 12
    is_whole: bool = False

    def norm(self) -> nn.Module:
        """Return a normalisation."""
        return (LayerNorm if self.is_whole else DecomposedNorm)(self.hidden)


def normal(sigma: float) -> Initializer:
    """Return an initializer: normal values."""
    return lambda generator, shape: generator.standard_normal(shape, np.float32) * np.float32(sigma)


class DecomposedNorm(nn.Module):
    """A normalisation of the last dimension, in nine operators."""

    def __init__(self, size: int) -> None:
        """Make scale and shift."""
        super().__init__()
        self.weight = parameter((size,), normal(1.0))
        self.bias = parameter((size,), normal(0.1))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Normalise the last dimension."""
        centred = op.Sub(x, op.ReduceMean(x, [-1], keepdims=1))
        variance = op.ReduceMean(op.Pow(centred, 2.0), [-1], keepdims=1)
        scaled = op.Div(centred, op.Sqrt(op.Add(variance, 1e-5)))
        return op.Add(op.Mul(scaled, self.weight), self.bias)


class TanhGelu(nn.Module):
    """The Gaussian error linear unit by a tangent, in eight operators."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Apply it to every element."""
        inner = op.Mul(op.Add(x, op.Mul(op.Pow(x, 3.0), _CUBE)), _ROOT)
        return op.Mul(op.Mul(x, 0.5), op.Add(op.Tanh(inner), 1.0))


class WholeGelu(nn.Module):
    """The same in one operator."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Apply it to every element."""
        return op.Gelu(x, approximate="tanh")


class CausalAttention(nn.Module):
    """Scaled dot products of every token with the ones before it."""

    def __init__(self, config: Gpt2Config) -> None:
        """Make the projections."""
        super().__init__()
        self.c_attn = Dense(config.hidden, 3 * config.hidden, normal(0.02))
        self.c_proj = Dense(config.hidden, config.hidden, normal(0.02))
        self.split = [0, 0, config.heads, config.hidden // config.heads]
        self.merged = [0, 0, config.hidden]
        self.scale = (config.hidden / config.heads) ** 0.5

    def forward(self, op: OpBuilder, x: Any, mask: Any) -> Any:
        """Map (N, sequence, hidden); the mask (1, 1, sequence, sequence) hides later tokens."""
        query, key, value = op.Split(self.c_attn(op, x), num_outputs=3, axis=-1, _outputs=3)
        query = op.Transpose(op.Reshape(query, self.split), perm=[0, 2, 1, 3])
        key = op.Transpose(op.Reshape(key, self.split), perm=[0, 2, 3, 1])
        value = op.Transpose(op.Reshape(value, self.split), perm=[0, 2, 1, 3])
        scores = op.Where(mask, op.Div(op.MatMul(query, key), self.scale), _MASKED)
        context = op.MatMul(op.Softmax(scores, axis=-1), value)
        return self.c_proj(op, op.Reshape(op.Transpose(context, perm=[0, 2, 1, 3]), self.merged))


class Gpt2Block(nn.Module):
    """Attention and a dense layer four times as wide, each behind its normalisation."""

    def __init__(self, config: Gpt2Config) -> None:
        """Make the layers."""
        super().__init__()
        self.ln_1 = config.norm()
        self.attn = CausalAttention(config)
        self.ln_2 = config.norm()
        self.c_fc = Dense(config.hidden, 4 * config.hidden, normal(0.02))
        self.act = WholeGelu() if config.is_whole else TanhGelu()
        self.c_proj = Dense(4 * config.hidden, config.hidden, normal(0.02))

    def forward(self, op: OpBuilder, x: Any, mask: Any) -> Any:
        """Map (N, sequence, hidden)."""
        x = op.Add(x, self.attn(op, self.ln_1(op, x), mask))
        wide = self.act(op, self.c_fc(op, self.ln_2(op, x)))
        return op.Add(x, self.c_proj(op, wide))


class Gpt2(nn.Module):
    """Embeddings, blocks and the scores of the next token."""

    def __init__(self, config: Gpt2Config) -> None:
        """Make the layers."""
        super().__init__()
        self.wte = Embedding(config.vocabulary, config.hidden)
        self.wpe = parameter((config.sequence, config.hidden), normal(0.02))
        self.h = CellList(*(Gpt2Block(config) for _ in range(config.layers)))
        self.ln_f = config.norm()
        self.lm_head = parameter((config.hidden, config.vocabulary), normal(0.02))
        self.size = config.sequence

    def forward(self, op: OpBuilder, input_ids: Any) -> Any:
        """Map ids (N, sequence) to scores (N, sequence, vocabulary)."""
        seen = np.tril(np.ones((1, 1, self.size, self.size), np.float32))
        mask = op.Cast(op.Constant(value=ir.tensor(seen)), to=ir.DataType.BOOL)
        x = op.Add(self.wte(op, input_ids), self.wpe)
        x = self.ln_f(op, self.h(op, x, mask))
        return op.MatMul(x, self.lm_head)


def network(config: Gpt2Config | None = None) -> Gpt2:
    """Return the network, of GPT-2 small's sizes by default."""
    return Gpt2(config or Gpt2Config())


def inputs(batch: int, config: Gpt2Config | None = None) -> tuple[ir.Value, ...]:
    """Return the graph inputs, int64 (batch, sequence)."""
    return (ir.val("input_ids", ir.DataType.INT64, [batch, (config or Gpt2Config()).sequence]),)
