"""How many bytes values take, as far as that is known before they are made, and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from msdump.execute.initializers import packed
from msdump.execute.segments.cutting import MOST_BYTES
from msdump.graph.graph import Graph, Node

_UNKNOWN: Final = MOST_BYTES // 4
"""Bytes that a tensor of unknown shape counts for: a few of them fill a segment."""


def dimensions(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the sizes that the names of dimensions have where inputs have some shapes."""
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        declared = value.type.shape or ()
        sizes |= {
            name: size
            for name, size in zip(declared, shapes.get(value.name, ()), strict=False)
            if isinstance(name, str)
        }
    return sizes


def nbytes(graph: Graph, name: str, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a value, a guess where its shape or type is unknown.

    Args:
        graph: The graph.
        name: The value.
        sizes: What the names of dimensions stand for.
    """
    kind = graph.type_of(name)
    if kind.shape is None or kind.dtype is None:
        return _UNKNOWN
    shape = [sizes.get(size, size) if isinstance(size, str) else size for size in kind.shape]
    known = [size for size in shape if isinstance(size, int)]
    return math.prod(known) * kind.dtype.numpy.itemsize if len(known) == len(shape) else _UNKNOWN


def packed_nbytes(graph: Graph, node: Node) -> int:
    """Return the bytes of the weights of which an operator's session keeps packed copies."""
    names = (name for name in packed(node) if name in graph.weights and name not in graph.changeable)
    return sum(graph.weights[name].nbytes for name in names)
