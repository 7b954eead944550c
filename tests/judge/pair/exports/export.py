"""Make the models beside this file: each network twice, by PyTorch's two exporters.

``pip install torch==2.13.0 onnxscript``, then ``python tests/judge/pair/exports/export.py``.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

HERE = Path(__file__).resolve().parent


class Attention(nn.Module):
    """Self-attention with one projection for queries, keys and values."""

    def __init__(self, width, heads):
        """Make the layers."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        """Keep the shape (batch, length, width)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width):
        """Make the layers."""
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, 2)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        """Keep the shape (batch, length, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Embeddings, two blocks and a head."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.tokens = nn.Embedding(20, 16)
        self.places = nn.Parameter(torch.randn(6, 16) * 0.02)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, ids):
        """Map ids (batch, 6) to scores (batch, 6, 20)."""
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.places)))


class Cnn(nn.Module):
    """Convolutions with batch normalization, a gate, a residual and a dense layer."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
        self.pool = nn.AvgPool2d(2)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        """Map images (batch, 3, 8, 8) to scores (batch, 5)."""
        x = self.stem(x)
        y = self.deep(x)
        x = self.pool(x + y * self.gate(y))
        return nn.functional.log_softmax(self.fc(torch.flatten(x, 1)), dim=-1)


NETWORKS = {
    "transformer": (Transformer, torch.arange(12).reshape(2, 6)),
    "cnn": (Cnn, torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)),
}


def export(name, *, dynamo):
    """Write a network's model as one of the exporters makes it."""
    torch.manual_seed(0)
    make, given = NETWORKS[name]
    network = make().eval()
    for parameter in network.parameters():  # biases of zeros and scales of ones would all be alike
        parameter.data += torch.randn_like(parameter) * 0.1
    path = HERE / f"{name}_{'dynamo' if dynamo else 'torchscript'}.onnx"
    options = {"external_data": False, "verbose": False} if dynamo else {"do_constant_folding": True}
    torch.onnx.export(
        network, (given,), str(path), dynamo=dynamo, opset_version=18, input_names=["given"], **options
    )
    model = onnx.load(path)
    for node in model.graph.node:  # stack traces name the folders of the machine
        kept = [entry for entry in node.metadata_props if "stack_trace" not in entry.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    path.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for each in NETWORKS:
        for is_dynamo in (True, False):
            export(each, dynamo=is_dynamo)
