"""What initializers are to the operators that read them: state, settings, or the scale of a normalisation."""

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

_SCALES_AND_SHIFTS: Final[Slots] = {
    "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "SkipLayerNormalization": (2, 3),
    "SkipSimplifiedLayerNormalization": (2,),
}


def untrained(graph: Graph) -> frozenset[str]:
    """Return the values that no gradient is asked of: state and tables of operators."""
    return _read(graph, _STATE)


def settings(graph: Graph) -> frozenset[str]:
    """Return the floating-point values that are numbers of the program: scales of Resize, ratios."""
    return _read(graph, _SETTINGS)


def scales_and_shifts(graph: Graph) -> frozenset[str]:
    """Return the weights that are scale or shift of a normalisation.

    MindSpore tells them by names, ``gamma`` or ``beta`` in them. Networks of PyTorch call them
    ``bn1.weight`` and ``bn1.bias``: what a normalisation reads as scale or shift counts as well.
    """
    named = {name for name in graph.weights if "gamma" in name or "beta" in name}
    return _read(graph, _SCALES_AND_SHIFTS) | named


def _read(graph: Graph, slots: Slots) -> frozenset[str]:
    return frozenset(
        name
        for node in graph.nodes
        for slot in slots.get(node.op_type, ())
        for name in node.inputs[slot : slot + 1]
        if name
    )
