"""The layers of networks that several ranks share: MindSpore's collectives, and parts of weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnxscript import OpBuilder, nn

from sample_nets.tracing import Initializer

DOMAIN: Final = "mindspore.ops"
_FLOAT: Final = 1  # ONNX's number of float32


def part(initializer: Initializer, size: int, axis: int, rank: int, ranks: int) -> Initializer:
    """Return an initializer of a rank's part of a weight: that of the whole weight, cut along an axis.

    Args:
        initializer: Makes the whole weight.
        size: Size of the axis in the whole weight.
        axis: The axis.
        rank: Which part is meant.
        ranks: Number of parts.
    """

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        whole = initializer(generator, (*shape[:axis], size, *shape[axis + 1 :]))
        return np.split(whole, ranks, axis)[rank]

    return draw


class AllReduce(nn.Module):
    """The sum of the tensors of all ranks."""

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Add the tensors of all ranks."""
        return op.AllReduce(x, op="sum", _domain=DOMAIN, _version=1)


class AllGather(nn.Module):
    """The tensors of all ranks, joined along the first axis."""

    def __init__(self, ranks: int) -> None:
        """Keep the number of ranks."""
        super().__init__()
        self.ranks = ranks

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Join the tensors of all ranks."""
        return op.AllGather(x, rank_size=self.ranks, _domain=DOMAIN, _version=1)


class Send(nn.Module):
    """A tensor goes to another rank."""

    def __init__(self, rank: int) -> None:
        """Keep the rank that it goes to."""
        super().__init__()
        self.rank = rank

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Send a tensor and return it unchanged."""
        return op.Send(x, dest_rank=self.rank, sr_tag=0, _domain=DOMAIN, _version=1)


class Receive(nn.Module):
    """A tensor comes from another rank."""

    def __init__(self, rank: int, shape: tuple[int, ...]) -> None:
        """Keep the rank that it comes from, and its shape."""
        super().__init__()
        self.rank = rank
        self.shape = shape

    def forward(self, op: OpBuilder) -> Any:
        """Receive a tensor."""
        attributes = {"src_rank": self.rank, "sr_tag": 0, "shape": self.shape, "dtype": _FLOAT}
        return op.Receive(**attributes, _domain=DOMAIN, _version=1)
