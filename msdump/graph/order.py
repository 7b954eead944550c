"""The order in which a graph's operators run."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from msdump.errors import GraphError


def execution_order(nodes: list[onnx.NodeProto], available: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes so that each comes after its producers, else in the model's order.

    Args:
        nodes: Operators in the model's order, which usually is an execution order already.
        available: Names of graph inputs and weights.

    Raises:
        GraphError: A value that nobody makes, two producers of one value, or a cycle.
    """
    _check_producers(nodes, available)
    done = set(available)
    ordered: list[onnx.NodeProto] = []
    waiting = nodes
    while waiting:
        blocked = []
        for node in waiting:
            if all(name in done for name in used_values(node)):
                ordered.append(node)
                done.update(node.output)
            else:
                blocked.append(node)
        if len(blocked) == len(waiting):
            raise GraphError(
                f"nodes {', '.join(repr(n.name) for n in blocked[:5])} wait for each other: a cycle"
            )
        waiting = blocked
    return ordered


def _check_producers(nodes: list[onnx.NodeProto], available: set[str]) -> None:
    made: dict[str, str] = {}
    for node in nodes:
        for name in filter(None, node.output):
            if name in made or name in available:
                owner = f"node {made[name]!r}" if name in made else "a graph input or initializer"
                raise GraphError(f"node {node.name!r} writes value {name!r}, which {owner} already makes")
            made[name] = node.name
    for node in nodes:
        for name in used_values(node):
            if name not in made and name not in available:
                raise GraphError(
                    f"node {node.name!r} ({node.op_type}) reads value {name!r}, which no node, input or"
                    " initializer makes"
                )


def used_values(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, outer-scope names of its subgraphs included, without repeats."""
    seen: set[str] = set()
    for name in (*node.input, *outer_values(node)):
        if name and name not in seen:
            seen.add(name)
            yield name


def outer_values(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node's subgraphs take from outside, in order of appearance."""
    found: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            found.update(dict.fromkeys(_free_names(graph)))
    return list(found)


def _free_names(graph: onnx.GraphProto) -> Iterator[str]:
    bound = {value.name for value in graph.input}
    bound |= {tensor.name for tensor in graph.initializer}
    bound |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        bound.update(node.output)
    for node in graph.node:
        yield from (name for name in used_values(node) if name not in bound)
    yield from (value.name for value in graph.output if value.name not in bound)
