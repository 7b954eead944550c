"""The order in which a graph's operators run, and the values that each of them reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msdump.errors import GraphError
from msdump.graph.graph import MINDSPORE_DOMAIN, Graph, Node, Value

if TYPE_CHECKING:
    import onnx


def execution_order(nodes: list[onnx.NodeProto], available: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes, each behind its producers; GraphError for a cycle, or none or two producers."""
    producers = _producers(nodes, available)
    readers: dict[int, list[int]] = {}
    missing = []
    for position, node in enumerate(nodes):
        # a set: a producer counts once, even if the node reads several of its values
        before = {producers[name] for name in used_values(node) if name not in available}
        missing.append(len(before))
        for producer in before:
            readers.setdefault(producer, []).append(position)
    # a heap of positions: of the ready nodes, the first one in the model's order comes next
    ready = [position for position, count in enumerate(missing) if count == 0]
    ordered: list[onnx.NodeProto] = []
    while ready:
        position = heapq.heappop(ready)
        ordered.append(nodes[position])
        for reader in readers.get(position, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    # nodes of a cycle never become ready
    if len(ordered) < len(nodes):
        raise GraphError(
            _cycle_message(nodes, producers, {position for position, count in enumerate(missing) if count})
        )
    return ordered


def _cycle_message(nodes: list[onnx.NodeProto], producers: dict[str, int], blocked: set[int]) -> str:
    path: list[int] = []
    position = min(blocked)
    while position not in path:
        path.append(position)
        before = (producers[name] for name in used_values(nodes[position]) if name in producers)
        position = next(producer for producer in before if producer in blocked)
    cycle = [*path[path.index(position) :], position]
    return "nodes wait for each other: " + " reads from ".join(repr(nodes[member].name) for member in cycle)


def _producers(nodes: list[onnx.NodeProto], available: set[str]) -> dict[str, int]:
    producers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producers or name in available:
                owner = (
                    f"node {nodes[producers[name]].name!r}"
                    if name in producers
                    else "a graph input or initializer"
                )
                raise GraphError(f"node {node.name!r} writes value {name!r}, which {owner} already provides")
            producers[name] = position
    for node in nodes:
        for name in used_values(node):
            if name not in producers and name not in available:
                raise GraphError(
                    f"node {node.name!r} ({node.op_type}) reads value {name!r}, which no node, input or"
                    " initializer provides"
                )
    return producers


def reads(node: Node) -> tuple[str, ...]:
    """Return the values that an operator reads, without repeats.

    Outer values of its bodies count; values between the parts of a fused operator do not.
    """
    return external_values((node,)) if node.parts else tuple(used_values(node.proto))


def split_kernel_graphs(graph: Graph) -> dict[int | None, Graph]:
    """Return the kernel graphs inside of a graph, parts of it, by number.

    Values of other parts are inputs, like values of outer graphs.
    """
    members: dict[int, dict[str, Node]] = {}
    for node in graph.nodes:
        if node.kernel_graph is not None:
            # a function that is called twice has its operators twice
            members.setdefault(node.kernel_graph, {}).setdefault(node.operator.full_name, node)
    fed = {value.name for value in graph.inputs}
    returned = {value.name for value in graph.outputs}
    parts: dict[int | None, Graph] = {}
    for number, by_name in members.items():
        nodes = tuple(by_name.values())
        read = external_values(nodes)
        others = (node for node in graph.nodes if node.kernel_graph != number)
        needed = returned.union(*map(reads, others))
        weights = {name: array for name, array in graph.weights.items() if name in read}
        inputs = [name for name in read if name not in weights]
        outputs = [name for node in nodes for name in node.outputs if name in needed]
        parts[number] = replace(
            graph,
            nodes=nodes,
            inputs=tuple(Value(name, graph.type_of(name)) for name in inputs),
            outputs=tuple(Value(name, graph.type_of(name)) for name in outputs),
            weights=weights,
            constants=tuple(name for name in graph.constants if name in weights),
            outer=graph.outer | {name for name in inputs if name not in fed},
        )
    return parts


def external_values(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the values that some operators read and none of them writes, in order, without repeats."""
    members = [part.proto for node in nodes for part in node.members]
    written = {name for proto in members for name in proto.output}
    names = (name for proto in members for name in used_values(proto))
    return tuple(dict.fromkeys(name for name in names if name not in written))


def used_values(node: onnx.NodeProto) -> dict[str, None]:
    """Return the values that a node reads as keys in order; outer-scope names of its subgraphs count."""
    names: dict[str, None] = dict.fromkeys(node.input)
    for graph in subgraphs(node):
        names.update(dict.fromkeys(free_names(graph)))
    names.pop("", None)
    return names


def outer_values(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node's subgraphs take from outside, in order of appearance."""
    return list(dict.fromkeys(name for graph in subgraphs(node) for name in free_names(graph)))


def subgraphs(node: onnx.NodeProto) -> Sequence[onnx.GraphProto]:
    """Return the graphs in a node's attributes."""
    # called many times for every node, and nearly none has any
    if not node.attribute or node.domain == MINDSPORE_DOMAIN:
        return ()
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        graphs.extend(attribute.graphs)
        if attribute.HasField("g"):
            graphs.append(attribute.g)
    return graphs


def walk_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes depth first, each before the nodes in its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from walk_nodes(graph.node)


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and all graphs inside its nodes, depth first."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from walk_graphs(inner)


def free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a subgraph takes from outside, possibly repeated."""
    bound = bound_names(graph)
    for node in graph.node:
        yield from (name for name in used_values(node) if name not in bound)
    yield from (value.name for value in graph.output if value.name not in bound)


def bound_names(graph: onnx.GraphProto) -> dict[str, None]:
    """Return the names of a subgraph's own values as keys: its inputs, initializers and results."""
    bound = dict.fromkeys(value.name for value in graph.input)
    bound |= dict.fromkeys(tensor.name for tensor in graph.initializer)
    bound |= dict.fromkeys(tensor.values.name for tensor in graph.sparse_initializer)
    for node in graph.node:
        bound.update(dict.fromkeys(node.output))
    return bound


def rename_values(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename values of a node in place; values of its subgraphs hide outer ones of the same name."""
    for side in (node.input, node.output):
        side[:] = [names.get(name, name) for name in side]
    for body in subgraphs(node):
        bound = bound_names(body)
        free = {name: new for name, new in names.items() if name not in bound}
        for inner in body.node:
            rename_values(inner, free)
        for value in body.output:
            value.name = free.get(value.name, value.name)
