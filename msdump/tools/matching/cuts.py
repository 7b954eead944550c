"""Regions cut into smaller ones: where one value crosses, and what lies before or behind has the same parts.

A region whose results differ says only that one of its operators is wrong; the smaller ones say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, takewhile
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.regions import RegionPair, Result
from msdump.tools.matching.sides import CAST, IndexedGraph, canonical_type, part_types

_TRIED: Final = 64  # cuts of a region, the most even ones: few values cross, or the region is no chain
_Cut = tuple[RegionPair, RegionPair]
"""The front and the back of a region."""


def cut(pair: RegionPair, evidence: PairEvidence) -> list[RegionPair]:
    """Return the smallest regions that a pair of regions falls into, in order.

    Regions that wrote the same stay whole: they may compute it in different ways. Of others one side may have
    more in front, or behind: that belongs to nothing of the other side, and is left out.

    Args:
        pair: Two regions that do the same.
        evidence: What the graphs have in common.
    """
    if not any(evidence.are_unlike(own, other) for (own, _), (other, _) in pair.results):
        return [pair]
    found, pending = [], [pair]
    while pending:
        whole = pending.pop()
        halves = _halves(whole, (evidence.mine, evidence.golden))
        if halves is None:
            found.append(whole)
        else:
            pending += (half for half in reversed(halves) if half.mine and half.golden)
    return found


def _halves(pair: RegionPair, sides: tuple[IndexedGraph, IndexedGraph]) -> _Cut | None:
    own, other = (
        [_parts(graph, place) for place in places]
        for graph, places in zip(sides, (pair.mine, pair.golden), strict=True)
    )
    whole = len(own), len(other)
    behind = _equal_beginnings(_reversed(own), _reversed(other))
    counts = [*_equal_beginnings(own, other), *((whole[0] - one, whole[1] - two) for one, two in behind)]
    counts = [each for each in counts if each not in {(0, 0), whole}]
    counts.sort(key=lambda each: (_is_trimming(each, whole), abs(2 * each[0] - whole[0])))
    halves = (_split(pair, sides, each) for each in counts[:_TRIED])
    return next((each for each in halves if each is not None), None)


def _is_trimming(counts: tuple[int, int], whole: tuple[int, int]) -> bool:
    """Tell whether all operators of one side lie on the same side of a cut."""
    return any(count in {0, length} for count, length in zip(counts, whole, strict=True))


def _parts(graph: IndexedGraph, place: int) -> list[str]:
    """Return the types of the parts of an operator, in order, without what the device adds, and casts."""
    operator = graph.operators[place]
    if operator.full_name.startswith(INSERTED_PREFIX):
        return []
    return [canonical_type(each) for each in part_types(operator) if each != CAST]


def _reversed(parts: Sequence[list[str]]) -> list[list[str]]:
    return [each[::-1] for each in reversed(parts)]


def _equal_beginnings(own: Sequence[list[str]], other: Sequence[list[str]]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of operators that have the same parts from the beginning on, but for none at all."""
    pairs = zip(chain.from_iterable(own), chain.from_iterable(other), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    count_of = {length: count for count, length in enumerate(accumulate(map(len, other)), 1)}
    for count, length in enumerate(accumulate(map(len, own)), 1):
        if length <= common and length in count_of:
            yield count, count_of[length]


def _split(
    pair: RegionPair, sides: tuple[IndexedGraph, IndexedGraph], counts: tuple[int, int]
) -> _Cut | None:
    """Return the halves of a region with so many operators in front; None where not one value crosses."""
    mine, mine_behind = pair.mine[: counts[0]], pair.mine[counts[0] :]
    golden, golden_behind = pair.golden[: counts[1]], pair.golden[counts[1] :]
    own = _crossing(sides[0], mine, mine_behind) if mine_behind else _only(one for one, _ in pair.results)
    other = (
        _crossing(sides[1], golden, golden_behind) if golden_behind else _only(two for _, two in pair.results)
    )
    if (mine and own is None) or (golden and other is None):
        return None
    front = {(one, two) for one, two in pair.results if one[0] in mine and two[0] in golden}
    back = {(one, two) for one, two in pair.results if one[0] in mine_behind and two[0] in golden_behind}
    if mine_behind and golden_behind and len(front) + len(back) < len(pair.results):
        return None
    if own is not None and other is not None:
        front.add((own, other))
    return (
        replace(pair, mine=mine, golden=golden, results=tuple(sorted(front))),
        replace(pair, mine=mine_behind, golden=golden_behind, results=tuple(sorted(back))),
    )


def _crossing(graph: IndexedGraph, front: Sequence[int], back: Sequence[int]) -> Result | None:
    """Return the only value of the front that the back reads, None where there are none or several."""
    inside = {*front}
    return _only(
        (producer.position, producer.slot)
        for place in back
        for producer in graph.producers[place]
        if producer.position in inside
    )


def _only(values: Iterable[Result]) -> Result | None:
    different = {*values}
    return different.pop() if len(different) == 1 else None
