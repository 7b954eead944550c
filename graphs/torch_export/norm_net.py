"""A PyTorch network that is sound in float32 and not in float16; ``export.py`` exports it, too."""  # noqa: INP001 - a sample, not a package

from __future__ import annotations

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Divides by the root of the mean square, as many language models do."""

    def __init__(self, size: int) -> None:
        """Make the scale."""
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        squares = x * x
        return x / torch.sqrt(squares.mean(-1, keepdim=True) + 1e-6) * self.scale


class Block(nn.Module):
    """A feed-forward block behind a norm, added to its input."""

    def __init__(self, size: int) -> None:
        """Make the layers."""
        super().__init__()
        self.norm = RMSNorm(size)
        self.up = nn.Linear(size, 2 * size)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keep the shape."""
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Module):
    """A projection with outputs in the hundreds, a norm, two blocks and a dense layer."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.norm = RMSNorm(32)
        self.h = nn.Sequential(Block(32), Block(32))
        self.head = nn.Linear(32, 3)
        with torch.no_grad():
            self.embed.weight *= 300

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map vectors (N, 16) to scores (N, 3)."""
        return self.head(self.h(self.norm(self.embed(x))))
