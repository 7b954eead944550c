"""Graphs with the branches and loops that they run inlined, and directories joined likewise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.read import ABSENT, Folder, GraphOperator, OperatorGraph, SourceKind, ValueSource

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
