"""A network in which some values are computed as another network of the same task computes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import onnx
from onnx import defs

from msdump.graph.compile import rewiring
from msdump.graph.graph import Graph, Node, ValueType
from msdump.graph.order import subgraphs, used_values

_PREFIX: Final = "other:"
"""Begins the names of values and nodes of the other network, unless both have them."""

CAST: Final = f"{_PREFIX}cast:"
"""Begins the names of the casts where the two networks hold a value in different element types."""


@dataclass(frozen=True, slots=True)
class Spliced:
    """A network with parts of another one.

    Attributes:
        graph: The network.
        taken: Its operators that are the other network's, with the casts around them, in order.
        given: The operators of the first network in whose place they stand.
    """

    graph: Graph
    taken: tuple[Node, ...]
    given: tuple[Node, ...]


def splice(graph: Graph, other: Graph, values: Mapping[str, str], chosen: Collection[str]) -> Spliced:
    """Return a network in which some values are computed as another one computes them.

    The other network's operators read the values of this one wherever both have them; those that it
    alone has come along. Casts stand where the two hold a value in different element types.

    Args:
        graph: The network.
        other: The other network.
        values: The value of the network that each value of the other one stands for.
        chosen: Values of the network that are to be computed by the other one.
    """
    splicer = _Splicer(graph, other, values, frozenset(chosen))
    for node in graph.nodes:  # in order, so that what a value is computed from is mostly there
        for name in filter(None, node.outputs):
            splicer.add(name)
    return splicer.result()


def exchangeable(graph: Graph, other: Graph, node: Node) -> bool:
    """Tell whether an operator of another network means the same under the network's versions of domains.

    Args:
        graph: The network.
        other: The other network.
        node: Its operator.
    """
    own, theirs = graph.opsets.get(node.domain), other.opsets.get(node.domain)
    if own == theirs:
        return True
    if own is None or theirs is None or any(True for _ in subgraphs(node.proto)):
        return False
    try:
        versions = {
            defs.get_schema(node.op_type, version, node.domain).since_version for version in (own, theirs)
        }
    except defs.SchemaError:
        return False
    return len(versions) == 1


@dataclass(slots=True)
class _Splicer:
    graph: Graph
    other: Graph
    values: Mapping[str, str]
    chosen: frozenset[str]
    nodes: list[Node] = field(default_factory=list)
    taken: list[Node] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    makers: dict[str, Node] = field(init=False)
    other_makers: dict[str, Node] = field(init=False)
    forms: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self.other_makers = {name: node for node in self.other.nodes for name in node.outputs if name}
        # of several values that stand for one the last one that is written
        self.forms = {self.values[name]: name for name in self.other_makers if name in self.values}

    def add(self, name: str) -> None:
        """Add what computes a value of the network, and before it what that reads."""
        if name in self.chosen and name in self.forms:
            self._add_other(self.forms[name])
            return
        node = self.makers.get(name)
        if node is None or node.name in self.done:
            return
        self.done.add(node.name)
        for read in _reads(node):
            self.add(read)
        renamed = {output: f"{_PREFIX}unused:{output}" for output in node.outputs if output in self.chosen}
        self.nodes.append(_renamed(node, renamed) if renamed else node)

    def _add_other(self, name: str) -> None:
        """Add the operator of the other network that computes one of its values."""
        node = self.other_makers[name]
        if f"{_PREFIX}{node.name}" in self.done:
            return
        self.done.add(f"{_PREFIX}{node.name}")
        names: dict[str, str] = {}
        for read in _reads(node):
            names[read] = self._input(read)
        results: list[Node] = []
        for output in filter(None, node.outputs):
            names[output] = self._output(output, results)
        own = _renamed(node, names)
        own = replace(own, name=f"{_PREFIX}{node.name}")
        self.nodes += (own, *results)
        self.taken += (own, *results)

    def _input(self, name: str) -> str:
        """Return the value that an operator of the other network reads for one of its own."""
        if name in self.other.weights:
            self.weights[f"{_PREFIX}{name}"] = name
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        common = self.values.get(name)
        if common is None:
            if name in self.other_makers:
                self._add_other(name)
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        self.add(common)
        return self._cast(
            common, f"{_PREFIX}read:{name}", self.graph.type_of(common), self.other.type_of(name)
        )

    def _cast(self, source: str, target: str, before: ValueType, after: ValueType) -> str:
        """Return a value in another element type, added where that differs."""
        if before.dtype is after.dtype or before.dtype is None or after.dtype is None:
            return source
        if target not in self.done:
            self.done.add(target)
            cast = _cast(source, target, after)
            self.nodes.append(cast)
            self.taken.append(cast)
            self.types[target] = after
        return target

    def _output(self, name: str, results: list[Node]) -> str:
        """Return the value that an operator of the other network writes for one of its own."""
        common = self.values.get(name)
        if common not in self.chosen or common is None:
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        own, wanted = self.other.type_of(name), self.graph.type_of(common)
        if own.dtype is wanted.dtype or own.dtype is None or wanted.dtype is None:
            return common
        written = f"{_PREFIX}{name}"
        self.types[written] = own
        results.append(_cast(written, common, wanted))
        return written

    def result(self) -> Spliced:
        """Return the network without the operators that nobody reads any more."""
        nodes = _live(self.nodes, {value.name for value in self.graph.outputs})
        weights = {new: self.other.weights[name] for new, name in self.weights.items()}
        graph = replace(
            self.graph,
            nodes=nodes,
            weights={**self.graph.weights, **weights},
            types={**self.graph.types, **self.types},
            proto=_with_functions(self.graph.proto, self.other.proto),
        )
        kept = {node.name for node in nodes}
        taken = tuple(node for node in self.taken if node.name in kept)
        return Spliced(graph, taken, tuple(node for node in self.graph.nodes if node.name not in kept))


def _live(nodes: list[Node], needed: set[str]) -> tuple[Node, ...]:
    live: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            live.append(node)
            needed.update(_reads(node))
    return tuple(reversed(live))


def _cast(source: str, target: str, wanted: ValueType) -> Node:
    node = rewiring.cast(f"{CAST}{target}", source, target, wanted.dtype)
    return replace(node, is_added=False)


def _reads(node: Node) -> Iterator[str]:
    yield from used_values(node.proto)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with other names of values, in its branches and loops as well."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    _rename(proto, names)
    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
        proto=proto,
        bodies={},
    )


def _rename(proto: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for side in (proto.input, proto.output):
        for position, name in enumerate(side):
            side[position] = names.get(name, name)
    for body in subgraphs(proto):
        bound = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        bound |= {name for node in body.node for name in node.output}
        free = {name: new for name, new in names.items() if name not in bound}
        for node in body.node:
            _rename(node, free)
        for value in body.output:
            value.name = free.get(value.name, value.name)


def _with_functions(proto: onnx.ModelProto, other: onnx.ModelProto) -> onnx.ModelProto:
    """Return a message that has the functions of both models."""
    keys = {(function.domain, function.name, function.overload) for function in proto.functions}
    more = [
        function
        for function in other.functions
        if (function.domain, function.name, function.overload) not in keys
    ]
    if not more:
        return proto
    joined = onnx.ModelProto()
    joined.CopyFrom(proto)
    joined.functions.extend(more)
    return joined
