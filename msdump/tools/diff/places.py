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
class KnownPlaces:
    """What is the same of the places of a network's operators in every run; each is made once.

    Attributes:
        graph: The graph that runs.
    """

    graph: Graph
    _looping: frozenset[int] = field(init=False)
    _nodes: dict[str, Node] = field(init=False)
    _sources: dict[int, dict[str, ValueSource]] = field(default_factory=dict)
    _ran: dict[tuple[int, str], tuple[OperatorPlace, tuple[ValueSource, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the bodies that may run several times."""
        nodes = [node for graph in self.graph.walk() for node in graph.nodes]
        self._nodes = {node.name: node for node in nodes}
        loops = (node for node in nodes if node.op_type in _LOOPS)
        self._looping = frozenset(body.index for node in loops for body in node.bodies.values())

    def of(self, node: Node) -> OperatorPlace:
        """Return the place of an operator that has not run."""
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
            iteration=0,
        )

    def of_ran(self, ran: Ran) -> tuple[OperatorPlace, tuple[ValueSource, ...]]:
        """Return the place of an operator as if it had not run, and where its inputs come from, by slot."""
        key = ran.graph.index, ran.node.name
        known = self._ran.get(key)
        if known is None:
            sources = self._sources.get(ran.graph.index)
            if sources is None:
                sources = self._sources[ran.graph.index] = _sources(ran.graph)
            reads = tuple(sources.get(name, ABSENT) for name in ran.node.inputs)
            known = self._ran[key] = (self.of(ran.node), reads)
        return known

    def is_repeated(self, ran: Ran) -> bool:
        """Tell whether an operator ran in a body that may run several times."""
        return any(index in self._looping for index, _ in ran.scope)


@dataclass(slots=True)
class Places:
    """The places of a network's operators in one of its runs.

    Attributes:
        known: What every run has in common.
        iteration: Number of the run.
        before: Number of operators in the runs before.
        count: Number of operators so far.
    """

    known: KnownPlaces
    iteration: int
    before: int = 0
    count: int = 0
    _passes: Counter[str] = field(default_factory=Counter)

    def next(self, ran: Ran) -> tuple[OperatorPlace, tuple[ValueSource, ...]]:
        """Return the place of the operator that ran next, and where its inputs come from, by slot."""
        self.count += 1
        known, reads = self.known.of_ran(ran)
        number = self._passes[ran.node.name]
        self._passes[ran.node.name] = number + 1
        place = OperatorPlace(  # ``replace`` would take three times as long
            known.name,
            known.op_type,
            known.full_name,
            known.onnx_name,
            known.scope,
            known.source,
            self.iteration,
            pass_number=number if self.known.is_repeated(ran) else None,
            order=self.count,
            time=self.before + self.count,  # clocks tell nothing: the order of both sides is that of lockstep
        )
        return place, reads


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
