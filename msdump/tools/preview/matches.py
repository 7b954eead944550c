"""The operators of a model that a plan selects, and the ``kernels`` items that select nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msdump.capture import selection
from msdump.capture.suggestions import operators, suggest_for
from msdump.device.ascend import Ascend
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, JitLevel, Tree
from msdump.record import OperatorRef


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An item of ``kernels`` that selects nothing.

    Attributes:
        item: The item as the user wrote it.
        hint: A suggestion, "" where no item is close.
    """

    item: str
    hint: str


@dataclass(frozen=True, slots=True)
class Matches:
    """The operators of a model that a plan selects.

    Attributes:
        kernels: Selected operators in execution order; those of branches and loops follow the main graph's.
        parameters: Names of selected weights and graph inputs (CPU and GPU).
        unmatched: Items that select nothing.
        count: Number of operators that run on the device, dumped or not.
        is_compiled: Whether the device has compiled the graph, so that they are not the model's operators.
    """

    kernels: tuple[OperatorRef, ...]
    parameters: tuple[str, ...]
    unmatched: tuple[Unmatched, ...]
    count: int
    is_compiled: bool


def matches(graph: Graph, plan: DumpPlan, device: Ascend | None) -> Matches:
    """Return the operators of a model that a plan selects, also in branches and loops.

    Nothing is marked by ``set_dump``, which only a running program calls.

    Args:
        graph: The model.
        plan: The plan.
        device: The emulated device of the plan with the model, None on CPU and GPU.
    """
    if plan.files.tree is not Tree.RANKS:
        assert device is not None, "only Ascend compiles whole graphs"
        return _compiled(graph, plan, device)
    graph = graph if device is None else device.graph
    selections = [(inner, selection.select(inner, plan, frozenset())) for inner in graph.walk()]
    # Ascend dumps parameters as inputs of operators only; CPU and GPU at the end of each iteration, too.
    has_parameters = plan.what.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
    names = list(selection.selectable(graph, plan))
    used_items = selection.used_items(plan, names)
    return Matches(
        tuple(operator for inner, chosen in selections for operator in _watched(inner, chosen)),
        tuple(name for _, chosen in selections for name in chosen.parameters) if has_parameters else (),
        tuple(
            Unmatched(pattern.item, suggest_for(pattern, operators(graph)))
            for pattern in plan.what.selector.patterns
            if pattern.item not in used_items
        ),
        sum(len(inner.operators) for inner in graph.walk()),
        is_compiled=plan.context.jit_level is JitLevel.O1,
    )


def _watched(graph: Graph, selection_of_graph: selection.Selection) -> Iterator[OperatorRef]:
    pairs = zip(graph.nodes, selection_of_graph.watched, strict=True)
    return (node.operator for node, is_watched in pairs if is_watched)


def _compiled(graph: Graph, plan: DumpPlan, device: Ascend) -> Matches:
    """Return the operators that a plan selects of the graph that the device compiles (O2, GE, acl)."""
    from msdump.capture.compiled.dump import full_names, select_compiled

    devices = tuple(device.walk())
    compiled_selections = select_compiled(devices, plan, frozenset(), graph.file_stem)
    nodes = [node for inner in devices for node in inner.graph.nodes]
    watched = [is_watched for each in compiled_selections for is_watched in each.watched]
    names = [name for node in nodes for name in full_names(node)]
    used_items = selection.used_items(plan, names)
    return Matches(
        tuple(node.operator for node, is_watched in zip(nodes, watched, strict=True) if is_watched),
        (),
        tuple(
            Unmatched(pattern.item, suggest_for(pattern, nodes))
            for pattern in plan.what.selector.patterns
            if pattern.item not in used_items
        ),
        # An operator without a task, such as a reshape, does not run and never has a file.
        sum(task is not None for inner in devices for task in inner.tasks),
        is_compiled=True,
    )
