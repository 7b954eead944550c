"""What initializers are to the operators that read them, where they are no weights to be trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msdump.graph.graph import Graph

Slots = Mapping[str, tuple[int, ...]]

_STATE: Final[Slots] = {
    "BatchNormalization": (3, 4),  # moving statistics
    "RotaryEmbedding": (1, 2, 3),  # cosines and sines, onnxruntime's behind the positions
    "Attention": (3,),  # the mask
}

_SETTINGS: Final[Slots] = {
    "Dropout": (1,),
    "Resize": (1, 2),
}


def untrained(graph: Graph) -> frozenset[str]:
    """Return the values that no gradient is asked of: state and tables of operators."""
    return _read(graph, _STATE)


def settings(graph: Graph) -> frozenset[str]:
    """Return the floating-point values that are numbers of the program: scales of Resize, ratios."""
    return _read(graph, _SETTINGS)


def _read(graph: Graph, slots: Slots) -> frozenset[str]:
    return frozenset(
        name
        for node in graph.nodes
        for slot in slots.get(node.op_type, ())
        for name in node.inputs[slot : slot + 1]
        if name
    )
