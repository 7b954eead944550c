"""Judges the judge: whether an answer names the faults of a case, and no other operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from msdump.graph import Graph
from msdump.store import sanitize
from scripts.faults.answers import Accused, Sides, by_operator, order
from scripts.faults.faults import Fault, sites
from scripts.faults.trials import Case, touched


def guilty(fault: Fault, sides: Sides) -> frozenset[str]:
    """Return the nodes that stand for a fault: its own, and the kernels that hold them."""
    nodes = set(fault.nodes) | {node for node in _node_names(sides.mine.graph) if _is_added(node, fault)}
    nodes |= _joined(fault, sides) | _readers_of_folded(fault, sides)
    nodes |= {f"weight {sanitize(fault.weight)}"} if fault.weight else set()
    for graph in (sides.golden.graph, sides.mine.graph, sides.golden.graph):
        for members in by_operator(graph).values():
            if members & nodes and len(members) > 1:
                nodes |= members
    return frozenset(nodes | _carriers(fault, sides))


def _joined(fault: Fault, sides: Sides) -> set[str]:
    """Return the nodes of kernels that are put together otherwise where an operator is left out or added."""
    if fault.kind not in {"dropped", "inserted"}:
        return set()
    values = set().union(
        *(touched(onnx.load(side.model), fault.nodes) for side in (sides.golden, sides.mine))
    )
    sound = [set(members) for members in by_operator(sides.golden.graph).values()]
    beside: set[str] = set()
    for graph in sides.mine.graph.walk():
        for node in graph.nodes:
            members = {part.name for part in node.members}
            values_of = {value for part in node.members for value in (*part.inputs, *part.outputs)}
            if len(members) > 1 and members not in sound and values & values_of:
                beside |= members
    return beside


def _readers_of_folded(fault: Fault, sides: Sides) -> set[str]:
    """Return the readers of wrong constants that the compiler folds."""
    model, ran = onnx.load(sides.mine.model), set(_node_names(sides.mine.graph))
    wrong, made, readers = {fault.weight} - {""}, set[str](), set[str]()
    for node in (each.node for each in sites(model.graph)):
        if node.name not in ran:
            if node.name in fault.nodes or wrong & set(node.input):
                wrong |= set(node.output)
                made |= set(node.output)
        elif made & set(node.input):
            readers.add(node.name)
    return readers


def _node_names(graph: Graph) -> Iterator[str]:
    return (part.name for inner in graph.walk() for node in inner.nodes for part in node.members)


def _is_added(name: str, fault: Fault) -> bool:
    return any(name.startswith((f"{node}_narrowed", f"{node}_widened")) for node in fault.nodes)


def _carriers(fault: Fault, sides: Sides) -> frozenset[str]:
    """Return the operators that the device adds to bring a changed weight to who reads it."""
    if not fault.weight:
        return frozenset()
    found: set[str] = set()
    for graph in sides.mine.graph.walk():
        reached = {fault.weight}
        for node in graph.nodes:
            if reached & set(node.inputs) and node.is_added:
                found.add(node.name)
                reached |= set(node.outputs)
    return frozenset(found)


def violations(case: Case, found: list[Accused], sides: Sides, *, all_faults: bool) -> list[str]:
    """Return the violations of an answer: all faults and no others named, or the first (``all_faults``)."""
    if not case.faults:
        return [f"innocent accused: {listed(found)}"] if found else []
    by_fault = {number: guilty(fault, sides) for number, fault in enumerate(case.faults)}
    named = {number: [each for each in found if each.nodes & nodes] for number, nodes in by_fault.items()}
    innocent = [each for each in found if not any(each.nodes & nodes for nodes in by_fault.values())]
    if not all_faults:
        first = _first(case, sides)
        place = min((each.order for each in named[first]), default=None)
        if place is None:
            return [f"not named: {_text(case.faults[first])}; accused are {listed(found)}"]
        before = [each for each in innocent if each.order < place]
        return [f"accused before it: {listed(before)}"] if before else []
    wrong = [f"not named: {_text(case.faults[number])}" for number, rows in named.items() if not rows]
    for number, rows in named.items():
        verdicts = set(case.faults[number].verdicts)
        if case.faults[number].kind == "dropped" and len(by_fault[number]) > 1:
            verdicts.add("own")  # the kernel that it was a part of
        others = {each: nodes for each, nodes in by_fault.items() if each != number}
        if rows and not any(verdicts & _verdicts(row, case, others) for row in rows):
            wrong.append(f"misnamed: {_text(case.faults[number])} as {listed(rows)}")
    return [*wrong, *([f"innocent accused: {listed(innocent)}"] if innocent else [])]


def _verdicts(row: Accused, case: Case, others: Mapping[int, frozenset[str]]) -> set[str]:
    """Return the verdicts of an answer on a fault; verdicts in words only beside another fault's."""
    is_of_another = any(
        row.verdict in case.faults[number].verdicts and row.nodes & nodes for number, nodes in others.items()
    )
    return row.verdicts if is_of_another else {row.verdict}


def _first(case: Case, sides: Sides) -> int:
    """Return the number of the fault that the run met first."""
    places = order(sides.golden.graph)
    return min(
        range(len(case.faults)),
        key=lambda number: min(places.get(name, len(places)) for name in case.faults[number].nodes),
    )


def _text(fault: Fault) -> str:
    return f"[{fault.kind}] {fault.text}"


def listed(rows: list[Accused]) -> str:
    """Return the accused as messages name them."""
    return ", ".join(f"{each.operator} {each.verdict}" for each in rows[:6]) or "nobody"
