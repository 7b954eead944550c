"""Inlines functions, so that the operators inside them are run and dumped one by one.

They are those of the model, and ONNX's SequenceMap, which becomes a Loop. Functions of the domain
``mindspore.ops`` stay: each is one operator of MindSpore. onnx's inliner forgets which call a node came from.
Each call of a function of the model therefore gets a copy of it first, whose nodes are named after the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx
from onnx import inliner

from msdump.errors import GraphError
from msdump.graph.kernel.callees import callees
from msdump.graph.operator_types import MINDSPORE_DOMAIN
from msdump.graph.order import subgraphs

_SEQUENCE_MAP: Final = ("", "SequenceMap")
_MOST_CALLS: Final = 10_000  # recursion is forbidden by ONNX; a cycle must not hang the loader


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined, node names ``{call}/{node}__{number}``.

    What MindSpore's own functions call stays as it is. Functions whose opset imports differ from the model's
    stay calls; onnxruntime runs them as one kernel.

    Raises:
        GraphError: A call that does not fit its function.
    """
    return _without_sequence_maps(_without_functions(model))


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    kept = [function for function in model.functions if function.domain == MINDSPORE_DOMAIN]
    if len(kept) == len(model.functions):
        return model
    copies = _CallCopies(model)
    try:
        for node in _nodes(model.graph):
            copies.copy_call(node, node.name)
    except RecursionError as error:
        raise GraphError("functions are nested too deeply in each other to be inlined") from error
    # the inliner takes an unknown call for an operator, and so leaves it
    others = [function for function in model.functions if function.domain != MINDSPORE_DOMAIN]
    del model.functions[:]
    model.functions.extend((*others, *copies.functions))
    try:
        inlined = inliner.inline_local_functions(model)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(f"the model's functions cannot be inlined: {reason}") from error
    left = {_key(function) for function in inlined.functions}
    called = callees([node for function in kept for node in function.node], others)
    inlined.functions.extend((*kept, *(function for function in called if _key(function) not in left)))
    return inlined


def _key(function: onnx.FunctionProto) -> tuple[str, str, str]:
    return function.domain, function.name, function.overload


def _without_sequence_maps(model: onnx.ModelProto) -> onnx.ModelProto:
    calls = [node for node in _nodes(model.graph) if node.op_type == _SEQUENCE_MAP[1]]
    if not calls:
        return model
    for call in calls:
        for body in subgraphs(call):
            # before it is inlined: onnx's names would not tell which call they come from
            for position, node in enumerate(body.node):
                node.name = _inner_name(call.name, node, position)
    try:
        return inliner.inline_selected_functions(model, [_SEQUENCE_MAP], inline_schema_functions=True)
    except Exception:  # noqa: BLE001 - unknown types: it stays an operator that the runtime expands itself
        return model


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph, each before those in its subgraphs."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)


def _inner_name(path: str, node: onnx.NodeProto, position: int) -> str:
    return f"{path}/{node.name or f'{node.op_type}_{position}'}"


class _CallCopies:
    """Copies of a model's functions, one for each call.

    Attributes:
        functions: The copies so far.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        versions = {opset.domain: opset.version for opset in model.opset_import}
        # onnx's inliner does not convert operators of other versions
        self._inlinable = {
            _key(function): function
            for function in model.functions
            if function.domain != MINDSPORE_DOMAIN
            and all(
                versions.get(opset.domain, opset.version) == opset.version for opset in function.opset_import
            )
        }
        self.functions: list[onnx.FunctionProto] = []

    def copy_call(self, call: onnx.NodeProto, path: str, callers: tuple[str, ...] = ()) -> None:
        """Point a call at a copy of its function whose nodes carry the call's name.

        Raises:
            GraphError: The function calls itself, by way of others or not.
        """
        function = self._inlinable.get((call.domain, call.op_type, call.overload))
        # beyond the limit calls stay calls, which the runtime expands
        if function is None or len(self.functions) >= _MOST_CALLS:
            return
        # by the names of the originals, since every call is renamed after its copy
        title = "::".join(filter(None, (function.domain, function.name, function.overload)))
        if title in callers:
            raise GraphError(f"functions call each other: {' calls '.join((*callers, title))}")
        callers = (*callers, title)
        copy = onnx.FunctionProto()
        copy.CopyFrom(function)
        copy.name = f"{function.name}__call{len(self.functions)}"
        call.op_type = copy.name
        self.functions.append(copy)
        for position, node in enumerate(copy.node):
            self._place(node, path, position, callers)

    def _place(self, node: onnx.NodeProto, path: str, position: int, callers: tuple[str, ...]) -> None:
        """Name a node of a copy, and those in its subgraphs, and copy what they call."""
        node.name = _inner_name(path, node, position)
        self.copy_call(node, node.name, callers)
        for inner in subgraphs(node):
            for number, item in enumerate(inner.node):
                self._place(item, path, number, callers)
