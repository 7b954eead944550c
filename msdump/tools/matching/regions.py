"""Operators that together do what other operators do: parts of fused ones, other ways to compute the same.

Operators without partner that hand values to each other form a region. Two regions belong together where the
same operators read their results, or where they read the same values and lie between operators that belong
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from msdump.device.tasks import INSERTED_PREFIX
from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.labels import UNKNOWN
from msdump.tools.matching.sides import IndexedGraph, Reader, asks, place_of

LEAST: Final = 0.5
"""A pair that is less sure than this is none."""
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
        reads_same: Whether both read the same.
    """

    mine: tuple[int, ...]
    golden: tuple[int, ...]
    results: tuple[tuple[Result, Result], ...]
    certainty: float
    reads_same: bool


def region_pairs(evidence: PairEvidence) -> Iterator[RegionPair]:
    """Yield the regions that belong together, the surest first; each operator is in one pair at most."""
    own = regions(evidence.mine, evidence.golden_of, evidence.golden_of)
    other = regions(evidence.golden, evidence.mine_of, range(len(evidence.golden.operators)))
    candidates = {
        (pair.mine, pair.golden): pair
        for pair in _candidates(own, other)
        if _may_be_alike(pair, evidence) and not is_of_idle_transfers(pair, evidence)
    }
    taken: tuple[set[int], set[int]] = set(), set()
    for pair in sorted(candidates.values(), key=_order):
        if taken[0].isdisjoint(pair.mine) and taken[1].isdisjoint(pair.golden):
            taken[0].update(pair.mine)
            taken[1].update(pair.golden)
            yield pair


def is_of_idle_transfers(pair: RegionPair, evidence: PairEvidence) -> bool:
    """Tell whether a region only brings values into other forms, and nothing says for whom.

    Such operators compute nothing: without a reader in common they do the work of no other operator, though
    they read the same.
    """
    sides = ((evidence.mine, pair.mine), (evidence.golden, pair.golden))
    return not pair.results and any(
        all(graph.operators[place].full_name.startswith(INSERTED_PREFIX) for place in places)
        for graph, places in sides
    )


def single_pairs(evidence: PairEvidence) -> Iterator[tuple[int, int]]:
    """Yield the operators that are the only ones of their type in two regions that belong together."""
    for pair in region_pairs(evidence):
        own, other = (
            Counter(graph.types[place] for place in places)
            for graph, places in ((evidence.mine, pair.mine), (evidence.golden, pair.golden))
        )
        places = {evidence.golden.types[place]: place for place in pair.golden}
        for place in pair.mine:
            op_type = evidence.mine.types[place]
            if own[op_type] == other[op_type] == 1 and evidence.may_fit(place, places[op_type]):
                yield place, places[op_type]


def _may_be_alike(pair: RegionPair, evidence: PairEvidence) -> bool:
    """Tell whether two regions may have written the same; what reads the same may have been wrong."""
    return pair.reads_same or all(evidence.may_be_alike(own, other) for (own, _), (other, _) in pair.results)


def _order(pair: RegionPair) -> tuple[float, int, tuple[int, ...]]:
    return -pair.certainty, len(pair.mine) + len(pair.golden), pair.mine


def _candidates(own: Sequence[Region], other: Sequence[Region]) -> Iterator[RegionPair]:
    """Yield the regions that may belong together: one and one, one and several that it does the work of."""
    near, near_other = _near(own, other), _near(other, own)
    for region, partners in zip(own, near, strict=True):
        yield from _likely(_pair(region, partner) for partner in partners)
        yield from _likely([_pair(region, _joined(_within(partners, region)))])
    for region, partners in zip(other, near_other, strict=True):
        yield from _likely([_pair(_joined(_within(partners, region)), region)])


def _likely(pairs: Iterable[RegionPair]) -> Iterator[RegionPair]:
    return (pair for pair in pairs if pair.mine and pair.golden and pair.certainty >= LEAST)


def _near(regions_of_one: Sequence[Region], others: Sequence[Region]) -> list[list[Region]]:
    """Return for each region those of the other graph with a neighbour in common."""
    by_boundary: dict[Hashable, list[int]] = {}
    for number, region in enumerate(others):
        for key in (*region.results, *region.reads):
            by_boundary.setdefault(key, []).append(number)
    near = []
    for region in regions_of_one:
        boundary = (*region.results, *region.reads)
        numbers = {number for key in boundary for number in by_boundary.get(key, ())}
        near.append([others[number] for number in sorted(numbers)])
    return near


def _within(partners: Iterable[Region], region: Region) -> list[Region]:
    """Return the regions whose results all have the readers of another region's results."""
    return [each for each in partners if each.results and each.results.keys() <= region.results.keys()]


def _joined(parts: Sequence[Region]) -> Region:
    places = sorted(place for each in parts for place in each.places)
    reads = frozenset().union(*(each.reads for each in parts))
    return Region(
        tuple(places), reads, {key: result for each in parts for key, result in each.results.items()}
    )


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
        for place in _neighbours(graph, pending.pop()):
            if partners[place] is None and place not in places:
                places.add(place)
                pending.append(place)
    return sorted(places)


def _neighbours(graph: IndexedGraph, place: int) -> Iterator[int]:
    """Yield the operators whose values an operator reads, and that read its values."""
    if not asks(graph.types[place]):
        yield from (each.position for each in graph.producers[place] if each.position >= 0)
    yield from (each.position for each in graph.readers[place] if each.position >= 0)


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
                key = _result_key(graph, reader, golden_of)
                while key in results and results[key] != (place, reader.output):
                    key = (key, "other")  # both inputs of an operator whose inputs may change places
                results[key] = place, reader.output
    return Region(tuple(places), frozenset(reads), results)


def _result_key(graph: IndexedGraph, reader: Reader, golden_of: Sequence[int | None]) -> Hashable:
    name = "output" if reader.position < 0 else golden_of[reader.position]
    return name, place_of(graph, reader)


def _pair(mine: Region, golden: Region) -> RegionPair:
    shared = mine.results.keys() & golden.results.keys()
    results = dict.fromkeys((mine.results[key], golden.results[key]) for key in shared)
    of_results = _share(mine.results.keys(), golden.results.keys())
    of_reads = _share(mine.reads, golden.reads)
    certainty = _OTHER_WAY * (_RESULTS * of_results + (1 - _RESULTS) * of_reads)
    return RegionPair(mine.places, golden.places, tuple(sorted(results)), certainty, of_reads == 1)


def _share(mine: AbstractSet[Hashable], golden: AbstractSet[Hashable]) -> float:
    return len(mine & golden) / len(mine | golden) if mine or golden else 1.0
