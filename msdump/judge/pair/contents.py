"""Graphs of dumped operators, inferred from the contents of tensors, or with branches and loops inlined."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from msdump.device import DATA_FLOW
from msdump.errors import DumpReadError, FormatError
from msdump.judge.pair.sides import READ_AT, joined_parts
from msdump.read import (
    ABSENT,
    FIXED,
    Folder,
    GraphOperator,
    OperatorGraph,
    Record,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.record import IO
from msdump.store import names, operator_names

_NO_OPERATORS: Final = frozenset({names.PARAMETER, operator_names.OP_DEBUG.op_type, "Data", "Const"})
_LOOSE: Final = 0.1
"""Tensors that nothing wrote and that are no weights, for each operator, where all of them were dumped."""

_WORD: Final = 8  # bytes
_PARTS: Final = 64
_LARGE: Final = 1 << 16  # bytes; a smaller tensor is hashed in full at once
_SAMPLES: Final = 16  # stretches in a tensor's sample
_STRETCH: Final = 64  # bytes of a stretch
_SOME: Final = 1021  # single bytes in a tensor's key, beside the sums


def graph_of_contents(folder: Folder, like: OperatorGraph | None = None) -> OperatorGraph | None:
    """Return the graph of a compiled network, inferred from its tensors' contents; None if not possible.

    An input with the bits of an output that was written before is taken to be that output; any other input
    is a weight or an input of the network. If an operator ran several times, its first run counts. If many
    operators read tensors that no operator wrote, the dump is incomplete, and the result is None.

    Args:
        folder: A directory of operators.
        like: The other side's graph, which has the names with slashes (files have underscores instead).
    """
    if not folder.kind.is_compiled:  # other directories have graph files, or were cut out of a dump
        return None
    writer = _Writer(like or OperatorGraph({}))
    for tensors in sorted(_runs(folder), key=lambda tensors: (tensors[-1].timestamp, tensors[-1].path)):
        first, in_order = tensors[0], sorted(tensors, key=lambda each: (each.io, each.slot))
        try:
            values = [_value(each) for each in in_order]
        except DumpReadError:  # reported where the tensors are compared
            continue
        if first.pass_number:
            writer.add_pass(first.op_name, values)
        elif first.op_type in _NO_OPERATORS:
            writer.add_input(first.op_name, values)
        else:
            writer.add(first.op_name, first.op_type, values)
    return writer.graph()


def _runs(folder: Folder) -> Iterator[list[Record]]:
    for tensors in folder.operators.values():
        by_pass: dict[int, list[Record]] = {}
        for each in tensors:
            by_pass.setdefault(each.pass_number, []).append(each)
        yield from by_pass.values()


class _Bits:
    """Elements of a dumped tensor: hashed by a sample, compared in full.

    In a dump without inputs few tensors share a sample, so most files need not be read in full.
    """

    def __init__(self, tensor: Record, dtype: str, data: np.ndarray) -> None:
        step = max(data.size // _SAMPLES, 1)
        stretches = b"".join(data[start : start + _STRETCH].tobytes() for start in range(0, data.size, step))
        self._sample = dtype, data.size, stretches
        self._tensor = tensor  # reads its file again, so that the file is not kept open
        if data.size < _LARGE:
            self._key = _key_of(dtype, data)

    def __hash__(self) -> int:
        return hash(self._sample)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bits) and self._sample == other._sample and self._key == other._key

    @cached_property
    def _key(self) -> Hashable | None:
        try:
            return tensor_key(self._tensor)
        except DumpReadError:  # the file has disappeared since its sample was read
            return None


class _Value(NamedTuple):
    """A dumped tensor: side, number, shape, and its elements (``bits``, None if unreadable)."""

    io: IO
    slot: int
    form: ValueForm
    bits: _Bits | None


def _value(tensor: Record) -> _Value:
    # no element type in the form: on the device it may be another one than in the model
    opened = tensor.loaded()
    shape = opened.host_shape or (() if opened.is_converted else opened.shape)
    data = _bytes(opened)
    bits = None if data is None else _Bits(tensor, opened.dtype, data)
    return _Value(tensor.io, tensor.slot, ValueForm(shape=shape or None), bits)


class _Writer:
    """Builds a graph from operators in the order in which they ran."""

    def __init__(self, like: OperatorGraph) -> None:
        self._like = like
        self._operators: dict[str, GraphOperator] = {}
        self._inputs: dict[str, ValueForm] = {}
        self._weights: dict[str, ValueForm] = {}
        self._written: dict[Hashable, ValueSource] = {}  # latest source by bits
        self._read: set[ValueSource] = set()
        self._foreign: set[Hashable] = set()
        self._guessed: dict[tuple[str, int], _Value] = {}  # presumed weights by reader and slot
        self._varying: set[tuple[str, int]] = set()

    def add_input(self, name: str, values: Iterable[_Value]) -> None:
        for value in values:
            self._inputs[name] = value.form
            if value.io is IO.OUTPUT:
                self._write(value, ValueSource(SourceKind.INPUT, name))

    def add(self, name: str, op_type: str, values: Sequence[_Value]) -> None:
        name = _spelled(name, self._like)
        sides: Mapping[IO, dict[int, _Value]] = {io: {} for io in IO}
        for value in values:
            sides[value.io][value.slot] = value
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
        """Add a later pass of an operator in a loop; an input that varies between passes is no weight."""
        name, values = _spelled(name, self._like), list(values)
        self._add_outputs(name, (each for each in values if each.io is IO.OUTPUT))
        for value in values:
            first = self._guessed.get((name, value.slot)) if value.io is IO.INPUT else None
            if first is not None and first.bits != value.bits:
                self._varying.add((name, value.slot))

    def _add_outputs(self, name: str, outputs: Iterable[_Value]) -> None:
        for value in outputs:
            self._write(value, ValueSource(SourceKind.OPERATOR, name, value.slot))

    def _write(self, value: _Value, source: ValueSource) -> None:
        if value.bits is not None:
            self._written[value.bits] = replace(source, is_guessed=value.bits in self._written)

    def _sources(self, reader: str, inputs: Mapping[int, _Value]) -> tuple[ValueSource, ...]:
        """Return the sources of an operator's inputs; unwritten inputs are weights if another was written.

        If no input was written before, all may be outputs of Split or Concat, of which compiled networks have
        no files: the sources are unknown.
        """
        written = {SourceKind.OPERATOR, SourceKind.INPUT}
        has_written = any(self._written.get(each.bits, ABSENT).kind in written for each in inputs.values())
        if inputs and not has_written:
            self._foreign.add(next(iter(inputs.values())).bits)
        sources = [ABSENT] * (max(inputs, default=-1) + 1)
        for slot, value in inputs.items():
            source = self._written.get(value.bits)
            is_known = source is not None or value.bits is None or not has_written
            if not is_known and not _is_cut(reader, slot, self._like):
                weight = f"{reader}{READ_AT}{slot}"
                self._weights[weight] = value.form
                self._guessed[reader, slot] = value
                source = ValueSource(SourceKind.WEIGHT, weight)
                self._write(value, source)
            sources[slot] = source or ABSENT
        return tuple(sources)

    def graph(self) -> OperatorGraph | None:
        """Return the graph, with unread values as its outputs; None if too few sources are known."""
        reading = [each for each in self._operators.values() if each.inputs]
        known = self._pieces() + self._from_loops()
        if not reading or len(self._foreign) > max(1, _LOOSE * len(reading)) + known:
            return None
        outputs = tuple(
            source
            for name, operator in self._operators.items()
            for slot in range(len(operator.outputs))
            if (source := ValueSource(SourceKind.OPERATOR, name, slot)) not in self._read
        )
        graph = OperatorGraph(self._operators, self._inputs, self._weights, outputs, is_inferred=True)
        return _without(graph, {f"{name}{READ_AT}{slot}" for name, slot in self._varying})

    def _pieces(self) -> int:
        """Count the outputs of the other side's Split, Concat and alike that read operators of this dump."""
        dumped = {part for name in self._operators for part in _parts(name)}
        cutting = (each for each in self._like.operators.values() if each.op_type in DATA_FLOW)
        return sum(
            len(each.outputs) for each in cutting if any(source.name in dumped for source in each.inputs)
        )

    def _from_loops(self) -> int:
        """Count the operators of the other side's graph with an input that varies between a loop's passes."""
        return sum(any(source.varies for source in each.inputs) for each in self._like.operators.values())


def _without(graph: OperatorGraph, weights: AbstractSet[str]) -> OperatorGraph:
    if not weights:
        return graph
    kept = {name: form for name, form in graph.weights.items() if name not in weights}
    told = _untold(graph, lambda source: source.kind is SourceKind.WEIGHT and source.name in weights)
    return replace(told, weights=kept)


def _is_cut(reader: str, slot: int, like: OperatorGraph) -> bool:
    """Return whether an input is split from, or concatenated of, other tensors in the other side's graph.

    For a kernel that is fused in this dump, False if any part reads a weight or a constant.
    """
    parts = _parts(reader)
    known = [like.operators[part] for part in parts if part in like.operators]
    if len(known) < len(parts):
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


def _spelled(name: str, like: OperatorGraph) -> str:
    """Return an operator's name with the slashes of its scope, if another graph has the operator.

    A fused operator's name is that of its first part, followed by the last components of the other parts.
    """
    known = like.find(name)
    if known is not None:
        return known.full_name
    scope, _, last = name.rpartition("_")
    parts = joined_parts(last)
    first = like.find(f"{scope}_{parts[0]}") if parts else None
    return name if first is None else first.full_name + "".join(parts[1:])


def _parts(name: str) -> list[str]:
    """Return the names of a fused operator's parts; only the first one has the scope in front.

    >>> _parts("Default/fc/MatMul-op0ReLU-op1")
    ['Default/fc/MatMul-op0', 'Default/fc/ReLU-op1']
    """
    scope, slash, last = name.rpartition("/")
    return [f"{scope}{slash}{part}" for part in joined_parts(last)] or [name]


def tensor_key(tensor: Record) -> Hashable | None:
    """Return a key that tensors of the same bits and type share; None if the file cannot be read.

    The key has the sum of the words of each of 64 parts, their XOR, and sampled bytes, which show the order
    of elements: cheaper than a digest.
    """
    data = _bytes(tensor)
    return None if data is None else _key_of(tensor.dtype, data)


def _key_of(dtype: str, data: np.ndarray) -> Hashable:
    whole = data.size - data.size % _WORD
    words = data[:whole].view(np.uint64)
    starts = range(0, words.size, -(-words.size // _PARTS) or 1)
    sums = np.add.reduceat(words, starts).tobytes() if words.size else b""
    some = data[:: max(1, data.size // _SOME)].tobytes() + data[whole:].tobytes()
    return dtype, data.size, sums, int(np.bitwise_xor.reduce(words)), some


def _bytes(tensor: Record) -> np.ndarray | None:
    try:
        array = np.ascontiguousarray(tensor.elements)
    except (DumpReadError, FormatError):
        return None
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


_LOOP: Final = "Loop"


def graphs_run_by(graph: OperatorGraph, others: Mapping[str, OperatorGraph]) -> dict[str, OperatorGraph]:
    """Return the graphs of all branches and loops that a graph runs, nested ones too.

    Args:
        graph: The graph around them.
        others: Candidates by key; graphs that it does not run are left out.
    """
    found: dict[str, OperatorGraph] = {}
    around = [graph]
    while around:
        callers = around.pop().operators
        inside = {name: each for name, each in others.items() if each.caller in callers and name not in found}
        found |= inside
        around += inside.values()
    return found


def join_folders(folder: Folder, inner: Iterable[Folder]) -> Folder:
    """Return a directory with the files of others added, in the order in which the operators ran."""
    operators = dict(folder.operators)
    for each in inner:
        # inputs and weights have a file in the directory of each graph that reads them
        operators |= {name: files for name, files in each.operators.items() if name not in operators}
    ordered = sorted(operators.items(), key=lambda item: item[1][-1].timestamp)
    return replace(folder, operators=dict(ordered))


def unite_graphs(graphs: Sequence[OperatorGraph], *, has_calls: bool = True) -> OperatorGraph:
    """Merge the graphs of a network into one, with branches and loop bodies inlined for their operators.

    An inlined input has its source in the first pass of the loop, and a result its source in the last pass;
    both are marked ``varies``, since other passes read other values. MindSpore's own files do not record the
    caller of a graph: the inputs of the graph are unknown then.

    Args:
        graphs: The graphs in the order of their numbers; the first one is a main graph.
        has_calls: Whether control flow operators are followed. If not, they are dropped, and values that pass
            between graphs are unknown: one network divided into graphs in two ways then looks alike.
    """
    first, *others = graphs if has_calls else map(_without_calls, graphs)
    inside = graphs_run_by(first, {str(each.number): each for each in others})
    beside = (_without_borders(each) for each in others if str(each.number) not in inside)
    return _merged([_inlined(first, inside.values()) if inside else first, *beside])


def _inlined(graph: OperatorGraph, inner: Iterable[OperatorGraph]) -> OperatorGraph:
    inlining = _Inlining({each.number: each for each in (graph, *inner)})
    operators = {each.full_name: each for each in inlining.operators(graph)}
    weights = {name: form for each in inlining.graphs.values() for name, form in each.weights.items()}
    outputs = tuple(inlining.source(graph, each) for each in graph.outputs)
    return replace(graph, operators=operators, weights=weights, outputs=outputs)


def _without_calls(graph: OperatorGraph) -> OperatorGraph:
    calls = frozenset(name for name, each in graph.operators.items() if each.bodies)
    operators = {name: each for name, each in graph.operators.items() if name not in calls}
    return _untold(
        replace(graph, operators=operators),
        lambda source: source.kind is SourceKind.OPERATOR and source.name in calls,
    )


def _without_borders(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph without its inputs, with unknown sources instead: their names are local to the graph."""
    return _untold(replace(graph, inputs={}), lambda source: source.kind is SourceKind.INPUT)


def _untold(graph: OperatorGraph, is_untold: Callable[[ValueSource], bool]) -> OperatorGraph:
    return graph.with_sources(lambda source: replace(ABSENT, varies=True) if is_untold(source) else source)


def _merged(graphs: Sequence[OperatorGraph]) -> OperatorGraph:
    first, *others = graphs
    return replace(
        first,
        operators={name: each for graph in graphs for name, each in graph.operators.items()},
        inputs={name: form for graph in (*others, first) for name, form in graph.inputs.items()},
        weights={name: form for graph in (*others, first) for name, form in graph.weights.items()},
        outputs=tuple(source for graph in graphs for source in graph.outputs),
    )


@dataclass(frozen=True, slots=True)
class _Inlining:
    graphs: Mapping[int, OperatorGraph]

    def operators(self, graph: OperatorGraph) -> Iterator[GraphOperator]:
        for operator in graph.operators.values():
            bodies = self._bodies(operator)
            for body in bodies:
                yield from self.operators(body)
            if not bodies:
                yield replace(operator, inputs=tuple(self.source(graph, each) for each in operator.inputs))

    def source(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return the source of a value that an operator reads, followed through control flow."""
        if source.kind is SourceKind.INPUT and graph.caller:
            return self._from_outside(graph, source)
        operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
        bodies = [] if operator is None else self._bodies(operator)
        if operator is None or not bodies:
            return source
        slot = source.slot + (operator.op_type == _LOOP)  # output 0 of a body is the loop's condition
        if len(bodies) > 1 or slot >= len(bodies[0].outputs):
            return replace(ABSENT, varies=True)
        return replace(self.source(bodies[0], bodies[0].outputs[slot]), varies=True)

    def _from_outside(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return the source of a value that a branch or body reads from the graph around it."""
        outer = next(each for each in self.graphs.values() if graph.caller in each.operators)
        caller = outer.operators[graph.caller]
        place = [*graph.inputs].index(source.name) if source.name in graph.inputs else 0
        captured = (each for each in caller.inputs if _is_called(each, outer, source.name))
        found = next(captured, None)
        if found is None and caller.op_type == _LOOP and 0 < place < len(caller.inputs):
            found = caller.inputs[place]
        return replace(ABSENT if found is None else self.source(outer, found), varies=True)

    def _bodies(self, operator: GraphOperator) -> list[OperatorGraph]:
        return [self.graphs[number] for number in operator.bodies.values() if number in self.graphs]


def _is_called(source: ValueSource, graph: OperatorGraph, name: str) -> bool:
    operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
    called = source.name if operator is None else operator.label
    return called == name and not source.slot
