"""LeNet-5 for digits."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import Conv2d, Dense, Flatten, MaxPool2d, ReLU


class LeNet5(nn.Module):
    """Two convolutions and three dense layers."""

    def __init__(self, channels: tuple[int, int] = (6, 16), hidden: tuple[int, int] = (120, 84)) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = Conv2d(1, channels[0], 5)
        self.conv2 = Conv2d(channels[0], channels[1], 5)
        self.relu = ReLU()
        self.max_pool2d = MaxPool2d(kernel_size=2, stride=2)
        self.flatten = Flatten()
        self.fc1 = Dense(channels[1] * 5 * 5, hidden[0])
        self.fc2 = Dense(hidden[0], hidden[1])
        self.fc3 = Dense(hidden[1], 10)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 32, 32) to scores (N, 10)."""
        x = self.max_pool2d(op, self.relu(op, self.conv1(op, x)))
        x = self.max_pool2d(op, self.relu(op, self.conv2(op, x)))
        x = self.flatten(op, x)
        x = self.relu(op, self.fc1(op, x))
        x = self.relu(op, self.fc2(op, x))
        return self.fc3(op, x)


def network() -> LeNet5:
    """Return the network."""
    return LeNet5()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 32, 32]),)
