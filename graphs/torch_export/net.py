"""The PyTorch network that ``export.py`` exports."""  # noqa: INP001 - a sample, not a package

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels: int) -> None:
        """Make the layers."""
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        return self.relu(x + self.conv(x))


class Net(nn.Module):
    """A convolution, two blocks, a mean and a dense layer."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.layers = nn.Sequential(Block(4), Block(4))
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (N, 1, 8, 8) to scores (N, 3)."""
        x = self.stem(x)
        x = self.layers(x)
        x = self.pool(x)
        x = x.mean((2, 3))
        return self.fc(x)


def make_net() -> nn.Module:
    """Return the network with the weights of ``torch_export.onnx``."""
    torch.manual_seed(0)
    return Net().eval()
