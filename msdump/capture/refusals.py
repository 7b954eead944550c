"""Reasons for which operators, inputs and outputs have no files, as far as they are known before a run.

They are computed on demand, by the code that selects in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msdump.capture.pipeline import artifact_kind, compile_drops
from msdump.capture.selection import constant_names, drops_useless, is_useless, parameter_names, select
from msdump.capture.steps import Step, is_no_tensor
from msdump.config import grammar
from msdump.device import Ascend
from msdump.graph import Graph, Node
from msdump.plan import DeviceTarget, DumpPlan, Scene, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO

if TYPE_CHECKING:
    from msdump.capture.compiled.model_selection import Slot


@dataclass(frozen=True, slots=True)
class GraphRefusals:
    """The operators, inputs and outputs of one graph that have no files, with reasons.

    Attributes:
        graph: The graph as the device runs it.
        operators: For each node the reason for no dump, None for a dumped node.
        plan: The plan.
        blocked: Inputs and outputs on black lists, by the node's position.
    """

    graph: Graph
    operators: tuple[Reason | None, ...]
    plan: DumpPlan
    blocked: Mapping[int, frozenset[Slot]]

    def refusal(self, position: int, io: IO, slot: int) -> Reason | None:
        """Return the reason for which an input or output of an operator has no file; None where it has one.

        Only a run shows that a tensor is text or has no elements, or that an operator does not run at all.
        """
        return self.operators[position] or self._slot_refusal(position, io, slot)

    def slots(self, position: int) -> Iterator[tuple[Slot, Reason | None]]:
        """Yield the inputs and outputs of an operator, each with the reason why it has no file, or None."""
        node = self.graph.nodes[position]
        for io, values in ((IO.INPUT, node.inputs), (IO.OUTPUT, node.declared_outputs)):
            for slot in range(len(values)):
                yield (io, slot), self._slot_refusal(position, io, slot)

    def parameters(self) -> Iterator[tuple[str, Reason | None]]:
        """Yield weights, graph inputs and constants, each with the reason why it has no file, or None."""
        for name in (*parameter_names(self.graph), *constant_names(self.graph)):
            is_on_ascend = self.plan.context.device_target is DeviceTarget.ASCEND
            yield name, Reason.PARAMETER if is_on_ascend else refuse_by_name(self.plan, name, IO.OUTPUT)

    def _slot_refusal(self, position: int, io: IO, slot: int) -> Reason | None:
        node, what = self.graph.nodes[position], self.plan.what
        name = (node.inputs if io is IO.INPUT else node.outputs)[slot]
        if not name:
            return Reason.ABSENT
        # vendor: the watcher dumps outputs alone
        if self.plan.compiled.scene is Scene.WATCHER:
            return Reason.NOT_WATCHED if io is IO.INPUT else None
        if not (what.keeps_inputs if io is IO.INPUT else what.keeps_outputs):
            return Reason.SIDE_NOT_ASKED
        if (io, slot) in self.blocked.get(position, frozenset()):
            return Reason.BLACKLISTED
        if io is IO.OUTPUT and drops_useless(self.plan) and is_useless(node, slot):
            return Reason.USELESS
        return Reason.NO_TENSOR if is_no_tensor(self.graph, name) else None


def refuse_by_name(plan: DumpPlan, full_name: str, io: IO | None = None) -> Reason | None:
    """Return why a plan leaves out an operator, or its inputs or outputs; None: it does not, by the name.

    Only a model shows the reasons of ``GraphRefusals``.
    """
    what, when, models = plan.what, plan.when, plan.compiled.models
    if not plan.is_enabled:
        return Reason.OTHER_DEVICE
    if when.trigger is Trigger.EXCEPTION:
        return Reason.NO_FAILURE
    if (io is IO.INPUT and not what.keeps_inputs) or (io is IO.OUTPUT and not what.keeps_outputs):
        return Reason.SIDE_NOT_ASKED
    if models is None:
        return what.selector.refusal(full_name)
    if any(item.ranges or not item.layers for item in models):
        return None
    patterns = (grammar.parse_kernel(layer, searches=True) for item in models for layer in item.layers)
    is_listed = any(pattern is not None and pattern.matches(full_name) for pattern in patterns)
    return None if is_listed else Reason.NOT_IN_KERNELS


def dropping(plan: DumpPlan) -> tuple[Step, ...]:
    """Return the steps that may drop a tensor."""
    return compile_drops(artifact_kind(plan))


def refusals(
    graph: Graph,
    device: Ascend | None,
    plan: DumpPlan,
    marked: frozenset[str] = frozenset(),
    file_name: str = "",
) -> tuple[GraphRefusals, ...]:
    """Return the refusals of a network's graphs: of the main graph, then of branches and loops.

    Args:
        graph: The model.
        device: The emulated device, None on CPU and GPU.
        plan: The plan.
        marked: Full names of the operators that ``set_dump`` marked.
        file_name: Name of the model's file without suffix, for ``dump_list``.
    """
    graph = graph if device is None else device.graph
    if not plan.is_enabled:
        return tuple(_all(inner, plan, Reason.OTHER_DEVICE) for inner in graph.walk())
    if plan.files.tree is not Tree.RANKS:
        assert device is not None, "only Ascend compiles whole graphs"
        return _compiled(tuple(device.walk()), plan, marked, file_name)
    if plan.when.trigger is Trigger.EXCEPTION:
        return tuple(_all(inner, plan, Reason.NO_FAILURE) for inner in graph.walk())
    return tuple(
        GraphRefusals(inner, select(inner, plan, marked).refusals, plan, {}) for inner in graph.walk()
    )


def _all(graph: Graph, plan: DumpPlan, reason: Reason) -> GraphRefusals:
    """Return refusals of every operator of a graph for one reason."""
    refused = tuple(Reason.CONTROL_FLOW if node.bodies else reason for node in graph.nodes)
    return GraphRefusals(graph, refused, plan, {})


def _compiled(
    devices: Sequence[Ascend], plan: DumpPlan, marked: frozenset[str], file_name: str
) -> tuple[GraphRefusals, ...]:
    if plan.compiled.scene is Scene.WATCHER:
        return tuple(GraphRefusals(device.graph, _unwatched(device, plan), plan, {}) for device in devices)
    from msdump.capture.compiled.dump import select_compiled

    selections = select_compiled(devices, plan, marked, file_name)
    return tuple(
        GraphRefusals(device.graph, selection.refusals, plan, selection.blocked)
        for device, selection in zip(devices, selections, strict=True)
    )


def _unwatched(device: Ascend, plan: DumpPlan) -> tuple[Reason | None, ...]:
    from msdump.capture.compiled import watcher

    runs = [task is not None for task in device.tasks]
    watch = watcher.select_watch(device.graph, plan, runs)
    rows = zip(device.graph.nodes, runs, watch.watched, strict=True)
    return tuple(None if is_watched else _not_watched(node, is_run) for node, is_run, is_watched in rows)


def _not_watched(node: Node, is_run: bool) -> Reason:  # noqa: FBT001 - one of three columns
    if node.bodies:
        return Reason.CONTROL_FLOW
    return Reason.NOT_WATCHED if is_run else Reason.NO_TASK
