"""New names for the values in the subgraphs of an operator that stands in a model with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msdump.graph.order import bound_names, subgraphs

if TYPE_CHECKING:
    import onnx


def rename_values(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> None:
    """Rename the values in the subgraphs of a node, in place, and name their nodes after it.

    Args:
        node: The node; its own inputs and outputs stay.
        names: The new name of each value that stands around it.
        prefix: Begins the new names of values in its subgraphs: no other node of the model has it.
    """
    for number, graph in enumerate(subgraphs(node)):
        own = f"{prefix}_{number}"
        renamed = {**names, **{name: f"{own}_{place}" for place, name in enumerate(bound_names(graph))}}
        renamed[""] = ""  # an absent input, an unused output
        for value in (*graph.input, *graph.output):
            value.name = renamed[value.name]
        for initializer in graph.initializer:
            initializer.name = renamed[initializer.name]
        for value in graph.value_info:  # it may tell of values that are nowhere
            value.name = renamed.get(value.name, value.name)
        for tensor in graph.sparse_initializer:
            tensor.values.name = renamed[tensor.values.name]
        for place, inner in enumerate(graph.node):
            inner.name = f"{node.name}.{number}.{place}"
            inner.input[:] = [renamed[name] for name in inner.input]
            inner.output[:] = [renamed[name] for name in inner.output]
            rename_values(inner, renamed, f"{own}n{place}")
