"""Inlines functions, so that the operators inside them are run and dumped one by one.

Functions of the model and ONNX's SequenceMap (a Loop, once inlined) are inlined. Functions of the domain
``mindspore.ops`` stay: each is one operator of MindSpore. onnx's inliner forgets which call a node came from.
Each call of a function of the model therefore gets a copy of it first, with nodes named after the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Final

import onnx
from onnx import inliner

from msdump.errors import GraphError, passing_over
from msdump.graph.graph import MINDSPORE_DOMAIN, canonical_domain
from msdump.graph.names import RETURNED
from msdump.graph.operators import update_of
from msdump.graph.order import rename_values, subgraphs, walk_graphs, walk_nodes

_SEQUENCE_MAP: Final = ("", "SequenceMap")
_MOST_CALLS: Final = 10_000  # recursion is forbidden by ONNX; a cycle must not hang the loader


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its functions inlined, node names ``{call}/{node}__{number}``.

    Calls inside MindSpore's own functions stay. Functions with other opset imports than the model
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
        for node in walk_nodes(model.graph.node):
            copies.copy_call(node, node.name)
    except RecursionError as error:
        raise GraphError("functions are nested too deeply in each other to be inlined") from error
    # calls of functions that are not passed to the inliner stay, like operators
    others = [function for function in model.functions if function.domain != MINDSPORE_DOMAIN]
    del model.functions[:]
    model.functions.extend((*others, *copies.functions))
    try:
        inlined = inliner.inline_local_functions(model)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(f"the model's functions cannot be inlined: {reason}") from error
    left = {function_key(function) for function in inlined.functions}
    called = callees([node for function in kept for node in function.node], others)
    inlined.functions.extend(kept)
    inlined.functions.extend(function for function in called if function_key(function) not in left)
    return inlined


def function_key(function: onnx.FunctionProto) -> tuple[str, str, str]:
    """Return the identity of a model's function: domain, name, overload."""
    return function.domain, function.name, function.overload


def _without_sequence_maps(model: onnx.ModelProto) -> onnx.ModelProto:
    calls = [node for node in walk_nodes(model.graph.node) if node.op_type == _SEQUENCE_MAP[1]]
    if not calls:
        return model
    for call in calls:
        for body in subgraphs(call):
            # named before inlining: onnx's names do not show the call
            for position, node in enumerate(body.node):
                node.name = _inner_name(call.name, node, position)
    with passing_over(Exception):  # with unknown types it stays an operator, for the runtime to expand
        return inliner.inline_selected_functions(model, [_SEQUENCE_MAP], inline_schema_functions=True)
    return model


def _inner_name(path: str, node: onnx.NodeProto, position: int) -> str:
    return f"{path}/{node.name or f'{node.op_type}_{position}'}"


class _CallCopies:
    """Copies of a model's functions, one for each call."""

    def __init__(self, model: onnx.ModelProto) -> None:
        versions = {opset.domain: opset.version for opset in model.opset_import}
        # only functions of the model's opsets: onnx's inliner converts no operators
        self._inlinable = {
            function_key(function): function
            for function in model.functions
            if function.domain != MINDSPORE_DOMAIN
            and all(
                versions.get(opset.domain, opset.version) == opset.version for opset in function.opset_import
            )
        }
        self.functions: list[onnx.FunctionProto] = []

    def copy_call(self, call: onnx.NodeProto, path: str, callers: tuple[str, ...] = ()) -> None:
        """Point a call at a copy of its function, with nodes named after the call."""
        function = self._inlinable.get((call.domain, call.op_type, call.overload))
        # beyond the limit calls stay calls, which the runtime expands
        if function is None or len(self.functions) >= _MOST_CALLS:
            return
        # recursion shows in the original names: each copy has a new name
        title = "::".join(filter(None, (function.domain, function.name, function.overload)))
        if title in callers:
            raise GraphError(f"functions call each other: {' calls '.join((*callers, title))}")
        callers = (*callers, title)
        copy = deepcopy(function)
        copy.name = f"{function.name}__call{len(self.functions)}"
        call.op_type = copy.name
        self.functions.append(copy)
        for position, node in enumerate(copy.node):
            self._place(node, path, position, callers)

    def _place(self, node: onnx.NodeProto, path: str, position: int, callers: tuple[str, ...]) -> None:
        node.name = _inner_name(path, node, position)
        self.copy_call(node, node.name, callers)
        for inner in subgraphs(node):
            for number, item in enumerate(inner.node):
                self._place(item, path, number, callers)


_PREFIX: Final = "MS_"
"""Begins the names of MindSpore's functions in such a model: onnxruntime takes a function for ONNX's operator
of the same name, and crashes where that has more inputs."""


def callees(
    nodes: Sequence[onnx.NodeProto], functions: Iterable[onnx.FunctionProto]
) -> list[onnx.FunctionProto]:
    """Return the functions that operators call, directly or through functions; each once, callers first."""
    by_key = {(canonical_domain(each.domain), each.name, each.overload): each for each in functions}
    needed: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    waiting = list(nodes)
    while waiting and by_key:
        for node in walk_nodes([waiting.pop()]):
            key = canonical_domain(node.domain), node.op_type, node.overload
            if key in by_key and key not in needed:
                needed[key] = by_key[key]
                waiting.extend(by_key[key].node)
    return list(needed.values())


def renamed_calls(
    nodes: Sequence[onnx.NodeProto], functions: Iterable[onnx.FunctionProto]
) -> list[onnx.FunctionProto]:
    """Return copies of functions, MindSpore's with a prefix before the name; calls are renamed in place."""
    copies = []
    for function in functions:
        copy = deepcopy(function)
        _rename_calls(copy.node)
        if copy.domain == MINDSPORE_DOMAIN:
            copy.name = f"{_PREFIX}{copy.name}"
        copies.append(copy)
    _rename_calls(nodes)
    return copies


def _rename_calls(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in walk_nodes(nodes):
        if node.domain == MINDSPORE_DOMAIN:
            node.op_type = f"{_PREFIX}{node.op_type}"


def restore_calls(model: onnx.ModelProto) -> None:
    """Remove the prefix of ``renamed_calls`` from a model that was written with it, in place."""
    for node in walk_nodes([*model.graph.node, *(node for each in model.functions for node in each.node)]):
        if node.domain == MINDSPORE_DOMAIN:
            node.op_type = node.op_type.removeprefix(_PREFIX)
    for function in model.functions:
        if function.domain == MINDSPORE_DOMAIN:
            function.name = function.name.removeprefix(_PREFIX)


def remove_identities(graph: onnx.GraphProto, variables: Collection[str] = ()) -> None:
    """Remove the Identity operators of a graph, and of its branches and loops, in place.

    Exporters write Identity for weights with two names; MindSpore has no kernel for it. An Identity that
    makes a graph output stays, since the output is another value than the input, unless a branch of a
    training step returns an unchanged variable by it.
    """
    removable = _removable(graph)
    for position in reversed(range(len(graph.node))):
        if removable.keys() & graph.node[position].output:
            del graph.node[position]
    sources = {}
    for name, source in removable.items():
        while source in removable:  # the source is itself removed: Identity of Identity
            source = removable[source]  # noqa: PLW2901 - follows the chain
        sources[name] = source
    unchanged = {*variables, *_new_values(graph, variables)}
    for node in graph.node:
        rename_values(node, sources)
        for inner in subgraphs(node):
            own = {value.name for value in inner.input} | {
                name for node in inner.node for name in node.output
            }
            kept = {
                node.output[0]: node.input[0]
                for node in inner.node
                if _is_identity(node)
                and ((node.input[0] in unchanged and node.input[0] not in own) or _is_returned(node))
            }
            for value in inner.output:
                value.name = kept.get(value.name, value.name)
            remove_identities(inner, unchanged)


def _new_values(graph: onnx.GraphProto, variables: Collection[str]) -> Iterator[str]:
    """Yield the names of the values that operators write into variables."""
    for node in graph.node:
        for slot, output in update_of(node.op_type, node.domain).new_values.items():
            if slot < len(node.input) and node.input[slot] in variables and output < len(node.output):
                yield node.output[output]


def _is_returned(node: onnx.NodeProto) -> bool:
    return any(entry.key == RETURNED for entry in node.metadata_props)


def _is_identity(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Identity"
        and not canonical_domain(node.domain)
        and (len(node.input), len(node.output)) == (1, 1)
    )


def _removable(graph: onnx.GraphProto) -> dict[str, str]:
    producer_counts = Counter(name for node in graph.node for name in node.output)
    producer_counts.update(value.name for value in graph.input)
    producer_counts.update(tensor.name for tensor in graph.initializer)
    producer_counts.update(sparse.values.name for sparse in graph.sparse_initializer)
    # outputs of bodies may be values of the graph around them
    outputs = {value.name for inner in walk_graphs(graph) for value in inner.output}
    sources = {
        node.output[0]: node.input[0]
        for node in graph.node
        if _is_identity(node)
        and all((*node.input, *node.output))
        and producer_counts[node.output[0]] == 1
        and node.output[0] not in outputs
    }
    return {name: source for name, source in sources.items() if not _is_cyclic(name, sources)}


def _is_cyclic(name: str, sources: Mapping[str, str]) -> bool:
    seen = set()
    while name in sources and name not in seen:
        seen.add(name)
        name = sources[name]
    return name in seen
