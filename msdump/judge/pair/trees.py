"""Pairs the tensors of a tree of msprobe with the tensors of a dump: by modules, then by calls in them.

The scope of an operator is the path of its module: ``Default/h.0-Block/ln_1-LayerNorm/LayerNorm-op0``
belongs to ``Module.h.0.ln_1.LayerNorm.forward.0``. Values that leave a scope are the module's outputs,
values that enter it are its inputs. Tensors of a tree with the same statistics hold one value, which is
paired once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import numpy as np

from msdump.errors import DumpReadError, FormatError
from msdump.graph import written_inputs
from msdump.judge.pair.score import heaviest_chain
from msdump.judge.pair.sides import LIKE, TensorContent, canonical_type, of_statistics
from msdump.judge.pair.tensors import Identities, Identity, MatchedNames, RewiredInput
from msdump.read import (
    CallName,
    Folder,
    GraphOperator,
    OperatorGraph,
    Record,
    SourceKind,
    ValueSource,
    parse_name,
    read_shape,
    transposed,
)
from msdump.record import IO
from msdump.store import PARAMETER, sanitize

_VALUES: Final = frozenset({SourceKind.OPERATOR, SourceKind.INPUT})
_SAME: Final = 1e-3
"""Relative difference of statistics that other kernels of the same type explain."""

_ALIASES: Final = {
    "linear": ("biasadd", "dense", "matmul", "gemm"),
    "addmm": ("dense", "gemm"),
    "truediv": ("div", "realdiv"),
    "embedding": ("gather",),
    "cat": ("concat",),
    "getitem": ("slice", "stridedslice", "gather"),
    "view": ("reshape",),
    "flatten": ("reshape",),
    "permute": ("transpose",),
    "crossentropy": ("softmaxcrossentropy", "sparsesoftmaxcrossentropy"),
}
"""Types of operators by the function of PyTorch or MindSpore, where the one does not begin as the other."""

_ARITHMETIC: Final = frozenset({"Add", "Sub", "Mul", "Div", "RealDiv", "Pow", "Maximum", "Minimum"})
"""Types of operators that read a parameter as it is, so that it keeps its name."""

_SEVERAL: Final = frozenset({"linear", "addmm", "cross_entropy", "scaled_dot_product_attention"})
"""Functions of several operators: the last one computes the result and does not read the arguments."""

_TRAINING: Final = {
    "dropout": "dropout",
    **dict.fromkeys(("batch_norm", "batchnorm"), "batch statistics"),
}
"""Calls that compute something else in train mode, by parts of the names of functions and modules."""

_Key = Hashable
"""A value of the tree: its shape and statistics."""


def pair_tree(
    dumped: Folder, graph: OperatorGraph, golden: Folder, parents: Mapping[str, str | None]
) -> tuple[Identities, Folder]:
    """Return the identities of the tensors of a dump and of a tree of msprobe, and the tree's tensors.

    Weights and their gradients that the dump holds transposed are transposed in the tree's tensors.

    Args:
        dumped: The directory that is examined.
        graph: Its graph.
        golden: One process of the tree in one step.
        parents: The module around each module and call of the tree; empty if it is unknown.
    """
    pairing = _Pairing(dumped, graph, golden, parents)
    identities = pairing.identities()
    operators = {
        name: tuple(
            transposed(each) if (name, each.io, each.slot) in pairing.turned else each for each in tensors
        )
        for name, tensors in golden.operators.items()
    }
    return identities, replace(golden, operators=operators)


class _Pairing:
    def __init__(
        self, dumped: Folder, graph: OperatorGraph, golden: Folder, parents: Mapping[str, str | None]
    ) -> None:
        self._graph, self._parents = graph, parents
        self._contents: dict[int, TensorContent] = {}  # by the identity of records: rows have no hash
        self._records = {(each.op_name, each.io, each.slot): each for each in dumped.tensors}
        tree: dict[tuple[str, IO], list[Record]] = defaultdict(list)
        self._parameters: dict[str, Record] = {}
        self._calls: dict[str, CallName] = {}
        self.alone: dict[str, str] = {}
        for each in golden.tensors:
            call = parse_name(each.op_name)
            if each.op_type == PARAMETER:
                self._parameters[each.op_name] = each
            elif call is None:
                self.alone[each.op_name] = "its name is not of a module or call"
            else:
                self._calls[each.op_name] = call
                tree[each.op_name, each.io].append(each)
        self._keys: dict[tuple[str, IO], list[_Key]] = {}  # by slot
        self._samples: dict[_Key, Record] = {}  # a tensor of each value, an output if there is one
        self._users: dict[IO, dict[_Key, dict[str, None]]] = {io: defaultdict(dict) for io in IO}
        for (name, io), tensors in sorted(tree.items(), key=lambda item: item[0][1] is IO.INPUT):
            by_slot = sorted(tensors, key=lambda each: each.slot)
            self._keys[name, io] = keys = [*map(self._key, by_slot)]
            for key, each in zip(keys, by_slot, strict=True):
                self._samples.setdefault(key, each)
                self._users[io][key][name] = None
        self._places = dict(self._placed({call.module for call in self._calls.values()} - {""}))
        self._inside: dict[tuple[bool, str], list[GraphOperator]] = defaultdict(list)
        for name, (is_backward, path) in self._places.items():
            for inner in itertools.accumulate(path.split("."), "{}.{}".format):
                self._inside[is_backward, inner].append(graph.operators[name])
        self._order = {name: place for place, name in enumerate(graph.operators)}
        self._sums = [each for each in graph.operators.values() if each.op_type == "AddN"]
        self._numbers: dict[tuple[bool, str], set[int]] = defaultdict(set)
        for call in self._calls.values():
            self._numbers[call.is_backward, call.module].add(call.number)
        self._owned: dict[str, list[str]] = defaultdict(list)  # parameters by their module
        for name in self._parameters:
            self._owned[name.rpartition(".")[0]].append(name)
        self._written: dict[ValueSource, _Key] = {}
        self._value_of: dict[_Key, ValueSource] = {}
        self._read: dict[tuple[str, int], _Key] = {}
        self._folded = set[str]()  # modules with operators of other modules, or without their own
        self._rewired: dict[str, RewiredInput] = {}  # by the call that golden reads
        self._turned: set[_Key] = set()  # parameters and gradients that the examined side holds transposed
        self.turned: set[tuple[str, IO, int]] = set()
        self._functions: dict[str, GraphOperator] = {}

    def _placed(self, paths: set[str]) -> Iterator[tuple[str, tuple[bool, str]]]:
        """Yield each operator's full name, whether it is of the backward pass, and the path of its module."""
        around = [path.rpartition(".")[0] for path in paths]
        known = paths.union(around)
        scopes, dropped = {}, Counter[tuple[str, ...]]()
        for name in self._graph.operators:
            first, *parts = name.split("/")[:-1] or [""]
            is_backward = first == "Gradients"
            parts = [each.rpartition("-")[0] or each for each in parts if not each.startswith("Grad_")]
            parts = parts[parts[:1] == ["Default"] :]
            scopes[name] = is_backward, parts
            for start in range(len(parts)):
                ends = range(start + 1, len(parts) + 1)
                if any(".".join(parts[start:end]) in known for end in ends):
                    dropped[(*parts[:start],)] += 1
                    break
        prefix = max(dropped, key=lambda each: dropped[each], default=())  # cells of the training step
        for name, (is_backward, parts) in scopes.items():
            is_below = (*parts[: len(prefix)],) == prefix
            yield name, (is_backward, ".".join(parts[len(prefix) :]) if is_below else "")

    def _content(self, record: Record) -> TensorContent:
        if id(record) not in self._contents:
            shape = self._shape(record)
            try:
                content = of_statistics(record.stats, shape)
            except (DumpReadError, FormatError):  # reported where it is compared
                content = TensorContent(None, math.prod(shape))
            self._contents[id(record)] = content
        return self._contents[id(record)]

    @staticmethod
    def _shape(record: Record) -> tuple[int, ...]:
        row = record.directory.row_of(record)
        shape = None if row is None else read_shape(row.get("Shape"))
        try:
            return record.shape if shape is None else shape
        except (DumpReadError, FormatError):
            return ()

    def _key(self, record: Record) -> _Key:
        content = self._content(record)
        own = record.op_name, record.io, record.slot
        is_known = content.is_distinctive and content.norm == content.norm
        return (self._shape(record), content.norm, content.largest, content.smallest) if is_known else own

    def _likeness(self, key: _Key, value: ValueSource) -> float:
        """Return 2 for a value of the same statistics, 1 for a like one, 0 for an unlike or unknown one."""
        record = self._record(value)
        if record is None:
            return 0.0
        mine, golden = self._content(record), self._content(self._samples[key])
        if mine.count != golden.count:
            return 0.0
        ends = (abs(golden.largest), abs(golden.smallest))
        close = _SAME * max(filter(math.isfinite, ends), default=0.0)
        if all(math.isclose(*each, rel_tol=_SAME, abs_tol=close) for each in mine.in_pairs(golden)):
            return 2.0
        return float((mine.likeness(golden) or 0.0) >= LIKE)

    def _record(self, value: ValueSource) -> Record | None:
        name = sanitize(value.name)
        found = self._records.get((name, IO.OUTPUT, value.slot))
        if found is not None or value.kind is not SourceKind.OPERATOR:
            return found
        read = (
            self._records.get((reader.file_name, IO.INPUT, slot))
            for reader in self._graph.used_by(value.name, value.slot)
            for slot, source in enumerate(reader.inputs)
            if source == value
        )
        return next(filter(None, read), None)

    def _size(self, value: ValueSource) -> int | None:
        shape = self._graph.form_of(value).shape
        if shape is None or -1 in shape:
            record = self._record(value)
            return None if record is None else math.prod(self._shape(record))
        return math.prod(shape)

    # Modules

    def _operators(self, name: str) -> Sequence[GraphOperator]:
        """Return the operators of one call of a module, in their order."""
        call = self._calls[name]
        side = call.is_backward, call.module
        inside, numbers = self._inside[side], self._numbers[side]
        size, rest = divmod(len(inside), len(numbers))
        parts = [] if rest else [inside[at : at + size] for at in range(0, len(inside), size or 1)]
        if len(numbers) > 1 and len({(*(each.op_type for each in part),) for part in parts}) != 1:
            # a tool dropped or folded operators of one call: take the rows without others between them
            rows = itertools.groupby(enumerate(inside), lambda at: self._order[at[1].full_name] - at[0])
            runs = [[each for _, each in row] for _, row in rows]
            parts = runs if len(runs) == len(numbers) else parts
        return parts[sorted(numbers, reverse=call.is_backward).index(call.number)] if parts else ()

    def _leaving(self, operators: Sequence[GraphOperator]) -> list[ValueSource]:
        names = {each.full_name for each in operators}
        return [
            value
            for value in _results(operators)
            if value in self._graph.outputs
            or any(each.full_name not in names for each in self._graph.used_by(value.name, value.slot))
        ]

    @staticmethod
    def _entering(operators: Sequence[GraphOperator]) -> list[ValueSource]:
        names = {each.full_name for each in operators}
        values = (source for each in operators for source in each.element_inputs if source.kind in _VALUES)
        return [*dict.fromkeys(value for value in values if value.name not in names)]

    def _pair_gradients(self, name: str) -> None:
        """Pair the gradients of a module by contents, the others as the values of their size in its scope."""
        operators = self._operators(name)
        inner, entering = [*_results(operators)], self._entering(operators)
        keys = {io: self._keys_of(name, io) for io in (IO.OUTPUT, IO.INPUT)}
        for key in (*keys[IO.OUTPUT], *keys[IO.INPUT]):
            values = (each for each in (*inner, *entering) if each not in self._written)
            like = next((each for each in values if self._likeness(key, each) > 1), None)
            if like is not None:
                self._claim(like, key)
        gradients = [each for each in entering if self._places.get(each.name, (False,))[0]]
        for io, sides in ((IO.OUTPUT, self._leaving(operators)), (IO.INPUT, gradients)):
            left = self._summed(each for each in sides if not self._is_of_weight(each))
            counts = Counter(map(self._size, left))
            counts.subtract(self._content(self._samples[key]).count for key in keys[io])
            clear = [each for each in keys[io] if not counts[self._content(self._samples[each]).count]]
            for key, value in self._matched(clear, left, is_one=False):
                self._claim(value, key)

    def _is_of_weight(self, value: ValueSource) -> bool:
        """Return whether a value is the gradient of a weight, which an optimizer reads."""
        readers = self._graph.used_by(value.name, value.slot)
        return any(written_inputs(each.op_type) for each in readers)

    def _summed(self, values: Iterable[ValueSource]) -> list[ValueSource]:
        """Return gradients with the sum of several ones, where it is of nothing else, in their place."""
        found = dict.fromkeys(values)
        for each in self._sums:
            if found.keys() >= {*each.inputs}:
                found = dict.fromkeys(value for value in found if value not in each.inputs)
                found[ValueSource(SourceKind.OPERATOR, each.full_name)] = None
        return [*found]

    def _pair_outputs(self, name: str, *, is_sure: bool) -> None:
        keys, values = self._keys_of(name, IO.OUTPUT), self._leaving(self._operators(name))
        is_one = len(keys) == len(values) == 1
        for key, value in self._matched(keys, values, is_one=True):
            if is_one or not is_sure or self._likeness(key, value):
                self._claim(value, key)

    def _pair_inputs(self, name: str) -> None:
        operators = self._operators(name)
        values = self._entering(operators)
        keys = [*self._keys_of(name, IO.INPUT)]
        for key in keys:  # the module before may be folded into this one
            folded = filter(self._is_folded, self._users[IO.OUTPUT][key])
            keys += (each for maker in folded for each in self._keys_of(maker, IO.INPUT) if each not in keys)
        for key, value in self._matched(keys, values, is_one=False):
            self._reads(operators, value, key)

    def _keys_of(self, name: str, io: IO) -> list[_Key]:
        return self._keys.get((name, io), [])

    def _matched(
        self, keys: Sequence[_Key], values: Sequence[ValueSource], *, is_one: bool
    ) -> Iterator[tuple[_Key, ValueSource]]:
        """Yield pairs of equal size, the most alike ones first, then by their order."""
        if is_one and len(keys) == len(values) == 1:  # shapes may differ
            yield keys[0], values[0]
            return
        counts = [self._content(self._samples[key]).count for key in keys]
        scored = sorted(
            (-self._likeness(key, value), abs(place - slot), place, slot)
            for place, key in enumerate(keys)
            for slot, value in enumerate(values)
            if self._size(value) in {None, counts[place]}
        )
        places, slots = set[int](), set[int]()
        for _, _, place, slot in scored:
            if place not in places and slot not in slots:
                places.add(place)
                slots.add(slot)
                yield keys[place], values[slot]

    def _claim(self, value: ValueSource, key: _Key) -> None:
        if value not in self._written and key not in self._value_of:
            self._written[value], self._value_of[key] = key, value

    def _reads(self, operators: Iterable[GraphOperator], value: ValueSource, key: _Key) -> None:
        if not any(map(self._is_folded, self._users[IO.OUTPUT][key])):
            self._claim(value, key)
            for each in operators:
                for slot, source in enumerate(each.inputs):
                    if source == value:
                        self._read.setdefault((each.full_name, slot), key)

    # Calls of functions

    def _pair_functions(self, around: str | None, names: Sequence[str], *, is_backward: bool) -> None:
        """Pair the calls in a module with its operators, both in their order."""
        call = None if around is None else self._calls.get(around) or parse_name(around)
        path, is_known = "" if call is None else call.module, bool(self._parents)
        inside = self._operators(around) if around in self._calls else self._graph.operators.values()
        operators = [
            each for each in inside if self._places[each.full_name] == (is_backward, path) or not is_known
        ]
        columns: dict[int | None, list[int]] = defaultdict(list)
        for column, each in enumerate(operators):
            columns[self._size(ValueSource(SourceKind.OPERATOR, each.full_name))].append(column)
        numbers = {each.full_name: column for column, each in enumerate(operators)}
        pairs: list[tuple[int, int, float]] = []
        for row, name in enumerate(names):
            for key in self._keys_of(name, IO.OUTPUT)[:1]:
                known = self._value_of.get(key)
                if known is not None:
                    pairs += [(row, numbers[known.name], 10.0)] if known.name in numbers else []
                    continue
                for column in (*columns[None], *columns[self._content(self._samples[key]).count]):
                    fit = self._fit(name, key, operators[column])
                    pairs += [(row, column, fit)] if fit else []
        for place in heaviest_chain(*zip(*pairs, strict=True)) if pairs else ():
            name, operator = names[pairs[place][0]], operators[pairs[place][1]]
            value = ValueSource(SourceKind.OPERATOR, operator.full_name)
            self._claim(value, self._keys_of(name, IO.OUTPUT)[0])
            self._functions[name] = operator

    def _fit(self, name: str, key: _Key, operator: GraphOperator) -> float:
        """Return how well an operator fits as the last one of a call, 0 if it cannot be it."""
        value, call = ValueSource(SourceKind.OPERATOR, operator.full_name), self._calls[name]
        if value in self._written:
            return 0.0
        # a gradient may have several operators of the type: contents alone decide
        is_named = not call.is_backward and _is_named(call.kind, operator.op_type)
        likeness, shape = self._likeness(key, value), self._shape(self._samples[key])
        has_shape = self._graph.form_of(value).shape == shape  # another order has the same statistics
        return 2.0 * is_named + likeness + 0.5 * has_shape if is_named or likeness > 1 else 0.0

    def _pair_arguments(self, name: str, operator: GraphOperator, weights: AbstractSet[_Key]) -> None:
        kind = self._calls[name].kind
        if kind in _SEVERAL or not _is_named(kind, operator.op_type):
            return
        given = [key for key in self._keys_of(name, IO.INPUT) if key not in weights]
        read = [each for each in operator.inputs if each.kind in _VALUES]
        for key, value in zip(given, read, strict=False) if len(given) == len(read) else ():
            if self._size(value) in {None, self._content(self._samples[key]).count}:
                self._reads([operator], value, key)

    # All

    def identities(self) -> Identities:
        """Pair modules, functions and weights; return the identities."""
        self._pair_calls()
        mine: dict[Hashable, _Key] = {}
        for name, operator in self._graph.operators.items():
            for slot, source in enumerate(operator.inputs):
                key = self._given(operator, slot, source)
                if key is not None:
                    mine[name, IO.INPUT, slot] = key
        for value, key in self._written.items():
            is_made = value.kind is SourceKind.OPERATOR
            mine[value.name if is_made else sanitize(value.name), IO.OUTPUT, value.slot] = key
        self._pair_weights(mine)
        used = {*mine.values()}
        golden = {
            (record.op_name, record.io, record.slot): key
            for key, record in (*self._samples.items(), *self._parameters.items())
            if key in used
        }
        self.turned = {place for place, key in golden.items() if key in self._turned}
        self._list_alone(used)

        def identity(key: _Key | None) -> Identity | None:
            return None if key is None else ("tree", str(key))

        def identify(name: str, io: IO, slot: int) -> Identity | None:
            operator = self._graph.find(name)
            return identity(mine.get((name if operator is None else operator.full_name, io, slot)))

        every = frozenset((*self._calls, *self._parameters, *self.alone))
        matched = MatchedNames(
            {}, {}, every, alone=self.alone, rewired=(*self._rewired.values(),), networks=self._training()
        )
        return Identities(identify, lambda *place: identity(golden.get(place)), matched)

    def _pair_calls(self) -> None:
        """Pair results of modules, innermost first, then results of functions, then the inputs of both."""
        modules = [name for name, call in self._calls.items() if call.module and not call.parameter]
        by_depth = sorted(modules, key=lambda name: -self._calls[name].module.count("."))
        for name in by_depth:
            if self._calls[name].is_backward:
                self._pair_gradients(name)
            else:
                self._pair_outputs(name, is_sure=True)
        for name in modules:
            self._fold(name)
        groups: dict[tuple[str | None, bool], list[str]] = defaultdict(list)
        for name, call in self._calls.items():
            if not call.module:
                groups[self._parents.get(name), call.is_backward].append(name)
        for (around, is_backward), names in groups.items():
            self._pair_functions(around, names, is_backward=is_backward)
        forward = [name for name in by_depth if not self._calls[name].is_backward]
        for name in forward:
            self._pair_outputs(name, is_sure=False)
        for name in forward:
            self._pair_inputs(name)
        weights = {self._key(each) for each in self._parameters.values()} if self._functions else set[_Key]()
        for name, operator in self._functions.items():
            self._pair_arguments(name, operator, weights)

    def _fold(self, name: str) -> None:
        """Take the output of a normalisation without operators as that of the operator before it."""
        call = self._calls[name]
        keys = [self._keys_of(name, io) for io in (IO.INPUT, IO.OUTPUT)]
        if self._operators(name) or call.is_backward:
            return
        self._folded.add(call.module)
        if "BatchNorm" not in call.kind or not all(keys):
            return
        value = self._value_of.pop(keys[0][0], None)
        if value is not None and keys[1][0] not in self._value_of:
            self._written[value], self._value_of[keys[1][0]] = keys[1][0], value
            self._folded.add(self._places.get(value.name, (False, ""))[1])

    def _given(self, operator: GraphOperator, slot: int, source: ValueSource) -> _Key | None:
        """Return the tree's value that an operator should read at an input, None if it is unknown.

        Where the tree computes it by a call of which no operator is left, the call is missing.
        """
        read, written = self._read.get((operator.full_name, slot)), self._written.get(source)
        if read is None or written is None or read == written:
            return written if read is None else read
        one, two = (self._content(self._samples[key]) for key in (read, written))
        if (one.likeness(two) or 0.0) >= LIKE:  # a view, a change of the order
            return written
        for name in [*self._users[IO.OUTPUT][read]][:1]:
            is_missing = read not in self._value_of
            rewired = RewiredInput(operator.full_name, slot, source.name, name, is_missing)
            self._rewired.setdefault(name, rewired)
        return read

    def _is_folded(self, name: str) -> bool:
        """Return whether another module's operators compute a module or call that has none itself."""
        around: str | None = name
        while around is not None and not self._calls.get(around, CallName("", "")).module:
            around = self._parents.get(around)
        if around is None or self._operators(around):
            return False
        readers = (each for key in self._keys_of(name, IO.OUTPUT) for each in self._users[IO.INPUT][key])
        return any("norm" in self._calls[each].kind.lower() for each in readers)

    def _pair_weights(self, mine: dict[Hashable, _Key]) -> None:
        """Pair the weights that operators read with the parameters of their modules, and the gradients."""
        owners = {path for _, path in self._places.values()}
        names: dict[str, str] = {}  # parameters of the tree by weights, "" for one weight in place of several
        written: list[tuple[GraphOperator, str]] = []
        for name, operator in self._graph.operators.items():
            is_backward, path = self._places[name]
            for slot, source in enumerate(operator.inputs):
                is_weight = source.kind is SourceKind.WEIGHT
                if is_weight and written_inputs(operator.op_type):
                    written.append((operator, source.name))
                elif is_weight and not is_backward:
                    found = self._parameter(path, source, owners, operator)
                    record = self._records.get((operator.file_name, IO.INPUT, slot))
                    if found and self._fits(found, source, record):
                        names[source.name] = found if names.get(source.name, found) == found else ""
                        mine[name, IO.INPUT, slot] = found
        for name, found in names.items():
            if name == found and all(name != each for _, each in written):  # files hold the trained weights
                mine[sanitize(name), IO.OUTPUT, 0] = found
        gradients = {
            f"{call.module}.{call.parameter}": name for name, call in self._calls.items() if call.parameter
        }
        for operator, name in written:
            for key in self._keys_of(gradients.get(names.get(name, name), ""), IO.OUTPUT):
                golden = self._samples[key]
                if names.get(name) in self._turned:
                    self._turned.add(key)
                for slot, source in enumerate(operator.inputs):
                    is_made = (
                        self._places.get(source.name, (False,))[0] and source.kind is SourceKind.OPERATOR
                    )
                    if is_made and self._size(source) == self._content(golden).count:
                        mine[operator.full_name, IO.INPUT, slot] = key
                        if source not in self._written:
                            mine[source.name, IO.OUTPUT, source.slot] = key

    def _parameter(
        self, path: str, source: ValueSource, owners: AbstractSet[str], operator: GraphOperator
    ) -> str:
        """Return the tree's parameter that an operator of a module should read as a weight, "" for none."""
        owner, _, last = source.name.rpartition(".")
        if path in self._folded or owner in self._folded:
            return ""
        if source.name in self._parameters:
            if owner == path or owner not in owners:
                return source.name if owner == path else ""
            own = f"{path}.{last}"  # exporters share weights that are equal
            return own if own in self._parameters else source.name
        if operator.op_type in _ARITHMETIC:  # exporters compute constants of parameters, under other names
            return ""
        size = self._size(source)
        others = (name for name in self._owned[path] if name not in self._graph.weights)
        alike = [name for name in others if self._content(self._parameters[name]).count == size]
        return alike[0] if len(alike) == 1 else ""

    def _fits(self, name: str, source: ValueSource, read: Record | None) -> bool:
        """Return whether a weight has the shape of a parameter, or that of the transposed one."""
        golden = self._parameters[name]
        shape, own = self._shape(golden), self._graph.form_of(source).shape
        own = own if own is not None or read is None else self._shape(read)
        turned = (*shape[:-2], *shape[-2:][::-1])
        if own == turned and (own != shape or (name != source.name and self._is_turned(read, golden))):
            self._turned.add(name)
        return own in (shape, turned)

    @staticmethod
    def _is_turned(read: Record | None, golden: Record) -> bool:
        """Return whether a square weight is nearer to the transposed parameter."""
        try:
            arrays = [] if read is None else [read.array.astype(np.float64), golden.array.astype(np.float64)]
            straight, turned = (
                np.abs(arrays[0] - each).sum() for each in (arrays[1], arrays[1].swapaxes(-1, -2))
            )
        except (DumpReadError, FormatError, IndexError, ValueError):  # statistics alone do not show the order
            return False
        return bool(turned < straight)

    def _training(self) -> str:
        """Return a sentence on modules that golden ran in train mode, "" for none."""
        found = []
        for name, call in self._calls.items():
            keys = [*self._keys_of(name, IO.INPUT)[:1], *self._keys_of(name, IO.OUTPUT)[:1]]
            effect = trained(call.kind) if call.module and not call.is_backward and len(keys) > 1 else ""
            contents = [self._content(self._samples[key]) for key in keys]
            if effect == "dropout":  # in inference it hands its input on
                is_trained = all(each.is_distinctive for each in contents) and keys[0] != keys[1]
            else:
                value = self._value_of.get(keys[-1]) if effect else None
                is_other = value is not None and self._likeness(keys[-1], value) <= 1
                is_trained = is_other and self._is_normalised(keys[-1], call.module)
            found += [f"{effect} in {call.module}"] if effect and is_trained else []
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"golden is in train mode: {found[0]}{more}; call eval() before" if found else ""

    def _is_normalised(self, key: _Key, module: str) -> bool:
        """Return whether each channel of an output has the deviation and mean that batch statistics give."""
        names = [f"{module}.{each}" for each in ("weight", "bias")]
        weight, bias = ([self._parameters[each]] if each in self._parameters else [] for each in names)
        if not (weight and bias):
            return False
        try:
            means = [float(each.stats["avg"]) for each in (self._samples[key], bias[0])]  # type: ignore[arg-type]
        except (DumpReadError, FormatError, TypeError):
            return False
        count = self._content(self._samples[key]).count / self._content(weight[0]).count
        expected = count**0.5 * math.hypot(*(self._content(each[0]).norm for each in (weight, bias)))
        norm = self._content(self._samples[key]).norm
        scale = norm / self._content(self._samples[key]).count ** 0.5
        return bool(abs(norm - expected) <= _SAME * norm) and abs(means[0] - means[1]) <= _SAME * scale

    def _list_alone(self, used: AbstractSet[_Key]) -> None:
        """List the modules, calls and parameters without a counterpart, and why."""
        for name, call in self._calls.items():
            shown = self._keys_of(name, IO.OUTPUT) or self._keys_of(name, IO.INPUT)
            if not used.isdisjoint(shown) or name in self._rewired:
                continue
            if call.is_backward and not any(is_back for is_back, _ in self._places.values()):
                why = "the dump has no backward pass"
            elif call.parameter:
                why = "no operator updates its parameter, or one weight stands for several"
            elif not call.module:
                why = "no operator of its module computes a tensor of its shape that is like it"
            elif self._operators(name):
                why = "no value that enters or leaves its operators has its shape"
            elif (call.is_backward, call.module) in self._places.values():
                why = "its operators do not divide into so many calls"
            else:
                why = "no operator lies in its scope: a tool has folded or removed it"
            self.alone[name] = why
        for name in sorted(self._parameters.keys() - used):
            self.alone[name] = (
                "folded into other weights"
                if name.rpartition(".")[0] in self._folded
                else "no operator of its module reads a weight of its name or its shape"
            )


def _results(operators: Iterable[GraphOperator]) -> Iterator[ValueSource]:
    """Yield the outputs of operators."""
    for each in operators:
        for slot in range(max(1, len(each.outputs))):
            yield ValueSource(SourceKind.OPERATOR, each.full_name, slot)


def _is_named(kind: str, op_type: str) -> bool:
    """Return whether an operator has the type of a function, ``BatchMatMul`` of ``__matmul__``.

    A function in place has none: its input may hold its result.
    """
    if kind.endswith("_") and not kind.startswith("__"):
        return False
    name = kind.strip("_").lower().replace("_", "")
    types = {op_type.lower(), canonical_type(op_type).lower()}
    return any(
        one.startswith(two) or two.startswith(one) for one in (name, *_ALIASES.get(name, ())) for two in types
    )


def trained(function: str) -> str:
    """Return the effect of train mode on a function or module, "" if it has none.

    >>> trained("aten.native_dropout.default"), trained("aten._native_batch_norm_legit_no_training.default")
    ('dropout', '')
    """
    is_trained = "no_training" not in function
    parts = (words for part, words in _TRAINING.items() if part in function.lower() and is_trained)
    return next(parts, "")
