"""The watcher: outputs of watched operators, written again after other operators.

On a device a kernel that writes into another operator's output shows in the difference between two files
of that output. The emulated kernels are sound, so all files of an output hold the same elements.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msdump.capture.compiled import model_selection
from msdump.capture.compiled.model_selection import warn_of_watch
from msdump.capture.pipeline import ArtifactWriter
from msdump.capture.steps import Memory, OperatorRecords
from msdump.device import Ascend, Task
from msdump.graph import Graph, Node
from msdump.observer import Interest, NodeRun, Observer
from msdump.plan import DumpPlan, ModelItem
from msdump.record import OperatorRef, TensorRecord
from msdump.statistics import TotalsArray
from msdump.store import CLOCK, is_collective


@dataclass(frozen=True, slots=True)
class Watch:
    """The operators of a graph that take part in a watcher's dump."""

    layers: tuple[bool, ...]  # for each node, whether watched outputs are read again after it
    watched: tuple[bool, ...]  # for each node, whether its outputs are watched


def select_watch(graph: Graph, plan: DumpPlan, runs: Sequence[bool]) -> Watch:
    """Return the watched operators and layers of a graph; the last item of ``dump_list`` counts.

    Watched operators have compiled names, layers also names from before fusion. Watched and collective
    operators are no layers.
    """
    item = _item(plan)
    watcher_nodes, layers = frozenset(item.watched), frozenset(item.layers)
    watched = tuple(
        is_run and not watcher_nodes.isdisjoint(model_selection.names(node))
        for is_run, node in zip(runs, graph.nodes, strict=True)
    )
    return Watch(
        tuple(
            is_run and not is_watched and _is_layer(node, layers)
            for is_run, is_watched, node in zip(runs, watched, graph.nodes, strict=True)
        ),
        watched,
    )


def resident(graph: Graph, plan: DumpPlan) -> tuple[str, ...]:
    """Return the values that stay in device memory, so that they can be read again."""
    watched = select_watch(graph, plan, (True,) * len(graph.nodes)).watched
    return tuple(
        name
        for node, is_watched in zip(graph.nodes, watched, strict=True)
        if is_watched
        for name in node.declared_outputs
        if name
    )


def warn_of_unknown(graph: Graph, runs: Sequence[bool], plan: DumpPlan) -> None:
    """Log the names of the watcher's item that no operator has, or that fusion has hidden."""
    warn_of_watch(graph, _item(plan), runs, plan.source)


def _item(plan: DumpPlan) -> ModelItem:
    return plan.compiled.models[-1] if plan.compiled.models else ModelItem()


def _is_layer(node: Node, layers: frozenset[str]) -> bool:
    """Return whether watched outputs are read again after a node; without ``layers``, after any."""
    if is_collective(node.operator.op_type):
        return False
    return not layers or not layers.isdisjoint(model_selection.all_names(node))


@dataclass(slots=True)
class WatcherRun:
    """The state of one run that the watchers of a model's graphs share."""

    # outputs of the watched operators that have run, by graph index and position
    watched: dict[tuple[int, int], tuple[OperatorRef, Sequence[TensorRecord]]] = field(default_factory=dict)
    directory: str = ""  # where files of the run go


class WatcherCapture(Observer):
    """The watcher of one graph: an observer of its operators while an iteration runs."""

    def __init__(
        self, plan: DumpPlan, device: Ascend, memory: Memory, writer: ArtifactWriter, run: WatcherRun
    ) -> None:
        self._index = device.graph.index
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        self._watch = select_watch(device.graph, plan, tuple(task is not None for task in device.tasks))
        shown = tuple(map(operator.or_, self._watch.layers, self._watch.watched))
        self.interest = Interest(shown, outputs=True)
        self._records = OperatorRecords(device, memory)
        self._run = run
        self._writer = writer
        # the watchers of the model's graphs by their index; they share the state of the run
        self.bodies: Mapping[int, WatcherCapture] = {}

    def begin(self, directory: str, iteration: int, inputs: Mapping[str, Any]) -> None:
        """Direct the files of the operators that run from now on into an execution's directory."""
        del iteration, inputs
        self.end()
        self._run.directory = directory

    def end(self) -> None:
        """Forget the outputs of the run."""
        self._run.watched.clear()

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Write the outputs of a watched operator, or, after a layer, of all watched operators so far."""
        del found
        watched = self._run.watched
        for position, _, outputs, _ in batch:
            node, task = self._nodes[position].operator, self._tasks[position]
            assert task is not None  # the device runs the shown operators
            if self._watch.layers[position]:
                for ref, records in watched.values():
                    # vendor: type and outputs of the watched operator, task and stream of the layer
                    name = f"{node.full_name}_To_{ref.full_name}"
                    self._write(OperatorRef(ref.op_type, name), task, records)
                continue
            records = [
                # pinned: later operators may get the addresses of another run
                each._replace(device=each.device.pinned())
                for each in self._records.at_once(node, position, (), outputs, 0)
                if each.device is not None and each.device.address
            ]
            watched[self._index, position] = node, records
            self._write(node, task, records)

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop: their operators may be watched, or layers."""
        return body.index in self.bodies

    def enter(self, body: Graph) -> WatcherCapture | None:
        """Return the watcher of a branch or the body of a loop."""
        return self.bodies.get(body.index)

    def _write(self, ref: OperatorRef, task: Task, records: Sequence[TensorRecord]) -> None:
        moment = CLOCK.now()
        shown = [each._replace(operator=ref, timestamp=moment) for each in records]
        self._writer.take(self._run.directory, ref, task, shown)
        self._writer.finish()
