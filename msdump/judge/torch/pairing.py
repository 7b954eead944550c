"""Pairs the values of a file with the values of a module that has exported it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from msdump.graph import Graph, Node, reads
from msdump.judge.torch.golden import Call, Golden, call_text

_DEQUANTISED: Final = "_DequantizeLinear_Output"
"""Ends the names that onnxruntime's quantiser gives to dequantised values."""

_SIZES: Final = frozenset({"Shape", "Size"})  # they read no elements

_MOST: Final = 12  # values of one kind that a value is compared with: its own name, and the next ones

_UNCERTAIN: Final = 0.9

_Border = tuple[frozenset[str], frozenset[str]]
"""The golden values, and the parameters, that a value is computed of."""


@dataclass(frozen=True, slots=True)
class Cone:
    """The operators of a file that compute a value of golden values alone, in their order."""

    nodes: tuple[Node, ...] = ()  # the operators
    reads: tuple[str, ...] = ()  # the golden values that they read, by the file's names

    def joined(self, other: Cone) -> Cone:
        """Return the operators and values of both."""
        nodes = {node.name: node for node in (*self.nodes, *other.nodes)}
        return Cone(tuple(nodes.values()), tuple(dict.fromkeys((*self.reads, *other.reads))))


def cones_of(graph: Graph, partners: Collection[str]) -> dict[str, Cone]:
    """Return the operators that compute each operator of values with partners, by its name."""
    made: dict[str, Cone] = {}
    found = {}
    for node in graph.nodes:
        cone = Cone()
        for name in reads(node):
            if name not in graph.weights:
                cone = cone.joined(made.get(name, Cone(reads=(name,))))
        found[node.name] = cone = cone.joined(Cone((node,)))
        made |= {name: Cone(reads=(name,)) if name in partners else cone for name in node.outputs if name}
    return found


def pair_values(graph: Graph, golden: Golden) -> dict[str, str]:
    """Return golden's names of the values of a file, by the file's names.

    A value of the file is golden's value of its name, if both are computed of the same values. If the file
    was exported from another version of the program, the running numbers in names have moved: then it is the
    value of the same function that shares most of the values that it is computed of.
    """
    partners = dict(zip((value.name for value in graph.inputs), golden.inputs, strict=False))
    partners |= dict(zip((value.name for value in graph.outputs), golden.outputs, strict=False))
    given, outputs = {*partners}, {name for node in graph.nodes for name in node.outputs}
    texts = [call_text(metadata_of(node).get("fx_node", "")) for node in graph.nodes]
    is_fresh = any(text for _, text in texts) and all(
        golden.texts.get(name) == text for name, text in texts if text
    )
    kinds = defaultdict(list)
    for name in golden.names:
        kinds[_kind(name)].append(name)
    taken = {other: name for name, other in partners.items()}  # golden's name -> the file's
    certain = {*taken}
    borders: dict[str, _Border] = {name: (frozenset({partners[name]}), frozenset()) for name in partners}
    known = frozenset(golden.names)
    for node in graph.nodes:
        here = [borders[name] for name in reads(node) if name in borders and node.op_type not in _SIZES]
        values = frozenset[str]().union(*(each[0] for each in here))
        weights = golden.state.intersection(reads(node)).union(*(each[1] for each in here))
        call = call_of(node)
        for name in filter(None, node.outputs):
            # a quantiser of onnxruntime that clamps leaves ReLU's name to its input
            shown = "" if name + _DEQUANTISED in outputs else name.removesuffix(_DEQUANTISED)
            if name not in given and shown:
                slot = node.outputs.index(name) if len(node.outputs) > 1 else None
                alike = [shown] if is_fresh else [shown, *kinds[_kind(shown)]]
                fits = [
                    other
                    for other in dict.fromkeys(alike)
                    if other in known and other not in certain and _is_alike(call, slot, golden.call(other))
                ][:_MOST]
                mine = values, weights
                scores = [
                    1.0 if is_fresh else _likeness(mine, golden, each, (taken, taken.keys() | outputs))
                    for each in fits
                ]
                best = scores.index(max(scores)) if scores else 0
                is_certain = bool(scores) and scores[best] == 1
                if fits and (is_certain or fits[best] not in taken):
                    partners.pop(taken.get(fits[best], ""), None)
                    partners[name], taken[fits[best]] = fits[best], name
                    certain |= {fits[best]} if is_certain else set()
            if name in partners:
                borders[name] = frozenset({partners[name]}), frozenset()
            else:
                borders[name] = values, weights
    return partners


def _likeness(mine: _Border, golden: Golden, name: str, known: tuple[Collection[str], ...]) -> float:
    """Return the share of values that both are computed of, 1 if it is certain.

    It is, if no value between has a name that a later value of the file has.
    """
    paired, named = (golden.border(name, each) for each in known)
    if mine[0] == named[0] and mine[1] <= named[1]:
        return 1.0
    every = mine[0] | paired[0]
    return _UNCERTAIN * len(mine[0] & paired[0]) / len(every) if every else 0.0


def _is_alike(call: Call | None, slot: int | None, golden: Call) -> bool:
    is_alike = call is None or (call.target, call.module) == (golden.target, golden.module)
    return is_alike and slot in (None, golden.slot)


def _kind(name: str) -> str:
    """Return the name of a function, ``add`` of the value ``add_12``."""
    return re.sub(r"_\d+$", "", name)


def metadata_of(node: Node) -> dict[str, str]:
    """Return the exporter's notes at an operator."""
    return {each.key.removeprefix("pkg.torch.onnx."): each.value for each in node.proto.metadata_props}


def call_of(node: Node) -> Call | None:
    """Return the call that an operator is part of, by the metadata of its export; None if a tool wrote it."""
    metadata = metadata_of(node)
    try:
        scopes, classes = (ast.literal_eval(metadata[key]) for key in ("name_scopes", "class_hierarchy"))
        return Call(classes[-1], scopes[-2] if len(scopes) > 1 else "")
    except (KeyError, IndexError, ValueError, SyntaxError):
        return None


def call_name(node: Node) -> str:
    """Return the name of the call that an operator is part of, "" if the exporter did not write it."""
    return call_text(metadata_of(node).get("fx_node", ""))[0]
