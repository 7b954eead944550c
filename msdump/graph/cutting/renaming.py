"""Operators under other names, of values and of their own, with what stands in their branches and loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import onnx

from msdump.graph.graph import Graph, Node, Value
from msdump.graph.order import bound_names, subgraphs

_Item = TypeVar("_Item")


def with_names(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with other names of values.

    Args:
        node: The node.
        names: The new name of each value that gets one; what a body computes itself keeps its name.
    """
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    _rename(proto, names)
    return replace(
        node,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        proto=proto,
        bodies={key: _body(body, names) for key, body in node.bodies.items()},
    )


def with_prefix(node: Node, prefix: str) -> Node:
    """Return a node whose own name, and those of the operators in its bodies, begin with a text."""
    bodies = {
        key: replace(body, nodes=tuple(with_prefix(each, prefix) for each in body.nodes))
        for key, body in node.bodies.items()
    }
    return replace(node, name=f"{prefix}{node.name}", bodies=bodies)


def _body(body: Graph, names: Mapping[str, str]) -> Graph:
    free = {name: new for name, new in names.items() if name in body.outer}
    return replace(
        body,
        nodes=tuple(with_names(node, free) for node in body.nodes),
        inputs=tuple(Value(free.get(each.name, each.name), each.type) for each in body.inputs),
        outputs=tuple(Value(free.get(each.name, each.name), each.type) for each in body.outputs),
        weights=_keyed(body.weights, free),
        constants=tuple(free.get(name, name) for name in body.constants),
        overridable=frozenset(free.get(name, name) for name in body.overridable),
        types=_keyed(body.types, free),
        outer=frozenset(free.get(name, name) for name in body.outer),
        variables=frozenset(free.get(name, name) for name in body.variables),
    )


def _keyed(items: Mapping[str, _Item], names: Mapping[str, str]) -> dict[str, _Item]:
    return {names.get(name, name): item for name, item in items.items()}


def _rename(proto: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for side in (proto.input, proto.output):
        side[:] = [names.get(name, name) for name in side]
    for body in subgraphs(proto):
        bound = bound_names(body)
        free = {name: new for name, new in names.items() if name not in bound}
        for node in body.node:
            _rename(node, free)
        for value in body.output:
            value.name = free.get(value.name, value.name)
