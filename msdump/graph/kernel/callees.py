"""The functions that the model of one operator needs, and the names that they have in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import onnx

from msdump.graph.operator_types import MINDSPORE_DOMAIN, canonical_domain
from msdump.graph.order import subgraphs

_PREFIX: Final = "MS_"
"""Begins the names of MindSpore's functions in such a model: onnxruntime takes a function for ONNX's operator
of the same name, and crashes where that has more inputs."""

_Key = tuple[str, str, str]


def callees(
    nodes: Sequence[onnx.NodeProto], functions: Iterable[onnx.FunctionProto]
) -> list[onnx.FunctionProto]:
    """Return the functions that operators call, and those that these call, each once, callers first.

    Args:
        nodes: The operators, with their subgraphs.
        functions: All functions of the model.
    """
    by_key = {
        (canonical_domain(function.domain), function.name, function.overload): function
        for function in functions
    }
    needed: dict[_Key, onnx.FunctionProto] = {}
    waiting = list(nodes)
    while waiting and by_key:
        for key in map(_key, _with_inner(waiting.pop())):
            if key in by_key and key not in needed:
                needed[key] = by_key[key]
                waiting.extend(by_key[key].node)
    return list(needed.values())


def renamed_calls(
    nodes: Sequence[onnx.NodeProto], functions: Iterable[onnx.FunctionProto]
) -> list[onnx.FunctionProto]:
    """Return copies of functions, MindSpore's under names that no operator of ONNX has.

    Args:
        nodes: The operators that call them; they are renamed in place.
        functions: The functions.
    """
    copies = []
    for function in functions:
        copy = onnx.FunctionProto()
        copy.CopyFrom(function)
        _rename_calls(copy.node)
        if copy.domain == MINDSPORE_DOMAIN:
            copy.name = f"{_PREFIX}{copy.name}"
        copies.append(copy)
    _rename_calls(nodes)
    return copies


def _rename_calls(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for inner in _with_inner(node):
            if inner.domain == MINDSPORE_DOMAIN:
                inner.op_type = f"{_PREFIX}{inner.op_type}"


def _with_inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node and those in its subgraphs."""
    yield node
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _with_inner(inner)


def _key(node: onnx.NodeProto) -> _Key:
    return canonical_domain(node.domain), node.op_type, node.overload
