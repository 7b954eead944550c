"""Where an operator of a network stands: its names, its line in the source, and when it ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from msdump.graph.graph import Graph, Node
from msdump.store import names
from msdump.store.read.graphs.operator_graph import ABSENT, GraphOperator, SourceKind, ValueSource
from msdump.tools.diff.lockstep import Ran
from msdump.tools.judge.evidence import OperatorPlace

_LOOPS: Final = frozenset({"Loop", "Scan"})


@dataclass(slots=True)
class Places:
    """The places of a network's operators in one of its runs.

    Attributes:
        graph: The graph that runs.
        iteration: Number of the run.
        before: Number of operators in the runs before.
        count: Number of operators so far.
    """

    graph: Graph
    iteration: int
    before: int = 0
    count: int = 0
    _passes: Counter[str] = field(default_factory=Counter)
    _looping: frozenset[int] = field(init=False)
    _nodes: dict[str, Node] = field(init=False)
    _sources: dict[int, dict[str, ValueSource]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the bodies that may run several times."""
        nodes = [node for graph in self.graph.walk() for node in graph.nodes]
        self._nodes = {node.name: node for node in nodes}
        loops = (node for node in nodes if node.op_type in _LOOPS)
        self._looping = frozenset(body.index for node in loops for body in node.bodies.values())

    def next(self, ran: Ran) -> OperatorPlace:
        """Return the place of the operator that ran next."""
        self.count += 1
        node = ran.node
        number = self._passes[node.name]
        self._passes[node.name] += 1
        is_repeated = any(index in self._looping for index, _ in ran.scope)
        return self.of(node, order=self.count, pass_number=number if is_repeated else None)

    def of(self, node: Node, *, order: int = 0, pass_number: int | None = None) -> OperatorPlace:
        """Return the place of an operator.

        Args:
            node: The operator.
            order: Place in the execution, from 1; 0 for one that has not run.
            pass_number: Which of its runs it is, None where it runs once.
        """
        operator = node.operator
        forward = self._nodes.get(node.forward)
        lines = node.source or (forward.source if forward is not None else ())
        return OperatorPlace(
            names.sanitize(operator.full_name),
            operator.op_type,
            full_name=operator.full_name,
            onnx_name="+".join(part.name for part in node.members),
            scope=node.scope,
            source=GraphOperator(operator.full_name, operator.op_type, source=lines).source_line,
            iteration=self.iteration,
            pass_number=pass_number,
            order=order,
            time=self.before + order,  # clocks tell nothing: the order of both sides is that of lockstep
        )

    def reads(self, ran: Ran) -> tuple[ValueSource, ...]:
        """Return where the inputs of an operator come from, by slot."""
        index = ran.graph.index
        if index not in self._sources:
            self._sources[index] = _sources(ran.graph)
        sources = self._sources[index]
        return tuple(sources.get(name, ABSENT) for name in ran.node.inputs)


def _sources(graph: Graph) -> dict[str, ValueSource]:
    """Return what gives each value of a graph; another form of one comes from its writer, too."""
    sources = {value.name: ValueSource(SourceKind.INPUT, value.name) for value in graph.inputs}
    sources |= {name: ValueSource(SourceKind.WEIGHT, name) for name in graph.weights}
    for node in graph.nodes:
        for slot, name in enumerate(node.outputs):
            own = ValueSource(SourceKind.OPERATOR, node.operator.full_name, slot)
            sources[name] = sources.get(node.inputs[0], own) if node.is_added else own
    sources.pop("", None)
    return sources
