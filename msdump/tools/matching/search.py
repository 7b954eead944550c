"""The search for pairs of operators: the surest first, each one telling of its neighbours."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import Final

from msdump.tools.matching.colours import Colours
from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.sides import IndexedGraph, is_commutative, is_weight

_LEAST: Final = 0.5
"""A pair that is less sure than this is none."""

_SURE: Final = 0.95
"""A pair that is as sure as this needs no look at what the operators wrote."""

_MOST_CANDIDATES: Final = 64
"""Pairs that are weighed of operators that a property does not tell apart."""

_MOST_READERS: Final = 24
"""Readers of one value that are weighed against each other; more of them have other properties, too."""


class Search:
    """Finds pairs of operators; each operator stands in one pair at most."""

    def __init__(self, evidence: PairEvidence) -> None:
        """Begin without a candidate."""
        self._evidence = evidence
        self._mine, self._golden = evidence.mine, evidence.golden
        self._heap: list[tuple[float, bool, float, int, int]] = []
        self._unsure: list[tuple[int, int]] = []
        self._weighed: dict[int, int] = {}
        self._pairs = 0

    def add_all(self, colours: Colours) -> None:
        """Take in as candidates the operators that share a colour, a name, or a place in the order."""
        for candidate in self._evidence.in_order:
            self._add(*candidate)
        for colouring in (colours.before, colours.behind, *reversed(colours.around)):
            self._add_classes(colouring.mine, colouring.golden)
        for keys in (_names, _nodes, _weights, _places):
            self._add_classes(keys(self._mine), keys(self._golden))

    def add_contents(self) -> None:
        """Weigh also what operators wrote; those that wrote the same elements become candidates."""
        evidence = self._evidence
        evidence.reads_contents = True
        self._weighed.clear()
        mine, golden = (
            [_digest(graph, place) if partner is None else None for place, partner in enumerate(partners)]
            for graph, partners in ((self._mine, evidence.golden_of), (self._golden, evidence.mine_of))
        )
        before, self._heap = self._heap, []
        self._add_classes(mine, golden)
        for candidate in (*self._unsure, *((own, other) for *_, own, other in before)):
            self._add(*candidate)
        for place, partner in enumerate(evidence.golden_of):
            if partner is not None:
                self._add_neighbours(place, partner)

    def run(self, *, is_sure: bool = False) -> None:
        """Find all pairs.

        Args:
            is_sure: Only those that need no look at what operators wrote: others are candidates still.
        """
        evidence = self._evidence
        while self._heap and not (is_sure and -self._heap[0][0] < _SURE):
            before, _, _, mine, golden = heapq.heappop(self._heap)
            if evidence.golden_of[mine] is not None or evidence.mine_of[golden] is not None:
                continue
            certainty = evidence.certainty(mine, golden)
            if certainty < -before:  # a neighbour has found another partner since
                self._push(mine, golden, certainty)
            elif is_sure and not evidence.is_told_apart(mine, golden):
                self._unsure.append((mine, golden))
            else:
                evidence.pair(mine, golden)
                self._pairs += 1
                self._add_neighbours(mine, golden)

    def _add_classes(self, mine: Iterable[Hashable | None], golden: Iterable[Hashable | None]) -> None:
        """Take in the operators of both graphs with equal keys; those without a key have no such partner."""
        classes, others = _classes(mine), _classes(golden)
        for key, members in classes.items():
            partners = others.get(key, ())
            if len(members) * len(partners) <= _MOST_CANDIDATES:
                candidates: Iterable[tuple[int, int]] = product(members, partners)
            elif len(members) == len(partners):  # in the order of execution
                candidates = zip(members, partners, strict=True)
            else:
                candidates = ()
            for candidate in candidates:
                self._add(*candidate)

    def _add_neighbours(self, mine: int, golden: int) -> None:
        """Take in as candidates what two operators that belong together read, and who reads them."""
        own, other = self._mine.producers[mine], self._golden.producers[golden]
        aligned = (
            product(own, other) if is_commutative(self._mine.types[mine]) else zip(own, other, strict=False)
        )
        for each, partner in aligned:
            if each.position >= 0 and partner.position >= 0:
                self._add(each.position, partner.position)
        readers = self._mine.readers[mine][:_MOST_READERS], self._golden.readers[golden][:_MOST_READERS]
        for reader, partner_reader in product(*readers):
            is_same = reader.output == partner_reader.output
            if is_same and reader.position >= 0 and partner_reader.position >= 0:
                self._add(reader.position, partner_reader.position)

    def _add(self, mine: int, golden: int) -> None:
        evidence = self._evidence
        if evidence.golden_of[mine] is None and evidence.mine_of[golden] is None:
            count = len(self._golden.operators)
            if self._weighed.get(mine * count + golden) != self._pairs:  # else nothing has changed since
                self._weighed[mine * count + golden] = self._pairs
                self._push(mine, golden, evidence.certainty(mine, golden))

    def _push(self, mine: int, golden: int, certainty: float) -> None:
        if certainty < _LEAST:
            return
        own, other = self._mine.operators, self._golden.operators
        has_other_name = own[mine].full_name != other[golden].full_name
        shift = abs(mine / len(own) - golden / len(other))
        heapq.heappush(self._heap, (-certainty, has_other_name, shift, mine, golden))


def _classes(keys: Iterable[Hashable | None]) -> dict[Hashable, list[int]]:
    classes: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        if key is not None:
            classes.setdefault(key, []).append(place)
    return classes


def _names(graph: IndexedGraph) -> Sequence[Hashable]:
    return [operator.full_name for operator in graph.operators]


def _nodes(graph: IndexedGraph) -> Sequence[Hashable | None]:
    return [operator.onnx_names or None for operator in graph.operators]


def _weights(graph: IndexedGraph) -> Sequence[Hashable | None]:
    """Return types and weights, which tell operators apart that read some."""
    labels = (
        (op_type, tuple(each.label for each in producers if is_weight(each)))
        for op_type, producers in zip(graph.types, graph.producers, strict=True)
    )
    return [key if key[1] else None for key in labels]


def _places(graph: IndexedGraph) -> Sequence[Hashable]:
    """Return scopes and types, which tell operators apart where a module has one of a type."""
    types = zip(graph.operators, graph.types, strict=True)
    return [(operator.scope, op_type) for operator, op_type in types]


def _digest(graph: IndexedGraph, place: int) -> Hashable | None:
    content = graph.side.content_of(graph.operators[place].full_name, 0)
    return content.digest if content is not None and content.is_telling else None
