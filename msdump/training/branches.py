"""The bodies of branches while they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from msdump.training.symbols import StepOperator, StepTensor, info


@dataclass(frozen=True, slots=True)
class WrittenBody:
    """The body of a branch.

    Attributes:
        nodes: Its nodes in order.
        operators: Its operators.
    """

    nodes: list[onnx.NodeProto]
    operators: list[StepOperator]

    def graph(self, name: str, outputs: Sequence[StepTensor]) -> onnx.GraphProto:
        """Return it as a graph that gives some values."""
        inside = [info(tensor) for operator in self.operators for tensor in operator.outputs]
        return helper.make_graph(self.nodes, name, [], [info(item) for item in outputs], value_info=inside)


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of everything that nodes read, in their bodies as well."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from names_read(attribute.g.node)
