"""What weights, graph inputs and constants of two graphs are known by: the same label for the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from msdump.store.read.graphs.operator_graph import SourceKind, ValueSource
from msdump.tools.matching.sides import GraphSide, Labels

UNKNOWN: Final = ("value",)
"""Label of a weight or constant of which the other side has none, or none that is known to be the same."""

UNTOLD: Final = ("untold",)
"""Label of what nothing tells of: an operator may have written it, and it may be a weight."""


def labels(mine: GraphSide, golden: GraphSide) -> tuple[Labels, Labels]:
    """Return what gives the labels of either side.

    A weight is known by its elements where they are telling, else by its name; a graph input by its name, or
    by its place among those whose names the other side lacks.
    """
    return _Labels(mine, golden), _Labels(golden, mine)


class _Labels:
    """Gives the labels of one side."""

    def __init__(self, side: GraphSide, other: GraphSide) -> None:
        self._is_inferred = side.graph.is_inferred
        weights = _Weights(side), _Weights(other)
        self._labels: dict[tuple[SourceKind, str], Hashable] = {
            (SourceKind.WEIGHT, name): _weight_label(name, *weights) for name in side.graph.weights
        }
        others = other.graph.inputs
        own = [name for name in side.graph.inputs if name not in others]
        places = {name: place for place, name in enumerate(own)}
        self._labels |= {
            (SourceKind.INPUT, name): ("input", places.get(name, name)) for name in side.graph.inputs
        }
        self._constants = {
            source.name
            for operator in other.graph.operators.values()
            for source in operator.inputs
            if source.kind is SourceKind.CONSTANT
        }

    def __call__(self, source: ValueSource) -> Hashable:
        if source.kind is SourceKind.ABSENT:
            return UNTOLD if self._is_inferred else source.kind
        if source.kind is SourceKind.CONSTANT and source.name in self._constants:
            return ("constant", source.name)
        return self._labels.get((source.kind, source.name), UNKNOWN)


class _Weights:
    """The weights of a side, and what stands for their elements."""

    def __init__(self, side: GraphSide) -> None:
        self.forms = side.graph.weights
        self.digests = {name: side.digest_of(name) for name in self.forms}
        self.counts = Counter(self.digests.values())


def _weight_label(name: str, own: _Weights, other: _Weights) -> Hashable:
    digest = own.digests[name]
    has_name = name in other.forms
    if has_name and digest == other.digests[name]:
        return ("name", name)
    if digest is not None and own.counts[digest] == other.counts[digest] == 1:
        return ("elements", digest)
    if has_name and own.forms[name].shape == other.forms[name].shape:
        return ("name", name)
    return ("elements", digest) if digest is not None and other.counts[digest] else UNKNOWN
