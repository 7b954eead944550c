"""Operators that together do what other operators do: parts of fused ones, other ways to compute the same.

Operators without partner that hand values to each other form a region. Two regions belong together where the
same operators read their results, or where they read the same values and lie between operators that belong
together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.labels import UNKNOWN
from msdump.tools.matching.search import neighbours
from msdump.tools.matching.sides import IndexedGraph

_LEAST: Final = 0.5
_RESULTS: Final = 0.6
"""What the results have in common counts so much of the certainty, what is read the rest."""
_OTHER_WAY: Final = 0.8
"""Certainty of two regions with the same neighbours that have no name or type in common."""

Result = tuple[int, int]
"""An output that is read outside of a region: place of its operator, number of the output."""


@dataclass(frozen=True, slots=True)
class Region:
    """Operators without partner that hand values to each other.

    Attributes:
        places: Their places, in order.
        reads: What they read from outside, in the golden graph's terms.
        results: Their outputs that are read outside, by who reads them, in the golden graph's terms.
    """

    places: tuple[int, ...]
    reads: frozenset[Hashable]
    results: dict[Hashable, Result]


@dataclass(frozen=True, slots=True)
class RegionPair:
    """Two regions that do the same.

    Attributes:
        mine: Places of the operators of the first graph.
        golden: Places of those of the second one.
        results: Outputs that hold the same values.
        certainty: How sure it is, 0 to 1.
    """

    mine: tuple[int, ...]
    golden: tuple[int, ...]
    results: tuple[tuple[Result, Result], ...]
    certainty: float


def region_pairs(evidence: PairEvidence) -> Iterator[RegionPair]:
    """Yield the regions that belong together, the surest first; each operator is in one pair at most."""
    own = regions(evidence.mine, evidence.golden_of, evidence.golden_of)
    other = regions(evidence.golden, evidence.mine_of, range(len(evidence.golden.operators)))
    by_boundary: dict[Hashable, list[int]] = {}
    for number, region in enumerate(other):
        for key in (*region.results, *region.reads):
            by_boundary.setdefault(key, []).append(number)
    candidates = []
    for number, region in enumerate(own):
        boundary = (*region.results, *region.reads)
        partners = {partner for key in boundary for partner in by_boundary.get(key, ())}
        for partner in partners:
            pair = _pair(region, other[partner])
            if pair.certainty >= _LEAST:
                candidates.append((-pair.certainty, number, partner, pair))
    taken: set[tuple[str, int]] = set()
    for _, number, partner, pair in sorted(candidates, key=lambda each: each[:3]):
        if not {("own", number), ("other", partner)} & taken:
            taken |= {("own", number), ("other", partner)}
            yield pair


def regions(
    graph: IndexedGraph, partners: Sequence[int | None], golden_of: Sequence[int | None]
) -> list[Region]:
    """Return the regions of a graph.

    Args:
        graph: The graph.
        partners: Place of the partner of each operator, None where there is none.
        golden_of: Place in the golden graph by which an operator with a partner is called.
    """
    number_of: dict[int, int] = {}
    members: list[list[int]] = []
    for place, partner in enumerate(partners):
        if partner is None and place not in number_of:
            region = _connected(graph, place, partners)
            number_of |= dict.fromkeys(region, len(members))
            members.append(region)
    return [_region(graph, places, golden_of) for places in members]


def _connected(graph: IndexedGraph, start: int, partners: Sequence[int | None]) -> list[int]:
    places, pending = {start}, [start]
    while pending:
        for place in neighbours(graph, pending.pop()):
            if partners[place] is None and place not in places:
                places.add(place)
                pending.append(place)
    return sorted(places)


def _region(graph: IndexedGraph, places: Sequence[int], golden_of: Sequence[int | None]) -> Region:
    inside = frozenset(places)
    reads: set[Hashable] = set()
    results: dict[Hashable, Result] = {}
    for place in places:
        for producer in graph.producers[place]:
            if producer.position < 0 and producer.label != UNKNOWN:
                reads.add(producer.label)
            elif producer.position >= 0 and producer.position not in inside:
                reads.add((golden_of[producer.position], producer.slot))
        for reader in graph.readers[place]:
            if reader.position not in inside:
                key = (
                    ("output", reader.slot)
                    if reader.position < 0
                    else (golden_of[reader.position], reader.slot)
                )
                results[key] = place, reader.output
    return Region(tuple(places), frozenset(reads), results)


def _pair(mine: Region, golden: Region) -> RegionPair:
    shared = mine.results.keys() & golden.results.keys()
    results = dict.fromkeys((mine.results[key], golden.results[key]) for key in shared)
    of_results = _share(mine.results.keys(), golden.results.keys())
    of_reads = _share(mine.reads, golden.reads)
    certainty = _OTHER_WAY * (_RESULTS * of_results + (1 - _RESULTS) * of_reads)
    return RegionPair(mine.places, golden.places, tuple(sorted(results)), certainty)


def _share(mine: AbstractSet[Hashable], golden: AbstractSet[Hashable]) -> float:
    return len(mine & golden) / len(mine | golden) if mine or golden else 1.0
