"""The smallest network with a convolution and a dense layer: quick, and easy to read in a dump."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import Conv2d, Dense, Flatten, ReLU


class Mini(nn.Module):
    """One convolution and one dense layer."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = Conv2d(1, 2, 3)
        self.relu = ReLU()
        self.flatten = Flatten()
        self.fc = Dense(2 * 4 * 4, 3)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 6, 6) to scores (N, 3)."""
        x = self.relu(op, self.conv1(op, x))
        x = self.flatten(op, x)
        return self.fc(op, x)


def network() -> Mini:
    """Return the network."""
    return Mini()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 6, 6]),)
