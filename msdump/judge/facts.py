"""Facts: differences of two operator graphs, whatever the numbers are."""

from __future__ import annotations

import enum
import functools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from msdump.device import INSERTED_PREFIX, is_view
from msdump.judge.pair import (
    CAST,
    FLOATS,
    Alignment,
    GraphSide,
    canonical_type,
    is_commutative,
    is_quantised,
    labels,
    part_types,
    passes_on,
)
from msdump.read import FIXED, SHAPE_READERS, GraphOperator, SourceKind, ValueSource, parse_attributes

_NOTHING: Final = ValueSource(SourceKind.ABSENT, "nothing")
"""Stands for the missing counterpart of an input that only one side's kernel has."""

_ARGUMENT: Final = frozenset({SourceKind.ABSENT, SourceKind.CONSTANT})

_SAME_NUMBER: Final = 2e-3
"""Largest relative difference of two attributes that rounding to float16 or bfloat16 explains."""

_PASSING: Final = frozenset({"Transpose"})
"""Operators, besides views, that an exporter may replace by a weight or matrix product in another layout."""

_CLAMPS: Final = frozenset({"ReLU", "ReLU6", "Clip", "ClipByValue"})


class FactKind(enum.StrEnum):
    """Kind of a difference."""

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
        kind: Kind of the difference.
        operator: Full name of the operator; golden's of one that is missing.
        text: The difference in words.
        op_type: The operator's type.
        onnx_name: Name of its node in the model, "" where it is not known.
        golden: Full name of the golden operator, "" for none.
        readers: Full names of the examined side's operators with outputs that show it: the operator itself,
            or its readers; none for an output of the graph.
    """

    kind: FactKind
    operator: str
    text: str
    op_type: str = ""
    onnx_name: str = ""
    golden: str = ""
    readers: tuple[str, ...] = field(default=(), repr=False)


WeightDifference = Callable[[str, str], str | None]
"""Returns in words how a weight differs from golden's, "" for equal or rounded bits; None: not known."""


def list_facts(
    mine: GraphSide,
    golden: GraphSide,
    matching: Alignment,
    weight_difference: WeightDifference = lambda _mine, _golden: None,
) -> tuple[Fact, ...]:
    """Return the differences of two graphs, in the order of the first one.

    Effects of compilation are left out: fusion, folding, casts, transfers, other ways to shape a value.
    """
    if not matching.is_one_network:
        return ()
    return tuple(_Comparison(mine, golden, matching, weight_difference).facts())


_LabelOf = Callable[[ValueSource], Hashable]
_Operators = Sequence[GraphOperator]


class _Side:
    """A graph, and a key for each value, equal on both sides: the pair of its producer, or a label."""

    def __init__(
        self, side: GraphSide, label_of: _LabelOf, alone: Sequence[str], passing: frozenset[str]
    ) -> None:
        self.graph, self.alone, self.passing = side.graph, {*alone}, passing
        self.grouped: list[str] = []
        self.key_of: dict[tuple[str, int], Hashable] = {}
        self.places = {name: place for place, name in enumerate(side.graph.operators)}
        self._label_of = label_of
        operators = self.graph.operators.values()
        self.weights = {
            label_of(source)
            for each in operators
            for source in each.inputs
            if source.kind is SourceKind.WEIGHT
        } - {None}
        self._fused = {name for each in operators if len(each.onnx_names) > 1 for name in each.onnx_names}

    def operator(self, source: ValueSource) -> GraphOperator | None:
        """Return the producer of a value, None for everything else."""
        return self.graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None

    def trace(self, source: ValueSource) -> tuple[ValueSource, list[GraphOperator]]:
        """Return the source of a value behind operators that the other side may lack, and these operators."""
        passed: list[GraphOperator] = []
        for _ in self.graph.operators:  # bounded: a damaged graph may have a cycle
            operator = self.operator(source)
            if operator is None or not (operator.inputs and self._is_passed(operator)):
                break
            passed.append(operator)
            source = operator.inputs[0]
        return source, passed

    def origin(self, source: ValueSource) -> ValueSource:
        """Return the source of a value behind operators that the other side may lack."""
        return self.trace(source)[0]

    def _is_passed(self, operator: GraphOperator) -> bool:
        is_passing = passes_on(operator.op_type) or is_view(operator.op_type)
        is_alone = operator.full_name in self.alone
        return _is_inserted(operator) or (is_alone and (is_passing or operator.op_type in self.passing))

    def moves(self, source: ValueSource) -> list[GraphOperator]:
        """Return operators without counterpart before an input that move elements or make integers of floats.

        Transposes of constants, and ones that another one may take back, are left out.
        """
        origin, passed = self.trace(source)
        if self.is_fixed(origin):
            return []
        is_float = self.graph.form_of(origin).dtype in FLOATS
        return [
            each
            for each in reversed(passed)
            if each.full_name in self.alone and not _is_inserted(each)
            if (each.op_type == "Transpose" and not self._is_undone(each))
            or (is_float and each.op_type == CAST and _is_of_integers(each))
        ]

    def _is_undone(self, transpose: GraphOperator) -> bool:
        """Return whether another transpose without counterpart may restore the layout."""
        others = (
            each
            for each in map(self.graph.operators.__getitem__, (*self.alone, *self.grouped))
            if each is not transpose and each.op_type == transpose.op_type
        )
        return any(not self.is_fixed(each.inputs[0]) for each in others if each.inputs)

    def key(self, source: ValueSource) -> Hashable:
        """Return the common key of a value, None if unknown."""
        if self.operator(source) is not None:
            return self.key_of.get((source.name, source.slot))
        return self._label_of(source)

    def reads(self, operators: Sequence[GraphOperator]) -> list[ValueSource]:
        """Return the inputs that operators read from other operators; of a single operator constants, too."""
        inside = {each.full_name for each in operators}
        found = [self.origin(each) for operator in operators for each in operator.inputs]
        if len(operators) == 1:
            return found
        return [*dict.fromkeys(each for each in found if each.name not in inside and not self.is_fixed(each))]

    def is_fixed(self, source: ValueSource) -> bool:
        """Return whether a value is constant over all runs, so that compilation may have folded it."""
        is_written = source.kind is SourceKind.OPERATOR
        return source.kind in FIXED or (is_written and self.graph.is_fixed(source.name))

    def lacks(self, beside: _Side, source: ValueSource, own: ValueSource) -> bool:
        """Return whether the other side's value (``source``) comes from an operator that this side lacks.

        ``own`` is this side's value in its place. An operator that may have been folded is not lacking.
        """
        operator, computes = beside.stranger(source), self.operator(own) is not None
        if operator is None or (beside.is_fixed(source) and not computes):
            return False
        return _is_plain(operator) and not {*operator.onnx_names} & self._fused

    def stranger(self, source: ValueSource) -> GraphOperator | None:
        """Return the producer of a value if it has no counterpart on the other side, else None."""
        return self.operator(source) if source.name in self.alone else None


def _is_inserted(operator: GraphOperator) -> bool:
    return operator.full_name.startswith(INSERTED_PREFIX)


def _is_of_integers(operator: GraphOperator) -> bool:
    dtype = operator.outputs[0].dtype if operator.outputs else ""
    return dtype.startswith(("int", "uint", "bool"))


def _is_plain(operator: GraphOperator) -> bool:
    return len(part_types(operator)) == 1 and len(operator.onnx_names) <= 1


class _Edge(NamedTuple):
    """An input that differs from golden's; if ``reader`` is None, an output of the graph."""

    reader: GraphOperator | None
    slot: int
    own: ValueSource
    other: ValueSource


class _Comparison:
    def __init__(
        self, mine: GraphSide, golden: GraphSide, matching: Alignment, weight_difference: WeightDifference
    ) -> None:
        own, other = (
            is_quantised(each.op_type for each in side.graph.operators.values()) for side in (mine, golden)
        )
        self._is_mixed = own != other
        self._is_foreign = mine.graph.is_ours != golden.graph.is_ours
        passing = _PASSING | _CLAMPS if self._is_mixed else _PASSING
        label, golden_label = labels(mine, golden)
        self._mine = _Side(mine, label, matching.mine_alone, passing)
        self._golden = _Side(golden, golden_label, matching.golden_alone, passing)
        self._weight_difference = weight_difference
        self._pairs: list[tuple[_Operators, _Operators, bool]] = []
        for pair in matching.pairs:
            for number, (output, counterpart) in enumerate(pair.outputs):
                self._mine.key_of[output] = self._golden.key_of[counterpart] = (pair.mine, number)
            members = []
            for side, names in ((self._mine, pair.mine), (self._golden, pair.golden)):
                inside = [side.graph.operators[name] for name in names]
                for (
                    each
                ) in inside:  # inner values of a kernel have no equal on the other side, but moved ones
                    is_moved = each.inputs and (is_view(each.op_type) or each.op_type in _PASSING)
                    key = side.key(each.inputs[0]) if is_moved else ("inner", each.full_name)
                    side.key_of.setdefault((each.full_name, 0), key)
                side.grouped += [] if pair.is_single else names
                members.append(_without_inserted(inside))
            self._pairs.append((members[0], members[1], pair.is_folded))

    def facts(self) -> list[Fact]:
        """Return all facts, in execution order of the examined operators that read the difference."""
        facts, edges = [*self._dtypes(), *self._inner_casts()], [*self._ends()]
        for mine, golden, is_folded in self._pairs:
            if is_folded:  # its operators have no counterparts of their own
                edges += self._edges(mine, golden)
            elif not (_is_inserted(mine[-1]) or _is_inserted(golden[-1])) and _are_alike(mine, golden):
                facts += self._of_pair(mine, golden)
                edges += self._edges(mine, golden)
                if len(mine) == len(golden) == 1:
                    facts += self._moves(mine[0], golden[0])
        facts += self._wiring(edges)
        places = self._mine.places
        return sorted(facts, key=lambda fact: min(map(places.__getitem__, fact.readers), default=len(places)))

    def _of_pair(self, mine: _Operators, golden: _Operators) -> Iterator[Fact]:
        """Yield differences of paired operators: parts that only one side has, arguments, weights."""
        own, other = _counts(mine), _counts(golden)
        is_single = len(mine) == len(golden) == 1
        if own == other and is_single:
            yield from _arguments(mine[0], golden[0])
            for slot, one, two in self._read_weights(mine[0], golden[0]):
                difference = self._weight_difference(one.name, two.name)
                if difference and self._mine.key(one) not in self._golden.weights - {self._golden.key(two)}:
                    text = f"input {slot} {one.name} {difference}"
                    yield _own_fact(FactKind.WEIGHT, mine[0], text, golden[0])
        elif own != other and is_single and _is_plain(mine[0]) and _is_plain(golden[0]):
            yield _in_place_of(mine[0], golden[0])
        elif own != other and not self._is_mixed:  # integers are scaled, and their range clamps
            lacking, added = (
                " and ".join((one - two).elements()) for one, two in ((other, own), (own, other))
            )
            if lacking and added:
                text = f"its parts are {', '.join(own.elements())}, in golden {', '.join(other.elements())}"
                yield _own_fact(FactKind.REPLACED, mine[-1], text, golden[-1])
            elif lacking:
                kernel, text = _kernel(golden, own), f"{lacking} has no counterpart in {mine[-1].full_name}"
                yield _fact(FactKind.MISSING, kernel, text, kernel.full_name, mine[-1].full_name)
            elif added:
                kernel, text = _kernel(mine, other), f"{added} has no counterpart in {golden[-1].full_name}"
                yield _fact(FactKind.EXTRA, kernel, text, "", mine[-1].full_name)

    def _read_weights(
        self, mine: GraphOperator, golden: GraphOperator
    ) -> Iterator[tuple[int, ValueSource, ValueSource]]:
        """Yield the weights that two operators read in the same place; of commutative ones in any order."""
        own, other = self._mine.reads([mine]), self._golden.reads([golden])
        pairs = [*zip(range(len(own)), own, other, strict=False)]
        if is_commutative(canonical_type(mine.op_type)):
            pairs = self._unequal(own, other)
        yield from (each for each in pairs if each[1].kind is each[2].kind is SourceKind.WEIGHT)

    def _dtypes(self) -> Iterator[Fact]:
        """Yield operators with another float output type than golden's, of consecutive ones only the first.

        Yields nothing if most operators differ: then the whole network was converted.
        """
        facts: dict[str, Fact] = {}
        single = [(mine[0], golden[0]) for mine, golden, _ in self._pairs if len(mine) == len(golden) == 1]
        for mine, golden in single:
            types = [each.outputs[0].dtype if each.outputs else "" for each in (mine, golden)]
            held = [each.device_outputs[0].dtype for each in (mine, golden) if each.device_outputs]
            is_alike = _parts(mine) == _parts(golden) and not _is_inserted(mine)
            if types[0] != types[1] and {*types} <= FLOATS and is_alike and len({*held}) + 1 != len(held):
                text = f"writes {types[0]}, in golden {types[1]}"
                facts[mine.full_name] = _own_fact(FactKind.DTYPE, mine, text, golden)
        for name, fact in facts.items() if len(facts) * 2 <= len(single) else ():
            sources = self._mine.reads([self._mine.graph.operators[name]])
            if not any(each.name in facts for each in sources):
                yield fact

    def _inner_casts(self) -> Iterator[Fact]:
        """Yield fused kernels with more or fewer casts inside than their counterparts.

        The side with more casts inside must have more casts in the whole graph, too: else the other side has
        them as operators of their own.
        """
        own, other = (_casts([*side.graph.operators.values()]) for side in (self._mine, self._golden))
        for mine, golden, _ in self._pairs:
            inner, beside = _casts(mine), _casts(golden)
            is_fused = not all(map(_is_plain, (*mine, *golden)))
            if is_fused and (inner > beside, inner < beside) == (own > other, own < other) and own != other:
                text = f"has {inner} casts inside, in golden {beside}"
                yield _own_fact(FactKind.DTYPE, mine[-1], text, golden[-1])

    def _edges(self, mine: _Operators, golden: _Operators) -> Iterator[_Edge]:
        """Yield the inputs of operators that are known to differ."""
        own, other = self._mine.reads(mine), self._golden.reads(golden)
        pairs = [*zip(range(len(own)), own, other, strict=False)]
        is_alike = len(mine) == len(golden) == 1 and _parts(mine[0]) == _parts(golden[0])
        if not is_alike or is_commutative(canonical_type(mine[0].op_type)):
            pairs = self._unequal(own, other)
        for slot, one, two in () if mine[-1].op_type in SHAPE_READERS else pairs:
            if self._is_other(one, two):
                yield _Edge(mine[-1], slot, one, two)

    def _moves(self, mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
        """Yield operators that move the elements of an input on one side alone."""
        if (mine.op_type, mine.attributes) != (golden.op_type, golden.attributes):
            return
        for slot, (one, two) in enumerate(zip(mine.inputs, golden.inputs, strict=False)):
            added, lacking = self._mine.moves(one), self._golden.moves(two)
            place = f"input {slot} of {mine.full_name}"
            if added and not lacking:
                text = f"{place} is from this operator, in golden {_called(two)}"
                yield _fact(FactKind.EXTRA, added[0], text, "", mine.full_name)
            elif lacking and not added:
                text = f"{place} is {_called(one)}, in golden from this operator"
                yield _fact(FactKind.MISSING, lacking[0], text, lacking[0].full_name, mine.full_name)

    def _unequal(
        self, own: Sequence[ValueSource], other: Sequence[ValueSource]
    ) -> list[tuple[int, ValueSource, ValueSource]]:
        """Return the inputs of a commutative operator without an equal one in golden, in any order."""
        rest, left = [*other], []
        for slot, source in enumerate(own):
            key = self._mine.key(source)
            same = next((each for each in rest if key is not None and self._golden.key(each) == key), None)
            if same is None:
                left.append((slot, source))
            else:
                rest.remove(same)
        # a kernel may read more values than its counterpart: pad the shorter list
        left += [(len(own), _NOTHING)] * (len(rest) - len(left))
        rest += [_NOTHING] * (len(left) - len(rest))
        return [(slot, source, each) for (slot, source), each in zip(left, rest, strict=True)]

    def _ends(self) -> Iterator[_Edge]:
        """Yield the outputs of the graph that are known to differ."""
        own, other = ([*map(side.origin, side.graph.outputs)] for side in (self._mine, self._golden))
        for slot, (one, two) in enumerate(zip(own, other, strict=False) if len(own) == len(other) else ()):
            if self._is_other(one, two):
                yield _Edge(None, slot, one, two)

    def _is_other(self, own: ValueSource, other: ValueSource) -> bool:
        """Return whether an input certainly differs from golden's; False if a source is unknown."""
        is_lacking = self._golden.lacks(self._mine, own, other) or self._mine.lacks(self._golden, other, own)
        if _NOTHING in {own, other}:
            return is_lacking
        is_default = self._is_foreign and {own.kind, other.kind} == _ARGUMENT  # others may write it
        if own.varies or other.varies or is_default:
            return False
        if own.kind is other.kind is SourceKind.WEIGHT:  # its bits are compared by ``_of_pair``
            keys = self._mine.key(own), self._golden.key(other)
            return None not in keys and keys[0] != keys[1] and keys[0] in self._golden.weights
        if own.kind is not other.kind and self._mine.is_fixed(own) and self._golden.is_fixed(other):
            return False  # one side has folded the value
        keys = self._mine.key(own), self._golden.key(other)
        if None not in keys:
            return keys[0] != keys[1]
        return is_lacking

    def _wiring(self, edges: Sequence[_Edge]) -> Iterator[Fact]:
        """Yield one fact for each operator that explains differing inputs."""
        found: dict[Hashable, Fact] = {}
        for edge in edges:
            fact = self._of_edge(edge, edges)
            key = fact.kind, fact.operator, fact.kind is FactKind.WIRING and fact.text
            known = found.setdefault(key, fact)
            found[key] = replace(known, readers=tuple(dict.fromkeys(known.readers + fact.readers)))
        yield from found.values()

    def _of_edge(self, edge: _Edge, edges: Sequence[_Edge]) -> Fact:
        """Return the fact that explains a differing input."""
        keys = self._mine.key(edge.own), self._golden.key(edge.other)
        lacking, added = self._golden.stranger(edge.other), self._mine.stranger(edge.own)
        readers = () if edge.reader is None else (edge.reader.full_name,)
        slot = f"input {edge.slot}" if readers else f"output {edge.slot}"
        place = f"{slot} of {readers[0] if readers else 'the network'}"
        if lacking and added:
            return replace(_in_place_of(added, lacking), readers=readers)
        if lacking:
            text = f"{place} is {_called(edge.own)}, in golden from this operator"
            return _fact(FactKind.MISSING, lacking, text, lacking.full_name, *readers)
        if added:
            text = f"{place} is from this operator, in golden {_called(edge.other)}"
            return _fact(FactKind.EXTRA, added, text, "", *readers)
        text = f"{slot} is {_called(edge.own)}, in golden {_called(edge.other)}"
        for each in edges:
            crossed = self._mine.key(each.own), self._golden.key(each.other)
            if readers and each.reader is edge.reader and crossed == keys[::-1]:
                text = "inputs {} and {} are swapped".format(*sorted((edge.slot, each.slot)))
        shown = edge.reader or self._mine.operator(edge.own) or GraphOperator("", "")
        return _fact(FactKind.WIRING, shown, text, "", *readers)


def _in_place_of(mine: GraphOperator, golden: GraphOperator) -> Fact:
    text = f"{mine.op_type} in place of {golden.full_name} ({golden.op_type})"
    return _own_fact(FactKind.REPLACED, mine, text, golden)


def _called(source: ValueSource) -> str:
    slot = f":{source.slot}" if source.slot else ""
    kind = "" if source.kind is SourceKind.OPERATOR else f"{source.kind} "
    return "absent" if source.kind is SourceKind.ABSENT else f"from {kind}{source.name}{slot}"


def _parts(operator: GraphOperator) -> tuple[str, ...]:
    """Return the types of an operator's parts, without parts that are optional in other systems."""
    return _types(operator.full_name, operator.op_type)


@functools.lru_cache(maxsize=1 << 14)  # called several times for every operator
def _types(full_name: str, op_type: str) -> tuple[str, ...]:
    types = map(canonical_type, part_types(GraphOperator(full_name, op_type)))
    return tuple(each for each in types if not (passes_on(each) or is_view(each)))


def _casts(operators: _Operators) -> int:
    """Return the number of casts, as operators or parts of kernels; inserted ones do not count."""
    parts = (part_types(each) for each in operators if not _is_inserted(each))
    return sum(canonical_type(each) == "Cast" for types in parts for each in types)


def _counts(operators: _Operators) -> Counter[str]:
    return Counter(op_type for each in operators for op_type in _parts(each))


def _kernel(operators: _Operators, others: Counter[str]) -> GraphOperator:
    """Return the first of some operators with a part that the other side lacks, or the last one."""
    for each in operators:
        if _counts([each]) - others:
            return each
    return operators[-1]


def _without_inserted(operators: _Operators) -> _Operators:
    return [each for each in operators if not _is_inserted(each)] or operators


def _are_alike(mine: _Operators, golden: _Operators) -> bool:
    """Return whether operators are one of each side, or have most parts in common."""
    own, other = _counts(mine), _counts(golden)
    is_single = len(mine) == len(golden) == 1 and _is_plain(mine[0]) and _is_plain(golden[0])
    return is_single or 2 * (own & other).total() >= max(own.total(), other.total())


def _arguments(mine: GraphOperator, golden: GraphOperator) -> Iterator[Fact]:
    """Yield the arguments that both operators have and that differ."""
    if mine.attributes == golden.attributes or mine.op_type != golden.op_type:
        return
    own, other = (parse_attributes(each.attributes) for each in (mine, golden))
    texts = {
        f"{_shown(own[name])}, in golden {_shown(other[name])}": name
        for name in reversed(own)  # one fact for an attribute under two names, as pad and pad_list
        if name in other and name not in mine.bodies and not _is_same(own[name], other[name])
    }
    for text, name in reversed(texts.items()):
        yield _own_fact(FactKind.ATTRIBUTE, mine, f"{name} {text}", golden)


def _own_fact(kind: FactKind, operator: GraphOperator, text: str, golden: GraphOperator) -> Fact:
    return _fact(kind, operator, text, golden.full_name, operator.full_name)


def _fact(kind: FactKind, operator: GraphOperator, text: str, golden: str, *readers: str) -> Fact:
    return Fact(kind, operator.full_name, text, operator.op_type, operator.onnx_name, golden, readers)


def _is_same(mine: Any, golden: Any) -> bool:
    """Return whether two attributes are equal up to rounding; of different types they count as equal."""
    if isinstance(mine, list) and isinstance(golden, list):
        return len(mine) == len(golden) and all(map(_is_same, mine, golden))
    if isinstance(mine, int | float) and isinstance(golden, int | float):
        return math.isclose(mine, golden, rel_tol=_SAME_NUMBER) or str(mine) == str(golden)
    return type(mine) is not type(golden) or mine == golden


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
