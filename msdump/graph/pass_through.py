"""Identity operators that only pass a value on: they are taken out, and their readers read what they read.

Exporters leave them behind for weights with two names and for values that change their
name. MindSpore has no kernel for them. One that makes an output of its graph stays, since
the output is a value of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msdump.graph.operator_types import canonical_domain
from msdump.graph.order import subgraphs

if TYPE_CHECKING:
    import onnx


def take_out(graph: onnx.GraphProto) -> None:
    """Change a graph, and those of its branches and loops, into one without passing operators."""
    passed = _passed(graph)
    for position in reversed(range(len(graph.node))):
        if passed.keys() & graph.node[position].output:
            del graph.node[position]
    _rename(graph, {name: _source(name, passed) for name in passed})
    for node in graph.node:
        for inner in subgraphs(node):
            take_out(inner)


def _is_identity(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Identity"
        and not canonical_domain(node.domain)
        and (len(node.input), len(node.output)) == (1, 1)
    )


def _passed(graph: onnx.GraphProto) -> dict[str, str]:
    """Return what each passing operator reads by what it makes."""
    made = Counter(name for node in graph.node for name in node.output)
    made.update(value.name for value in graph.input)
    made.update(tensor.name for tensor in graph.initializer)
    made.update(sparse.values.name for sparse in graph.sparse_initializer)
    needed = set(_outputs(graph))
    found = {
        node.output[0]: node.input[0]
        for node in graph.node
        if _is_identity(node) and all((*node.input, *node.output)) and made[node.output[0]] == 1
    }
    found = {name: source for name, source in found.items() if name not in needed}
    return {name: source for name, source in found.items() if not _goes_in_a_ring(name, found)}


def _outputs(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the outputs of a graph and of those inside it, which may be values of outer ones."""
    yield from (value.name for value in graph.output)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _outputs(inner)


def _goes_in_a_ring(name: str, passed: Mapping[str, str]) -> bool:
    seen = set()
    while name in passed and name not in seen:
        seen.add(name)
        name = passed[name]
    return name in seen


def _source(name: str, passed: Mapping[str, str]) -> str:
    while name in passed:
        name = passed[name]
    return name


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let operators, those of branches and loops as well, read values by other names."""
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name in names:
                node.input[position] = names[name]
        for inner in subgraphs(node):
            own = {value.name for value in inner.input} | {
                name for each in inner.node for name in each.output
            }
            _rename(inner, {name: source for name, source in names.items() if name not in own})
