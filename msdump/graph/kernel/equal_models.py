"""Models of single operators, kept for operators that are equal to those that they were made of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from msdump.graph.graph import Graph, Node
from msdump.graph.kernel import onenode
from msdump.graph.kernel.onenode import Bindings, NodeModel, RuntimeLimits
from msdump.graph.order import reads, subgraphs

_LARGEST: Final = 1 << 14
"""Bytes of an operator whose model is kept: a larger one holds a tensor, which hardly any other one has."""


class EqualModels:
    """Makes the model of each kind of operator once: finding it takes a tenth of the time of making it."""

    def __init__(self, most: int) -> None:
        """Keep nothing yet.

        Args:
            most: How many models are kept, those that were made last.
        """
        self._most = most
        self._kept: dict[Hashable, NodeModel] = {}

    def build(self, graph: Graph, node: Node, bindings: Bindings, limits: RuntimeLimits) -> NodeModel:
        """Return the model of one operator that computes as the model says, as ``onenode.build`` does."""
        names = reads(node)
        form = _form(graph, node, names, bindings)
        known = None if form is None else self._kept.get(form)
        if known is not None:
            feeds = zip((inner for inner, _ in known.feeds), names, strict=True)
            return replace(known, feeds=tuple(feeds))
        model = onenode.build(graph, node, bindings, limits)
        if form is not None:
            self._kept[form] = model
            while len(self._kept) > self._most:
                # another thread may have been faster
                self._kept.pop(next(iter(self._kept)), None)
        return model


def _form(graph: Graph, node: Node, names: tuple[str, ...], bindings: Bindings) -> Hashable | None:
    """Return what decides the bytes of an operator's model, None where that is as much as the model.

    Args:
        graph: Its graph.
        node: The operator.
        names: The values that it reads.
        bindings: How its values are given.
    """
    proto = node.proto
    if node.parts or subgraphs(proto) or graph.proto.functions or not bindings.are_types:
        return None
    if proto.ByteSize() > _LARGEST:
        return None
    inputs = tuple(proto.input)
    return (
        graph.ir_version,
        tuple(graph.opsets.items()),
        (proto.domain, proto.op_type, proto.overload),
        tuple(inputs.index(name) if name else None for name in inputs),
        tuple(map(bool, proto.output)),
        tuple(bindings.types[name] for name in names),
        tuple(attribute.SerializeToString(deterministic=True) for attribute in proto.attribute),
    )
