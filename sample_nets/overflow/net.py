"""A network that is sound in float32 and bfloat16 and loses its result in float16."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import Dense, Flatten, ReLU, he_normal, uniform
from sample_nets.tracing import parameter


class RMSNorm(nn.Module):
    """A division by the root mean square; squares of numbers from 256 on overflow in float16."""

    def __init__(self, size: int) -> None:
        """Make the scale."""
        super().__init__()
        self.gamma = parameter((size,), uniform(0.8, 1.2))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Normalise the last dimension."""
        squares = op.Mul(x, x)
        mean = op.ReduceMean(squares, [-1], keepdims=1)
        root = op.Sqrt(op.Add(mean, 1e-6))
        return op.Mul(op.Div(x, root), self.gamma)


class OverflowNet(nn.Module):
    """Two dense layers; a norm between them sees activations of some hundreds."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.flatten = Flatten()
        self.fc1 = Dense(16 * 16, 64, he_normal(256, gain=2.0e5))
        self.relu = ReLU()
        self.norm = RMSNorm(64)
        self.fc2 = Dense(64, 3)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 16, 16) to scores (N, 3)."""
        x = self.flatten(op, x)
        x = self.relu(op, self.fc1(op, x))
        x = self.norm(op, x)
        return self.fc2(op, x)


def network() -> OverflowNet:
    """Return the network."""
    return OverflowNet()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 16, 16]),)
