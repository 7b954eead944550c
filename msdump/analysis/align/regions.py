"""Operators that together do what other operators do: parts of fused ones, other ways to compute the same.

Operators without partner that hand values to each other form a region. Two regions belong together where the
same operators read their results, or where they read the same values and lie between operators that belong
together.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate, chain, takewhile
from typing import TYPE_CHECKING, Final

from msdump.analysis.align.sides import (
    CAST,
    HOST_NAMES,
    UNKNOWN,
    IndexedGraph,
    asks,
    canonical_type,
    joined_parts,
    part_types,
    place_of,
    quantised_groups,
)
from msdump.device import INSERTED_PREFIX
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from msdump.analysis.align.evidence import PairEvidence

_TRIED: Final = 64  # cuts of a region, the most even ones: few values cross, or the region is no chain


def cut(pair: RegionPair, evidence: PairEvidence) -> list[RegionPair]:
    """Return the smallest regions that a pair of regions falls into, in order.

    A region whose results differ says only that one of its operators is wrong; the smaller ones say which.
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
        [_parts_of_name(graph, place) for place in places]
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


def _parts_of_name(graph: IndexedGraph, place: int) -> list[str]:
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


_Cut = tuple[RegionPair, RegionPair]
"""The front and the back of a region."""


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
    for pair in sorted(
        candidates.values(), key=lambda each: (-each.certainty, len(each.mine) + len(each.golden), each.mine)
    ):
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
                name = "output" if reader.position < 0 else golden_of[reader.position]
                key: Hashable = (name, place_of(graph, reader))
                while key in results and results[key] != (place, reader.output):
                    key = (key, "other")  # both inputs of an operator whose inputs may change places
                results[key] = place, reader.output
    return Region(tuple(places), frozenset(reads), results)


def _pair(mine: Region, golden: Region) -> RegionPair:
    shared = mine.results.keys() & golden.results.keys()
    results = dict.fromkeys((mine.results[key], golden.results[key]) for key in shared)
    of_results = _share(mine.results.keys(), golden.results.keys())
    of_reads = _share(mine.reads, golden.reads)
    certainty = _OTHER_WAY * (_RESULTS * of_results + (1 - _RESULTS) * of_reads)
    return RegionPair(mine.places, golden.places, tuple(sorted(results)), certainty, of_reads == 1)


def _share(mine: AbstractSet[Hashable], golden: AbstractSet[Hashable]) -> float:
    return len(mine & golden) / len(mine | golden) if mine or golden else 1.0


_SEPARATOR: Final = re.compile("[/_]")  # compiled graphs write "_" where names have slashes

Group = tuple[tuple[GraphOperator, ...], tuple[GraphOperator, ...]]
"""Operators of both graphs that have the same parts."""


@dataclass(frozen=True, slots=True)
class ContractedGraph:
    """A graph in which operators that belong together with the other graph's are one.

    Attributes:
        graph: The graph.
        parts: Full names of the operators that one was made of, by its full name.
    """

    graph: OperatorGraph
    parts: Mapping[str, tuple[str, ...]]

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the operators of the original graph that an operator stands for."""
        return self.parts.get(name, (name,))


def contracted(mine: OperatorGraph, golden: OperatorGraph) -> tuple[ContractedGraph, ContractedGraph]:
    """Return two graphs in which a fused operator and its parts on the other side are one operator each.

    The parts of a fused operator are known by the ONNX nodes that it was made of, or by its name, which joins
    theirs (``Default/Add-op0ReLU-op0``). Where two graphs have fused operators otherwise, the smallest groups
    that have the same parts on both sides become one operator on either side.
    """
    groups = [group for group in _groups(mine, golden) if any(len(members) > 1 for members in group)]
    own, other = ([_Whole(_whole(group), group[side]) for group in groups] for side in (0, 1))
    own += _quantised(mine, golden, own)
    other += _quantised(golden, mine, other)
    return _replaced(mine, own), _replaced(golden, other)


def _quantised(graph: OperatorGraph, beside: OperatorGraph, wholes: Sequence[_Whole]) -> list[_Whole]:
    """Return what is one operator where the other graph is, or is not, quantised; none is in two groups."""
    taken = {each.full_name for whole in wholes for each in whole.members}
    found = []
    for operator, members in quantised_groups(graph, beside):
        names = {each.full_name for each in members}
        if not names & taken:
            taken |= names
            found.append(_Whole(operator, members, operator.inputs))
    return found


def _groups(mine: OperatorGraph, golden: OperatorGraph) -> Iterator[Group]:
    """Yield the groups; no operator is in two of them."""
    taken: set[str] = set()
    numbered = _by_names(mine, golden)
    for group in chain(_by_nodes(mine, golden), numbered, _by_names(mine, golden, _unnumbered)):
        names = {f"{side}{each.full_name}" for side, members in enumerate(group) for each in members}
        if not names & taken:
            taken |= names
            yield group


def _by_nodes(mine: OperatorGraph, golden: OperatorGraph) -> Iterator[Group]:
    """Yield the groups that were made of the same ONNX nodes, in the order of execution."""
    nodes = [
        {node: each for each in graph.operators.values() for node in each.onnx_names}
        for graph in (mine, golden)
    ]
    done: set[str] = set()
    fused = (
        each for graph in (mine, golden) for each in graph.operators.values() if len(each.onnx_names) > 1
    )
    for operator in fused:
        if operator.onnx_names[0] not in done:
            found = _closure(operator.onnx_names, nodes)
            done |= found
            if all(found <= each.keys() for each in nodes):
                own, other = ({each[node].full_name: each[node] for node in found} for each in nodes)
                yield _in_order(own, mine), _in_order(other, golden)


def _closure(names: Iterable[str], nodes: Sequence[Mapping[str, GraphOperator]]) -> set[str]:
    """Return the nodes of all operators that share nodes with each other."""
    closure: set[str] = set()
    pending = [*names]
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending += (node for each in nodes if name in each for node in each[name].onnx_names)
    return closure


def _in_order(operators: Mapping[str, GraphOperator], graph: OperatorGraph) -> tuple[GraphOperator, ...]:
    return tuple(each for name, each in graph.operators.items() if name in operators)


def _unnumbered(parts: Sequence[str]) -> list[str]:
    """Return parts with the number of the first one alone: an operator that was dropped moves the others.

    >>> _unnumbered(["Conv2D-op3", "Elu-op1"])
    ['Conv2D-op3', 'Elu']
    """
    return [*parts[:1], *(part.rpartition("-op")[0] for part in parts[1:])]


def _by_names(
    mine: OperatorGraph, golden: OperatorGraph, key: Callable[[Sequence[str]], Sequence[str]] = list
) -> Iterator[Group]:
    """Yield fused operators whose parts are known by their names alone.

    Args:
        mine: The first graph.
        golden: The second one.
        key: Returns what the parts of a row are compared by.
    """
    own, other = _NamedParts(mine), _NamedParts(golden)
    for fused in mine.operators.values():
        rows = _rows(fused, own, other, key)
        if rows and fused.full_name not in golden.operators:
            yield rows
    for fused in golden.operators.values():
        rows = _rows(fused, other, own, key)
        if rows and fused.full_name not in mine.operators:
            yield rows[1], rows[0]


class _NamedParts:
    """The operators of a graph by the parts that their names join."""

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self._beginning: dict[str, list[GraphOperator]] = {}
        for operator in graph.operators.values():
            self._beginning.setdefault(_parts(operator)[0], []).append(operator)

    def heads(self, part: str, scope: str) -> list[GraphOperator]:
        """Return the operators below a scope whose names begin with a part."""
        return [each for each in self._beginning.get(part, ()) if each.scope.startswith(scope)]

    def readers(self, operator: GraphOperator) -> Iterator[GraphOperator]:
        """Yield the operators that read an operator, also what a device makes of its outputs."""
        for reader in self.graph.used_by(operator.full_name):
            if reader.full_name.startswith(INSERTED_PREFIX):
                yield from self.readers(reader)
            else:
                yield reader


def _rows(
    fused: GraphOperator,
    own: _NamedParts,
    other: _NamedParts,
    key: Callable[[Sequence[str]], Sequence[str]],
) -> Group | None:
    """Return the operators whose names join the same parts, without casts where the other graph has none."""
    parts = _parts(fused)
    if len(parts) == 1:
        return None
    computing = [each for each in parts if not each.startswith(f"{CAST}-op")]
    found = _rows_of(parts, fused, (own, other), key)
    if not found and 1 < len(computing) < len(parts):
        found = _rows_of(computing, fused, (own, other), key)
    return found[0] if len(found) == 1 else None


def _rows_of(
    parts: Sequence[str],
    fused: GraphOperator,
    graphs: tuple[_NamedParts, _NamedParts],
    key: Callable[[Sequence[str]], Sequence[str]],
) -> list[Group]:
    """Return the shortest rows of operators of two graphs, each reading the one before, with the same parts.

    Args:
        parts: Parts of the first operator.
        fused: The first operator, of the first graph.
        graphs: Both graphs, of which either may have fused parts that the other one has not.
        key: Returns what parts are compared by.
    """
    found: list[Group] = []
    pending: list[tuple[Group, Sequence[str], int]] = [(((fused,), ()), parts, 1)]
    while pending:
        rows, left, side = pending.pop()
        if not left:
            found.append(rows)
            continue
        row = rows[side]
        for reader in graphs[side].readers(row[-1]) if row else graphs[1].heads(parts[0], fused.scope):
            own = _parts(reader)
            shared = min(len(own), len(left))
            # the head is found by its name; behind it a row begins with another operator's part
            begin = parts[:1] if row else []
            if key([*begin, *own[:shared]]) == key([*begin, *left[:shared]]):
                longer = (*row, reader)
                both = (longer, rows[1]) if side == 0 else (rows[0], longer)
                is_beyond = len(own) > len(left)  # the other graph has these parts behind the row
                pending.append((both, own[shared:] or left[shared:], 1 - side if is_beyond else side))
    return found


def _parts(operator: GraphOperator) -> Sequence[str]:
    """Return the parts that the name of an operator joins, or itself, as graphs without compilation do.

    >>> _parts(GraphOperator("Default/Maximum-op0RealDiv-op1", "Maximum"))
    ['Maximum-op0', 'Div-op1']
    """
    last = _SEPARATOR.split(operator.full_name)[-1]
    parts = joined_parts(last)
    split = (each.rpartition("-") for each in (parts if "".join(parts) == last else [last]))
    return [f"{HOST_NAMES.get(op_type, op_type)}{dash}{number}" for op_type, dash, number in split]


def _whole(group: Group) -> GraphOperator:
    """Return the operator that a group is called after on both sides, with the nodes of all parts."""
    single = [members[0] for members in group if len(members) == 1]
    most = max(group, key=len)
    joined = replace(
        most[-1],
        full_name="+".join(each.full_name for each in most),
        op_type="+".join(each.op_type for each in most),
    )
    return replace(
        single[0] if single else joined, onnx_names=tuple(node for each in most for node in each.onnx_names)
    )


@dataclass(frozen=True, slots=True)
class _Whole:
    """What a group of operators becomes.

    Attributes:
        operator: The operator.
        members: The group.
        inputs: What it reads, None: all that the group reads from outside.
    """

    operator: GraphOperator
    members: tuple[GraphOperator, ...]
    inputs: tuple[ValueSource, ...] | None = None


def _replaced(graph: OperatorGraph, wholes: Sequence[_Whole]) -> ContractedGraph:
    """Return a graph with groups replaced by one operator each, which stands where the last one stood."""
    whole_of = {each.full_name: whole for whole in wholes for each in whole.members}

    def moved(source: ValueSource) -> ValueSource:
        whole = whole_of.get(source.name) if source.kind is SourceKind.OPERATOR else None
        return source if whole is None else replace(source, name=whole.operator.full_name)

    operators: dict[str, GraphOperator] = {}
    for name, operator in graph.operators.items():
        whole = whole_of.get(name)
        if whole is None:
            operators[name] = replace(operator, inputs=tuple(map(moved, operator.inputs)))
        elif whole.members[-1] is operator:
            operators[whole.operator.full_name] = replace(
                operator,
                full_name=whole.operator.full_name,
                op_type=whole.operator.op_type,
                inputs=tuple(map(moved, whole.inputs))
                if whole.inputs is not None
                else tuple(dict.fromkeys(map(moved, _outside(whole.members)))),
                onnx_names=whole.operator.onnx_names,
            )
    parts = {whole.operator.full_name: tuple(each.full_name for each in whole.members) for whole in wholes}
    return ContractedGraph(
        replace(graph, operators=operators, outputs=tuple(map(moved, graph.outputs))), parts
    )


def _outside(members: Sequence[GraphOperator]) -> Iterator[ValueSource]:
    """Yield what operators read that are put together, but for what they read of each other."""
    inside = {each.full_name for each in members}
    for each in members:
        yield from (
            source
            for source in each.inputs
            if source.kind is not SourceKind.OPERATOR or source.name not in inside
        )


_NUMBERED = "-op"


def namesakes(evidence: PairEvidence) -> Iterator[tuple[int, int]]:
    """Yield the places of operators of one name, type and shape that have no partner.

    No number of their scope and type may have moved: others of them belong to operators of their names. Nor
    may one of the two lead to what the other one reads, or what reads the other one lead to it.

    Args:
        evidence: All pairs that were found otherwise.
    """
    mine, golden = evidence.mine, evidence.golden
    in_regions = {place for region in region_pairs(evidence) for place in region.mine}
    moved = _moved(evidence)
    for place, operator in enumerate(mine.operators):
        name = operator.full_name
        partner = golden.positions.get(name)
        is_alone = evidence.golden_of[place] is None and place not in in_regions
        if partner is None or not is_alone or evidence.mine_of[partner] is not None:
            continue
        if name.startswith(INSERTED_PREFIX) or _stem(name) in moved:
            continue
        if mine.types[place] != golden.types[partner] or not evidence.may_have_form(place, partner):
            continue
        if evidence.is_in_order(place, partner):
            yield place, partner


def _moved(evidence: PairEvidence) -> frozenset[str]:
    """Return what stands in front of numbers that tell other operators on the two sides."""
    mine, golden = evidence.mine.operators, evidence.golden.operators
    names = (
        (mine[place].full_name, golden[partner].full_name)
        for place, partner in enumerate(evidence.golden_of)
        if partner is not None
    )
    return frozenset(_stem(name) for pair in names if pair[0] != pair[1] for name in pair)


def _stem(name: str) -> str:
    return name.rpartition(_NUMBERED)[0] or name
