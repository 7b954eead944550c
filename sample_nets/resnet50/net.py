"""ResNet-50: four stages of residual blocks."""

from __future__ import annotations

from typing import Any, Final

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import BatchNorm2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU, SequentialCell

STAGES: Final = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Blocks, inner channels and stride of each stage."""
EXPANSION: Final = 4


class ResidualBlock(nn.Module):
    """Three convolutions beside a short cut."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        """Make the layers; the short cut has its own where the shapes differ."""
        super().__init__()
        channels_out = width * EXPANSION
        self.conv1 = Conv2d(channels_in, width, 1)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = Conv2d(width, width, 3, stride=stride, pad=1)
        self.bn2 = BatchNorm2d(width)
        self.conv3 = Conv2d(width, channels_out, 1)
        # A small scale: the sum of many blocks stays near the size of its input.
        self.bn3 = BatchNorm2d(channels_out, gamma=0.3)
        self.relu = ReLU()
        self.down_sample_layer = None
        if stride != 1 or channels_in != channels_out:
            self.down_sample_layer = SequentialCell(
                Conv2d(channels_in, channels_out, 1, stride=stride), BatchNorm2d(channels_out, gamma=0.7)
            )

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map (N, C, H, W) to (N, 4 * width, H / stride, W / stride)."""
        identity = x
        x = self.relu(op, self.bn1(op, self.conv1(op, x)))
        x = self.relu(op, self.bn2(op, self.conv2(op, x)))
        x = self.bn3(op, self.conv3(op, x))
        if self.down_sample_layer is not None:
            identity = self.down_sample_layer(op, identity)
        x = op.Add(x, identity)
        return self.relu(op, x)


class ResNet(nn.Module):
    """The stem, the stages and the classifier."""

    def __init__(self, num_classes: int = 1000) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1 = Conv2d(3, 64, 7, stride=2, pad=3)
        self.bn1 = BatchNorm2d(64)
        self.relu = ReLU()
        self.maxpool = MaxPool2d(kernel_size=3, stride=2, pad=1)
        self.layer1 = _stage(64, *STAGES[0])
        self.layer2 = _stage(256, *STAGES[1])
        self.layer3 = _stage(512, *STAGES[2])
        self.layer4 = _stage(1024, *STAGES[3])
        self.flatten = Flatten()
        self.end_point = Dense(2048, num_classes)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 3, 224, 224) to scores (N, classes)."""
        x = self.relu(op, self.bn1(op, self.conv1(op, x)))
        x = self.maxpool(op, x)
        x = self.layer1(op, x)
        x = self.layer2(op, x)
        x = self.layer3(op, x)
        x = self.layer4(op, x)
        x = op.ReduceMean(x, [2, 3], keepdims=1)
        x = self.flatten(op, x)
        return self.end_point(op, x)


def network() -> ResNet:
    """Return the network."""
    return ResNet()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 3, 224, 224]),)


def _stage(channels_in: int, count: int, width: int, stride: int) -> SequentialCell:
    first = ResidualBlock(channels_in, width, stride)
    rest = [ResidualBlock(width * EXPANSION, width, 1) for _ in range(count - 1)]
    return SequentialCell(first, *rest)
