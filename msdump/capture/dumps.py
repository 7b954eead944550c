"""The dump of one network, whichever tree its files stand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msdump.capture.network_dump import NetworkDump, Variables
from msdump.capture.process import Process
from msdump.capture.steps.records import Memory
from msdump.counters import ModelIdentity, Run
from msdump.device.ascend import Ascend
from msdump.graph.graph import Graph
from msdump.observer import Observer
from msdump.plan import DumpPlan, Tree
from msdump.store.write.sinks import Sink

if TYPE_CHECKING:
    from msdump.capture.compiled.single_dump import SingleOperator


class DumpWriter(Protocol):
    """The dump of one network."""

    @property
    def plan(self) -> DumpPlan:
        """What is dumped."""

    @property
    def sink(self) -> Sink:
        """The sink that takes its files."""

    def mark(self, marked: frozenset[str]) -> None:
        """Select anew: the full names of the operators that ``set_dump`` marked have changed."""

    def write_graph_files(self) -> None:
        """Write the files that exist from compilation on: graphs, metadata, execution order."""

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> Observer:
        """Return the observer of a dumped run, given its numbers and what the network is fed."""

    def end(self) -> None:
        """Finish a dumped iteration: its files are complete."""

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed and list it; what goes wrong here is only logged."""

    def pass_by(self, run: Run) -> None:
        """Write what a tree keeps of a run that is not dumped, before it begins."""


def dump_of(
    graph: Graph,
    plan: DumpPlan,
    process: Process,
    device: Ascend | None,
    *,
    memory: Memory,
    model: ModelIdentity | SingleOperator,
    variables: Variables = dict,
) -> DumpWriter:
    """Return the dump of a network; nothing is written yet.

    Args:
        graph: The graph, fused or compiled where the level does so.
        plan: What is dumped.
        process: What all networks share.
        device: The emulated device, None on CPU and GPU.
        memory: Gives the device memory of the run that goes on.
        model: What a compiled model is called, or the operator that is called alone.
        variables: Gives what the initializers that training writes hold now.
    """
    if plan.files.tree is Tree.RANKS:
        return NetworkDump(graph, plan, process, device, variables=variables)
    assert device is not None, "only Ascend compiles whole graphs"
    if not isinstance(model, ModelIdentity):
        from msdump.capture.compiled.single_dump import SingleDump

        return SingleDump(plan, process, device, memory, model)
    from msdump.capture.compiled.dump import CompiledDump

    return CompiledDump(plan, process, device, memory, model)
