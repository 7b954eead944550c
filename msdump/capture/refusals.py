"""The reasons for tensors without files in each graph of a network, for check and explain."""

from __future__ import annotations

from msdump.capture.pipeline import artifact_kind, compile_drops
from msdump.capture.selection import GraphRefusals, all_refused, graph_refusals
from msdump.capture.steps import Step
from msdump.device import Ascend
from msdump.graph import Graph, Node
from msdump.plan import DumpPlan, Scene, Tree
from msdump.reasons import Reason


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

    ``marked`` are full names of ``set_dump``; ``dump_list`` needs the model's file name, without suffix.
    """
    graph = graph if device is None else device.graph
    if not plan.is_enabled:
        return tuple(all_refused(inner, plan, Reason.OTHER_DEVICE) for inner in graph.walk())
    if plan.files.tree is not Tree.RANKS:
        assert device is not None, "only Ascend compiles whole graphs"
        devices = tuple(device.walk())
        if plan.compiled.scene is Scene.WATCHER:
            return tuple(
                GraphRefusals(device.graph, _unwatched(device, plan), plan, {}) for device in devices
            )
        from msdump.capture.compiled.dump import select_compiled

        selections = select_compiled(devices, plan, marked, file_name)
        return tuple(
            GraphRefusals(device.graph, selection.refusals, plan, selection.blocked)
            for device, selection in zip(devices, selections, strict=True)
        )
    return tuple(graph_refusals(inner, plan, marked) for inner in graph.walk())


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
