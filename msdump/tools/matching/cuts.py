"""Regions cut into smaller ones: where one value crosses, and what lies before or behind has the same parts.

A region whose results differ says only that one of its operators is wrong; the smaller ones say which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, takewhile

from msdump.device.tasks import INSERTED_PREFIX
from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.regions import RegionPair, Result
from msdump.tools.matching.sides import CAST, IndexedGraph, canonical_type, part_types

_Cut = tuple[RegionPair, RegionPair]
"""The front and the back of a region."""


def cut(pair: RegionPair, evidence: PairEvidence) -> list[RegionPair]:
    """Return the smallest regions that a pair of regions falls into, in order.

    Regions that wrote the same stay whole: they may compute it in different ways.

    Args:
        pair: Two regions that do the same.
        evidence: What the graphs have in common.
    """
    if not any(evidence.are_unlike(own, other) for (own, _), (other, _) in pair.results):
        return [pair]
    found, pending = [], [pair]
    while pending:
        whole = pending.pop()
        halves = _halves(whole, evidence)
        if halves is None:
            found.append(whole)
        else:
            pending += reversed(halves)
    return found


def _halves(pair: RegionPair, evidence: PairEvidence) -> _Cut | None:
    sides = evidence.mine, evidence.golden
    own, other = (
        [_parts(graph, place) for place in places]
        for graph, places in zip(sides, (pair.mine, pair.golden), strict=True)
    )
    behind = _equal_beginnings(_reversed(own), _reversed(other))
    counts = (
        *_equal_beginnings(own, other),
        *((len(own) - one, len(other) - two) for one, two in behind),
    )
    halves = (_split(pair, sides, each) for each in counts)
    return next((each for each in halves if each is not None), None)


def _parts(graph: IndexedGraph, place: int) -> list[str]:
    """Return the types of the parts of an operator, in order, without what the device adds, and casts."""
    operator = graph.operators[place]
    if operator.full_name.startswith(INSERTED_PREFIX):
        return []
    return [canonical_type(each) for each in part_types(operator) if each != CAST]


def _reversed(parts: Sequence[list[str]]) -> list[list[str]]:
    return [each[::-1] for each in reversed(parts)]


def _equal_beginnings(own: Sequence[list[str]], other: Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of operators, none of them all, that have the same parts from the beginning on."""
    pairs = zip(chain.from_iterable(own), chain.from_iterable(other), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    count_of = {length: count for count, length in enumerate(accumulate(map(len, other[:-1])), 1)}
    for count, length in enumerate(accumulate(map(len, own[:-1])), 1):
        if length <= common and length in count_of:
            yield count, count_of[length]


def _split(
    pair: RegionPair, sides: tuple[IndexedGraph, IndexedGraph], counts: tuple[int, int]
) -> _Cut | None:
    """Return the halves of a region with so many operators in front; None where not one value crosses."""
    own, other = (
        _crossing(graph, places[:count], places[count:])
        for graph, places, count in zip(sides, (pair.mine, pair.golden), counts, strict=True)
    )
    if own is None or other is None:
        return None
    (mine, golden), (mine_behind, golden_behind) = (
        (pair.mine[: counts[0]], pair.golden[: counts[1]]),
        (pair.mine[counts[0] :], pair.golden[counts[1] :]),
    )
    front = {(one, two) for one, two in pair.results if one[0] in mine and two[0] in golden}
    back = {(one, two) for one, two in pair.results if one[0] in mine_behind and two[0] in golden_behind}
    if len(front) + len(back) < len(pair.results):
        return None
    return (
        replace(pair, mine=mine, golden=golden, results=tuple(sorted(front | {(own, other)}))),
        replace(pair, mine=mine_behind, golden=golden_behind, results=tuple(sorted(back))),
    )


def _crossing(graph: IndexedGraph, front: Sequence[int], back: Sequence[int]) -> Result | None:
    """Return the only value of the front that the back reads, None where there are none or several."""
    values = {
        (producer.position, producer.slot)
        for place in back
        for producer in graph.producers[place]
        if producer.position in front
    }
    return values.pop() if len(values) == 1 else None
