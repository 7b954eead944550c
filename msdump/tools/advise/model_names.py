"""Node names that stand in a model's file: others are made up when it is loaded, unknown to other tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msdump import reading
from msdump.graph.graph import IN_MEMORY, Graph
from msdump.wire.faults import WireError
from msdump.wire.fields import LENGTH, fields, tag_of

# ModelProto.graph, GraphProto.node, NodeProto.name and attribute, AttributeProto.g and graphs of onnx.proto
_GRAPH: Final = tag_of(7, LENGTH)
_NODE: Final = tag_of(1, LENGTH)
_NAME: Final = tag_of(3, LENGTH)
_ATTRIBUTE: Final = tag_of(5, LENGTH)
_BODIES: Final = (tag_of(6, LENGTH), tag_of(11, LENGTH))


def names_in_file(graph: Graph) -> frozenset[str] | None:
    """Return the names of all nodes of a model's file; None where there is no file, or it has changed.

    Weights are passed over: only pages with nodes are read.
    """
    if graph.source == IN_MEMORY:
        return None
    try:
        view = reading.map_file(graph.source)
        return frozenset(
            name
            for start, stop in _inside(view, 0, len(view), (_GRAPH,))
            for name in _names(view, start, stop)
        )
    except (OSError, WireError):
        return None


def _names(view: memoryview, at: int, end: int) -> Iterator[str]:
    for start, stop in _inside(view, at, end, (_NODE,)):
        for first, last in _inside(view, start, stop, (_NAME,)):
            yield bytes(view[first:last]).decode("utf-8", "replace")
        for first, last in _inside(view, start, stop, (_ATTRIBUTE,)):
            for inner, behind in _inside(view, first, last, _BODIES):
                yield from _names(view, inner, behind)


def _inside(view: memoryview, at: int, end: int, tags: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield where the values of some fields of a message begin and end."""
    for tag, _, _, start, stop in fields(view, at, end):
        if tag in tags:
            yield start, stop
