"""A partial alignment of two graphs, and the checks that a new pair has to pass."""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msdump.judge.pair.sides import UNKNOWN, UNTOLD, IndexedGraph, Producer, is_commutative, place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msdump.read import ValueForm

LIKE: Final = 0.85
"""Likeness of two tensors from which on they may hold the same values, computed in other types."""


class Means(enum.StrEnum):
    """Strategy by which a pair of operators was found."""

    NAME = "name"
    NODE = "node"
    STRUCTURE = "structure"
    CONTENT = "content"


class Found(NamedTuple):
    """The partner of an operator: its position in the golden graph."""

    place: int
    means: Means
    certainty: float


class PartialAlignment:
    """Two indexed graphs, and the operators that are paired so far, by position.

    Attributes:
        mine: The first graph.
        golden: The second graph.
        found: The partner of each operator of the first graph that has one, by position.
        golden_of: Position of the partner of each operator of the first graph, None without a partner.
        mine_of: Position of the partner of each operator of the second graph, None without a partner.
    """

    def __init__(self, mine: IndexedGraph, golden: IndexedGraph) -> None:
        """Begin without pairs."""
        self.mine = mine
        self.golden = golden
        self.found: dict[int, Found] = {}
        self.golden_of: list[int | None] = [None] * len(mine.operators)
        self.mine_of: list[int | None] = [None] * len(golden.operators)

    def join(self, mine: int, golden: int, means: Means, certainty: float) -> None:
        """Pair two operators."""
        own, other = self.mine.operators[mine], self.golden.operators[golden]
        if own.full_name == other.full_name:
            means = Means.NAME
        elif means is Means.STRUCTURE and own.onnx_names and own.onnx_names == other.onnx_names:
            means = Means.NODE
        self.found[mine] = Found(golden, means, certainty)
        self.golden_of[mine] = golden
        self.mine_of[golden] = mine

    def is_free(self, mine: int, golden: int) -> bool:
        """Return whether neither operator has a partner, and both are of one type."""
        is_alone = self.golden_of[mine] is None and self.mine_of[golden] is None
        return is_alone and self.mine.types[mine] == self.golden.types[golden]

    def free(self) -> tuple[list[int], list[int]]:
        """Return the positions of the operators without a partner, of each graph."""
        own, other = (
            [place for place, partner in enumerate(partners) if partner is None]
            for partners in (self.golden_of, self.mine_of)
        )
        return own, other

    def may_have_form(self, mine: int, golden: int) -> bool:
        """Return whether the outputs of two operators may have the same shapes."""
        own, other = self.mine.operators[mine].outputs, self.golden.operators[golden].outputs
        return all(map(_may_be_same_shape, own, other))

    def likeness(self, mine: int, golden: int) -> float | None:
        """Return the likeness of the first outputs' elements, 0 to 1; None if a file is missing."""
        own, other = (
            graph.side.content_of(graph.operators[position].full_name, 0)
            for graph, position in ((self.mine, mine), (self.golden, golden))
        )
        return None if own is None or other is None or not other.is_telling else own.likeness(other)

    def may_belong(self, mine: int, golden: int) -> bool:
        """Return whether shapes, order and elements allow a pair.

        Different output elements forbid a pair, except with the same inputs: one operator may be wrong.
        """
        if not (self.may_have_form(mine, golden) and self.is_in_order(mine, golden)):
            return False
        return all(self.inputs(mine, golden)) or not self.are_unlike(mine, golden)

    def is_beside_namesake(self, mine: int, golden: int) -> bool:
        """Return whether an unpaired neighbour of the same type has the ONNX node of the partner.

        Of two consecutive operators of a type, structure alone cannot identify the superfluous one.
        """
        sides = ((self.mine, mine, self.golden_of), (self.golden, golden, self.mine_of))
        for (graph, place, partners), (other, partner, _) in (sides, sides[::-1]):
            node = other.operators[partner].onnx_names
            beside = {each.position for each in graph.producers[place] if each.position >= 0}
            beside |= {each.position for each in graph.readers[place] if each.position >= 0}
            if node and node != graph.operators[place].onnx_names:
                for each in beside:
                    is_alike = graph.types[each] == graph.types[place] and partners[each] is None
                    if is_alike and graph.operators[each].onnx_names == node:
                        return True
        return False

    def have_same_readers(self, mine: int, golden: int) -> bool:
        """Return whether the readers of two operators are all paired with each other; False without any."""
        own = {
            (
                self.golden_of[each.position] if each.position >= 0 else -1,
                place_of(self.mine, each),
                each.output,
            )
            for each in self.mine.readers[mine]
        }
        other = {
            (each.position, place_of(self.golden, each), each.output) for each in self.golden.readers[golden]
        }
        return bool(own) and own == other

    def are_unlike(self, mine: int, golden: int) -> bool:
        """Return whether the first outputs of two operators are known to hold different elements."""
        likeness = self.likeness(mine, golden)
        return likeness is not None and likeness < LIKE

    def is_in_order(self, mine: int, golden: int) -> bool:
        """Return whether a pair fits both orders: partners of producers stand before, of readers behind."""
        return _is_between(self.mine, mine, self.golden_of, self.golden, golden) and _is_between(
            self.golden, golden, self.mine_of, self.mine, mine
        )

    def inputs(self, mine: int, golden: int, *, may_lack: bool = False) -> list[bool | None]:
        """Return for each input of two operators whether both read the same value; None if unknown.

        With ``may_lack``, an input from a producer without partner is unknown instead of different.
        """
        is_same = partial(self._is_same, may_lack=may_lack)
        own, other = list(self.mine.producers[mine]), list(self.golden.producers[golden])
        known: list[bool | None] = []
        if is_commutative(self.mine.types[mine]):
            for each in list(own):
                same = next((one for one in other if is_same(each, one)), None)
                if same is not None:
                    own.remove(each)
                    other.remove(same)
                    known.append(True)
            own.sort(key=lambda each: self._partner(0, each) is not None)
            other.sort(key=lambda each: self._partner(1, each) is not None)
        known += map(is_same, own, other)
        return known + [False] * abs(len(own) - len(other))

    def _partner(self, side: int, writer: Producer) -> int | None:
        """Return the partner of an input's producer, -1 for an input that no operator writes."""
        partners = self.mine_of if side else self.golden_of
        return partners[writer.position] if writer.position >= 0 else -1

    def _is_same(self, own: Producer, other: Producer, *, may_lack: bool) -> bool | None:
        if UNTOLD in {own.label, other.label}:
            return None
        if own.position < 0 and other.position < 0:
            return own.label == other.label or UNKNOWN in {own.label, other.label}
        counterpart, source = self._partner(0, own), self._partner(1, other)
        if counterpart is source is None or (may_lack and None in {counterpart, source}):
            return None
        return counterpart == other.position and own.slot == other.slot


def _may_be_same_shape(own: ValueForm, other: ValueForm) -> bool:
    if own.shape is None or other.shape is None:
        return True
    is_long = len(own.shape) == len(other.shape)
    return is_long and all(
        one == two or -1 in {one, two} for one, two in zip(own.shape, other.shape, strict=True)
    )


def _is_between(
    graph: IndexedGraph, place: int, partner_of: Sequence[int | None], other: IndexedGraph, partner: int
) -> bool:
    before = (partner_of[each.position] for each in graph.producers[place] if each.position >= 0)
    behind = (partner_of[each.position] for each in graph.readers[place] if each.position >= 0)
    return not (
        any(each is not None and other.leads_to(partner, each) for each in before)
        or any(each is not None and other.leads_to(each, partner) for each in behind)
    )
