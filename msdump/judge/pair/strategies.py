"""The strategies by which operators of two graphs are paired, the surest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from msdump.judge.pair import regions
from msdump.judge.pair.pairing import Means, PartialAlignment
from msdump.judge.pair.sides import (
    IndexedGraph,
    aligned,
    is_commutative,
    is_weight,
    passes_on,
    place_of,
)

Keys = Callable[[IndexedGraph, int], Hashable | None]
"""Returns the key of an operator, by its position; None for none."""


def _node(graph: IndexedGraph, place: int) -> Hashable | None:
    return graph.operators[place].onnx_names or None


def _name(graph: IndexedGraph, place: int) -> Hashable | None:
    # the type prevents pairing the first of two consecutive casts with the second one
    return graph.operators[place].full_name, _cast_type(graph, place)


def _cast_type(graph: IndexedGraph, place: int) -> Hashable | None:
    outputs = graph.operators[place].outputs
    return outputs[0].dtype if outputs and passes_on(graph.types[place]) else None


def _weights(graph: IndexedGraph, place: int) -> Hashable | None:
    weights = tuple(each.label for each in graph.producers[place] if is_weight(each))
    return (graph.types[place], weights) if weights else None


def _elements(graph: IndexedGraph, place: int) -> Hashable | None:
    content = graph.side.content_of(graph.operators[place].full_name, 0)
    return content.digest if content is not None and content.is_telling else None


def _classes(places: Iterable[int], key: Callable[[int], Hashable | None]) -> dict[Hashable, list[int]]:
    classes: dict[Hashable, list[int]] = {}
    for place in places:
        known = key(place)
        if known is not None:
            classes.setdefault(known, []).append(place)
    return classes


def _unique(
    pairs: PartialAlignment, key: Keys, mine: Iterable[int], golden: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of operators with a key that exactly one operator of each graph has."""
    own = _classes(mine, partial(key, pairs.mine))
    other = _classes(golden, partial(key, pairs.golden))
    for known, members in own.items():
        if len(members) == len(other.get(known, ())) == 1:
            yield members[0], other[known][0]


_Hashes = Sequence[int]
"""Weisfeiler-Leman hash of each operator, by position; equal neighbourhoods have equal hashes."""

_HashPair = tuple[_Hashes, _Hashes]
"""The hashes of both graphs, from the same numbering."""

_RADII: Final = 3


class _Hasher:
    """Computes Weisfeiler-Leman hashes of operators' neighbourhoods; equal hashes match in both graphs.

    Hashes over all predecessors agree up to the first change of the graph, hashes over all successors agree
    after the last change, and hashes within a radius agree between two changes.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def hashes(self, graph: IndexedGraph) -> Iterator[_Hashes]:
        """Yield hashes over all predecessors, over all successors, and over neighbours by growing radius."""
        before: list[int] = []
        for position, op_type in enumerate(graph.types):
            before.append(self._number("before", op_type, _read_hashes(graph, position, before)))
        yield before
        behind = [-1] * len(graph.operators)
        for position in reversed(range(len(behind))):
            key = _read_labels(graph, position), _reader_hashes(graph, position, behind)
            behind[position] = self._number("behind", graph.types[position], *key)
        yield behind
        around = [
            self._number("alone", op_type, _read_labels(graph, position))
            for position, op_type in enumerate(graph.types)
        ]
        for _ in range(_RADII):
            around = [
                self._number(
                    own, _read_hashes(graph, position, around), _reader_hashes(graph, position, around)
                )
                for position, own in enumerate(around)
            ]
            yield around


def _read_hashes(graph: IndexedGraph, position: int, hashes: _Hashes) -> tuple[Hashable, ...]:
    # without a topological order a producer may follow its reader, and have no hash yet
    parts = [
        (hashes[each.position] if each.position < len(hashes) else -1, each.slot)
        if each.position >= 0
        else each.label
        for each in graph.producers[position]
    ]
    return _arranged(graph.types[position], parts)


def _reader_hashes(graph: IndexedGraph, position: int, hashes: _Hashes) -> tuple[Hashable, ...]:
    readers = [
        (hashes[each.position] if each.position >= 0 else "output", place_of(graph, each), each.output)
        for each in graph.readers[position]
    ]
    return tuple(sorted(readers, key=str))


def _read_labels(graph: IndexedGraph, position: int) -> tuple[Hashable, ...]:
    labels = [each.label for each in graph.producers[position] if each.position < 0]
    return _arranged(graph.types[position], labels)


def _arranged(op_type: str, parts: Sequence[Hashable]) -> tuple[Hashable, ...]:
    return tuple(sorted(parts, key=str)) if is_commutative(op_type) else tuple(parts)


def of_one_key(key: Keys, pairs: PartialAlignment) -> Iterator[tuple[int, int]]:
    """Yield pairs of operators with a unique key, if shapes, order and elements allow the pair."""
    return (pair for pair in _unique(pairs, key, *pairs.free()) if pairs.may_belong(*pair))


def of_one_hash(hashes: _HashPair, pairs: PartialAlignment) -> Iterator[tuple[int, int]]:
    """Yield pairs with a unique hash; of equally many with one hash, pairs with a unique node or name."""
    own, other = pairs.free()
    classes = _classes(own, hashes[0].__getitem__)
    golden_classes = _classes(other, hashes[1].__getitem__)
    for known, members in classes.items():
        partners = golden_classes.get(known, [])
        if len(members) == len(partners) == 1:
            yield members[0], partners[0]
        elif len(members) == len(partners):
            for key in (_node, _name, _cast_type):
                yield from _unique(pairs, key, members, partners)


def in_order(hashes: _HashPair, pairs: PartialAlignment) -> Iterator[tuple[int, int]]:
    """Yield pairs with equal hash and shape, from a shortest edit script between the graphs' orders."""
    partners = pairs.golden_of, [None if each is None else place for place, each in enumerate(pairs.mine_of)]
    own, other = (
        [
            (known, partner, *(form.shape for form in operator.outputs))
            for known, partner, operator in zip(side, others, graph.operators, strict=True)
        ]
        for side, others, graph in zip(hashes, partners, (pairs.mine, pairs.golden), strict=True)
    )
    return (pair for pair in aligned(own, other) if pairs.may_belong(*pair))


def next_to_pairs(pairs: PartialAlignment, *, is_behind: bool, is_strict: bool) -> Iterator[tuple[int, int]]:
    """Yield neighbours of paired operators: readers, or producers, that are the only ones of their type.

    Args:
        pairs: The pairs so far; pairs that are added during the iteration count at once.
        is_behind: Whether readers are paired, from front to back; else producers, from back to front.
        is_strict: Whether all inputs of readers, or all readers of producers, have to be the same.
    """
    neighbours = _readers if is_behind else _writers
    places = range(len(pairs.mine.operators))
    for place in places if is_behind else reversed(places):
        partner = pairs.golden_of[place]
        if partner is None:
            continue
        own, other = (
            neighbours(pairs.mine, place, pairs.golden_of),
            neighbours(pairs.golden, partner, pairs.mine_of),
        )
        for mine, golden in _only_ones(own, other):
            known = pairs.inputs(mine, golden, may_lack=is_strict and not is_behind)
            is_same = all(known) if is_behind and is_strict else False not in known
            if is_same and is_strict and not is_behind:
                is_same = pairs.have_same_readers(mine, golden)
            if is_same and pairs.may_belong(mine, golden):
                yield mine, golden


_Places = Iterable[tuple[Hashable, int]]


def _only_ones(own: _Places, other: _Places) -> Iterator[tuple[int, int]]:
    own, other = dict.fromkeys(own), dict.fromkeys(other)
    counts, golden_counts = (Counter(key for key, _ in neighbours) for neighbours in (own, other))
    partners = dict([*other])
    for key, place in own:
        if counts[key] == golden_counts[key] == 1:
            yield place, partners[key]


def _readers(
    graph: IndexedGraph, place: int, partners: Sequence[int | None]
) -> Iterator[tuple[Hashable, int]]:
    for reader in graph.readers[place]:
        if reader.position >= 0 and partners[reader.position] is None:
            key = graph.types[reader.position], place_of(graph, reader), reader.output
            yield key, reader.position


def _writers(
    graph: IndexedGraph, place: int, partners: Sequence[int | None]
) -> Iterator[tuple[Hashable, int]]:
    is_fixed = not is_commutative(graph.types[place])
    for slot, writer in enumerate(graph.producers[place]):
        if writer.position >= 0 and partners[writer.position] is None:
            yield (graph.types[writer.position], slot if is_fixed else -1, writer.slot), writer.position


class Strategy(NamedTuple):
    """One way to find pairs; its function yields pairs, given the pairs so far."""

    pairs: Callable[[PartialAlignment], Iterator[tuple[int, int]]]
    means: Means
    certainty: float


def strategies(mine: IndexedGraph, golden: IndexedGraph) -> list[Strategy]:
    """Return all strategies for two graphs, the surest first."""
    hasher = _Hasher()
    before, behind, *around = zip(hasher.hashes(mine), hasher.hashes(golden), strict=True)
    structure = Means.STRUCTURE
    return [
        Strategy(partial(of_one_hash, before), structure, 0.99),
        Strategy(partial(of_one_hash, behind), structure, 0.99),
        *(Strategy(partial(of_one_hash, each), structure, 0.95) for each in reversed(around)),
        Strategy(partial(next_to_pairs, is_behind=True, is_strict=True), structure, 0.95),
        Strategy(partial(next_to_pairs, is_behind=False, is_strict=True), structure, 0.95),
        Strategy(partial(of_one_key, _node), Means.NODE, 0.9),
        # below 0.9: equal outputs may have different inputs, which must not be compared one by one
        Strategy(partial(of_one_key, _elements), Means.CONTENT, 0.85),
        Strategy(partial(of_one_key, _weights), structure, 0.8),
        Strategy(partial(in_order, around[0]), structure, 0.8),
        Strategy(partial(next_to_pairs, is_behind=True, is_strict=False), structure, 0.7),
        Strategy(partial(next_to_pairs, is_behind=False, is_strict=False), structure, 0.7),
        Strategy(regions.single_pairs, structure, 0.6),
        Strategy(partial(regions.namesakes, attrgetter("full_name")), Means.NAME, 0.6),
        Strategy(partial(regions.namesakes, lambda each: "+".join(each.onnx_names)), Means.NODE, 0.6),
    ]


def pair_operators(pairs: PartialAlignment, ordered: Sequence[Strategy]) -> None:
    """Pair operators: each time a strategy has found pairs, begin with the surest again."""
    number = 0
    while number < len(ordered):
        strategy, before = ordered[number], len(pairs.found)
        for mine, golden in strategy.pairs(pairs):
            if pairs.is_free(mine, golden) and not pairs.is_beside_namesake(mine, golden):
                pairs.join(mine, golden, strategy.means, strategy.certainty)
        number = 0 if len(pairs.found) > before else number + 1
