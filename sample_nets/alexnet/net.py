"""AlexNet, layer by layer the one of MindSpore's dump documentation."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import Conv2d, Dense, Flatten, MaxPool2d, ReLU, truncated_normal


def conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1, pad: int = 0) -> Conv2d:
    """Return a convolution with the sample's weights."""
    weight = truncated_normal(0.02)
    return Conv2d(channels_in, channels_out, kernel, stride=stride, pad=pad, weight_init=weight)


def fc_with_initialize(size_in: int, size_out: int) -> Dense:
    """Return a dense layer with the sample's weights."""
    return Dense(size_in, size_out, truncated_normal(0.02))


class AlexNet(nn.Module):
    """Five convolutions, three dense layers, one ReLU and one pooling used again and again."""

    def __init__(self, num_classes: int = 10, channel: int = 3) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = conv(channel, 96, 11, stride=4)
        self.conv2 = conv(96, 256, 5, pad=2)
        self.conv3 = conv(256, 384, 3, pad=1)
        self.conv4 = conv(384, 384, 3, pad=1)
        self.conv5 = conv(384, 256, 3, pad=1)
        self.relu = ReLU()
        self.max_pool2d = MaxPool2d(kernel_size=3, stride=2)
        self.flatten = Flatten()
        self.fc1 = fc_with_initialize(6 * 6 * 256, 4096)
        self.fc2 = fc_with_initialize(4096, 4096)
        self.fc3 = fc_with_initialize(4096, num_classes)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 3, 227, 227) to scores (N, classes)."""
        x = self.conv1(op, x)
        x = self.relu(op, x)
        x = self.max_pool2d(op, x)
        x = self.conv2(op, x)
        x = self.relu(op, x)
        x = self.max_pool2d(op, x)
        x = self.conv3(op, x)
        x = self.relu(op, x)
        x = self.conv4(op, x)
        x = self.relu(op, x)
        x = self.conv5(op, x)
        x = self.relu(op, x)
        x = self.max_pool2d(op, x)
        x = self.flatten(op, x)
        x = self.fc1(op, x)
        x = self.relu(op, x)
        x = self.fc2(op, x)
        x = self.relu(op, x)
        return self.fc3(op, x)


def network() -> AlexNet:
    """Return the network."""
    return AlexNet()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 3, 227, 227]),)
