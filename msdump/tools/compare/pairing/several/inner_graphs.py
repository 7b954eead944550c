"""Graphs with their branches and loops inside of them, as graphs are that are compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.store.read.graphs.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueSource,
)
from msdump.tools.compare.pairing.dump_folder import COMPILED, Folder, FolderKind

_LOOP: Final = "Loop"


def are_inside(compiled: Folder, folder: Folder) -> bool:
    """Tell whether one directory holds branches and loops that the other one has beside it.

    >>> whole, graph = (Folder("", kind, {}) for kind in (FolderKind.DUMPS, FolderKind.TENSORS))
    >>> are_inside(whole, graph), are_inside(graph, graph)
    (True, False)

    Args:
        compiled: The directory that may be of a graph that was compiled as a whole.
        folder: The other one, which may be of one of MindSpore's graphs.
    """
    return compiled.kind in COMPILED and folder.kind is FolderKind.TENSORS


def run_by(graph: OperatorGraph, others: Mapping[str, OperatorGraph]) -> dict[str, OperatorGraph]:
    """Return the graphs of the branches and loops that a graph runs, and of those in these.

    Args:
        graph: The graph around them.
        others: Graphs by what they are called here; those that it does not run are left out.
    """
    found: dict[str, OperatorGraph] = {}
    around = [graph]
    while around:
        callers = around.pop().operators
        inside = {name: each for name, each in others.items() if each.caller in callers and name not in found}
        found |= inside
        around += inside.values()
    return found


def joined(folder: Folder, inner: Iterable[Folder]) -> Folder:
    """Return a directory with the files of others, all of them in the order in which their operators ran."""
    operators = dict(folder.operators)
    for each in inner:
        # inputs and weights have a file beside each graph that reads them
        operators |= {name: files for name, files in each.operators.items() if name not in operators}
    ordered = sorted(operators.items(), key=lambda item: item[1][-1].timestamp)
    return replace(folder, operators=dict(ordered))


def inlined(graph: OperatorGraph, inner: Iterable[OperatorGraph]) -> OperatorGraph:
    """Return a graph with the operators of branches and loops in the place of what runs these.

    What a loop reads first comes from the graph around it, and what it gives from its last pass: sources that
    lead into a branch or a loop, or out of it, say that other passes read other values (``varies``).

    Args:
        graph: The graph around them.
        inner: The graphs that ran.
    """
    inlining = _Inlining({each.number: each for each in (graph, *inner)})
    operators = {each.full_name: each for each in inlining.operators(graph)}
    weights = {name: form for each in inlining.graphs.values() for name, form in each.weights.items()}
    outputs = tuple(inlining.source(graph, each) for each in graph.outputs)
    return replace(graph, operators=operators, weights=weights, outputs=outputs)


def united(graphs: Sequence[OperatorGraph]) -> OperatorGraph:
    """Return the graphs of a network as one, those of branches and loops in the place of what runs them.

    Where no graph tells what runs another one, as in MindSpore's own files, nothing tells what it is given.

    Args:
        graphs: The graphs in the order of their numbers; the first one is a main graph.
    """
    first, *others = graphs
    inside = run_by(first, {str(each.number): each for each in others})
    whole = inlined(first, inside.values()) if inside else first
    beside = (each for each in others if str(each.number) not in inside)
    return _merged([whole, *map(_without_borders, beside)])


def apart(graphs: Sequence[OperatorGraph]) -> OperatorGraph:
    """Return the graphs of a network as one, without what runs branches and loops.

    So two networks are alike however they are divided into graphs: nothing tells what a graph is given by
    another one.

    Args:
        graphs: The graphs in the order of their numbers; the first one is a main graph.
    """
    first, *others = graphs
    return _merged([_without_calls(first), *(_without_borders(_without_calls(each)) for each in others)])


def _without_calls(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph without control flow; what that gives is not told."""
    calls = frozenset(name for name, each in graph.operators.items() if each.bodies)
    operators = {name: each for name, each in graph.operators.items() if name not in calls}
    return _untold(
        replace(graph, operators=operators),
        lambda source: source.kind is SourceKind.OPERATOR and source.name in calls,
    )


def _without_borders(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph of which is not told what it is given: names of inputs mean nothing in other graphs."""
    return _untold(replace(graph, inputs={}), lambda source: source.kind is SourceKind.INPUT)


def _untold(graph: OperatorGraph, is_untold: Callable[[ValueSource], bool]) -> OperatorGraph:
    def told(source: ValueSource) -> ValueSource:
        return replace(ABSENT, varies=True) if is_untold(source) else source

    operators = {
        name: replace(each, inputs=tuple(map(told, each.inputs))) for name, each in graph.operators.items()
    }
    return replace(graph, operators=operators, outputs=tuple(map(told, graph.outputs)))


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
    """A graph and those of its branches and loops, by number."""

    graphs: Mapping[int, OperatorGraph]

    def operators(self, graph: OperatorGraph) -> Iterator[GraphOperator]:
        """Yield the operators of a graph and of what it runs, without control flow."""
        for operator in graph.operators.values():
            bodies = self._bodies(operator)
            for body in bodies:
                yield from self.operators(body)
            if not bodies:
                yield replace(operator, inputs=tuple(self.source(graph, each) for each in operator.inputs))

    def source(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return where a value comes from that an operator of a graph reads, through control flow."""
        if source.kind is SourceKind.INPUT and graph.caller:
            return self._from_outside(graph, source)
        operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
        bodies = [] if operator is None else self._bodies(operator)
        if operator is None or not bodies:
            return source
        slot = source.slot + (operator.op_type == _LOOP)  # a body gives its condition first
        if len(bodies) > 1 or slot >= len(bodies[0].outputs):
            return replace(ABSENT, varies=True)
        return replace(self.source(bodies[0], bodies[0].outputs[slot]), varies=True)

    def _from_outside(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return where what a branch or a body reads from the graph around it comes from."""
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
    """Tell whether a value of a graph has a name; that of operators is known of their first outputs."""
    operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
    called = source.name if operator is None else operator.label
    return called == name and not source.slot
