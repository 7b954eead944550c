"""The alignment of two graphs: which operators compute the same values, and how sure that is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Final

from msdump.device import INSERTED_PREFIX, is_view
from msdump.graph.files import arguments, ir_text
from msdump.judge.pair.score import Item, Reader, Source, items_of, single_pairs
from msdump.judge.pair.sides import CAST, FLOATS, LIKE, GraphSide, passes_on
from msdump.read import (
    ABSENT,
    SHAPE_READERS,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
    connected,
)

if TYPE_CHECKING:
    from msdump.graph import Graph, ValueType


def operator_graphs(
    graph: Graph, first: int = 0, *, shows_arguments: bool = True
) -> dict[int, OperatorGraph]:
    """Return the operator graphs of a model and of its branches and bodies, by number.

    Args:
        graph: The model, as it is or compiled; of fused operators the names of all their nodes are kept.
        first: Number of the main graph; branches and bodies are numbered from it on.
        shows_arguments: Whether the operators get their arguments, which doubles the time.
    """
    return connected(
        _operator_graph(inner, first + inner.index, shows_arguments=shows_arguments) for inner in graph.walk()
    )


def _operator_graph(model: Graph, number: int, *, shows_arguments: bool) -> OperatorGraph:
    sources = {
        name: ValueSource(SourceKind.CONSTANT, arguments.tensor_text(model.weights[name]))
        for name in model.constants
    }
    forms: dict[bool, dict[str, ValueForm]] = {True: {}, False: {}}
    for parameter in ir_text.parameters(model):
        kind = SourceKind.WEIGHT if parameter.is_weight else SourceKind.INPUT
        sources.setdefault(parameter.name, ValueSource(kind, parameter.name))
        forms[parameter.is_weight][parameter.name] = _form(parameter.type)
    operators = {}
    for node in model.nodes:
        name, outputs = node.operator.full_name, ir_text.outputs_of(node)
        operators[name] = GraphOperator(
            full_name=name,
            op_type=node.operator.op_type,
            inputs=tuple(sources.get(value, ABSENT) for value in ir_text.operand_names(node)),
            outputs=tuple(_form(model.type_of(value)) if value else ValueForm() for value in outputs),
            onnx_names=tuple(part.name for part in node.members),
            label=next(filter(None, outputs), ""),
            attributes=ir_text.shown_arguments(node, model, number) if shows_arguments else "",
            source=node.source,
            bodies={attribute: number - model.index + body.index for attribute, body in node.bodies.items()},
        )
        for value, written in node.undeclared_outputs.items():
            sources[value] = sources.get(written, ABSENT)
        for slot, value in enumerate(outputs):
            if value:
                sources[value] = ValueSource(SourceKind.OPERATOR, name, slot)
    results = tuple(sources.get(value.name, ABSENT) for value in model.results)
    return OperatorGraph(operators, forms[False], forms[True], results, number)


def _form(value_type: ValueType) -> ValueForm:
    if value_type.kind != "tensor":
        return ValueForm()
    dtype = value_type.dtype.title.lower() if value_type.dtype else ""
    shape = value_type.shape
    known = None if shape is None else tuple(size if isinstance(size, int) else -1 for size in shape)
    return ValueForm(dtype, known)


Output = tuple[str, int]
"""Full name of an operator, and the number of its output."""


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """Operators of two graphs that compute the same values: one to one, or group to group."""

    mine: tuple[str, ...] = ()  # full names in the first graph, in order
    golden: tuple[str, ...] = ()  # full names in the second graph, in order
    certainty: float = 1.0  # 0 to 1
    outputs: tuple[tuple[Output, Output], ...] = ()  # outputs that hold the same values
    # whether each side has other operators and weights, as a Conv into which a BatchNorm is folded, and the
    # two: only their outputs can be compared
    is_folded: bool = False

    @property
    def is_single(self) -> bool:
        """Whether the pair is one operator of each graph, not groups of operators."""
        return len(self.mine) == len(self.golden) == 1


@dataclass(frozen=True)
class Alignment:
    """The pairs of operators of two graphs, and the operators without a partner."""

    pairs: tuple[OperatorPair, ...]  # in the order of the first graph
    mine_alone: tuple[str, ...] = ()  # operators of the first graph without a partner, in its order
    golden_alone: tuple[str, ...] = ()  # operators of the second graph without a partner, in its order
    # Golden's weight for each one of the first graph: read in its place, or of the same elements
    weights: Mapping[str, str] = field(default_factory=dict)
    # whether the graphs are forms of one network; if False, the pairs are coincidental
    is_one_network: bool = True

    def describe_networks(self) -> str:
        """Return the sentence that the graphs are of two networks, with the numbers of paired operators."""
        single = [pair for pair in self.pairs if 1 in {len(pair.mine), len(pair.golden)}]
        own = {name for pair in single for name in pair.mine}
        other = {name for pair in single for name in pair.golden}
        count = len(self.of_mine) + len(self.mine_alone)
        golden_count = len(self.of_golden) + len(self.golden_alone)
        return (
            f"they are two networks: {len(own)} of {count} operators of mine are paired with"
            f" {len(other)} of {golden_count} of golden"
        )

    @cached_property
    def of_mine(self) -> Mapping[str, OperatorPair]:
        """The pair of each operator of the first graph that is in one."""
        return {name: pair for pair in self.pairs for name in pair.mine}

    @cached_property
    def of_golden(self) -> Mapping[str, OperatorPair]:
        """The pair of each operator of the second graph that is in one."""
        return {name: pair for pair in self.pairs for name in pair.golden}

    @property
    def is_by_name(self) -> bool:
        """Whether all operators have a partner of the same name."""
        is_whole = not (self.mine_alone or self.golden_alone)
        return is_whole and all(pair.mine == pair.golden for pair in self.pairs)


_OF_GROUPS: Final = 0.7
"""Certainty of groups that compute the same between equal borders in other ways."""
_LEAST: Final = 0.5

_Items = tuple[Sequence[Item], Sequence[Item]]
"""The items of both graphs."""

_Places = tuple[set[int], set[int]]
"""Places of items in both graphs."""

_Pairs = tuple[Mapping[int, int], Mapping[int, int]]
"""For the paired items of either side: the place of the golden one of the pair."""


def align(mine: GraphSide, golden: GraphSide) -> Alignment:
    """Return the pairs of operators of two graphs that compute the same values.

    Properties of operators and of their neighbours identify the partner; names decide between equals
    alone. Unpaired operators between the same borders are paired as groups.
    """
    if _is_same(mine.graph, golden.graph):
        every = mine.graph.operators.items()
        return Alignment(
            tuple(OperatorPair((name,), (name,), outputs=_outputs(each, each)) for name, each in every)
        )
    sides = items_of(mine, golden)

    def are_alike(item: Item, other: Item) -> bool:
        own, content = (
            side.content_of(each.names[-1], 0) if each.is_last else None
            for side, each in ((mine, item), (golden, other))
        )
        if own is None or content is None or not content.is_distinctive:
            return False
        return (own.likeness(content) or 0) >= LIKE

    found = single_pairs(*sides, are_alike)
    partners = {own: other for own, (other, _) in found.items()}
    golden_of = partners, {other: other for other in partners.values()}
    for own in _rearranged(sides, golden_of):
        del golden_of[1][partners.pop(own)]
    pairs = [*_operator_pairs((mine, golden), sides, golden_of, {own: p for own, (_, p) in found.items()})]
    taken = {name for pair in pairs for name in pair.mine}, {name for pair in pairs for name in pair.golden}
    is_body = bool(mine.graph.caller and golden.graph.caller)  # the calling operators are paired already
    return Alignment(
        tuple(pairs),
        tuple(name for name in mine.graph.operators if name not in taken[0]),
        tuple(name for name in golden.graph.operators if name not in taken[1]),
        dict(_weights(sides, partners)),
        is_one_network=is_body or _is_one_network((mine, golden), sides, partners, pairs),
    )


def _weights(sides: _Items, partners: Mapping[int, int]) -> Iterator[tuple[str, str]]:
    """Yield pairs of weights that paired items read; later ones count: the ones with the same elements."""
    equal = []
    for own, other in partners.items():
        mine, golden = (
            [each for each in side[at].sources if each.is_fixed and each.name]
            for side, at in zip(sides, (own, other), strict=True)
        )
        for one in mine:
            equal += [(one.name, two.name) for two in golden if one.label == two.label]
        if not sides[0][own].swaps or len(mine) == len(golden) == 1:
            yield from (
                (one.name, two.name) for one, two in zip(mine, golden, strict=False) if one.shape == two.shape
            )
    yield from equal


def _is_same(mine: OperatorGraph, golden: OperatorGraph) -> bool:
    if mine.operators.keys() != golden.operators.keys():
        return False
    pairs = ((operator, golden.operators[name]) for name, operator in mine.operators.items())
    return all((own.op_type, own.inputs) == (other.op_type, other.inputs) for own, other in pairs)


def _outputs(mine: GraphOperator, golden: GraphOperator) -> tuple[tuple[Output, Output], ...]:
    count = max(len(mine.outputs), len(golden.outputs), 1)
    return tuple(((mine.full_name, slot), (golden.full_name, slot)) for slot in range(count))


class _Classes:
    """Classes of nodes that are joined two by two (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def __contains__(self, node: Hashable) -> bool:
        return node in self._parent

    def top(self, node: Hashable) -> Hashable:
        parent = self._parent
        while parent.setdefault(node, node) != node:
            parent[node] = node = parent[parent[node]]
        return node

    def join(self, one: Hashable, two: Hashable) -> None:
        self._parent[self.top(two)] = self.top(one)


def _is_free(item: Item) -> bool:
    return not (passes_on(item.op_type) or item.names[-1].startswith(INSERTED_PREFIX))


def _rearranged(sides: _Items, golden_of: _Pairs) -> set[int]:
    """Return paired items of the first graph that belong to a group which computes in another order.

    In ``x * 0.5 * y`` and ``x * y * 0.5`` no product is the partner of another. Two paired neighbours both
    read other values than their partners, or a kind is in front on one side and behind on the other.
    """

    def values(number: int, at: int) -> Counter[Hashable]:
        found = Counter[Hashable]()
        for slot, source in enumerate(sides[number][at].sources):
            value: Hashable = "weight" if source.is_fixed else source.label
            if source.place >= 0 and sides[number][source.place].is_fixed:
                value = "weight"
            elif source.place in golden_of[number]:
                value = golden_of[number][source.place], source.slot
            if value is not None:
                found[value if sides[number][at].swaps else (slot, value)] += 1
        return found

    def free_kinds(number: int, neighbours: Sequence[Source] | Sequence[Reader]) -> set[str]:
        places = {place for place, *_ in neighbours if place >= 0 and place not in golden_of[number]}
        return {item.family for item in map(sides[number].__getitem__, places) if _is_free(item)}

    odd, moved = set(), set()
    for own, other in golden_of[0].items():
        mine, golden = sides[0][own], sides[1][other]
        reads, golden_reads = values(0, own), values(1, other)
        if reads - golden_reads and golden_reads - reads:
            odd.add(own)
        is_behind = free_kinds(0, mine.sources) & free_kinds(1, golden.readers)
        if is_behind or free_kinds(0, mine.readers) & free_kinds(1, golden.sources):
            moved.add(own)
    links = {(at, each.place) for at in odd for each in sides[0][at].sources if each.place in odd}
    return moved.union(*links)


def _borders(item: Item, golden_of: Mapping[int, int]) -> Iterator[tuple[int, Hashable, int]]:
    """Yield an item's paired readers, and the graph: place, its name on both sides, and the output."""
    for place, slot, output in item.readers:
        if place < 0 or place in golden_of:
            yield place, ("result", slot) if place < 0 else ("read", golden_of[place], slot), output


def _operator_pairs(
    graphs: tuple[GraphSide, GraphSide], sides: _Items, golden_of: _Pairs, sure: Mapping[int, float]
) -> Iterator[OperatorPair]:
    """Yield pairs of operators, and of groups: unpaired ones between the same readers, members of kernels."""
    changed = _changed(graphs, sides, golden_of)
    for places in _groups(sides, golden_of, changed):
        mine, golden = (
            tuple(dict.fromkeys(name for at in sorted(each) for name in side[at].names))
            for each, side in zip(places, sides, strict=True)
        )
        if len(mine) == len(golden) == 1:
            outputs = _outputs(graphs[0].graph.operators[mine[0]], graphs[1].graph.operators[golden[0]])
        else:
            outputs = tuple(_results(sides, golden_of, changed, places))
        certainty = min(sure.get(at, _OF_GROUPS) for at in places[0])
        is_folded = len(mine) + len(golden) > len(graphs) and _is_folded(graphs, sides, places)
        yield OperatorPair(mine, golden, round(max(certainty, _LEAST), 3), outputs, is_folded)


def _is_folded(graphs: tuple[GraphSide, GraphSide], sides: _Items, places: _Places) -> bool:
    """Return whether the groups have other operators and other weights, and one side has more weights.

    As many weights on both sides are the other side's, one by one.
    """
    groups = [[items[at] for at in each] for items, each in zip(sides, places, strict=True)]
    if Counter(item.family for item in groups[0]) == Counter(item.family for item in groups[1]):
        return False
    mine, golden = (
        {weight for item in group for weight in _weights_of(side, item)}
        for side, group in zip(graphs, groups, strict=True)
    )
    is_known = None not in mine | golden
    return is_known and len(mine) != len(golden) and bool(mine - golden and golden - mine)


_Node = tuple[int, int]
"""Number of a side, and the place of an item."""

_Ends = tuple[dict[Hashable, list[_Node]], dict[Hashable, list[_Node]]]
"""The unpaired items of either side that are read at a place of both graphs."""


def _groups(sides: _Items, golden_of: _Pairs, changed: _Places) -> Iterator[_Places]:
    """Yield the items of both graphs that belong together, in the order of the first graph.

    Unpaired items belong to the ones of the other side that are read at the same place. Without any they
    belong to the changed item in front of them, or else behind them: on the other side it does their work.
    """
    classes = _Classes()
    free, ends = _join_neighbours(classes, sides, golden_of)
    # one that moves elements does not do the work of operators that compute
    computing = {classes.top((n, at)) for n, at in free if not _is_moving(sides[n][at])}
    moving = {one for one in free if classes.top(one) not in computing}
    _join_ends(classes, ends, moving, most=1)
    _join_ends(classes, ends, {*free} - moving, most=1)
    settled = _join_changed(classes, free, sides, changed)
    _join_ends(classes, ends, settled)
    for own, other in golden_of[0].items():
        classes.join((0, own), (1, other))
    found: dict[Hashable, _Places] = defaultdict(lambda: (set(), set()))
    for number, side in enumerate(sides):
        for at, item in enumerate(side):
            if at in golden_of[number] or _is_free(item):
                found[classes.top((number, at))][number].add(at)
    yield from (places for places in found.values() if all(places))


def _join_neighbours(classes: _Classes, sides: _Items, golden_of: _Pairs) -> tuple[list[_Node], _Ends]:
    """Join parts of kernels, and unpaired neighbours; return the unpaired items, and where they are read."""
    free: list[_Node] = []
    ends: _Ends = (defaultdict(list), defaultdict(list))
    for number, side in enumerate(sides):
        operators: dict[str, _Node] = {}
        for at, item in enumerate(side):
            for name in item.names:
                classes.join((number, at), operators.setdefault(name, (number, at)))
            if at in golden_of[number] or not _is_free(item):
                continue
            free.append((number, at))
            for each in item.sources if item.op_type not in SHAPE_READERS else ():
                is_alike = each.place >= 0 and side[each.place].is_fixed is item.is_fixed
                if is_alike and each.place not in golden_of[number] and _is_free(side[each.place]):
                    classes.join((number, at), (number, each.place))
            for end in _ends(item, golden_of[number]):
                ends[number][end].append((number, at))
    return free, ends


def _join_ends(classes: _Classes, ends: _Ends, others: Collection[_Node], most: float = inf) -> None:
    """Join unpaired items read at one place of both sides, without others, if they are few enough."""
    for end in filter(ends[1].__contains__, ends[0]):  # a set has another order in each process
        read = [[one for one in side[end] if one not in others] for side in ends]
        if all(0 < len({*map(classes.top, each)}) <= most for each in read):
            for one in (*read[0], *read[1]):
                classes.join(read[0][0], one)


def _join_changed(classes: _Classes, free: Sequence[_Node], sides: _Items, changed: _Places) -> set[_Node]:
    """Join unpaired items that one side alone has with a changed neighbour; return the joined ones."""
    settled: set[_Node] = set()
    together: dict[Hashable, _Places] = defaultdict(lambda: (set(), set()))
    for number, at in free:
        together[classes.top((number, at))][number].add(at)
    for number, members in ((n, each[n]) for each in together.values() if not all(each) for n in (0, 1)):
        items = [sides[number][at] for at in members]
        before = {each.place for item in items for each in item.sources} & changed[number]
        behind = {each.place for item in items for each in item.readers} & changed[number]
        # one that moves elements does not do the work of operators of another kind
        are_moving = all(map(_is_moving, items))
        beside = {at for at in before or behind if are_moving or not _is_moving(sides[number][at])}
        for at in beside if not all(item.is_fixed for item in items) else ():
            settled |= {(number, each) for each in members}
            classes.join((number, at), (number, min(members)))
    return settled


def _is_moving(item: Item) -> bool:
    return is_view(item.op_type) or item.op_type in {CAST, "Transpose"}


def _ends(item: Item, paired: Mapping[int, int]) -> Iterator[Hashable]:
    """Yield the places where an unpaired item is read; of one without readers, its sources."""
    for _, border, _ in _borders(item, paired):
        yield ("fixed", border) if item.is_fixed else border
    reads = [paired.get(each.place) for each in item.sources]
    if not item.readers and reads and None not in reads:
        yield ("unread", *reads)


def _changed(graphs: tuple[GraphSide, GraphSide], sides: _Items, golden_of: _Pairs) -> _Places:
    """Return the paired items that compute another thing than their partners.

    They have another type or number of inputs; or, beside an operator that one side alone has, other
    attributes or weights.
    """

    def strangers(number: int, at: int) -> list[Item]:
        item = sides[number][at]
        near = {each.place for neighbours in (item.sources, item.readers) for each in neighbours} - {-1}
        free = [sides[number][place] for place in near if place not in golden_of[number]]
        return [each for each in free if _is_free(each) and not each.is_fixed]

    changed: _Places = (set(), set())
    for own, other in golden_of[0].items():
        mine, golden = sides[0][own], sides[1][other]
        is_alike, beside = _is_alike(mine, golden), [*strangers(0, own), *strangers(1, other)]
        if is_alike and beside:
            read = [_weights_of(*each) for each in zip(graphs, (mine, golden), strict=True)]
            is_alike = read[0] == read[1] or None in (*read[0], *read[1])
            is_alike &= len({mine.fields["attributes"], golden.fields["attributes"]} - {None}) <= 1
            # two views in a row are not alike one view: together they may reshape as it does
            is_alike &= not (is_view(mine.op_type) and any(is_view(each.op_type) for each in beside))
        if not is_alike:
            changed[0].add(own)
            changed[1].add(other)
    return changed


def _weights_of(side: GraphSide, item: Item) -> list[Hashable]:
    """Return the contents of the weights of several numbers that an item reads, None for unknown ones."""
    found: list[Hashable] = []
    for each in item.sources:
        if each.place < 0 and each.label is None:  # of scaled integers the numbers are not known
            found.append(None)
        elif each.is_fixed and each.shape and side.graph.weights.get(each.name, ValueForm()).dtype in FLOATS:
            content = None if each.is_content else side.content_of(each.name, 0)
            found.append(each.label if each.is_content else content and ("weight", content.digest))
    return sorted(found, key=str)


def _is_alike(mine: Item, golden: Item) -> bool:
    is_as_long = len(mine.sources) == len(golden.sources) or mine.swaps  # of members of kernels it is a guess
    return mine.op_type == golden.op_type and is_as_long


def _results(
    sides: _Items, golden_of: _Pairs, changed: _Places, inside: _Places
) -> Iterator[tuple[Output, Output]]:
    """Yield outputs of two groups with the same values: of paired items, or read at the same place."""
    alike = {own: golden for own, golden in golden_of[0].items() if own not in changed[0]}
    # a reader that fuses another operator reads its values elsewhere
    unlike = {
        other for own, other in golden_of[0].items() if _values(sides[0][own]) != _values(sides[1][other])
    }
    own, other = dict[Hashable, _Value](), dict[Hashable, _Value]()
    for number, table in enumerate((own, other)):
        last = [(at, item) for at in sorted(inside[number]) if (item := sides[number][at]).is_last]
        for at, item in last:
            partner = at if number else alike.get(at)
            slots = {0, *(each.output for each in item.readers)} if partner is not None else ()
            table |= {("item", partner, slot): (at, slot) for slot in sorted(slots)}
        met = Counter[Hashable]()  # a commutative operator may read several, in order
        for at, item in last:
            for place, border, slot in _borders(item, golden_of[number]):
                if place not in inside[number] and golden_of[number].get(place) not in unlike:
                    table.setdefault((border, met[border]), (at, slot))
                    met[border] += 1
    taken = set[tuple[int, _Value]]()
    for key, value in own.items():
        if key in other and not {(0, value), (1, other[key])} & taken:
            taken |= {(0, value), (1, other[key])}
            before = [
                [*_before_moves(*each)] for each in zip(sides, inside, (value, other[key]), strict=True)
            ]
            same = (ends for ends in product(*before) if ends[0][1:] == ends[1][1:])
            (output, *_), (golden, *_) = next(same, (before[0][0], before[1][0]))
            yield output, golden


_Value = tuple[int, int]
"""The place of an item, and the number of its output."""


def _before_moves(
    side: Sequence[Item], inside: set[int], value: _Value
) -> Iterator[tuple[Output, tuple[int, ...] | None, bool]]:
    """Yield a group's output, and the tensors before its operators that only move elements.

    Each comes with its shape, and whether a Transpose lies between it and the output.

    One side may move elements by an operator, the other by an argument of its reader.
    """
    chain = [value]
    while _is_moving(item := side[chain[-1][0]]) and item.sources and item.sources[0].place in inside:
        chain.append((item.sources[0].place, item.sources[0].slot))
    turns = [side[at].op_type == "Transpose" for at, _ in chain]
    for number, (at, slot) in enumerate(chain):
        shapes = side[at].fields["shapes"]
        shape = shapes[slot] if isinstance(shapes, tuple) and slot < len(shapes) else None
        yield (side[at].names[-1], slot), shape, any(turns[number:])


def _values(item: Item) -> int | None:
    """Return how many values an item reads besides weights; None of one without order, as in a kernel."""
    return None if item.swaps else sum(each.place >= 0 or each.is_input for each in item.sources)


_ANCHORED: Final = 0.25
"""Share of the smaller side's operators that are one operator on either side, in forms of one network."""


def _is_one_network(
    graphs: tuple[GraphSide, GraphSide],
    sides: _Items,
    partners: Mapping[int, int],
    pairs: Sequence[OperatorPair],
) -> bool:
    """Return whether two graphs are forms of one network, maybe with other weights.

    They are if they share weights, or else if enough operators are paired one to one, and the pairs with
    weights have weights of the same shapes; a rare property counts more. A pair of groups alone proves
    nothing: two unrelated networks, from inputs to outputs, form such a pair.
    """
    contents = [
        {each.label for item in side for each in item.sources if each.is_content and each.shape}
        for side in sides
    ]
    if 2 * len(contents[0] & contents[1]) > min(map(len, contents)):
        return True
    count = min(sum(not passes_on(item.op_type) for item in side) for side in sides)
    sure = [pair for pair in pairs if 1 in {len(pair.mine), len(pair.golden)} and pair.certainty > _LEAST]
    if len(sure) < _ANCHORED * count:
        return False
    own, other = (
        [_largest_weight(graph, item) for item in side] for graph, side in zip(graphs, sides, strict=True)
    )
    kinds = [(item.family, shape) for item, shape in zip(sides[1], other, strict=True)]
    rarity = Counter(kinds)
    weighted = [(place, at) for place, at in partners.items() if own[place] or other[at]]
    if not weighted:
        return not (any(own) and any(other))
    shares = [
        (1 / rarity[kinds[at]], own[place] == other[at])
        for place, at in weighted
        if sides[0][place].op_type == sides[1][at].op_type  # other types hold weights in other shapes
    ]
    return 2 * sum(share for share, is_same in shares if is_same) >= sum(share for share, _ in shares)


def _largest_weight(side: GraphSide, item: Item) -> tuple[int, ...]:
    # exporters write shapes, axes and indices in several ways
    known = (each for each in item.sources if each.place < 0 and not each.is_input)
    weights = (each for each in known if side.graph.weights.get(each.name, ValueForm()).dtype != "int64")
    return max((tuple(sorted(each.shape or ())) for each in weights), key=prod, default=())
