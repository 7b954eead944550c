"""Facts: what two operator graphs say differs, whatever the numbers do."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from msdump.analysis.matching import (
    UNKNOWN,
    UNTOLD,
    GraphSide,
    Matching,
    OperatorPair,
    aligned,
    asks,
    canonical_type,
    is_commutative,
    labels,
    part_types,
    passes_on,
)
from msdump.device import INSERTED_PREFIX, is_view
from msdump.read import ABSENT, GraphOperator, OperatorGraph, SourceKind, ValueSource, parse_attributes

_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_SAME_NUMBER: Final = 2e-3
"""Relative difference of two arguments that rounding to float16 or bfloat16 makes."""

_ARRANGING: Final = frozenset({"Transpose", "Flatten"})
"""Operators, beside views, in whose place another exporter arranges a weight or a product otherwise."""


class FactKind(enum.StrEnum):
    """What differs."""

    ATTRIBUTE = "attribute"
    WIRING = "wiring"
    """An operator reads another value than its counterpart."""
    MISSING = "missing"
    EXTRA = "extra"
    REPLACED = "replaced"
    """An operator of another type stands in the place of golden's."""
    DTYPE = "dtype"
    WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class Fact:
    """One difference between two graphs.

    Attributes:
        kind: What differs.
        operator: Full name of the operator; golden's of one that is missing.
        text: What differs, in words.
        op_type: The operator's type.
        onnx_name: Name of its node in the model, "" where it is not known.
        golden: Full name of the golden operator, "" for none.
        readers: Full names of the examined side's operators whose outputs show it: the operator itself, or
            those that read it; none for an output of the graph.
    """

    kind: FactKind
    operator: str
    text: str
    op_type: str = ""
    onnx_name: str = ""
    golden: str = ""
    readers: tuple[str, ...] = field(default=(), repr=False)


SameWeight = Callable[[str, str], bool | None]
"""Returns whether a weight and a golden one hold the same bits, but for rounding; None: not known."""

_Key = Hashable
"""What a value is known by on both sides: the examined operator and output that give it, or a label."""


def list_facts(
    mine: GraphSide,
    golden: GraphSide,
    matching: Matching,
    same_weight: SameWeight = lambda _mine, _golden: None,
) -> tuple[Fact, ...]:
    """Return what two graphs say differs, in the order of the first one.

    What compilation explains is left out: fusion, folding, casts, transfers, other ways to shape a value.

    Args:
        mine: The examined graph.
        golden: The graph that it is compared with.
        matching: Which of their operators belong together.
        same_weight: Compares the bits of weights.
    """
    if mine.graph.is_inferred or golden.graph.is_inferred:
        return ()
    return tuple(_Comparison(mine, golden, matching, same_weight).facts())


class _Side:
    """A graph, with what its values are known by."""

    def __init__(self, side: GraphSide, label_of: Callable[[ValueSource], Hashable], alone: frozenset[str]):
        self.graph, self.alone = side.graph, alone
        self._label_of = label_of
        self.key_of: dict[tuple[str, int], _Key] = {}

    def operator(self, source: ValueSource) -> GraphOperator | None:
        """Return the operator that gives a value, None for everything else."""
        return self.graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None

    def origin(self, source: ValueSource) -> ValueSource:
        """Return where a value comes from before operators that the other side may lack passed it on."""
        seen = len(self.graph.operators)
        while seen and (operator := self.operator(source)) is not None:
            seen -= 1
            is_alone = operator.full_name in self.alone and _passes(operator)
            if not ((is_alone or _is_inserted(operator)) and operator.inputs):
                break
            source = operator.inputs[0]
        return source

    def key(self, source: ValueSource) -> _Key:
        """Return what a value is known by on both sides, None where nothing tells."""
        if self.operator(source) is not None:
            return self.key_of.get((source.name, source.slot))
        label = self._label_of(source)
        return None if label in (UNKNOWN, UNTOLD) else label

    def with_alone(
        self, operators: Sequence[GraphOperator], others: Sequence[GraphOperator]
    ) -> list[GraphOperator]:
        """Return the operators of a region, with those alone that are nodes of the other side's region."""
        nodes = {each.onnx_names for each in others if each.onnx_names}
        members = {each.full_name for each in operators}
        members |= {name for name in self.alone if self.graph.operators[name].onnx_names in nodes}
        return [each for each in self.graph.operators.values() if each.full_name in members]

    def is_fixed(self, source: ValueSource) -> bool:
        """Return whether a value is the same in each run, so that compilation may have folded it."""
        return source.kind in {SourceKind.WEIGHT, SourceKind.CONSTANT} or (
            source.kind is SourceKind.OPERATOR and self.graph.is_fixed(source.name)
        )

    @cached_property
    def fused(self) -> frozenset[str]:
        """Nodes of the model that are part of a fused operator."""
        operators = self.graph.operators.values()
        return frozenset(name for each in operators if len(each.onnx_names) > 1 for name in each.onnx_names)

    def called(self, source: ValueSource) -> str:
        """Return a value's name in words."""
        slot = f":{source.slot}" if source.slot else ""
        kind = "" if source.kind is SourceKind.OPERATOR else f"{source.kind} "
        return "absent" if source.kind is SourceKind.ABSENT else f"of {kind}{source.name}{slot}"


def _passes(operator: GraphOperator) -> bool:
    """Return whether the other side may do without an operator that hands its first input on."""
    return passes_on(operator.op_type) or is_view(operator.op_type) or operator.op_type in _ARRANGING


def _is_inserted(operator: GraphOperator) -> bool:
    """Return whether a compiler inserted an operator, which converts a format or a type."""
    return operator.full_name.startswith(INSERTED_PREFIX)


@dataclass(frozen=True, slots=True)
class _Edge:
    """An input that is another one than golden's; without an operator an output of the graph."""

    reader: GraphOperator | None
    golden_reader: GraphOperator | None
    slot: int
    own: ValueSource
    other: ValueSource


class _Comparison:
    """Compares two graphs whose operators are paired."""

    def __init__(self, mine: GraphSide, golden: GraphSide, matching: Matching, same_weight: SameWeight):
        own, other = labels(mine, golden)
        self._mine = _Side(mine, own, frozenset(matching.mine_alone))
        self._golden = _Side(golden, other, frozenset(matching.golden_alone))
        self._same_weight = same_weight
        self._pairs: list[tuple[GraphOperator, GraphOperator]] = []
        for pair in matching.pairs:
            for number, (output, counterpart) in enumerate(pair.outputs):
                key = (pair.mine, number)
                self._mine.key_of[output] = self._golden.key_of[counterpart] = key
            members = self._members(pair)
            if pair.is_single and not any(map(_is_inserted, (members[0][0], members[1][0]))):
                self._pairs.append((members[0][0], members[1][0]))
            elif not pair.is_single:
                self._pair_parts(*members)

    def _members(self, pair: OperatorPair) -> tuple[list[GraphOperator], list[GraphOperator]]:
        sides = (self._mine, pair.mine), (self._golden, pair.golden)
        mine, golden = ([side.graph.operators[name] for name in names] for side, names in sides)
        return mine, golden

    def _pair_parts(self, mine: list[GraphOperator], golden: list[GraphOperator]) -> None:
        """Pair the operators of two regions of which one has all types of the other in its order."""
        mine, golden = self._mine.with_alone(mine, golden), self._golden.with_alone(golden, mine)
        pairs = aligned(*([canonical_type(each.op_type) for each in side] for side in (mine, golden)))
        if not 1 < len(pairs) == min(len(mine), len(golden)):
            return
        for side, operators in ((self._mine, mine), (self._golden, golden)):
            for each in operators:
                side.key_of.pop((each.full_name, 0), None)
            side.alone |= {each.full_name for each in operators}
        for own, other in ((mine[own], golden[other]) for own, other in pairs):
            self._pairs.append((own, other))
            self._mine.key_of[own.full_name, 0] = self._golden.key_of[other.full_name, 0] = own.full_name
            self._mine.alone -= {own.full_name}
            self._golden.alone -= {other.full_name}

    def facts(self) -> Iterator[Fact]:
        """Yield the facts of paired operators, then those of the graph's outputs."""
        edges: list[_Edge] = []
        own_facts: dict[str, list[Fact]] = {}
        for mine, golden in self._pairs:
            own_facts[mine.full_name] = [*self._replaced(mine, golden)] or [
                *self._arguments(mine, golden),
                *self._weights(mine, golden),
            ]
            edges += self._edges(mine, golden)
        edges += self._ends()
        dtypes = self._dtypes()
        rewired: dict[str, list[Fact]] = {}
        for fact in self._wiring(edges):
            rewired.setdefault(fact.readers[0] if fact.readers else "", []).append(fact)
        for name in self._mine.graph.operators:
            yield from rewired.get(name, ())
            yield from own_facts.get(name, ())
            yield from dtypes.get(name, ())
        yield from rewired.get("", ())

    @staticmethod
    def _replaced(mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        types = [canonical_type(each.op_type) for each in (mine, golden)]
        if types[0] != types[1] and not (len(part_types(mine)) > 1 or len(part_types(golden)) > 1):
            text = f"{mine.op_type} in the place of {golden.full_name} ({golden.op_type})"
            yield _fact(FactKind.REPLACED, mine, text, golden)

    @staticmethod
    def _arguments(mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        if mine.attributes != golden.attributes and mine.op_type == golden.op_type:
            own, other = (parse_attributes(each.attributes) for each in (mine, golden))
            texts = {
                f"{_shown(own[name])}, in golden {_shown(other[name])}": name
                for name in reversed(own)  # primitives have some under two names, as pad and pad_list
                if name in other and not _is_same(own[name], other[name])
            }
            for text, name in reversed(texts.items()):
                yield _fact(FactKind.ATTRIBUTE, mine, f"{name} {text}", golden)

    def _weights(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        for slot, (own, other) in enumerate(zip(mine.inputs, golden.inputs, strict=False)):
            own, other = self._mine.origin(own), self._golden.origin(other)
            if own.kind is other.kind is SourceKind.WEIGHT and (
                self._same_weight(own.name, other.name) is False
            ):
                text = f"input {slot} {own.name} has not the bits of golden's"
                yield _fact(FactKind.WEIGHT, mine, text, golden)

    def _dtypes(self) -> dict[str, list[Fact]]:
        """Return which operators write another type of floats than golden's, the first of several in a row.

        None where most of them do: the network was converted as a whole.
        """
        facts: dict[str, Fact] = {}
        for mine, golden in self._pairs:
            types = [each.outputs[0].dtype if each.outputs else "" for each in (mine, golden)]
            is_alike = canonical_type(mine.op_type) == canonical_type(golden.op_type)
            held = [each.device_outputs[0].dtype for each in (mine, golden) if each.device_outputs]
            is_held_alike = len(held) > 1 and len(set(held)) == 1
            if types[0] != types[1] and {*types} <= _FLOATS and is_alike and not is_held_alike:
                text = f"writes {types[0]}, in golden {types[1]}"
                facts[mine.full_name] = _fact(FactKind.DTYPE, mine, text, golden)
        if len(facts) * 2 > len(self._pairs):
            return {}
        operators = self._mine.graph.operators
        return {
            name: [fact]
            for name, fact in facts.items()
            if not any(self._mine.origin(each).name in facts for each in operators[name].inputs)
        }

    def _edges(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[_Edge]:
        """Yield the inputs of two operators that are known to be other ones."""
        if asks(mine.op_type) or canonical_type(mine.op_type) != canonical_type(golden.op_type):
            return
        own = [*map(self._mine.origin, _trimmed(mine.inputs))]
        other = [*map(self._golden.origin, _trimmed(golden.inputs))]
        pairs = [*zip(range(len(own)), own, other, strict=False)]
        if is_commutative(canonical_type(mine.op_type)):
            pairs = self._unequal(own, other)
        for slot, one, two in pairs:
            if self._is_other(one, two):
                yield _Edge(mine, golden, slot, one, two)

    def _unequal(
        self, own: Sequence[ValueSource], other: Sequence[ValueSource]
    ) -> list[tuple[int, ValueSource, ValueSource]]:
        """Return inputs that may change places without those that are the same on both sides."""
        rest = list(other)
        left = []
        for slot, source in enumerate(own):
            key = self._mine.key(source)
            same = next((each for each in rest if key is not None and self._golden.key(each) == key), None)
            if same is None:
                left.append((slot, source))
            else:
                rest.remove(same)
        return [(slot, source, each) for (slot, source), each in zip(left, rest, strict=False)]

    def _ends(self) -> Iterator[_Edge]:
        own, other = self._mine.graph.outputs, self._golden.graph.outputs
        if len(own) == len(other):
            for slot, (one, two) in enumerate(zip(own, other, strict=True)):
                one, two = self._mine.origin(one), self._golden.origin(two)
                if self._is_other(one, two):
                    yield _Edge(None, None, slot, one, two)

    def _is_other(self, own: ValueSource, other: ValueSource) -> bool:
        """Return whether an input is known to be another value than golden's."""
        if own.kind is other.kind is SourceKind.WEIGHT:
            return self._is_other_weight(own.name, other.name)
        keys = self._mine.key(own), self._golden.key(other)
        is_folded = own.kind is not other.kind and self._mine.is_fixed(own) and self._golden.is_fixed(other)
        if None not in keys or is_folded:
            return keys[0] != keys[1] and not is_folded
        return any(
            key is None and self._is_unexplained(source, side, beside)
            for key, source, side, beside in (
                (keys[0], own, self._mine, self._golden),
                (keys[1], other, self._golden, self._mine),
            )
        )

    def _is_other_weight(self, own: str, other: str) -> bool:
        """Return whether an operator reads another one of the weights that both sides have."""
        weights = self._mine.graph.weights.keys() & self._golden.graph.weights.keys()
        return own != other and {own, other} <= weights and not self._same_weight(own, other)

    @staticmethod
    def _is_unexplained(source: ValueSource, side: _Side, beside: _Side) -> bool:
        """Return whether a value is of an operator that the other side has in no form."""
        operator = side.operator(source)
        if operator is None or source.name not in side.alone or side.is_fixed(source):
            return False
        is_fused = bool(operator.onnx_names) and beside.fused.issuperset(operator.onnx_names)
        return not is_fused and len(part_types(operator)) == 1 and len(operator.onnx_names) < 2  # noqa: PLR2004

    def _wiring(self, edges: Sequence[_Edge]) -> Iterator[Fact]:
        """Yield the facts of inputs that are other ones: one for each operator that explains some of them."""
        told: dict[tuple[FactKind, str], Fact] = {}
        for edge in edges:
            fact = self._of_edge(edge, edges)
            key = (fact.kind, fact.operator if fact.kind is not FactKind.WIRING else f"{fact.operator} {fact.text}")
            known = told.get(key)
            told[key] = fact if known is None else replace(known, readers=tuple(dict.fromkeys(known.readers + fact.readers)))
        yield from told.values()

    def _of_edge(self, edge: _Edge, edges: Sequence[_Edge]) -> Fact:
        """Return what makes an input another one than golden's."""
        readers = () if edge.reader is None else (edge.reader.full_name,)
        of = "output" if edge.reader is None else "input"
        reader = "the network" if edge.reader is None else edge.reader.full_name
        keys = self._mine.key(edge.own), self._golden.key(edge.other)
        lacking = () if keys[1] is not None else self._way(edge.other, self._golden, keys[0])
        added = () if keys[0] is not None else self._way(edge.own, self._mine, keys[1])
        if lacking and added:
            text = f"{added[0].op_type} in the place of {lacking[0].full_name} ({lacking[0].op_type})"
            return _fact(FactKind.REPLACED, added[0], text, lacking[0], readers)
        if lacking:
            more = "".join(f", and {each.full_name} before it" for each in lacking[1:2])
            text = f"{of} {edge.slot} of {reader} is {self._mine.called(edge.own)}, in golden of this operator{more}"
            return _fact(FactKind.MISSING, lacking[0], text, lacking[0], readers)
        if added:
            text = f"{of} {edge.slot} of {reader} is of this operator, in golden {self._golden.called(edge.other)}"
            return _fact(FactKind.EXTRA, added[0], text, None, readers)
        crossed = next(
            (
                each.slot
                for each in edges
                if each.reader is edge.reader
                and self._golden.key(each.other) == keys[0]
                and self._mine.key(each.own) == keys[1]
            ),
            None,
        )
        if crossed is not None and edge.reader is not None:
            text = f"inputs {min(edge.slot, crossed)} and {max(edge.slot, crossed)} are swapped"
        else:
            text = f"{of} {edge.slot} is {self._mine.called(edge.own)}, golden's is {self._golden.called(edge.other)}"
        shown = edge.reader or self._mine.operator(edge.own) or GraphOperator("", "")
        return _fact(FactKind.WIRING, shown, text, edge.golden_reader, readers)

    def _way(self, source: ValueSource, side: _Side, goal: _Key) -> tuple[GraphOperator, ...]:
        """Return the operators of one side alone that lead to a value, the last one first.

        Args:
            source: The value.
            side: The side.
            goal: What the other side reads in its place, to which the way leads where it can.
        """
        first = side.operator(source)
        if first is None or source.name not in side.alone:
            return ()
        ways, seen = [(first,)], {first.full_name}
        for way in ways:
            for each in way[-1].inputs:
                if goal is not None and side.key(origin := side.origin(each)) == goal:
                    return way
                operator = side.operator(side.origin(each))
                if operator is not None and operator.full_name in side.alone - seen:
                    seen.add(operator.full_name)
                    ways.append((*way, operator))
        return (first,)


def _fact(
    kind: FactKind,
    operator: GraphOperator,
    text: str,
    golden: GraphOperator | None,
    readers: tuple[str, ...] | None = None,
) -> Fact:
    return Fact(
        kind,
        operator.full_name,
        text,
        operator.op_type,
        operator.onnx_name,
        "" if golden is None else golden.full_name,
        (operator.full_name,) if readers is None else readers,
    )


def _trimmed(inputs: Sequence[ValueSource]) -> Sequence[ValueSource]:
    count = len(inputs)
    while count and inputs[count - 1] == ABSENT:
        count -= 1
    return inputs[:count]


def _is_same(mine: Any, golden: Any) -> bool:
    """Return whether two arguments are the same, but for how files show them and for rounding."""
    if isinstance(mine, list) and isinstance(golden, list):
        return len(mine) == len(golden) and all(map(_is_same, mine, golden))
    if isinstance(mine, int | float) and isinstance(golden, int | float):
        return math.isclose(mine, golden, rel_tol=_SAME_NUMBER) or str(mine) == str(golden)
    return type(mine) is not type(golden) or mine == golden


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
