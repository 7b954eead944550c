"""Regions: connected operators without partner that compute the same in other ways than the other graph.

Operators without partner that hand values to each other form a region. Two regions belong together where the
same operators read their results, or where they read the same values and lie between operators that belong
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, takewhile
from typing import TYPE_CHECKING, Final

from msdump.device import INSERTED_PREFIX
from msdump.judge.pair.sides import (
    CAST,
    UNKNOWN,
    IndexedGraph,
    canonical_type,
    part_types,
    place_of,
)
from msdump.read import ASKING, GraphOperator

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from msdump.judge.pair.pairing import PartialAlignment

LEAST: Final = 0.5
"""Two regions that are less sure than this do not belong together."""
_RESULTS: Final = 0.6
"""Weight of common results in the certainty; common inputs have the rest."""
_OTHER_WAY: Final = 0.8
"""Certainty of two regions with the same neighbours that have no name or type in common."""

Result = tuple[int, int]
"""An output that is read outside of a region: position of its operator, number of the output."""


@dataclass(frozen=True, slots=True)
class Region:
    """Connected operators without partner.

    Attributes:
        places: Their positions, in order.
        reads: Values read from outside, identified by positions in the golden graph.
        results: Outputs that are read outside, by the positions of their readers in the golden graph.
    """

    places: tuple[int, ...] = ()
    reads: frozenset[Hashable] = frozenset()
    results: dict[Hashable, Result] = field(default_factory=dict)

    def __add__(self, other: Region) -> Region:
        """Return the union of two regions."""
        places = tuple(sorted({*self.places, *other.places}))
        return Region(places, self.reads | other.reads, self.results | other.results)


@dataclass(frozen=True, slots=True)
class RegionPair:
    """Two regions that compute the same results.

    Attributes:
        mine: Positions of the operators of the first graph.
        golden: Positions in the second graph.
        results: Outputs that hold the same values.
        certainty: 0 to 1.
        reads_same: Whether both read the same values.
    """

    mine: tuple[int, ...]
    golden: tuple[int, ...]
    results: tuple[tuple[Result, Result], ...]
    certainty: float
    reads_same: bool


def region_pairs(found: PartialAlignment) -> Iterator[RegionPair]:
    """Yield pairs of regions, the surest and smallest first; each operator is in one pair at most.

    A region may also be paired with the union of several regions that have a neighbour in common with it.
    """
    own = _regions(found.mine, found.golden_of, found.golden_of)
    other = _regions(found.golden, found.mine_of, range(len(found.golden.operators)))
    taken: tuple[set[int], set[int]] = set(), set()
    candidates = [_paired(*each) for each in _candidates(own, other)]
    for pair in sorted(candidates, key=lambda each: (-each.certainty, len(each.mine) + len(each.golden))):
        is_free = taken[0].isdisjoint(pair.mine) and taken[1].isdisjoint(pair.golden)
        if is_free and pair.certainty >= LEAST and _may_do_the_same(pair, found):
            taken[0].update(pair.mine)
            taken[1].update(pair.golden)
            yield pair


def _candidates(own: Sequence[Region], other: Sequence[Region]) -> Iterator[tuple[Region, Region]]:
    """Yield regions with a common neighbour: one to one, and one to all regions with no other results."""
    for region in own:
        partners = [each for each in other if _touch(region, each)]
        yield from ((region, partner) for partner in partners)
        yield region, sum((each for each in partners if _is_within(each, region)), Region())
    for region in other:
        yield (
            sum((each for each in own if _touch(each, region) and _is_within(each, region)), Region()),
            region,
        )


def _touch(mine: Region, golden: Region) -> bool:
    return bool(mine.results.keys() & golden.results.keys() or mine.reads & golden.reads)


def _is_within(part: Region, region: Region) -> bool:
    return bool(part.results) and part.results.keys() <= region.results.keys()


def _paired(mine: Region, golden: Region) -> RegionPair:
    shared = mine.results.keys() & golden.results.keys()
    results = {(mine.results[key], golden.results[key]) for key in shared}
    of_results, of_reads = (
        _share(mine.results.keys(), golden.results.keys()),
        _share(mine.reads, golden.reads),
    )
    certainty = _OTHER_WAY * (_RESULTS * of_results + (1 - _RESULTS) * of_reads)
    is_whole = mine.places and golden.places
    return RegionPair(
        mine.places, golden.places, tuple(sorted(results)), certainty if is_whole else 0, of_reads == 1
    )


def _share(mine: AbstractSet[Hashable], golden: AbstractSet[Hashable]) -> float:
    return len(mine & golden) / len(mine | golden) if mine or golden else 1.0


def _may_do_the_same(pair: RegionPair, found: PartialAlignment) -> bool:
    """Return whether two regions may compute the same; different results are a fault if inputs agree."""
    is_alike = pair.reads_same or not any(
        found.are_unlike(own, other) for (own, _), (other, _) in pair.results
    )
    return is_alike and not is_of_idle_transfers(pair, found)


def is_of_idle_transfers(pair: RegionPair, found: PartialAlignment) -> bool:
    """Return whether a region has only inserted transfers, and no reader in common with the other one.

    Inserted transfers compute nothing, so they replace no other operator even if both read the same value.
    """
    sides = ((found.mine, pair.mine), (found.golden, pair.golden))
    return not pair.results and any(
        all(graph.operators[place].full_name.startswith(INSERTED_PREFIX) for place in places)
        for graph, places in sides
    )


def _regions(
    graph: IndexedGraph, partners: Sequence[int | None], golden_of: Sequence[int | None]
) -> list[Region]:
    """Return the connected regions of operators without partner.

    Args:
        graph: The graph.
        partners: Position of the partner of each operator, None if there is none.
        golden_of: Position in the golden graph by which a paired operator is identified.
    """
    found, seen = [], set[int]()
    for place, partner in enumerate(partners):
        if partner is None and place not in seen:
            places, pending = {place}, [place]
            while pending:
                near = {each for each in _neighbours(graph, pending.pop()) if partners[each] is None} - places
                places |= near
                pending += near
            seen |= places
            found.append(_region(graph, sorted(places), golden_of))
    return found


def _neighbours(graph: IndexedGraph, place: int) -> Iterator[int]:
    if graph.types[place] not in ASKING:
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
                name = "output" if reader.position < 0 else golden_of[reader.position]
                key: Hashable = (name, place_of(graph, reader))
                while key in results and results[key] != (place, reader.output):
                    key = (key, "other")  # a second input of a commutative operator
                results[key] = place, reader.output
    return Region(tuple(places), frozenset(reads), results)


def single_pairs(found: PartialAlignment) -> Iterator[tuple[int, int]]:
    """Yield pairs of operators that are each the only one of their type in paired regions."""
    for pair in region_pairs(found):
        own = Counter(found.mine.types[place] for place in pair.mine)
        other = Counter(found.golden.types[place] for place in pair.golden)
        places = {found.golden.types[place]: place for place in pair.golden}
        for place in pair.mine:
            op_type = found.mine.types[place]
            if own[op_type] == other[op_type] == 1 and found.may_belong(place, places[op_type]):
                yield place, places[op_type]


def cut(pair: RegionPair, found: PartialAlignment) -> list[RegionPair]:
    """Return the smallest pairs of regions into which a pair of regions divides, in order.

    A region with results that differ shows only that one of its operators is wrong; smaller regions narrow
    that down. Regions with equal results stay whole: they may compute them in different ways. Operators that
    only one side has in front or behind are left out.

    Args:
        pair: Two regions that compute the same results.
        found: All pairs of operators.
    """
    if not any(found.are_unlike(own, other) for (own, _), (other, _) in pair.results):
        return [pair]
    pieces, begin, results = [], (0, 0), {*pair.results}
    for end in (*_ends(pair, found), (len(pair.mine), len(pair.golden))):
        mine, golden = pair.mine[begin[0] : end[0]], pair.golden[begin[1] : end[1]]
        inside = {each for each in results if each[0][0] in mine and each[1][0] in golden}
        is_last = end == (len(pair.mine), len(pair.golden))
        crossing = set() if is_last else _crossing(pair, found, end)
        if crossing is not None:
            inside |= crossing
            pieces.append(replace(pair, mine=mine, golden=golden, results=tuple(sorted(inside))))
            begin = end
    return [each for each in pieces if each.mine and each.golden]


_Place = tuple[int, int]
"""How many operators of two regions stand in front of a cut."""


def _ends(pair: RegionPair, found: PartialAlignment) -> list[_Place]:
    """Return the places to cut both regions: with equal parts up to the cut, or from the cut to the end."""
    own, other = (
        [_computing_parts(graph, place) for place in places]
        for graph, places in ((found.mine, pair.mine), (found.golden, pair.golden))
    )
    ends = _equal_beginnings(own, other)
    last = ends[-1] if ends else (0, 0)
    behind = _equal_beginnings(*([part[::-1] for part in reversed(side)] for side in (own, other)))
    for count, golden_count in reversed(behind):
        end = len(own) - count, len(other) - golden_count
        if end[0] >= last[0] and end[1] >= last[1] and end != last:
            ends.append(end)
    return [each for each in ends if each != (len(own), len(other))]


def _computing_parts(graph: IndexedGraph, place: int) -> list[str]:
    """Return the types of an operator's parts, in order, without casts; empty for an inserted operator."""
    operator = graph.operators[place]
    if operator.full_name.startswith(INSERTED_PREFIX):
        return []
    return [canonical_type(each) for each in part_types(operator) if each != CAST]


def _equal_beginnings(own: Sequence[list[str]], other: Sequence[list[str]]) -> list[_Place]:
    """Return pairs of lengths at which the beginnings of both sequences have equal parts, without (0, 0)."""
    pairs = zip(chain.from_iterable(own), chain.from_iterable(other), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    count_of = {length: count for count, length in enumerate(accumulate(map(len, other)), 1)}
    lengths = enumerate(accumulate(map(len, own)), 1)
    return [(count, count_of[length]) for count, length in lengths if length <= common and length in count_of]


def _crossing(pair: RegionPair, found: PartialAlignment, at: _Place) -> set[tuple[Result, Result]] | None:
    """Return the single pair of values that crosses a cut, None unless one value crosses on each side.

    At the beginning of a region no value crosses; at its end the region's result does.
    """
    crossing, fronts = [], []
    for graph, places, count, results in (
        (found.mine, pair.mine, at[0], [one for one, _ in pair.results]),
        (found.golden, pair.golden, at[1], [two for _, two in pair.results]),
    ):
        front, back = {*places[:count]}, places[count:]
        read = [(each.position, each.slot) for place in back for each in graph.producers[place]]
        values = {each for each in (read if back else results) if each[0] in front}
        if front and len(values) != 1:
            return None
        crossing.append(values)
        fronts.append(front)
    is_inner = at[0] < len(pair.mine) and at[1] < len(pair.golden)
    if is_inner and any((one in fronts[0]) != (two in fronts[1]) for (one, _), (two, _) in pair.results):
        return None
    return {*zip(*crossing, strict=False)}


NameOf = Callable[[GraphOperator], str]


def namesakes(name_of: NameOf, pairs: PartialAlignment) -> Iterator[tuple[int, int]]:
    """Yield unpaired operators of one name, type and shape.

    Skips operators of a scope and type with shifted numbers (recognised by pairs with different names), and
    pairs that break the order.

    Args:
        name_of: Returns the name of an operator, or of its node.
        pairs: All pairs that other strategies found.
    """
    mine, golden = pairs.mine, pairs.golden
    places = {name_of(each): place for place, each in enumerate(golden.operators)}
    in_regions = {place for region in region_pairs(pairs) for place in region.mine}
    moved = _moved(name_of, pairs)
    for place, operator in enumerate(mine.operators):
        name = name_of(operator)
        partner = places.get(name) if name else None
        is_alone = pairs.golden_of[place] is None and place not in in_regions
        if partner is None or not is_alone or pairs.mine_of[partner] is not None:
            continue
        if name.startswith(INSERTED_PREFIX) or _stem(name) in moved:
            continue
        if mine.types[place] != golden.types[partner] or not pairs.may_have_form(place, partner):
            continue
        if pairs.is_in_order(place, partner):
            yield place, partner


def _moved(name_of: NameOf, pairs: PartialAlignment) -> frozenset[str]:
    mine, golden = pairs.mine.operators, pairs.golden.operators
    names = (
        (name_of(mine[place]), name_of(golden[partner]))
        for place, partner in enumerate(pairs.golden_of)
        if partner is not None
    )
    return frozenset(_stem(name) for pair in names if pair[0] != pair[1] for name in pair)


def _stem(name: str) -> str:
    return name.rstrip("0123456789")
