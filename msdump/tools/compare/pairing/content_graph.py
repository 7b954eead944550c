"""The graph of operators that files of tensors tell where a dump has no graph file.

An operator read what another one wrote if both have the same bits. So every input is an output with its bits
that was written before, or else a weight or an input of the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from msdump.device.tasks import DATA_FLOW
from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store import names, operator_names
from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    FIXED,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder, NamedFile
from msdump.tools.compare.pairing.operands import DumpedOperand

_NO_OPERATORS: Final = frozenset({names.PARAMETER, operator_names.OP_DEBUG.op_type, "Data", "Const"})
_LOOSE: Final = 0.1
"""Tensors that nothing wrote and that are no weights, for each operator, where all of them were dumped."""

_WORD: Final = 8  # bytes
_PARTS: Final = 64
_SOME: Final = 1021  # bytes that are taken as they are
_LARGE: Final = 1 << 16  # bytes, from which on a sample costs less than the tensor
_SAMPLES: Final = 16  # stretches of a large tensor
_STRETCH: Final = 64  # bytes of each
_INPUT: Final = (
    "/input"  # behind an operator's name, and in front of a number: the weight that it reads there
)
_PART: Final = re.compile(r"[^_]+?-op\d+")


def of_folder(folder: Folder, like: OperatorGraph | None = None) -> OperatorGraph | None:
    """Return the graph that the tensors of a compiled network tell; None where they tell none.

    Of an operator that ran several times the first run counts, and what it wrote in the others. Where many
    operators read other tensors that were not written before, not all were dumped, and what they read is not
    known to be weights.

    Args:
        folder: A directory of operators.
        like: The other side's graph, which tells how names are spelled that files hold without slashes.
    """
    if folder.kind not in COMPILED:  # others have graph files, or were cut out of a dump
        return None
    writer = _Writer(like)
    for files in sorted(_runs(folder), key=_time):
        name = files[0].op_name
        try:
            tensors = operands.read(folder, files)
        except DumpReadError:  # said where the tensors themselves are compared
            continue
        values = _values(folder, files, tensors)
        if files[0].pass_number:
            writer.add_pass(name, values)
        elif files[0].op_type in _NO_OPERATORS:
            writer.add_input(name, values)
        else:
            writer.add(name, files[0].op_type, values)
    return writer.graph()


def weight_place(name: str) -> tuple[str, int] | None:
    """Return the operator and the number of its input by which a weight is called; None of other weights.

    >>> weight_place("Default/MatMul-op0/input1")
    ('Default/MatMul-op0', 1)
    """
    reader, mark, slot = name.rpartition(_INPUT)
    return (reader, int(slot)) if mark and slot.isdecimal() else None


def _runs(folder: Folder) -> Iterator[tuple[NamedFile, ...]]:
    """Yield the files of each run of each operator."""
    for files in folder.operators.values():
        by_pass: dict[int, list[NamedFile]] = {}
        for file in files:
            by_pass.setdefault(file.pass_number, []).append(file)
        yield from map(tuple, by_pass.values())


def _time(files: Sequence[NamedFile]) -> tuple[int, str]:
    return files[-1].timestamp, files[-1].name


class _Value:
    """A dumped tensor as what its elements are; its file is not kept open.

    Attributes:
        io: Input or output.
        index: Its number among the operator's inputs or outputs.
        form: Its shape on the host.
        sample: What tensors of the same elements have in common, and few others; None where it is unreadable.
    """

    def __init__(self, tensor: DumpedOperand, load: Callable[[], DumpedOperand | None]) -> None:
        """Take a sample of a tensor, which can be loaded again."""
        self.io, self.index, self.form = tensor.io, tensor.index, _form(tensor)
        self._load = load
        data = _bytes(tensor)
        if data is None or data.size < _LARGE:
            self.sample: Hashable | None = tensor_key(tensor)
            self.key = self.sample
        else:
            starts = range(0, data.size, data.size // _SAMPLES)
            stretches = b"".join(data[start : start + _STRETCH].tobytes() for start in starts)
            self.sample = tensor.dtype, data.size, stretches

    @cached_property
    def key(self) -> Hashable | None:
        """What tensors of the same elements have in common, and no others; all elements are read."""
        tensor = self._load()
        return None if tensor is None else tensor_key(tensor)


def _values(folder: Folder, files: Sequence[NamedFile], tensors: Sequence[DumpedOperand]) -> list[_Value]:
    def load(place: int) -> DumpedOperand | None:
        try:
            return operands.read(folder, files)[place]
        except DumpReadError:
            return None

    return [_Value(tensor, partial(load, place)) for place, tensor in enumerate(tensors)]


class _Written:
    """Where values were written. Of those whose samples no other value shares, not all elements are read."""

    def __init__(self) -> None:
        self._alone: dict[Hashable, tuple[_Value, ValueSource]] = {}
        self._by_key: dict[Hashable, ValueSource] = {}
        self._samples: set[Hashable] = set()

    def add(self, value: _Value, source: ValueSource) -> None:
        """Note where a value was written last."""
        if value.sample is None:
            return
        if value.sample in self._samples:
            self._part(value.sample)
            self._know(value, source)
        else:
            self._samples.add(value.sample)
            self._alone[value.sample] = value, source

    def source(self, value: _Value) -> ValueSource | None:
        """Return where a value was written, None if it was not."""
        if value.sample is None or value.sample not in self._samples:
            return None
        self._part(value.sample)
        return self._by_key.get(value.key)

    def _part(self, sample: Hashable) -> None:
        """Know the one value of a sample by all of its elements."""
        if sample in self._alone:
            self._know(*self._alone.pop(sample))

    def _know(self, value: _Value, source: ValueSource) -> None:
        if value.key is not None:
            self._by_key[value.key] = source


class _Writer:
    """Lists operators in the order in which they ran."""

    def __init__(self, like: OperatorGraph | None) -> None:
        self._like = like
        self._operators: dict[str, GraphOperator] = {}
        self._inputs: dict[str, ValueForm] = {}
        self._weights: dict[str, ValueForm] = {}
        self._written = _Written()
        self._read: set[ValueSource] = set()
        self._foreign: set[Hashable] = set()
        self._guessed: dict[tuple[str, int], _Value] = {}  # what seems to be a weight, by who reads it where
        self._varying: set[tuple[str, int]] = set()

    def add_input(self, name: str, values: Iterable[_Value]) -> None:
        """Add an input of the network, or a weight that has a file of its own."""
        for value in values:
            self._inputs[name] = value.form
            if value.io is IO.OUTPUT:
                self._written.add(value, ValueSource(SourceKind.INPUT, name))

    def add(self, name: str, op_type: str, values: Sequence[_Value]) -> None:
        """Add an operator."""
        name = _spelled(name, self._like)
        sides: Mapping[IO, dict[int, _Value]] = {io: {} for io in IO}
        for value in values:
            sides[value.io][value.index] = value
        inputs, outputs = sides[IO.INPUT], sides[IO.OUTPUT]
        reads = self._sources(name, inputs)
        self._read |= {*reads}
        forms = tuple(
            outputs[slot].form if slot in outputs else ValueForm()
            for slot in range(max(outputs, default=-1) + 1)
        )
        self._operators[name] = GraphOperator(name, op_type, reads, forms)
        self._add_outputs(name, outputs.values())

    def add_pass(self, name: str, values: Iterable[_Value]) -> None:
        """Add what an operator wrote in another pass of a loop; what it reads otherwise is no weight."""
        name, values = _spelled(name, self._like), list(values)
        self._add_outputs(name, (each for each in values if each.io is IO.OUTPUT))
        for value in values:
            first = self._guessed.get((name, value.index)) if value.io is IO.INPUT else None
            if first is not None and first.sample != value.sample:
                self._varying.add((name, value.index))

    def _add_outputs(self, name: str, outputs: Iterable[_Value]) -> None:
        for value in outputs:
            self._written.add(value, ValueSource(SourceKind.OPERATOR, name, value.index))

    def _sources(self, reader: str, inputs: Mapping[int, _Value]) -> tuple[ValueSource, ...]:
        """Return what an operator reads; what nobody wrote is a weight, beside an input that was written.

        Compiled networks have no files of what cuts tensors and puts them together (Split, Concat): who reads
        nothing that was written reads what those made.
        """
        has_written = any(_is_written(self._written.source(value) or ABSENT) for value in inputs.values())
        if inputs and not has_written:
            self._foreign.add(next(iter(inputs.values())).sample)
        sources = [ABSENT] * (max(inputs, default=-1) + 1)
        for slot, value in inputs.items():
            source = self._written.source(value)
            is_known = source is not None or value.sample is None or not has_written
            if not is_known and not _is_cut(reader, slot, self._like):
                weight = f"{reader}{_INPUT}{slot}"
                self._weights[weight] = value.form
                self._guessed[reader, slot] = value
                source = ValueSource(SourceKind.WEIGHT, weight)
                self._written.add(value, source)
            sources[slot] = source or ABSENT
        return tuple(sources)

    def graph(self) -> OperatorGraph | None:
        """Return the graph; what nobody reads is its output."""
        reading = [each for each in self._operators.values() if each.inputs]
        known = self._pieces() + self._from_loops()
        if not reading or len(self._foreign) > max(1, _LOOSE * len(reading)) + known:
            return None
        outputs = tuple(self._unread())
        graph = OperatorGraph(self._operators, self._inputs, self._weights, outputs, is_inferred=True)
        return _without(graph, {f"{name}{_INPUT}{slot}" for name, slot in self._varying})

    def _pieces(self) -> int:
        """Return how many pieces the other side's graph cuts out of tensors that were dumped here."""
        if self._like is None:
            return 0
        dumped = {part for name in self._operators for part in _parts(name)}
        cutting = (each for each in self._like.operators.values() if each.op_type in DATA_FLOW)
        return sum(
            len(each.outputs) for each in cutting if any(source.name in dumped for source in each.inputs)
        )

    def _from_loops(self) -> int:
        """Return how many operators of the other side's graph read what a loop cuts out or puts together."""
        operators = () if self._like is None else self._like.operators.values()
        return sum(any(source.varies for source in each.inputs) for each in operators)

    def _unread(self) -> Iterator[ValueSource]:
        for name, operator in self._operators.items():
            for slot in range(len(operator.outputs)):
                source = ValueSource(SourceKind.OPERATOR, name, slot)
                if source not in self._read:
                    yield source


def _without(graph: OperatorGraph, weights: AbstractSet[str]) -> OperatorGraph:
    """Return a graph in which some values are no weights: other passes of a loop read others."""

    def told(source: ValueSource) -> ValueSource:
        is_one = source.kind is SourceKind.WEIGHT and source.name in weights
        return replace(ABSENT, varies=True) if is_one else source

    if not weights:
        return graph
    return replace(
        graph,
        operators={
            name: replace(each, inputs=tuple(map(told, each.inputs)))
            for name, each in graph.operators.items()
        },
        weights={name: form for name, form in graph.weights.items() if name not in weights},
    )


def _is_cut(reader: str, slot: int, like: OperatorGraph | None) -> bool:
    """Tell whether the other side's graph says that an input is cut out of values, or put together of them.

    Of a kernel that is fused there it says so only where no part reads anything that is fixed.
    """
    parts = [] if like is None else [like.operators.get(part) for part in _parts(reader)]
    known = [part for part in parts if part is not None]
    if like is None or not known or len(known) < len(parts):
        return False
    if len(known) == 1:
        return any(_is_piece(source, like) for source in known[0].inputs[slot : slot + 1])
    sources = [source for part in known for source in part.inputs]
    return not any(_is_fixed(source, like) for source in sources) and any(
        _is_piece(source, like) for source in sources
    )


def _is_piece(source: ValueSource, graph: OperatorGraph) -> bool:
    maker = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
    is_piece = source.varies or (maker is not None and maker.op_type in DATA_FLOW)
    return is_piece and not _is_fixed(source, graph)


def _is_fixed(source: ValueSource, graph: OperatorGraph) -> bool:
    return source.kind in FIXED or (source.kind is SourceKind.OPERATOR and graph.is_fixed(source.name))


def _spelled(name: str, like: OperatorGraph | None) -> str:
    """Return the name of an operator with the slashes of its scope, as far as another graph tells them.

    A fused operator is called as its first part, with the last components of the others behind it.
    """
    if like is None:
        return name
    known = like.find(name)
    if known is not None:
        return known.full_name
    scope, _, last = name.rpartition("_")
    parts = _PART.findall(last)
    first = like.find(f"{scope}_{parts[0]}") if parts else None
    return name if first is None else first.full_name + "".join(parts[1:])


def _parts(name: str) -> list[str]:
    """Return what the operators of a kernel are called, of which only the first has its scope in front.

    >>> _parts("Default/fc/MatMul-op0ReLU-op1")
    ['Default/fc/MatMul-op0', 'Default/fc/ReLU-op1']
    """
    scope, slash, last = name.rpartition("/")
    return [f"{scope}{slash}{part}" for part in _PART.findall(last)] or [name]


def _is_written(source: ValueSource) -> bool:
    return source.kind in {SourceKind.OPERATOR, SourceKind.INPUT}


def _form(tensor: DumpedOperand) -> ValueForm:
    # the type of a tensor on the device is not the one that the model gives the value
    shape = tensor.host_shape or (() if tensor.is_converted else tensor.shape)
    return ValueForm(shape=shape or None)


def tensor_key(tensor: DumpedOperand) -> Hashable | None:
    """Return what tensors of the same bits and type have in common, None where they cannot be read.

    Sums over the words of each part, one over all, and some elements, that show their order: that costs less
    than to read the tensor.
    """
    data = _bytes(tensor)
    if data is None:
        return None
    whole = data.size - data.size % _WORD
    words = data[:whole].view(np.uint64)
    starts = range(0, words.size, -(-words.size // _PARTS) or 1)
    sums = np.add.reduceat(words, starts).tobytes() if words.size else b""
    some = data[:: max(1, data.size // _SOME)].tobytes() + data[whole:].tobytes()
    return tensor.dtype, data.size, sums, int(np.bitwise_xor.reduce(words)), some


def _bytes(tensor: DumpedOperand) -> np.ndarray | None:
    try:
        array = np.ascontiguousarray(tensor.array)
    except (DumpReadError, FormatError):
        return None
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
