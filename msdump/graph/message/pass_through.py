"""Removes Identity operators: readers of their output read their input instead.

Exporters leave them behind for weights with two names and for values that change their
name. MindSpore has no kernel for them. One that makes an output of its graph stays, since
the output is a value of its own; but a branch of a training step that keeps a variable has no kernel, either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msdump.graph.operator_types import canonical_domain
from msdump.graph.order import subgraphs

if TYPE_CHECKING:
    import onnx


def take_out(graph: onnx.GraphProto, variables: Collection[str] = ()) -> None:
    """Remove the Identity operators of a graph, and of its branches and loops, in place.

    Args:
        graph: The graph.
        variables: Initializers that training changes.
    """
    removable = _removable(graph)
    for position in reversed(range(len(graph.node))):
        if removable.keys() & graph.node[position].output:
            del graph.node[position]
    _rename(graph, {name: _source(name, removable) for name in removable})
    for node in graph.node:
        for inner in subgraphs(node):
            _hand_on(inner, variables)
            take_out(inner, variables)


def _hand_on(body: onnx.GraphProto, variables: Collection[str]) -> None:
    """Let a body give variables of the graph around it themselves, in place of copies, in place."""
    own = {value.name for value in body.input} | {name for node in body.node for name in node.output}
    kept = {
        node.output[0]: node.input[0]
        for node in body.node
        if _is_identity(node) and node.input[0] in variables and node.input[0] not in own
    }
    for value in body.output:
        value.name = kept.get(value.name, value.name)


def _is_identity(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Identity"
        and not canonical_domain(node.domain)
        and (len(node.input), len(node.output)) == (1, 1)
    )


def _removable(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the input of each Identity operator that can be removed, by its output."""
    producer_counts = Counter(name for node in graph.node for name in node.output)
    producer_counts.update(value.name for value in graph.input)
    producer_counts.update(tensor.name for tensor in graph.initializer)
    producer_counts.update(sparse.values.name for sparse in graph.sparse_initializer)
    outputs = set(_outputs(graph))
    sources = {
        node.output[0]: node.input[0]
        for node in graph.node
        if _is_identity(node) and all((*node.input, *node.output)) and producer_counts[node.output[0]] == 1
    }
    sources = {name: source for name, source in sources.items() if name not in outputs}
    return {name: source for name, source in sources.items() if not _is_cyclic(name, sources)}


def _outputs(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the outputs of a graph and of its bodies, which may be values of the graph around them."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _outputs(inner)


def _is_cyclic(name: str, sources: Mapping[str, str]) -> bool:
    seen = set()
    while name in sources and name not in seen:
        seen.add(name)
        name = sources[name]
    return name in seen


def _source(name: str, sources: Mapping[str, str]) -> str:
    while name in sources:
        name = sources[name]
    return name


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the inputs of operators, in branches and loops as well, in place."""
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name in names:
                node.input[position] = names[name]
        for inner in subgraphs(node):
            # a body may have a value of the same name, which hides the outer one
            own = {value.name for value in inner.input} | {
                name for inner_node in inner.node for name in inner_node.output
            }
            _rename(inner, {name: source for name, source in names.items() if name not in own})
