"""MobileNetV2: inverted residual blocks with depthwise convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.layers import BatchNorm2d, Conv2d, Dense, Flatten, ReLU6, SequentialCell

BLOCKS: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, output channels, repetitions and first stride of each group of blocks."""


class ConvBNReLU(nn.Module):
    """A convolution, a normalisation and a ReLU6."""

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int, *, stride: int = 1, group: int = 1
    ) -> None:
        """Make the layers."""
        super().__init__()
        pad = kernel // 2
        conv = Conv2d(channels_in, channels_out, kernel, stride=stride, pad=pad, group=group)
        self.features = SequentialCell(conv, BatchNorm2d(channels_out), ReLU6())

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map (N, C, H, W)."""
        return self.features(op, x)


class InvertedResidual(nn.Module):
    """Widen, convolve each channel, narrow; add the input where the shapes agree."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, expansion: int) -> None:
        """Make the layers."""
        super().__init__()
        width = channels_in * expansion
        widen = [ConvBNReLU(channels_in, width, 1)] if expansion != 1 else []
        self.conv = SequentialCell(
            *widen,
            ConvBNReLU(width, width, 3, stride=stride, group=width),
            Conv2d(width, channels_out, 1),
            BatchNorm2d(channels_out),
        )
        self.adds_input = stride == 1 and channels_in == channels_out

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map (N, C, H, W)."""
        identity = x
        x = self.conv(op, x)
        return op.Add(identity, x) if self.adds_input else x


class MobileNetV2(nn.Module):
    """The stem, seventeen blocks and the classifier."""

    def __init__(self, num_classes: int = 1000) -> None:
        """Make the layers."""
        super().__init__()
        self.features = SequentialCell(ConvBNReLU(3, 32, 3, stride=2), *_blocks(32), ConvBNReLU(320, 1280, 1))
        self.flatten = Flatten()
        self.head = Dense(1280, num_classes)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 3, 224, 224) to scores (N, classes)."""
        x = self.features(op, x)
        x = op.ReduceMean(x, [2, 3], keepdims=1)
        x = self.flatten(op, x)
        return self.head(op, x)


def network() -> MobileNetV2:
    """Return the network."""
    return MobileNetV2()


def inputs(batch: int | str) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 3, 224, 224]),)


def _blocks(channels: int) -> Iterator[InvertedResidual]:
    for expansion, channels_out, count, first_stride in BLOCKS:
        for position in range(count):
            stride = first_stride if position == 0 else 1
            yield InvertedResidual(channels, channels_out, stride=stride, expansion=expansion)
            channels = channels_out
