"""A perceptron with weights split over the ranks: AllReduce and AllGather join the results."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnxscript import OpBuilder, nn

from sample_nets.collectives import AllGather, AllReduce, part
from sample_nets.layers import Flatten, ReLU, he_normal, uniform
from sample_nets.tracing import parameter

_PIXELS, _HIDDEN, _SCORES = 64, 128, 10


class ColumnParallelDense(nn.Module):
    """A dense layer of which each rank has some columns of the weight, and so some of the results."""

    def __init__(self, size_in: int, size_out: int, rank: int, ranks: int) -> None:
        """Make the rank's columns of the weight and its part of the bias."""
        super().__init__()
        weight, bias = he_normal(size_in), uniform(-0.1, 0.1)
        self.weight = parameter((size_in, size_out // ranks), part(weight, size_out, 1, rank, ranks))
        self.bias = parameter((size_out // ranks,), part(bias, size_out, 0, rank, ranks))

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map the last dimension to the rank's part of the results."""
        return op.Add(op.MatMul(x, self.weight), self.bias)


class RowParallelDense(nn.Module):
    """A dense layer of which each rank has some rows of the weight: the results of all ranks are added."""

    def __init__(self, size_in: int, size_out: int, rank: int, ranks: int) -> None:
        """Make the rank's rows of the weight, and the whole bias."""
        super().__init__()
        self.weight = parameter(
            (size_in // ranks, size_out), part(he_normal(size_in), size_in, 0, rank, ranks)
        )
        self.bias = parameter((size_out,), uniform(-0.1, 0.1))
        self.all_reduce = AllReduce()

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map the rank's part of the last dimension."""
        return op.Add(self.all_reduce(op, op.MatMul(x, self.weight)), self.bias)


class TensorParallelMLP(nn.Module):
    """Three dense layers, cut by columns, by rows, and by columns again."""

    def __init__(self, rank: int, ranks: int) -> None:
        """Make the layers of a rank."""
        super().__init__()
        self.flatten = Flatten()
        self.relu = ReLU()
        self.fc1 = ColumnParallelDense(_PIXELS, _HIDDEN, rank, ranks)
        self.fc2 = RowParallelDense(_HIDDEN, _PIXELS, rank, ranks)
        self.fc3 = ColumnParallelDense(_PIXELS, _SCORES, rank, ranks)
        self.all_gather = AllGather(ranks)

    def forward(self, op: OpBuilder, x: Any) -> Any:
        """Map images (N, 1, 8, 8) to scores (N, 10), the same on every rank."""
        x = self.relu(op, self.fc1(op, self.flatten(op, x)))
        x = self.relu(op, self.fc2(op, x))
        # AllGather joins along the first axis, the scores lie along the second one
        columns = op.Transpose(self.fc3(op, x), perm=[1, 0])
        return op.Transpose(self.all_gather(op, columns), perm=[1, 0])


def network(rank: int, ranks: int, batch: int) -> TensorParallelMLP:
    """Return the network of a rank."""
    del batch
    return TensorParallelMLP(rank, ranks)


def inputs(rank: int, batch: int) -> tuple[ir.Value, ...]:
    """Return the graph input ``x``, which every rank reads."""
    del rank
    return (ir.val("x", ir.DataType.FLOAT, [batch, 1, 8, 8]),)
