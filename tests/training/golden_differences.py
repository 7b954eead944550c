"""All that differs between the reference's training dumps and ours, with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_BACKBONES = {"convbn": "ConvNet", "attention": "Classifier", "datasink": "Dense"}


@dataclass(frozen=True)
class Difference:
    """One difference; names are those of the execution order.

    ``~`` stands for the scope of the network, ``Default/network-WithLossCell/_backbone-MLP``.

    Attributes:
        reason: Why it is there.
        numbers: Names in the reference's execution order, by which its files call other operators of the
            scope: the name that the files have.
        names: The reference's names (in files), with ours.
        lacking: Slots that the reference alone has: operator, then slots, as patterns.
        shapes: Slots whose elements are the same in another shape.
        values: Slots whose values are not compared.
        apart: Graphs whose operators are not compared at all.
        histories: Our histories of graphs.
    """

    reason: str
    numbers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    histories: Mapping[str, list[str]] = field(default_factory=dict)


LAST_LAYER = (
    "all gradients of a function-style type lie under the last layer that uses it: ours under their own"
)
REBUILT = "a pass has rebuilt the node: the execution order counts the one that is gone"
VIEWS = "2.10's fault: a view, and who reads it, has the shape of the view's input"
UNWRITTEN = "the kernel does not write it: leftover memory"

LOST_LINES = "the reference's histories lose lines: it remembers the last iteration for all graphs together"
ALONE = "the network alone is a graph of inference, in ONNX's operators and its own scopes"

_GRAD = "Gradients/~"

DIFFERENCES = {
    "momentum": (
        Difference(
            LAST_LAYER,
            names={
                f"{_GRAD}/fc2-Dense/Grad_MatMul/MatMul-op1": f"{_GRAD}/fc1-Dense/Grad_MatMul/MatMul-op0",
                f"{_GRAD}/fc2-Dense/Grad_MatMul/MatMul-op2": f"{_GRAD}/fc2-Dense/Grad_MatMul/MatMul-op1",
                f"{_GRAD}/fc2-Dense/Grad_BiasAdd/BiasAddGrad-op1": (
                    f"{_GRAD}/fc1-Dense/Grad_BiasAdd/BiasAddGrad-op0"
                ),
            },
        ),
    ),
    "convbn": (
        Difference(
            LAST_LAYER,
            names={
                f"{_GRAD}/fc-Dense/Grad_BiasAdd/BiasAddGrad-op1": (
                    f"{_GRAD}/conv2-Conv2d/Grad_BiasAdd/BiasAddGrad-op0"
                ),
            },
        ),
        Difference(
            REBUILT,
            numbers={
                f"{_GRAD}/{name}-op1": f"{_GRAD}/{name}-op0"
                for name in (
                    "conv1-Conv2d/Grad_Conv2D/Conv2DBackpropFilter",
                    "conv2-Conv2d/Grad_Conv2D/Conv2DBackpropFilter",
                    "conv2-Conv2d/Grad_Conv2D/Conv2DBackpropInput",
                )
            },
        ),
        Difference(
            VIEWS,
            shapes=(
                "~/flatten-Flatten/Flatten-op0 output.0",
                "~/fc-Dense/MatMul-op0 input.0",
                f"{_GRAD}/fc-Dense/Grad_MatMul/MatMul-op1 input.1",
                f"{_GRAD}/flatten-Flatten/Grad_Flatten/Reshape-op0 output.0",
                f"{_GRAD}/relu-ReLU/Grad_ReLU/ReluGrad-op0 input.0",
            ),
        ),
        Difference(
            UNWRITTEN,
            values=(
                "~/bn1-BatchNorm2d/BatchNorm-op0 output.[12]",
                f"{_GRAD}/bn1-BatchNorm2d/Grad_BatchNorm/BatchNormGrad-op0 input.5",
            ),
        ),
        Difference(ALONE, apart=("1",)),
        Difference(LOST_LINES, histories={"0": ["0", "1"]}),
    ),
}


def whole(golden, name):
    """Return a name with the network's scope written out."""
    return name.replace("~", f"Default/network-WithLossCell/_backbone-{_BACKBONES.get(golden, 'MLP')}")


class Expected:
    """What differs in one golden, ready to be looked up by names in files."""

    def __init__(self, golden):
        """Read the rows of a golden."""
        rows = DIFFERENCES[golden]
        self.numbers = self._names(golden, [row.numbers for row in rows])
        self.names = self._names(golden, [row.names for row in rows])
        self.apart = [graph for row in rows for graph in row.apart]
        self.histories = {graph: listed for row in rows for graph, listed in row.histories.items()}
        self.lacking, self.shapes, self.values = (
            [
                re.compile(whole(golden, pattern).replace("/", "_"))
                for row in rows
                for pattern in getattr(row, column)
            ]
            for column in ("lacking", "shapes", "values")
        )

    @staticmethod
    def _names(golden, tables):
        return {
            whole(golden, theirs): whole(golden, ours) for table in tables for theirs, ours in table.items()
        }

    def row(self, name):
        """Return our name for a row of the reference's execution order."""
        in_files = self.numbers.get(name, name)
        return self.names.get(in_files, in_files)
