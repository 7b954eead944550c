"""A perceptron in two stages, one on each rank: Send and Receive hand the features on."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.collectives import Receive, Send
from sample_nets.layers import Dense, Flatten, ReLU

_PIXELS, _HIDDEN, _SCORES = 64, 128, 10
_FIRST, _LAST = 0, 1


class Head(nn.Module):
    """The first stage: one dense layer."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.flatten = Flatten()
        self.fc1 = Dense(_PIXELS, _HIDDEN)
        self.relu = ReLU()

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 8, 8) to features (N, 128)."""
        return self.relu(op, self.fc1(op, self.flatten(op, x)))


class Tail(nn.Module):
    """The second stage: two dense layers."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.fc2 = Dense(_HIDDEN, _PIXELS)
        self.relu = ReLU()
        self.fc3 = Dense(_PIXELS, _SCORES)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map features (N, 128) to scores (N, 10)."""
        return self.fc3(op, self.relu(op, self.fc2(op, x)))


class Pipeline(nn.Module):
    """The stages of a rank, with the tensors to and from the other rank."""

    def __init__(self, rank: int, ranks: int, batch: int) -> None:
        """Make the stage of one of two ranks, or both stages of a rank alone."""
        super().__init__()
        self.has_head, self.has_tail = rank == _FIRST, ranks == 1 or rank == _LAST
        if self.has_head:
            self.head = Head()
        if self.has_tail:
            self.tail = Tail()
        self.send = Send(_LAST)
        self.receive = Receive(_FIRST, (batch, _HIDDEN))

    def forward(self, op: OpBuilder, *images: Any) -> Any:
        """Map images to scores, images to features for the other rank, or its features to scores."""
        features = self.head(op, *images) if self.has_head else self.receive(op)
        return self.tail(op, features) if self.has_tail else self.send(op, features)


def network(rank: int, ranks: int, batch: int) -> Pipeline:
    """Return the network of a rank."""
    return Pipeline(rank, ranks, batch)


def inputs(rank: int, batch: int) -> tuple[ir.Value, ...]:
    """Return the graph input ``x`` of the first rank; the second one has none."""
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 8, 8]),) if rank == _FIRST else ()
