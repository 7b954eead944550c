"""Facts: what two operator graphs say differs, whatever the numbers do."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from msdump.analysis.align import (
    UNKNOWN,
    UNTOLD,
    Alignment,
    GraphSide,
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
from msdump.read import FIXED, GraphOperator, OperatorGraph, SourceKind, ValueSource, parse_attributes

_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_SAME_NUMBER: Final = 2e-3
"""Relative difference of two arguments that rounding to float16 or bfloat16 makes."""

_PASSING: Final = frozenset({"Transpose"})
"""Operators, beside views, in whose place another exporter arranges a weight or a product otherwise."""

_CLAMPS: Final = frozenset({"ReLU", "ReLU6", "Clip", "ClipByValue"})

_Slot = tuple[int, tuple[ValueSource, ValueSource]]
"""Number of an input, and what both sides read there."""


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
        kind: In what the two differ.
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


def list_facts(
    mine: GraphSide,
    golden: GraphSide,
    matching: Alignment,
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
    if mine.graph.is_inferred or golden.graph.is_inferred or not matching.is_one_network:
        return ()
    return tuple(_Comparison(mine, golden, matching, same_weight).facts())


class _Side:
    """A graph, and what both sides know its values by: the pair that gives one, or a label."""

    def __init__(
        self, side: GraphSide, label_of: Callable[[ValueSource], Hashable], alone: Sequence[str]
    ) -> None:
        self.graph, self.alone = side.graph, {*alone}
        self.passing = _PASSING
        self.key_of: dict[tuple[str, int], Hashable] = {}
        self._label_of = label_of

    def operator(self, source: ValueSource) -> GraphOperator | None:
        """Return the operator that gives a value, None for everything else."""
        return self.graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None

    def origin(self, source: ValueSource) -> ValueSource:
        """Return where a value comes from before operators that the other side may lack passed it on."""
        for _ in self.graph.operators:  # a cycle, which no sound graph has, ends here
            operator = self.operator(source)
            if operator is None or not (operator.inputs and self._is_passed(operator)):
                break
            source = operator.inputs[0]
        return source

    def _is_passed(self, operator: GraphOperator) -> bool:
        if _is_inserted(operator):
            return True
        is_passing = passes_on(operator.op_type) or is_view(operator.op_type)
        return operator.full_name in self.alone and (is_passing or operator.op_type in self.passing)

    def key(self, source: ValueSource) -> Hashable:
        """Return what a value is known by on both sides, None where nothing tells."""
        if self.operator(source) is not None:
            return self.key_of.get((source.name, source.slot))
        label = self._label_of(source)
        return None if label in (UNKNOWN, UNTOLD) else label

    def with_alone(self, names: Sequence[str], others: Sequence[GraphOperator]) -> list[GraphOperator]:
        """Return the operators of a region, with those alone that are nodes of the other side's region."""
        nodes = {each.onnx_names for each in others if each.onnx_names}
        alone = {name for name in self.alone if self.graph.operators[name].onnx_names in nodes}
        return [each for name, each in self.graph.operators.items() if name in alone or name in names]

    def read_by(self, names: Sequence[str]) -> list[ValueSource]:
        """Return what operators together read of others, without constants."""
        sources = (self.origin(each) for name in names for each in self.graph.operators[name].inputs)
        known = dict.fromkeys(each for each in sources if each.name not in names and not self.is_fixed(each))
        return [*known]

    def members(self, names: Sequence[str]) -> list[GraphOperator]:
        """Return operators by their full names."""
        return [self.graph.operators[name] for name in names]

    def is_fixed(self, source: ValueSource) -> bool:
        """Return whether a value is the same in each run, so that compilation may have folded it."""
        return source.kind in FIXED or self.graph.is_fixed(source.name)

    @cached_property
    def fused(self) -> frozenset[str]:
        """Nodes of the model that are part of a fused operator."""
        operators = self.graph.operators.values()
        return frozenset(name for each in operators if len(each.onnx_names) > 1 for name in each.onnx_names)

    def lacks(self, beside: _Side, source: ValueSource) -> bool:
        """Return whether a value is of another side's operator that this one has in no form."""
        operator = beside.operator(source)
        if operator is None or source.name not in beside.alone or beside.is_fixed(source):
            return False
        is_fused = bool(operator.onnx_names) and self.fused.issuperset(operator.onnx_names)
        return not is_fused and _is_plain(operator)

    def way(self, source: ValueSource, goal: Hashable) -> tuple[GraphOperator, ...]:
        """Return the operators alone that lead to a value, the last one first.

        Args:
            source: The value.
            goal: What the other side reads in its place, to which the way leads where it can.
        """
        first = self.operator(source)
        if first is None or source.name not in self.alone:
            return ()
        ways: list[tuple[GraphOperator, ...]] = [(first,)]
        seen = {first.full_name}
        for way in ways:
            for each in map(self.origin, way[-1].inputs):
                if goal is not None and self.key(each) == goal:
                    return way
                operator = self.operator(each)
                if operator is not None and each.name in self.alone - seen:
                    seen.add(each.name)
                    ways.append((*way, operator))
        return (first,)


def _is_inserted(operator: GraphOperator) -> bool:
    """Return whether a compiler inserted an operator, which converts a format or a type."""
    return operator.full_name.startswith(INSERTED_PREFIX)


def _is_plain(operator: GraphOperator) -> bool:
    """Return whether an operator is one of the model's, and not several that were fused."""
    return len(part_types(operator)) == 1 and len(operator.onnx_names) <= 1


@dataclass(frozen=True, slots=True)
class _Edge:
    """An input that is another one than golden's; without a reader an output of the graph."""

    reader: GraphOperator | None
    slot: int
    own: ValueSource
    other: ValueSource


class _Comparison:
    """Compares two graphs whose operators are paired."""

    def __init__(
        self, mine: GraphSide, golden: GraphSide, matching: Alignment, same_weight: SameWeight
    ) -> None:
        label, golden_label = labels(mine, golden)
        self._mine = _Side(mine, label, matching.mine_alone)
        self._golden = _Side(golden, golden_label, matching.golden_alone)
        self._same_weight = same_weight
        self._pairs: list[tuple[GraphOperator, GraphOperator]] = []
        self._regions: list[OperatorPair] = []
        if _is_quantised(mine.graph) != _is_quantised(golden.graph):  # its range clamps, too
            self._mine.passing = self._golden.passing = _PASSING | _CLAMPS
        for pair in matching.pairs:
            for number, (output, counterpart) in enumerate(pair.outputs):
                self._mine.key_of[output] = self._golden.key_of[counterpart] = (pair.mine, number)
            (own, *_), (other, *_) = self._mine.members(pair.mine), self._golden.members(pair.golden)
            is_alike = (_is_plain(own) and _is_plain(other)) or _parts(own) == _parts(other)
            if pair.is_single and is_alike:
                self._add(own, other)
            elif not self._add_parts(pair):
                self._regions.append(pair)

    def _add(self, mine: GraphOperator, golden: GraphOperator) -> None:
        if not (_is_inserted(mine) or _is_inserted(golden)):
            self._pairs.append((mine, golden))

    def _add_parts(self, pair: OperatorPair) -> bool:
        """Pair the operators of two regions, if one has all types of the other in its order."""
        mine, golden = self._mine.with_alone(pair.mine, ()), self._golden.with_alone(pair.golden, ())
        mine, golden = self._mine.with_alone(pair.mine, golden), self._golden.with_alone(pair.golden, mine)
        pairs = aligned(*([canonical_type(each.op_type) for each in side] for side in (mine, golden)))
        if not 1 < len(pairs) == min(len(mine), len(golden)):
            return False
        for side, operators in ((self._mine, mine), (self._golden, golden)):
            side.alone |= {each.full_name for each in operators}
            for each in operators:
                side.key_of.pop((each.full_name, 0), None)
        for own, other in ((mine[own], golden[other]) for own, other in pairs):
            self._add(own, other)
            self._mine.key_of[own.full_name, 0] = self._golden.key_of[other.full_name, 0] = own.full_name
            self._mine.alone.discard(own.full_name)
            self._golden.alone.discard(other.full_name)
        return True

    def facts(self) -> list[Fact]:
        """Return all facts, in the order of the examined operators that show them."""
        facts, edges = [*self._dtypes()], [*self._ends()]
        for mine, golden in self._pairs:
            replaced = [*self._replaced(mine, golden)]
            if not replaced:
                edges += self._edges(mine, golden)
                facts += self._weights(mine, golden)
            facts += replaced or _arguments(mine, golden)
        for pair in self._regions:
            edges += self._region_edges(pair)
            facts += self._parts(pair)
        facts += self._wiring(edges)
        places = {name: place for place, name in enumerate(self._mine.graph.operators)}
        return sorted(
            facts, key=lambda fact: min((places[name] for name in fact.readers), default=len(places))
        )

    @staticmethod
    def _replaced(mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        is_alike = canonical_type(mine.op_type) == canonical_type(golden.op_type)
        if not is_alike and _is_plain(mine) and _is_plain(golden):
            text = f"{mine.op_type} in the place of {golden.full_name} ({golden.op_type})"
            yield _fact(FactKind.REPLACED, mine, text, golden)

    def _weights(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        for slot, (own, other) in enumerate(self._reads(mine, golden)):
            is_weight = own.kind is other.kind is SourceKind.WEIGHT
            if is_weight and self._same_weight(own.name, other.name) is False:
                text = f"input {slot} {own.name} has not the bits of golden's"
                yield _fact(FactKind.WEIGHT, mine, text, golden)

    def _reads(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[tuple[ValueSource, ValueSource]]:
        """Return what two operators read at each input, before what the other side may lack."""
        own, other = (
            map(side.origin, each.inputs) for side, each in ((self._mine, mine), (self._golden, golden))
        )
        return zip(own, other, strict=False)

    def _dtypes(self) -> Iterator[Fact]:
        """Yield which operators write another type of floats than golden's, the first of several in a row.

        Nothing where most of them do: the network was converted as a whole.
        """
        facts: dict[str, Fact] = {}
        for mine, golden in self._pairs:
            types = [each.outputs[0].dtype if each.outputs else "" for each in (mine, golden)]
            held = [each.device_outputs[0].dtype for each in (mine, golden) if each.device_outputs]
            is_alike = canonical_type(mine.op_type) == canonical_type(golden.op_type)
            if types[0] != types[1] and {*types} <= _FLOATS and is_alike and len({*held}) + 1 != len(held):
                text = f"writes {types[0]}, in golden {types[1]}"
                facts[mine.full_name] = _fact(FactKind.DTYPE, mine, text, golden)
        if len(facts) * 2 <= len(self._pairs):
            for name, fact in facts.items():
                sources = map(self._mine.origin, self._mine.graph.operators[name].inputs)
                if not any(each.name in facts for each in sources):
                    yield fact

    def _edges(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[_Edge]:
        """Yield the inputs of two operators that are known to be other ones."""
        if asks(mine.op_type):
            return
        pairs = [*enumerate(self._reads(mine, golden))]
        if is_commutative(canonical_type(mine.op_type)):
            pairs = self._unequal([(slot, own) for slot, (own, _) in pairs], [each[1] for _, each in pairs])
        for slot, (own, other) in pairs:
            if self._is_other(own, other):
                yield _Edge(mine, slot, own, other)

    def _unequal(self, mine: Sequence[tuple[int, ValueSource]], golden: Sequence[ValueSource]) -> list[_Slot]:
        """Return inputs that may change places without those that are the same on both sides."""
        rest, left = [*golden], []
        for slot, own in mine:
            key = self._mine.key(own)
            same = next((each for each in rest if key is not None and self._golden.key(each) == key), None)
            if same is None:
                left.append((slot, own))
            else:
                rest.remove(same)
        return [(slot, (own, other)) for (slot, own), other in zip(left, rest, strict=False)]

    def _region_edges(self, pair: OperatorPair) -> Iterator[_Edge]:
        """Yield the values that operators together read in place of others than their counterparts do."""
        own, other = self._mine.read_by(pair.mine), self._golden.read_by(pair.golden)
        for slot, (one, two) in self._unequal([*enumerate(own)], other):
            if self._is_other(one, two):
                reader = self._mine.graph.operators[pair.mine[-1]]
                yield _Edge(reader, slot, one, two)

    def _parts(self, pair: OperatorPair) -> Iterator[Fact]:
        """Yield the parts of fused operators that only one side has; others compute most in the same way."""
        mine, golden = self._mine.members(pair.mine), self._golden.members(pair.golden)
        own, other = (Counter(type_ for each in side for type_ in _parts(each)) for side in (mine, golden))
        added, lacking = [*(own - other).elements()], [*(other - own).elements()]
        if not (added or lacking) or 2 * (own & other).total() < max(own.total(), other.total()):
            return
        text = f"its parts are {', '.join(own.elements())}, in golden {', '.join(other.elements())}"
        yield _fact(FactKind.REPLACED, mine[-1], text, golden[-1])

    def _ends(self) -> Iterator[_Edge]:
        """Yield the outputs of the graph that are known to be other ones."""
        own, other = self._mine.graph.outputs, self._golden.graph.outputs
        pairs = zip(map(self._mine.origin, own), map(self._golden.origin, other), strict=False)
        for slot, (one, two) in enumerate(pairs if len(own) == len(other) else ()):
            if self._is_other(one, two):
                yield _Edge(None, slot, one, two)

    def _is_other(self, own: ValueSource, other: ValueSource) -> bool:
        """Return whether an input is known to be another value than golden's."""
        if own.kind is other.kind is SourceKind.WEIGHT:  # its elements are compared elsewhere
            weights = self._mine.graph.weights.keys() & self._golden.graph.weights.keys()
            is_common = {own.name, other.name} <= weights
            return own.name != other.name and is_common and not self._same_weight(own.name, other.name)
        if own.kind is not other.kind and self._mine.is_fixed(own) and self._golden.is_fixed(other):
            return False  # one side has folded it
        keys = self._mine.key(own), self._golden.key(other)
        if None not in keys:
            return keys[0] != keys[1]
        is_extra = keys[0] is None and self._golden.lacks(self._mine, own)
        return is_extra or (keys[1] is None and self._mine.lacks(self._golden, other))

    def _wiring(self, edges: Sequence[_Edge]) -> Iterator[Fact]:
        """Yield the facts of inputs that are other ones: one for each operator that explains some of them."""
        told: dict[Hashable, Fact] = {}
        for edge in edges:
            fact = self._of_edge(edge, edges)
            key = fact.kind, fact.operator, fact.kind is FactKind.WIRING and fact.text
            known = told.setdefault(key, fact)
            told[key] = replace(known, readers=tuple(dict.fromkeys(known.readers + fact.readers)))
        yield from told.values()

    def _of_edge(self, edge: _Edge, edges: Sequence[_Edge]) -> Fact:
        """Return what makes an input another one than golden's."""
        keys = self._mine.key(edge.own), self._golden.key(edge.other)
        lacking = self._golden.way(edge.other, keys[0]) if keys[1] is None else ()
        added = self._mine.way(edge.own, keys[1]) if keys[0] is None else ()
        readers = () if edge.reader is None else (edge.reader.full_name,)
        slot = f"input {edge.slot}" if readers else f"output {edge.slot}"
        place = f"{slot} of {readers[0] if readers else 'the network'}"
        if lacking and added:
            text = f"{added[0].op_type} in the place of {lacking[0].full_name} ({lacking[0].op_type})"
            return _fact(FactKind.REPLACED, added[0], text, lacking[0], readers)
        if lacking:
            more = "".join(f", with {each.full_name} before it" for each in lacking[1:2])
            text = f"{place} is {_called(edge.own)}, in golden of this operator{more}"
            return _fact(FactKind.MISSING, lacking[0], text, lacking[0], readers)
        if added:
            text = f"{place} is of this operator, in golden {_called(edge.other)}"
            return _fact(FactKind.EXTRA, added[0], text, None, readers)
        text = f"{slot} is {_called(edge.own)}, golden's is {_called(edge.other)}"
        for each in edges:
            crossed = self._mine.key(each.own), self._golden.key(each.other)
            if readers and each.reader is edge.reader and crossed == keys[::-1]:
                text = "inputs {} and {} are swapped".format(*sorted((edge.slot, each.slot)))
        shown = edge.reader or self._mine.operator(edge.own) or GraphOperator("", "")
        return _fact(FactKind.WIRING, shown, text, None, readers)


def _is_quantised(graph: OperatorGraph) -> bool:
    return any(
        "Quant" in each.op_type or each.op_type.startswith("QLinear") for each in graph.operators.values()
    )


def _called(source: ValueSource) -> str:
    """Return a value's name in words."""
    slot = f":{source.slot}" if source.slot else ""
    kind = "" if source.kind is SourceKind.OPERATOR else f"{source.kind} "
    return "absent" if source.kind is SourceKind.ABSENT else f"of {kind}{source.name}{slot}"


def _parts(operator: GraphOperator) -> list[str]:
    """Return the types of what an operator is made of, without what another system does otherwise."""
    types = map(canonical_type, part_types(operator))
    return [each for each in types if not (passes_on(each) or is_view(each))]


def _arguments(mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
    """Yield the arguments that both operators have and that differ."""
    if mine.attributes == golden.attributes or mine.op_type != golden.op_type:
        return
    own, other = (parse_attributes(each.attributes) for each in (mine, golden))
    texts = {
        f"{_shown(own[name])}, in golden {_shown(other[name])}": name
        for name in reversed(own)  # primitives have some under two names, as pad and pad_list
        if name in other and name not in mine.bodies and not _is_same(own[name], other[name])
    }
    for text, name in reversed(texts.items()):
        yield _fact(FactKind.ATTRIBUTE, mine, f"{name} {text}", golden)


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


def _is_same(mine: Any, golden: Any) -> bool:
    """Return whether two arguments are the same, but for how files show them and for rounding."""
    if isinstance(mine, list) and isinstance(golden, list):
        return len(mine) == len(golden) and all(map(_is_same, mine, golden))
    if isinstance(mine, int | float) and isinstance(golden, int | float):
        return math.isclose(mine, golden, rel_tol=_SAME_NUMBER) or str(mine) == str(golden)
    return type(mine) is not type(golden) or mine == golden


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
