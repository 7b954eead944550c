"""How graph files of a training step tell forward operators from gradient operators.

A forward operator bears a number, and each operator of its gradient names it: the attributes that MindSpore
calls primal. Optimizers and sums of gradients bear none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads

FORWARD_LINES: Final = "      # Corresponding forward node candidate:"
"""Stands above the source lines of a gradient operator, which are those of its forward operator."""


def primal_attributes(graph: Graph) -> dict[str, Mapping[str, str]]:
    """Return the primal attributes of operators, by node name; nothing for a graph that trains nothing."""
    if not graph.bindings:
        return {}
    forward = _forward(graph)
    numbers = {part.name: (node, number) for number, node in forward.items() for part in (node, *node.parts)}
    attributes: dict[str, Mapping[str, str]] = {
        node.name: {"unique_id": str(number)} for number, node in forward.items()
    }
    for node in graph.nodes:
        if node.forward in numbers:
            origin, number = numbers[node.forward]
            attributes[node.name] = {
                "forward_node_name": f"{origin.operator.op_type}_{number}",
                "forward_unique_id": str(number),
            }
    return attributes


def _forward(graph: Graph) -> dict[int, Node]:
    """Return the forward operators by position: what the results need and no gradient has a part in."""
    after_gradient: set[str] = set()
    for node in graph.nodes:
        if node.forward or not after_gradient.isdisjoint(reads(node)):
            after_gradient.update(filter(None, node.outputs))
    needed = {value.name for value in graph.results}
    forward = {}
    for position, node in reversed(list(enumerate(graph.nodes))):
        if not needed.isdisjoint(node.outputs):
            needed.update(reads(node))
            if after_gradient.isdisjoint(node.outputs):
                forward[position] = node
    return forward
