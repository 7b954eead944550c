"""What a plan selects of a model, and which ``kernels`` items select nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msdump.capture import selection
from msdump.capture.compiled_dump import full_names, select_compiled
from msdump.execute.compilation import emulated
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, JitLevel, KernelPattern, PatternKind, Tree
from msdump.record import OperatorRef
from msdump.session import file_stem


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An item of ``kernels`` that selects nothing.

    Attributes:
        item: The item as the user wrote it.
        hint: What may have been meant, "" where nothing is close.
    """

    item: str
    hint: str


@dataclass(frozen=True, slots=True)
class Matches:
    """What a plan selects of a model.

    Attributes:
        kernels: Operators in execution order; those of branches and loops follow the main graph's.
        parameters: Weights and graph inputs (CPU and GPU).
        unmatched: Items that select nothing.
        count: Operators that run, dumped or not: those that the device has made of the model's.
        is_compiled: The device has changed the graph.
    """

    kernels: tuple[OperatorRef, ...]
    parameters: tuple[str, ...]
    unmatched: tuple[Unmatched, ...]
    count: int
    is_compiled: bool


def matches(graph: Graph, plan: DumpPlan) -> Matches:
    """Return what a plan selects of a model, branches and loops included; ``set_dump`` marks nothing."""
    if plan.tree is not Tree.RANKS:
        return _compiled(graph, plan)
    device = emulated(graph, plan, plan.context)
    graph = graph if device is None else device.graph
    selections = [(inner, selection.select(inner, plan, frozenset())) for inner in graph.walk()]
    has_parameters = plan.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
    names = list(selection.selectable(graph, plan))
    types = {node.operator.op_type for inner in graph.walk() for node in inner.operators}
    used = selection.used_items(plan, names)
    return Matches(
        tuple(operator for inner, chosen in selections for operator in _watched(inner, chosen)),
        tuple(name for _, chosen in selections for name in chosen.parameters) if has_parameters else (),
        tuple(
            Unmatched(pattern.item, _hint(pattern, names, types))
            for pattern in plan.selector.patterns
            if pattern.item not in used
        ),
        sum(len(inner.operators) for inner in graph.walk()),
        is_compiled=plan.context.jit_level is JitLevel.O1,
    )


def _watched(graph: Graph, chosen: selection.Selection) -> Iterator[OperatorRef]:
    pairs = zip(graph.nodes, chosen.watched, strict=True)
    return (node.operator for node, is_watched in pairs if is_watched)


def _compiled(graph: Graph, plan: DumpPlan) -> Matches:
    """Return what a plan selects of the graph that the device compiles."""
    device = emulated(graph, plan, plan.context)
    assert device is not None, "only Ascend compiles whole graphs"
    devices = tuple(device.walk())
    chosen = select_compiled(devices, plan, frozenset(), file_stem(graph))
    nodes = [node for inner in devices for node in inner.graph.nodes]
    watched = [is_watched for each in chosen for is_watched in each.watched]
    names = [name for node in nodes for name in full_names(node)]
    used = selection.used_items(plan, names)
    return Matches(
        tuple(node.operator for node, is_watched in zip(nodes, watched, strict=True) if is_watched),
        (),
        tuple(
            Unmatched(pattern.item, _hint(pattern, names, {node.operator.op_type for node in nodes}))
            for pattern in plan.selector.patterns
            if pattern.item not in used
        ),
        len(nodes),
        is_compiled=True,
    )


def _hint(pattern: KernelPattern, names: Iterable[str], types: Iterable[str]) -> str:
    if pattern.kind is PatternKind.REGEX:
        return ""
    if any(name.startswith(f"{pattern.text}/") for name in names):
        return f"a scope; name-regex({pattern.text}/.+) selects the operators in it"
    candidates = types if pattern.kind is PatternKind.TYPE else names
    by_case = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(pattern.text.lower(), by_case, n=1)
    return f"did you mean {by_case[close[0]]!r}?" if close else ""
