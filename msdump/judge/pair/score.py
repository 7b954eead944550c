"""How likely the operators of two graphs are partners, in bits, and the likeliest pairs.

Record linkage (I. Fellegi and A. Sunter, A Theory for Record Linkage, 1969): a property that two operators
have in common counts log2(m / u) bits, one that differs log2((1 - m) / 0.8), with m the share of true pairs
that have it in common, and u the share of all operators of the family: a rare one counts more. Neighbours
hand on the belief in them, beyond the belief by chance. Names decide between equals alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from msdump.device import INSERTED_PREFIX, is_view
from msdump.judge.pair.sides import (
    CAST,
    INTEGER,
    GraphSide,
    LabelOf,
    canonical_type,
    is_commutative,
    labels,
    lost_clamps,
    part_types,
    passes_on,
)
from msdump.read import SHAPE_READERS, GraphOperator, OperatorGraph, SourceKind, ValueSource

_FIELDS: Final = {
    "type": 0.7,
    "weights": 0.9,
    "weight names": 0.7,
    "weight shapes": 0.95,
    "attributes": 0.95,
    "shapes": 0.95,
    "types": 0.9,
    "scope": 0.9,
    "lines": 0.9,
}
"""Share of true pairs that agree, by property."""
_AROUND: Final = (0.85, 0.75, 0.65, 0.5)
"""The same for everything upstream, or downstream, within one, two, three edges, and at any distance."""
_OF_TYPE: Final = frozenset({"attributes", "types", "weights", "weight shapes"})
"""Properties that another type states in another way: that they differ counts for equal types alone."""
_FAMILY_BITS: Final = 5.0
_NAME_BITS: Final = 0.25
_CONTENT_BITS: Final = 4.0
"""More for equal weights of several elements: they are no coincidence."""
_OUTPUT_BITS: Final = 6.0
"""For dumped outputs that are alike; that they differ says nothing: behind a fault all do."""
_EDGE: Final = 0.9
"""Share of true pairs with producers, or readers, that are partners."""
_EDGE_BITS: Final = -1.0, 6.0
_ROUNDS: Final = 8
_FAR: Final = 8.0
"""Operators away from the place in the order that cost a bit."""
_MOST_DISTANCE: Final = -3.0
_SURE_BITS: Final = 8.0
"""From here on a pair needs no partners beside it."""
_SURE: Final = 0.9
_POSSIBLE: Final = 0.02
_LIKELY: Final = 0.2
"""Share of the likeliest candidate's probability from which on another one may be in the chain."""
_SETTLED: Final = 0.01
"""Beliefs that change by less in a round have settled."""
_MOST_CANDIDATES: Final = 1 << 20
_MOST_READERS: Final = 16
_MOST_INPUTS: Final = 8

_FAMILIES: Final = {
    "Dense": "MatMul",
    "Gemm": "MatMul",
    "MatMulNBits": "MatMul",
    "ClipByValue": "ReLU6",
    "FastGelu": "GeLU",
    "Gelu": "GeLU",
    "LayerNormalization": "LayerNorm",
    "SkipLayerNormalization": "LayerNorm",
    "SkipLayerNorm": "LayerNorm",
}
_VALUE_SLOTS: Final = {"QLinearConv": (0, 3, 8), "QGemm": (0, 3, 6), "QLinearConcat": tuple(range(2, 99, 3))}
"""Inputs of quantised operators that are no scales and zero points; of other QLinear types (0, 3) or (0,)."""
_TWO_VALUES: Final = frozenset({"QLinearMatMul", "QLinearAdd", "QLinearMul"})
_SCALING: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
_RUNNING: Final = re.compile(r"\d+(?=\D*$)")


class Source(NamedTuple):
    """The identity of an input: an item's output (``place`` and ``slot``), or else a label, None if unknown.

    ``passed`` is the place of the cast, or the like, that is read directly; -1 for none.
    """

    place: int
    slot: int = 0
    label: Hashable | None = None
    shape: tuple[int, ...] | None = None
    passed: int = -1
    name: str = ""

    @property
    def is_input(self) -> bool:
        """Whether it is an input of the graph."""
        return isinstance(self.label, tuple) and self.label[0] == "input"

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known, because files of a dump have no such tensor."""
        return self.place < 0 and self.label is None and not self.name

    @property
    def is_content(self) -> bool:
        """Whether it is a weight with known elements."""
        return isinstance(self.label, tuple) and self.label[0] == "weight"

    @property
    def is_fixed(self) -> bool:
        """Whether it is a weight or a constant."""
        return isinstance(self.label, tuple) and self.label[0] in {"weight", "name", "constant"}


class Reader(NamedTuple):
    """A reader of an output: its place (-1: the graph returns it), numbers of its input and of the output."""

    place: int
    slot: int
    output: int


@dataclass(slots=True, eq=False)
class Item:
    """An operator, a member of a fused one, or an integer product with its scaling."""

    names: tuple[str, ...]  # full names of the operators that it is, or that it is a part of
    onnx_names: tuple[str, ...]  # names of the ONNX nodes of the operator
    op_type: str  # its own type
    family: str  # type under which others may have it, in other systems or quantised
    swaps: bool  # whether its inputs may change places, or their order in a fused operator is not known
    is_last: bool  # whether its outputs are the operator's
    is_fixed: bool = False  # whether a compiler can compute it beforehand, from weights, constants and shapes
    sources: list[Source] = field(default_factory=list)  # its inputs, behind casts and the like
    # its readers, likewise; a commutative one reads at -1
    readers: list[Reader] = field(default_factory=list)
    # values of the properties, None for unknown
    fields: dict[str, Hashable | None] = field(default_factory=dict)


def items_of(mine: GraphSide, golden: GraphSide) -> tuple[list[Item], list[Item]]:
    """Return the items of two graphs, in the order of execution."""
    own, other = (
        _Items(side.graph, beside.graph, label).items
        for side, beside, label in zip((mine, golden), (golden, mine), labels(mine, golden), strict=True)
    )
    return own, other


class _Items:
    """The items of a graph that is compared with another one."""

    def __init__(self, graph: OperatorGraph, other: OperatorGraph, label_of: LabelOf) -> None:
        self.items: list[Item] = []
        self._graph, self._label_of = graph, label_of
        operators = [each for one in (graph, other) for each in one.operators.values()]
        kinds, beside = ({each.op_type for each in one.operators.values()} for one in (graph, other))
        self._clamps = lost_clamps(kinds, beside)
        self._views_pass = not (any(map(is_view, kinds)) and any(map(is_view, beside)))
        counts = Counter((each.op_type, len(each.inputs)) for each in operators)
        self._arity = {op_type: count for (op_type, count), _ in sorted(counts.items(), key=itemgetter(1))}
        self._fused = {each for one in operators if len(parts := part_types(one)) > 1 for each in parts}
        self._wholes = _wholes(graph, self._clamps, beside)
        self._results: dict[str, Source] = {}  # of fused operators that of the last member that is no cast
        heads = self._make()
        for name, (place, end) in heads.items():
            self._fill(graph.operators[name], place, end)
        self._connect()

    def _make(self) -> dict[str, tuple[int, int]]:
        """Make the items; return the places of each operator's first item and behind its last."""
        heads = {}
        inner = {name for members, _ in self._wholes.values() for name in members[:-1]}
        for name, operator in self._graph.operators.items():
            if name in inner:
                continue
            names, computes = self._wholes.get(name, ((name,), operator))
            types, place = part_types(computes), len(self.items)
            last = max((at for at, each in enumerate(types) if each != CAST), default=len(types) - 1)
            for at, each in enumerate(types):
                swaps = is_commutative(_family(each)) or each in self._fused
                self.items.append(Item(names, operator.onnx_names, each, _family(each), swaps, at == last))
            end = len(self.items)
            result = Source(place + last, passed=-1 if end == place + last + 1 else end - 1)
            self._results |= dict.fromkeys(names, result)
            heads[name] = place, end
        return heads

    def _trace(self, source: ValueSource) -> Source:
        """Return the source of a value behind casts and the like."""
        passed, is_scaled, operators = -1, False, self._graph.operators
        for _ in operators:  # bounded: an invalid graph may have a cycle
            operator = operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
            if operator is None:
                break
            op_type, result = operator.op_type, self._results[source.name]
            is_passing = (
                passes_on(op_type) or op_type in self._clamps or (self._views_pass and is_view(op_type))
            )
            if not (is_passing and operator.inputs):
                return Source(result.place, source.slot, passed=result.passed if passed < 0 else passed)
            passed = result.place if passed < 0 else passed
            is_scaled |= op_type in _SCALING
            source = operator.inputs[0]
        # other passes of a loop may read values that the graph does not name
        label = None if source.varies and source.kind is SourceKind.ABSENT else self._label_of(source)
        found = Source(-1, 0, label, self._graph.form_of(source).shape, passed, source.name)
        return found._replace(label=None) if is_scaled and found.is_content else found

    def _fill(self, operator: GraphOperator, place: int, end: int) -> None:
        """Set the inputs of an operator's items, and their properties."""
        _, computes = self._wholes.get(operator.full_name, ((), operator))
        before: list[Source] = []
        left = [self._trace(each) for each in _values(computes)]
        while left and left[-1].label == "absent":
            left.pop()
        for at in range(place, end):
            item = self.items[at]
            count = self._arity.get(item.op_type, 2) - len(before)
            taken, left = (left, []) if at == end - 1 else (left[:count], left[count:])
            item.sources = [*before, *taken]
            known = (
                each.is_fixed or (each.place >= 0 and self.items[each.place].is_fixed)
                for each in item.sources[: 1 if item.op_type == CAST else None]
            )
            item.is_fixed = item.op_type in SHAPE_READERS or (bool(item.sources) and all(known))
            item.fields = _fields(item, operator, taken, is_part=end - place > 1)
            before = [Source(at)]
            if item.op_type == CAST and item.sources:
                before = [item.sources[0]._replace(passed=at)]

    def _connect(self) -> None:
        """Set the readers of the items."""
        for at, item in enumerate(self.items):
            if item.names[-1].startswith(INSERTED_PREFIX):
                continue
            for number, source in enumerate(item.sources):
                slot = -1 if item.swaps else number
                if source.place >= 0 and item.op_type not in SHAPE_READERS:
                    self.items[source.place].readers.append(Reader(at, slot, source.slot))
                if source.passed >= 0:
                    self.items[source.passed].readers.append(Reader(at, slot, 0))
        for number, each in enumerate(self._graph.outputs):
            source = self._trace(each)
            for place in {source.place, source.passed} - {-1}:
                self.items[place].readers.append(Reader(-1, number, source.slot))


def _wholes(
    graph: OperatorGraph, clamps: Collection[str], others: Collection[str]
) -> dict[str, tuple[tuple[str, ...], GraphOperator]]:
    """Return groups that are one operator in another graph if one of the two is quantised, by the last name.

    An integer product with the cast and the scaling behind it and the source of the scale; an operator with a
    clamp behind it, which the range of a quantised one replaces. Each with the operator that computes.
    """
    found = {}
    is_integer, has_ranges = (
        INTEGER & {*others},
        any(each.startswith(("QLinear", "QGemm")) for each in others),
    )
    for name, operator in graph.operators.items():
        if operator.op_type in INTEGER and not is_integer:
            casts = graph.used_by(name)
            scalings = graph.used_by(casts[0].full_name) if [each.op_type for each in casts] == [CAST] else ()
            if [each.op_type for each in scalings] == ["Mul"]:
                makers = (graph.operators.get(each.name) for each in scalings[0].inputs)
                scales = [each.full_name for each in makers if each is not None and each.op_type == "Mul"]
                last = scalings[0].full_name
                found[last] = (*scales, name, casts[0].full_name, last), operator
        elif operator.op_type in clamps and has_ranges:
            clamped = graph.inputs_from(name)
            if len(clamped) == 1 and len(graph.used_by(clamped[0].full_name)) == 1:
                found[name] = (clamped[0].full_name, name), clamped[0]
    return found


def _family(op_type: str) -> str:
    name = canonical_type(op_type)
    return _FAMILIES.get(name, name)


def _values(operator: GraphOperator) -> Sequence[ValueSource]:
    """Return the inputs of an operator without scales and zero points."""
    inputs = operator.inputs
    if operator.op_type in INTEGER:
        return inputs[:2]
    if operator.op_type in _VALUE_SLOTS or operator.op_type.startswith("QLinear"):
        otherwise = (0, 3) if operator.op_type in _TWO_VALUES else (0,)
        slots = _VALUE_SLOTS.get(operator.op_type, otherwise)
        return [inputs[slot] for slot in slots if slot < len(inputs)]
    return inputs


def _fields(
    item: Item, operator: GraphOperator, taken: Sequence[Source], *, is_part: bool
) -> dict[str, Hashable | None]:
    fixed = [each for each in taken if each.place < 0 and not (each.is_input or each.is_unknown)]
    if item.swaps:
        fixed.sort(key=str)
    contents = [each.label for each in fixed]
    is_known = not any(each is None or (isinstance(each, tuple) and each[0] == "name") for each in contents)
    names = tuple(_RUNNING.sub("", each.name) for each in fixed)
    types = tuple(form.dtype for form in operator.outputs)
    shapes = tuple(form.shape for form in operator.outputs)
    is_shaped = all(shape is not None and -1 not in shape for shape in shapes)
    return {
        "type": item.op_type,
        "weights": tuple(contents) if is_known else None,
        "weight names": None if is_known else names,
        "weight shapes": tuple(sorted(tuple(sorted(each.shape or ())) for each in fixed)),
        "attributes": None if is_part or operator.bodies else operator.attributes or None,
        "shapes": shapes if item.is_last and is_shaped else None,
        "types": types if item.is_last and all(types) else None,
        "scope": operator.scope.removeprefix("Default") or None,
        "lines": None if is_part else tuple(line.code.strip() for line in operator.source) or None,
    }


_Keys = tuple[np.ndarray, np.ndarray]
"""A number for the value of a property of each item of both graphs; -1 for unknown."""


def _neighbourhoods(items: Sequence[Item], number: Callable[[Hashable], int]) -> list[list[int]]:
    """Return numbers of the operators upstream, then downstream, within 1, 2, 3 edges and at any distance."""

    def upstream(at: int, known: Sequence[int]) -> tuple[Hashable, ...] | None:
        if any(
            each.is_unknown or (0 <= each.place < len(known) and known[each.place] < 0)
            for each in items[at].sources
        ):
            return None
        sources = [
            (known[each.place] if each.place < len(known) else -1, each.slot)
            if each.place >= 0 and (items[at].is_fixed or not items[each.place].is_fixed)
            else (-2, number(each.label) if each.is_input else 0)
            for each in items[at].sources
        ]
        return tuple(sorted(sources) if items[at].swaps else sources)

    def downstream(at: int, known: Sequence[int]) -> tuple[Hashable, ...]:
        readers = [
            (known[place] if place >= 0 else -2, slot, output) for place, slot, output in items[at].readers
        ]
        return tuple(sorted(readers)[:_MOST_READERS])

    def numbered(
        look: Callable[[int, Sequence[int]], tuple[Hashable, ...] | None], at: int, known: Sequence[int]
    ) -> int:
        around = look(at, known)
        return -1 if around is None else number((look.__name__, families[at], around))

    families = [number(item.family) for item in items]
    found = []
    for look, order in ((upstream, range(len(items))), (downstream, reversed(range(len(items))))):
        near = families
        for _ in _AROUND[:-1]:
            near = [numbered(look, at, near) for at in range(len(items))]
            found.append(near)
        far = [] if look is upstream else [-1] * len(items)
        for at in order:
            far[at : at + 1] = [numbered(look, at, far)]
        found.append(far)
    return found


class Score:
    """Candidates for pairs, and the bits that speak for each.

    Attributes:
        sides: The items of both graphs.
        mine: Place of each candidate in the first graph.
        golden: Its place in the second one.
        bits: Evidence for each.
    """

    def __init__(self, mine: Sequence[Item], golden: Sequence[Item]) -> None:
        """Score each candidate by its own properties and its neighbourhood's."""
        self.sides = mine, golden
        numbers: dict[Hashable, int] = {}

        def number(key: Hashable) -> int:
            return numbers.setdefault(key, len(numbers))

        def keys(value_of: Callable[[Item], Hashable | None]) -> _Keys:
            own, other = (
                np.array(
                    [-1 if (value := value_of(item)) is None else number(value) for item in side], np.int64
                )
                for side in self.sides
            )
            return own, other

        def field_of(name: str, item: Item) -> Hashable | None:
            value = item.fields[name]
            return None if value is None else (item.family, name, value)

        families = keys(lambda item: item.family)
        properties = {name: keys(partial(field_of, name)) for name in _FIELDS}
        around = [
            (np.array(own, np.int64), np.array(other, np.int64))
            for own, other in zip(*(_neighbourhoods(side, number) for side in self.sides), strict=True)
        ]
        every = np.concatenate([each for both in (families, *properties.values(), *around) for each in both])
        count = np.bincount(every + 1, minlength=len(numbers) + 1)[1:]
        sizes = [np.bincount(each, minlength=len(numbers)) for each in families]
        near = [properties[name] for name in ("weights", "weight names", "scope", "lines")] + around
        self._key = _candidates(families, near)
        self.mine, self.golden = np.divmod(self._key, max(len(golden), 1))
        family = families[0][self.mine]
        self.chance = -np.log2(np.maximum(np.maximum(*sizes)[family], 1))
        total = (sizes[0] + sizes[1])[family]

        def worth(both: _Keys, m: float) -> tuple[np.ndarray, np.ndarray]:
            own, other = both[0][self.mine], both[1][self.golden]
            known, same = (own >= 0) & (other >= 0), (own == other) & (own >= 0)
            share = np.clip((count[np.maximum(own, 0)] - 1) / total, 1e-9, 0.999)
            # two systems that never write a property of a family alike write it in two ways
            is_ever_same = np.bincount(family, same)[family] > 0
            unlike = np.where(known & is_ever_same, np.log2((1 - m) / 0.8), 0.0)
            return same, np.where(same, np.log2(m / share), unlike)

        are_known = all(any(item.onnx_names for item in side) for side in self.sides)
        self.bits = _FAMILY_BITS + self.chance
        is_type, _ = worth(properties["type"], 0.5)
        for name, m in _FIELDS.items():
            same, bits = worth(properties[name], m)
            self.bits += np.where(same | is_type, bits, 0.0) if name in _OF_TYPE else bits
            if name == "weights":
                several = np.array(
                    [any(each.shape and each.is_fixed for each in item.sources) for item in mine], bool
                )
                self.bits += _CONTENT_BITS * (same & several[self.mine])
        for begin in (0, len(_AROUND)):
            levels = [worth(both, m) for both, m in zip(around[begin:], _AROUND, strict=False)]
            best = np.max([bits for _, bits in levels], axis=0)
            self.bits += np.where(levels[0][0], best, levels[0][1])
        names = keys(lambda item: item.onnx_names if are_known else item.names)
        self.bits += _NAME_BITS * (names[0][self.mine] == names[1][self.golden])
        self._link()

    def _find(self, mine: np.ndarray, golden: np.ndarray) -> np.ndarray:
        """Return the number of each candidate by its places, -1 for none."""
        key = np.where((mine < 0) | (golden < 0), -1, mine * len(self.sides[1]) + golden)
        at = np.minimum(np.searchsorted(self._key, key), max(len(self._key) - 1, 0))
        return np.where((key >= 0) & (self._key[at] == key), at, -1)

    def _link(self) -> None:
        """Find the candidates that read other candidates at the same place."""
        width = min(max((len(item.sources) for side in self.sides for item in side), default=0), _MOST_INPUTS)
        shape = 2, max(map(len, self.sides)), width
        place, slot, passed = np.full(shape, -1), np.full(shape, -1), np.full(shape, -1)
        for number, side in enumerate(self.sides):
            for at, item in enumerate(side):
                for column, source in enumerate(item.sources[:width]):
                    place[number, at, column], slot[number, at, column] = source.place, source.slot
                    passed[number, at, column] = source.passed

        def linked(
            producers: np.ndarray, columns: Iterator[tuple[int, int]]
        ) -> tuple[np.ndarray, np.ndarray]:
            rows, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
            for column, other in columns:
                target = self._find(producers[0][self.mine, column], producers[1][self.golden, other])
                is_slot = slot[0][self.mine, column] == slot[1][self.golden, other]
                row = np.flatnonzero((target >= 0) & (is_slot | (producers is passed)))
                rows.append(row)
                targets.append(target[row])
            return np.concatenate(rows), np.concatenate(targets)

        swaps = np.array([item.swaps for item in self.sides[0]], bool)[self.mine]
        row, target = linked(place, iter([(0, 1), (1, 0)] if width > 1 else []))
        self._crossed = row[swaps[row]], target[swaps[row]]
        self._straight = linked(place, zip(range(width), range(width), strict=True))
        self._passed = linked(passed, zip(range(width), range(width), strict=True))
        given = [
            [
                {
                    (0 if item.swaps else slot, each.label)
                    for slot, each in enumerate(item.sources)
                    if each.is_input
                }
                for item in side
            ]
            for side in self.sides
        ]
        results = [
            [{each[1:] for each in item.readers if each.place < 0} for item in side] for side in self.sides
        ]
        self._given, self._results = self._common(given), self._common(results)
        self._by_chance = [
            min(0.5, 1 / max(1, len({each for item in side for each in item})))
            for side in (given[1], results[1])
        ]
        reads = (place >= 0).sum(2)
        for row, counts in zip(reads, given, strict=True):
            row[: len(counts)] += [len(each) for each in counts]
        self._inputs = np.maximum(reads[0][self.mine], reads[1][self.golden])
        degree = [np.array([len(item.readers) for item in side]) for side in self.sides]
        self._outputs = np.maximum(degree[0][self.mine], degree[1][self.golden])

    def flood(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the evidence for each candidate with that of its neighbours, and the probability."""
        edge, bits = np.zeros(len(self.bits)), self.bits
        p = self.belief(bits)
        for _ in range(_ROUNDS):
            edge = (edge + self.edges(p)) / 2
            bits = self.bits + edge + self.order(p)
            before, p = p, self.belief(bits)
            if np.abs(p - before).max() < _SETTLED:
                break
        return bits, p

    def tops(self, p: np.ndarray) -> list[np.ndarray]:
        """Return for each candidate the probability of the likeliest one of its item, on either side."""
        found = []
        for places, side in zip((self.mine, self.golden), self.sides, strict=True):
            top = np.zeros(len(side))
            np.maximum.at(top, places, p)
            found.append(top[places])
        return found

    def _common(self, sets: Sequence[Sequence[set[Any]]]) -> np.ndarray:
        """Return for each candidate how much the sets of its items have in common."""
        some = [np.array([bool(each) for each in side]) for side in sets]
        common = np.zeros(len(self.mine))
        for k in np.flatnonzero(some[0][self.mine] & some[1][self.golden]).tolist():
            common[k] = len(sets[0][self.mine[k]] & sets[1][self.golden[k]])
        return common

    def belief(self, bits: np.ndarray) -> np.ndarray:
        """Return the probability of each candidate against its rivals on either side, and against none."""
        odds = np.exp2(np.clip(bits, -60, 60))
        rows = np.bincount(self.mine, odds, len(self.sides[0]))
        columns = np.bincount(self.golden, odds, len(self.sides[1]))
        p: np.ndarray = np.minimum(odds / (1 + rows[self.mine]), odds / (1 + columns[self.golden]))
        return p

    def edges(self, p: np.ndarray) -> np.ndarray:
        """Return the bits of producers and readers that are believed to be partners, beyond chance."""
        size, chance = len(self.mine), np.minimum(np.exp2(self.chance), 0.5)
        straight, crossed = (
            np.bincount(row, p[target], size) for row, target in (self._straight, self._crossed)
        )
        crosses = crossed > straight
        expected, by_chance = (
            common * chance
            for common, chance in zip((self._given, self._results), self._by_chance, strict=True)
        )
        read = self._results.copy()
        for (row, target), chosen in ((self._straight, ~crosses), (self._crossed, crosses)):
            rows, targets = row[chosen[row]], target[chosen[row]]
            expected += np.bincount(rows, chance[targets], size)
            read += np.bincount(targets, p[rows], size)
            by_chance += np.bincount(targets, chance[rows], size)
        read += np.bincount(self._passed[1], p[self._passed[0]], size)
        by_chance += np.bincount(self._passed[1], chance[self._passed[0]], size)
        bits = np.zeros(size)
        for got, least, most in (
            (np.maximum(straight, crossed) + self._given, expected, self._inputs),
            (read, by_chance, self._outputs),
        ):
            share, base = (
                np.minimum(got / np.maximum(most, 1), 1),
                np.clip(least / np.maximum(most, 1), 1e-4, 0.5),
            )
            ratio = _EDGE * share / base + (1 - _EDGE) * (1 - share) / (1 - base)
            bits += np.minimum(most, 2) * np.clip(np.log2(ratio), *_EDGE_BITS)
        return bits

    def order(self, p: np.ndarray) -> np.ndarray:
        """Return the bits that a candidate loses by its distance from the surest pairs around it."""
        sure = np.flatnonzero(p > _SURE)
        sure = sure[self.chain(sure, p)]
        own, other = (
            np.concatenate([[-1.0], each[sure], [len(side)]])
            for each, side in zip((self.mine, self.golden), self.sides, strict=True)
        )
        far = np.abs(self.golden - np.interp(self.mine, own, other)) / _FAR
        bits: np.ndarray = np.maximum(-np.log2(1 + far), _MOST_DISTANCE)
        return bits

    def chain(self, chosen: np.ndarray, weight: np.ndarray) -> list[int]:
        """Return which of some candidates make the heaviest chain that ascends in both orders."""
        pairs = (self.mine[chosen], self.golden[chosen], weight[chosen])
        return heaviest_chain(*(each.tolist() for each in pairs))


def heaviest_chain(mine: Sequence[int], golden: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return which of some pairs make the heaviest chain that ascends in both orders.

    A Fenwick tree has the heaviest chain that ends before each place of the second order.
    """
    size = max(golden, default=-1) + 1
    best, holder, before = [0.0] * (size + 1), [-1] * (size + 1), [-1] * len(golden)
    for k in np.lexsort((-np.asarray(golden, int), np.asarray(mine, int))).tolist():
        at, top, last = golden[k], 0.0, -1
        while at > 0:
            if best[at] > top:
                top, last = best[at], holder[at]
            at &= at - 1
        before[k], at, top = last, golden[k] + 1, top + weights[k]
        while at <= size and best[at] < top:
            best[at], holder[at] = top, k
            at += at & -at
    found, k = [], holder[max(reversed(range(size + 1)), key=best.__getitem__)]
    while k >= 0:
        found.append(k)
        k = before[k]
    return found[::-1]


def _candidates(families: _Keys, keys: Sequence[_Keys]) -> np.ndarray:
    """Return all pairs of a family; of large graphs the ones near each other in a class of equal keys."""
    total = len(families[1])

    def classes(own: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        groups = []
        for each in (own, other):
            order = np.argsort(each, kind="stable")
            values, begins = np.unique(each[order], return_index=True)
            groups.append(dict(zip(values.tolist(), np.split(order, begins[1:]), strict=True)))
        yield from (
            (group, groups[1][key]) for key, group in groups[0].items() if key >= 0 and key in groups[1]
        )

    whole = [*classes(*families)]
    pairs = [np.zeros(0, np.int64)]
    if sum(len(own) * len(other) for own, other in whole) <= _MOST_CANDIDATES:
        pairs += [(own[:, None] * total + other).ravel() for own, other in whole]
        return np.sort(np.concatenate(pairs))
    for both in keys:
        for own, other in classes(*both):
            if len(own) * len(other) <= _MOST_READERS:
                pairs.append((own[:, None] * total + other).ravel())
                continue
            at, longer = np.arange(len(own)), len(other) - len(own)
            for shift in {-1, 0, 1, longer - 1, longer, longer + 1}:
                inside = (at + shift >= 0) & (at + shift < len(other))
                pairs.append(own[inside] * total + other[at[inside] + shift])
    return np.unique(np.concatenate(pairs))


AreAlike = Callable[[Item, Item], bool]
"""Returns whether the dumped outputs of two items are known to be alike."""


def single_pairs(
    mine: Sequence[Item], golden: Sequence[Item], are_alike: AreAlike
) -> dict[int, tuple[int, float]]:
    """Return the partner of each item that has one, by place, and how sure that is, from 0 to 1.

    Contents of dumped outputs are read where nothing else decides.
    """
    score = Score(mine, golden) if mine and golden else None
    if score is None or not len(score.mine):
        return {}
    bits, p = score.flood()
    top = score.tops(p)
    is_open = np.flatnonzero((p > _POSSIBLE) & (np.minimum(*top) < _SURE)).tolist()
    alike = [k for k in is_open if are_alike(mine[score.mine[k]], golden[score.golden[k]])]
    if alike:
        score.bits[alike] += _OUTPUT_BITS
        bits, p = score.flood()
        top = score.tops(p)
    is_likely = (p >= _LIKELY * top[0]) & (p >= _LIKELY * top[1]) & (bits > score.chance)
    likely = np.flatnonzero(is_likely)
    pairs: dict[int, tuple[int, float]] = {}
    taken: set[int] = set()
    places = [*zip(score.mine.tolist(), score.golden.tolist(), strict=True)]

    def join(numbers: Iterable[int], is_confirmed: Callable[[int, int], bool]) -> bool:
        before = len(pairs)
        for k in numbers:
            own, other = places[k]
            is_free = own not in pairs and other not in taken
            if is_free and (bits[k] > _SURE_BITS or is_confirmed(own, other)):
                pairs[own] = other, float(p[k])
                taken.add(other)
        return len(pairs) > before

    def is_beside_a_pair(own: int, other: int) -> bool:
        around, beside = _around(mine[own]), _around(golden[other])
        near = (pairs[each][0] for each in around if each in pairs)
        return not (around and beside) or any(each in beside for each in near)

    join(likely[score.chain(likely, p)].tolist(), lambda *_: True)
    rest = [k for k in np.argsort(-bits, kind="stable").tolist() if bits[k] > 0]
    while join(rest, is_beside_a_pair):
        rest = [k for k in rest if places[k][0] not in pairs and places[k][1] not in taken]
    # a namesake that is left on both sides, alone of its kind, is rewired
    left = [k for k, (own, other) in enumerate(places) if own not in pairs and other not in taken]
    rivals = [Counter(places[k][number] for k in left) for number in (0, 1)]
    alone = [k for k in left if all(rivals[number][places[k][number]] == 1 for number in (0, 1))]
    namesakes = [k for k in alone if mine[places[k][0]].names == golden[places[k][1]].names]
    join((k for k in namesakes if bits[k] > -_SURE_BITS), lambda *_: True)
    return pairs


def _around(item: Item) -> set[int]:
    return {*(each.place for each in item.sources), *(each.place for each in item.readers)} - {-1}
