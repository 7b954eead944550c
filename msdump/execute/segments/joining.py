"""Which operators may run in a session with others: those that give the same bits there."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

from msdump.execute import bfloat16
from msdump.execute.initializers import binds_weights, tells_overflow
from msdump.execute.kernels import RoundingsOf
from msdump.graph.collectives.calls import call_of
from msdump.graph.graph import Graph, Node, ValueType
from msdump.graph.kernel.emulation import FLOAT32, HALVES, MOVES
from msdump.graph.operator_types import (
    GE_DOMAIN,
    GE_PREFIX,
    MINDSPORE_DOMAIN,
    WITH_MEMORY,
    canonical_domain,
    uses_float_status,
)
from msdump.graph.order import reads

_OWN_DOMAINS: Final = frozenset({"", GE_DOMAIN, MINDSPORE_DOMAIN})

_EXACT: Final = frozenset(
    {
        *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Expand", "Tile"),
        *("Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Shape", "Size", "Cast"),
        *("SpaceToDepth", "DepthToSpace", "Compress", "Where"),
    }
)
"""Operators that give the same elements of a half type whether the runtime widens them or not."""

_MAY_BE_TENSORS: Final = frozenset({"tensor", ""})


class Joining:
    """Tells of the operators of one graph which may run in a session with others."""

    def __init__(self, graph: Graph, roundings: RoundingsOf, *, has_halves: bool = False) -> None:
        """Set the graph.

        Args:
            graph: The graph, or a body.
            roundings: The emulated device's arithmetic.
            has_halves: Whether graphs around a body have values of half types.
        """
        self._graph = graph
        self._roundings = roundings
        self._has_halves = has_halves or any(each.dtype in HALVES for each in graph.types.values())
        self._remembering = frozenset(_remembering(graph))

    def joins(self, node: Node) -> bool:
        """Tell whether an operator gives the bits in a session with others that it gives in one of its own.

        It may not where the runtime lacks kernels for half types: it widens operators, and leaves out the
        rounding between two of them. Operators stay alone, too, that remember their runs, that need not have
        a value, and that tell the device's overflow status. Control flow joins with its bodies, where all
        that is in them might.
        """
        return (
            call_of(node) is None
            and not uses_float_status(node.domain, node.op_type)
            and all(map(self._is_plain, node.members))
            and any(node.outputs)
            and self._has_plain_types(node)
            and (not node.bodies or self._has_plain_bodies(node))
        )

    def _has_plain_bodies(self, node: Node) -> bool:
        # the runtime reads what stands in the model, also for operators that were folded since
        return self._values.issuperset(reads(node)) and all(map(self._is_plain_body, node.bodies.values()))

    @functools.cached_property
    def _values(self) -> frozenset[str]:
        made = (name for node in self._graph.nodes for name in node.outputs)
        return frozenset((*(value.name for value in self._graph.inputs), *self._graph.weights, *made))

    def _is_plain_body(self, body: Graph) -> bool:
        """Tell whether a branch or loop body gives the bits within the runtime that it gives as a program."""
        joining = Joining(body, self._roundings, has_halves=self._has_halves)
        outer_weights = body.outer & body.weights.keys()
        return all(
            joining.joins(node)
            # the runtime is handed the body as the model has it, without the device's casts
            and not joining.has_casts(node)
            # of outer weights it packs other ones than a session of the operator alone does
            and not any(
                binds_weights(part) and not outer_weights.isdisjoint(part.inputs) for part in node.members
            )
            for node in body.nodes
        )

    def has_casts(self, node: Node) -> bool:
        """Tell whether the device may cast what an operator reads or writes."""
        roundings = self._roundings(node)
        return roundings is not None and (
            self._has_halves
            or any(each.reads is not FLOAT32 or each.writes is not FLOAT32 for each in roundings)
        )

    def _is_plain(self, part: Node) -> bool:
        key = (canonical_domain(part.domain), part.op_type)
        return (
            part.op_type not in WITH_MEMORY
            and key not in self._remembering
            and (
                bool(part.bodies)
                or not any(attribute.HasField("g") or attribute.graphs for attribute in part.proto.attribute)
            )
        )

    def _has_plain_types(self, node: Node) -> bool:
        types = [self._graph.type_of(name) for name in (*reads(node), *filter(None, node.outputs))]
        if any(each.kind not in _MAY_BE_TENSORS for each in types):
            return False
        roundings = self._roundings(node)
        if roundings is None:
            return not self._may_be_widened(node, types)
        if tells_overflow(roundings) or bfloat16.read_by(self._graph, node, roundings):
            return False
        # casts are written by type: what is not known before the run cannot be cast
        if any(each.dtype is None for each in types):
            return False
        return all(self._keeps_halves(part) for part in node.members)

    def _keeps_halves(self, part: Node) -> bool:
        """Tell whether the device's casts stand around what an operator computes in half types."""
        if not self._has_halves or (part.domain in _OWN_DOMAINS and not _moves(part)):
            return True
        return _is_exact(part) or not any(
            self._graph.type_of(name).dtype in {*HALVES, None}
            for name in (*part.inputs, *part.outputs)
            if name
        )

    def _may_be_widened(self, node: Node, types: list[ValueType]) -> bool:
        if not self._has_halves or all(map(_is_exact, node.members)):
            return False
        return any(each.dtype is None or each.dtype in HALVES for each in types)


def _moves(part: Node) -> bool:
    return part.op_type.removeprefix(GE_PREFIX) in MOVES


def _is_exact(part: Node) -> bool:
    return not part.domain and part.op_type in _EXACT


def _remembering(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield domain and name of the functions that call an operator with a memory, directly or not."""
    functions = list(graph.proto.functions)
    found: set[tuple[str, str]] = set()
    while True:
        new = {
            key
            for function in functions
            if (key := (canonical_domain(function.domain), function.name)) not in found
            and any(
                node.op_type in WITH_MEMORY or (canonical_domain(node.domain), node.op_type) in found
                for node in function.node
            )
        }
        if not new:
            return (yield from found)
        found |= new
