"""The class indices among a network's inputs: which they are, and how many classes there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import MINDSPORE_DOMAIN

_CLASS_AXES: Final = {
    (MINDSPORE_DOMAIN, "SparseSoftmaxCrossEntropyWithLogits"): -1,
    ("", "SoftmaxCrossEntropyLoss"): 1,
    ("", "NegativeLogLikelihoodLoss"): 1,
}
"""Losses of logits and class indices, and the axis of the logits that counts the classes."""

_PASSING: Final = frozenset({"Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators whose output holds the numbers of their first input."""


def class_counts(graph: Graph) -> dict[str, int]:
    """Return the number of classes of each input that holds class indices; of several the smallest."""
    sources = {
        node.outputs[0]: node.inputs[0]
        for node in graph.nodes
        if node.op_type in _PASSING and node.inputs and node.outputs
    }
    counts: dict[str, int] = {}
    for name, count in _labels(graph):
        origin = name
        while origin in sources:
            origin = sources[origin]
        counts[origin] = min(count, counts.get(origin, count))
    return {value.name: counts[value.name] for value in graph.inputs if value.name in counts}


def _labels(graph: Graph) -> Iterator[tuple[str, int]]:
    """Yield the values that losses take for class indices, and the number of classes of each."""
    for node in graph.nodes:
        count = _class_count(graph, node)
        if count is not None:
            yield node.inputs[1], count


def _class_count(graph: Graph, node: Node) -> int | None:
    axis = _CLASS_AXES.get((node.domain, node.op_type))
    shape = graph.type_of(node.inputs[0]).shape if axis is not None else None
    if axis is None or shape is None or not -len(shape) <= axis < len(shape):
        return None
    size = shape[axis]
    return size if isinstance(size, int) and size > 0 else None
