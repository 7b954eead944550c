"""A network with a kernel that writes past its output and overwrites the next tensor in memory.

The fault is the emulated device's: a node's metadata says how many bytes its kernel
overwrites. Without emulated device memory the model is right.
"""

from __future__ import annotations

from typing import Any, Final

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import Dense, Flatten, LayerNorm, he_normal

STOMP: Final = "msdump.stomp"
STOMPED_BYTES: Final = 16


class Gate(nn.Module):
    """Weights that add up to one, times their norm; the norm's kernel overwrites the first weights."""

    def __init__(self, size: int) -> None:
        """Make the norm."""
        super().__init__()
        self.norm = LayerNorm(size)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Weigh the last dimension."""
        weights = op.Softmax(x)
        norm = self.norm(op, weights)
        norm.producer().metadata_props[STOMP] = str(STOMPED_BYTES)
        return op.Mul(weights, norm)


class StompNet(nn.Module):
    """Two dense layers with a gate between them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.flatten = Flatten()
        self.fc1 = Dense(16 * 16, 128, he_normal(256, gain=20))
        self.gate = Gate(128)
        self.fc2 = Dense(128, 3)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 16, 16) to scores (N, 3)."""
        x = self.fc1(op, self.flatten(op, x))
        return self.fc2(op, self.gate(op, x))


def network() -> StompNet:
    """Return the network."""
    return StompNet()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 16, 16]),)
