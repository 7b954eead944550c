"""Nodes of a dumped graph and their tensors, in the words of MindInsight's debugger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msdump.record import IO
from msdump.store.names import PARAMETER
from msdump.store.read.graphs.operator_graph import GraphOperator, SourceKind, ValueSource
from msdump.store.read.measured.records import MeasuredRecord
from msdump.store.read.records import Record
from msdump.tools.debugger.graphs import DumpedGraph


@dataclass(frozen=True, slots=True)
class DebuggerNode:
    """An operator, a weight or a graph input of a dumped graph.

    Attributes:
        name: Full name; the plain name of a weight or a graph input.
        op_type: Operator type; "Parameter" for a weight or a graph input.
    """

    name: str
    op_type: str
    _graph: DumpedGraph = field(repr=False)
    _operator: GraphOperator | None = field(default=None, repr=False, compare=False)

    @property
    def rank(self) -> int:
        """Number of its rank."""
        return self._graph.rank

    @property
    def graph_name(self) -> str:
        """Name of its graph."""
        return self._graph.name

    @property
    def root_graph_id(self) -> int:
        """Number of the main graph."""
        return self._graph.root

    @property
    def stack(self) -> list[dict[str, Any]]:
        """The source lines that made it, outermost call first: file_path, line_no and code_line."""
        lines = () if self._operator is None else self._operator.source
        return [{"file_path": each.file, "line_no": each.line, "code_line": each.code} for each in lines]

    def get_output_tensors(
        self, iterations: Iterable[int] | None = None, slots: Iterable[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return its outputs.

        Args:
            iterations: Numbers of the iterations; None: all that were dumped.
            slots: Numbers of the outputs, None: all.
        """
        chosen = [*self._graph.iterations] if iterations is None else [*iterations]
        wanted = None if slots is None else {*slots}
        return [
            DebuggerTensor(self, slot, iteration)
            for iteration in chosen
            if iteration in self._graph.iterations
            for slot in self._output_slots(iteration)
            if wanted is None or slot in wanted
        ]

    def get_input_tensors(
        self, iterations: Iterable[int] | None = None, slots: Iterable[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return what it reads: the outputs of other nodes; of constants nothing is known.

        Args:
            iterations: Numbers of the iterations; None: all that were dumped.
            slots: Numbers of the inputs, None: all.
        """
        sources = () if self._operator is None else self._operator.inputs
        wanted = range(len(sources)) if slots is None else [*slots]
        chosen = [*self._graph.iterations] if iterations is None else [*iterations]
        givers = [
            (giver, sources[slot].slot)
            for slot in wanted
            if 0 <= slot < len(sources)
            for giver in self._giver(sources[slot])
        ]
        return [
            DebuggerTensor(giver, slot, iteration)
            for iteration in chosen
            if iteration in self._graph.iterations
            for giver, slot in givers
        ]

    def _output_slots(self, iteration: int) -> Sequence[int]:
        if self._operator is not None and self._operator.outputs:
            return range(len(self._operator.outputs))
        if self._graph.operators is not None and self.op_type == PARAMETER:
            return [0]
        # without a graph file the dumped tensors tell
        records = self._graph.records(self.name, iteration)
        return sorted({record.slot for record in records if record.io is IO.OUTPUT})

    def inputs(self) -> list[DebuggerNode]:
        """Return the nodes that it reads, each once, in the order of its inputs."""
        sources = () if self._operator is None else self._operator.inputs
        return list(dict.fromkeys(giver for source in sources for giver in self._giver(source)))

    def outputs(self, slot: int | None = None) -> list[DebuggerNode]:
        """Return the nodes that read one of its outputs, None: any."""
        graph = self._graph.operators
        if graph is None:
            return []
        is_parameter = self.op_type == PARAMETER
        readers = graph.readers_of(self.name) if is_parameter else graph.used_by(self.name, slot)
        return [of_operator(reader, self._graph) for reader in readers]

    def _giver(self, source: ValueSource) -> Iterator[DebuggerNode]:
        if source.kind in {SourceKind.WEIGHT, SourceKind.INPUT}:
            yield DebuggerNode(source.name, PARAMETER, self._graph)
        graph = self._graph.operators
        if source.kind is SourceKind.OPERATOR and graph is not None and source.name in graph.operators:
            yield of_operator(graph.operators[source.name], self._graph)

    def find(self, iteration: int, io: IO, slot: int) -> Record | None:
        """Return one of its tensors, None where it was not dumped; for an output what a reader has read."""
        record = self._graph.record(self.name, iteration, io, slot)
        if record is not None or io is IO.INPUT:
            return record
        reads = (
            self._graph.record(reader.name, iteration, IO.INPUT, number)
            for reader in self.outputs(slot)
            for number in reader.slots_of(self.name, slot)
        )
        return next((each for each in reads if each is not None), None)

    def slots_of(self, name: str, slot: int) -> list[int]:
        """Return the numbers of its inputs that are an output of a node."""
        sources = () if self._operator is None else self._operator.inputs
        return [number for number, each in enumerate(sources) if (each.name, each.slot) == (name, slot)]

    def has_overflowed(self, record: Record) -> bool:
        """Tell whether the dump says that it overflowed when it wrote a tensor."""
        return self._graph.has_overflowed(record)

    def __str__(self) -> str:
        """Return rank, graph and name, a line each."""
        return f"rank: {self.rank}\ngraph_name: {self.graph_name}\nnode_name: {self.name}"


@dataclass(frozen=True, slots=True)
class DebuggerTensor:
    """An output of a node in one iteration.

    Attributes:
        node: The node.
        slot: Number of the output.
        iteration: Number of the iteration.
    """

    node: DebuggerNode
    slot: int
    iteration: int

    @property
    def rank(self) -> int:
        """Number of its rank."""
        return self.node.rank

    @property
    def record(self) -> Record | None:
        """Its file, None where it was not dumped; in a loop that of the last pass."""
        return self.node.find(self.iteration, IO.OUTPUT, self.slot)

    def value(self) -> np.ndarray | None:
        """Return its elements in the host's layout, None where they were not dumped.

        Raises:
            DumpReadError: Its file cannot be read.
        """
        record = self.record
        return None if record is None or isinstance(record, MeasuredRecord) else record.host

    def __str__(self) -> str:
        """Return rank, graph, node, slot and iteration, a line each."""
        return f"{self.node}\nslot: {self.slot}\niteration: {self.iteration}"


def of_operator(operator: GraphOperator, graph: DumpedGraph) -> DebuggerNode:
    """Return the node of an operator."""
    return DebuggerNode(operator.full_name, operator.op_type, graph, operator)


def nodes(graph: DumpedGraph) -> Iterator[DebuggerNode]:
    """Yield the weights and inputs of a graph, then its operators in the order of execution.

    Raises:
        DumpReadError: Where there is no graph file: a directory cannot be read.
    """
    if graph.operators is None:
        yield from _of_files(graph)
        return
    for name in (*graph.operators.inputs, *graph.operators.weights):
        yield DebuggerNode(name, PARAMETER, graph)
    for operator in graph.operators.operators.values():
        yield of_operator(operator, graph)


def _of_files(graph: DumpedGraph) -> Iterator[DebuggerNode]:
    operators = (
        (record.full_name or record.op_name, record.op_type)
        for iteration in graph.iterations.values()
        for record in iteration.tensors
    )
    for name, op_type in dict.fromkeys(operators):
        yield DebuggerNode(name, op_type, graph)
