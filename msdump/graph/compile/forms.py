"""The forms in which a compiled graph has the values of its model: a TransData or Cast makes another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from msdump.graph.graph import Graph

_ON_DEVICE: Final = ":device"  # ends the name of a value that a TransData or Cast brings into the host's form


def model_names(graph: Graph) -> dict[str, str]:
    """Return, for every value of a compiled graph, the name that the model has for it."""
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.is_added}
    forms: dict[str, list[str]] = {}
    for value in dict.fromkeys(_values(graph)):
        first = value
        while first in sources:
            first = sources[first]
        forms.setdefault(first, []).append(value)
    names: dict[str, str] = {}
    for first, members in forms.items():
        plain = first.rstrip("'").removesuffix(_ON_DEVICE)
        names |= dict.fromkeys(members, plain if plain in members else first)
    return names


def with_model_types(graph: Graph) -> Graph:
    """Return a compiled graph in which every form of a value has the type that the model declares."""
    types = {form: graph.type_of(name) for form, name in model_names(graph).items()}
    return replace(graph, types={**graph.types, **types})


def _values(graph: Graph) -> Iterator[str]:
    yield from (value.name for value in graph.inputs)
    yield from graph.weights
    for node in graph.nodes:
        yield from filter(None, node.inputs)
        yield from filter(None, node.outputs)
