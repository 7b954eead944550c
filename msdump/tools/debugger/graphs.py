"""The graphs of a dump as the debugger sees them: one for each rank and number, with its iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msdump.record import IO
from msdump.store.read.graphs.operator_graph import OperatorGraph
from msdump.store.read.reader import Dump
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.overflow.records import Task, overflowed_tasks


@dataclass(frozen=True, eq=False)
class DumpedGraph:
    """A graph of one rank, with the iterations that were dumped of it.

    Attributes:
        rank: Number of the rank.
        number: Number of the graph.
        root: Number of the main graph where it is a branch or a body, else its own.
        name: Its name.
        iterations: Its iterations by number.
        operators: Its operators, None where the dump does not tell them.
    """

    rank: int
    number: int
    root: int
    name: str
    iterations: Mapping[int, Iteration] = field(repr=False)
    operators: OperatorGraph | None = field(repr=False)
    _overflowed: dict[int, Counter[Task]] = field(default_factory=dict, init=False, repr=False)

    def records(self, name: str, iteration: int) -> Sequence[Record]:
        """Return the tensors of an operator or a parameter in an iteration."""
        directory = self.iterations.get(iteration)
        return () if directory is None else directory.tensors_of(name)

    def record(self, name: str, iteration: int, io: IO, slot: int) -> Record | None:
        """Return a tensor of an operator, that of the last pass of a loop; None where it was not dumped."""
        same = (each for each in self.records(name, iteration) if (each.io, each.slot) == (io, slot))
        return max(same, key=lambda each: each.pass_number, default=None)

    def has_overflowed(self, record: Record) -> bool:
        """Tell whether the dump says that an operator overflowed when it wrote a tensor."""
        number = record.iteration
        if number not in self._overflowed:
            self._overflowed[number] = overflowed_tasks(self.iterations[number].overflows)
        return (record.name.task_id, record.name.stream_id) in self._overflowed[number]


def graphs(dump: Dump) -> Iterator[DumpedGraph]:
    """Yield the graphs of a dump, rank by rank; then compiled models, whose rank is the device.

    Raises:
        DumpReadError: A graph file cannot be read.
    """
    for rank in dump.ranks.values():
        for network in rank.networks.values():
            for number, graph in network.graphs.items():
                root = number if graph.main is None else graph.main
                yield DumpedGraph(
                    rank.number, number, root, _name(number), graph.iterations, graph.operator_graph
                )
    for model in (*dump.models, *dump.captured):
        number = model.model_id or 0
        iterations = {iteration.number: iteration for iteration in model.iterations}
        operators = next(iter(iterations.values())).operator_graph if iterations else None
        yield DumpedGraph(model.device, number, number, model.name or _name(number), iterations, operators)


def _name(number: int) -> str:
    return f"kernel_graph_{number}"
