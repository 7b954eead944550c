"""Operators of a dump with their tensors of one run, and what stands before and behind them in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from msdump.record import IO
from msdump.store import names
from msdump.store.read.graphs.operator_graph import (
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueSource,
)

if TYPE_CHECKING:
    from msdump.store.read.records import Record

_PARAMETERS: Final = frozenset({SourceKind.WEIGHT, SourceKind.INPUT})


class Surroundings(Protocol):
    """The directory of an iteration, with its graph."""

    @property
    def operator_graph(self) -> OperatorGraph | None:
        """The operators of its graph, None where the dump does not tell them."""

    def tensors_of(self, full_name: str) -> Sequence[Record]:
        """Return the tensors of an operator, or of a parameter, by its full name."""


@dataclass(frozen=True, slots=True)
class DumpedOperator:
    """An operator, a weight or a graph input, in one run of its graph.

    Attributes:
        full_name: Full scoped name; the plain name of a weight or a graph input.
        op_type: Operator type; "Parameter" for a weight or a graph input.
        node: What the graph file tells of an operator, None for a parameter.
        execution: Number of the execution of the network.
        pass_number: Number of the run within it, from 0: the pass of a loop.
    """

    full_name: str
    op_type: str
    node: GraphOperator | None = field(repr=False, compare=False)
    execution: int = field(repr=False)
    pass_number: int
    _directory: Surroundings = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The user's own line that made it, ``net.py:12: x = self.fc(x)``, "" where it is not known."""
        return "" if self.node is None else self.node.source_line

    @property
    def records(self) -> tuple[Record, ...]:
        """Its tensors that were dumped, inputs first; of a parameter without files what operators read."""
        tensors = self._directory.tensors_of(self.full_name)
        own = tuple(sorted(filter(self._is_of_run, tensors), key=lambda each: (each.io, each.slot)))
        return own if own or self.node is not None else tuple(self._read_by_others())

    def _is_of_run(self, record: Record) -> bool:
        if record.execution != self.execution or (self.node is None) is not record.is_parameter:
            return False
        return record.is_parameter or record.pass_number == self.pass_number

    def _read_by_others(self) -> Iterator[Record]:
        for reader in self.used_by:
            sources = () if reader.node is None else reader.node.inputs
            slots = {number for number, source in enumerate(sources) if source.name == self.full_name}
            yield from (record for record in reader.inputs if record.slot in slots)

    @property
    def inputs(self) -> tuple[Record, ...]:
        """Its inputs that were dumped."""
        return tuple(record for record in self.records if record.io is IO.INPUT)

    @property
    def outputs(self) -> tuple[Record, ...]:
        """Its outputs that were dumped."""
        return tuple(record for record in self.records if record.io is IO.OUTPUT)

    @property
    def inputs_from(self) -> tuple[DumpedOperator, ...]:
        """What it reads, in the order of its inputs: operators, weights and graph inputs, no constants."""
        sources = () if self.node is None else self.node.inputs
        return tuple(dict.fromkeys(each for source in sources for each in self.giver(source)))

    @property
    def used_by(self) -> tuple[DumpedOperator, ...]:
        """The operators that read an output of it, in the graph's order."""
        return self.readers(None)

    def giver(self, source: ValueSource) -> Iterator[DumpedOperator]:
        """Yield what gives an input, nothing for a constant and for an input that is not there."""
        graph = self._directory.operator_graph
        if source.kind in _PARAMETERS:
            yield self._beside(source.name, names.PARAMETER, None)
        elif source.kind is SourceKind.OPERATOR and graph is not None and source.name in graph.operators:
            node = graph.operators[source.name]
            yield self._beside(node.full_name, node.op_type, node)

    def readers(self, slot: int | None) -> tuple[DumpedOperator, ...]:
        """Return the operators that read one of its outputs, None: any."""
        graph = self._directory.operator_graph
        if graph is None:
            return ()
        name = self.full_name
        nodes = graph.readers_of(name) if self.node is None else graph.used_by(name, slot)
        return tuple(self._beside(node.full_name, node.op_type, node) for node in nodes)

    def _beside(self, full_name: str, op_type: str, node: GraphOperator | None) -> DumpedOperator:
        return DumpedOperator(full_name, op_type, node, self.execution, self.pass_number, self._directory)

    def __str__(self) -> str:
        """Return ``Conv2D Default/conv1-Conv2d/Conv2D-op0``."""
        return f"{self.op_type} {self.full_name}"
