"""Weights that reach the operators that round them through others that move elements, such as a Transpose.

Rounding an element and moving it may change places. So a weight is rounded once, before it is moved, if
everything that reads the moved elements would round them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from msdump.graph import Node, reads, subgraphs
from msdump.graph.kernel import FLOAT32, Rounding, is_cast

_MOVING: Final = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators that return all elements of their first input, and no others."""


def moved_input(node: Node) -> str | None:
    """Return the input that a moving operator moves, None for any other operator."""
    return node.inputs[0] if node.op_type in _MOVING and not node.domain and not node.parts else None


def shared_roundings(
    nodes: Sequence[Node], roundings: Callable[[Node], Sequence[Rounding] | None], hidden: Container[str]
) -> dict[str, Rounding]:
    """Return the roundings of values that all their readers round alike, through moving operators, too.

    ``hidden`` are the float32 values that nothing but these operators reads.
    """
    readers: dict[str, set[Rounding | None]] = {}
    found: dict[str, Rounding] = {}
    # backwards: all readers of an operator's outputs come before it
    for node in reversed(nodes):
        for name in node.outputs:
            kinds = readers.get(name, set())
            kind = next(iter(kinds)) if len(kinds) == 1 else None
            if kind is not None and name in hidden:
                found[name] = kind
        source = moved_input(node)
        for name in reads(node):
            own = {found.get(node.outputs[0])} if name == source else _kinds(node, name, roundings(node))
            readers.setdefault(name, set()).update(own)
    return found


def _kinds(node: Node, name: str, roundings: Sequence[Rounding] | None) -> set[Rounding | None]:
    """Return how an operator's parts round an input; None: a part does not, or has subgraphs."""
    if roundings is None or any(subgraphs(node.proto)):
        return {None}
    return {
        Rounding(each.reads, saturates=each.saturates) if is_cast(part, FLOAT32, each) else None
        for part, each in zip(node.members, roundings, strict=True)
        if name in part.inputs
    }
