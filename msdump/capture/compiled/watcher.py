"""The watcher: outputs of watched operators, read again from device memory after other operators.

A fault that no result shows where it happens, a kernel that writes into another
operator's output, shows in the difference between two files of that output: one
written when the watched operator ran, one after the operator under suspicion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msdump.capture.compiled import model_names
from msdump.capture.compiled.device_image import DeviceImage, GraphImage, StoredResult
from msdump.capture.compiled.model_warnings import warn_of_watch
from msdump.capture.pipeline import Pipeline
from msdump.capture.steps.records import Memory
from msdump.device.ascend import Ascend
from msdump.device.tasks import Task, is_collective
from msdump.graph.graph import Graph, Node
from msdump.observer import Arrays
from msdump.plan import DumpPlan, ModelItem
from msdump.record import OperatorRef
from msdump.store.clock import CLOCK


@dataclass(frozen=True, slots=True)
class Watch:
    """The operators of a graph that take part in a watcher's dump.

    Attributes:
        layers: For each node, whether watched outputs are read again after it.
        watched: For each node, whether its outputs are watched.
    """

    layers: tuple[bool, ...]
    watched: tuple[bool, ...]


def select_watch(graph: Graph, plan: DumpPlan, runs: Sequence[bool]) -> Watch:
    """Return the watched operators and layers of a graph; the last item of ``dump_list`` counts.

    A watched operator is named as it was compiled, a layer also as it was before. Watched and
    collective operators are no layers.

    Args:
        graph: The compiled graph.
        plan: The plan.
        runs: For each node, whether the device runs it.
    """
    item = _item(plan)
    watcher_nodes, layers = frozenset(item.watched), frozenset(item.layers)
    watched = tuple(
        is_run and not watcher_nodes.isdisjoint(model_names.names(node))
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
    """Log the names that no operator of a model has, and watched ones that fusion has hidden.

    Args:
        graph: The compiled graph, with the operators of its branches and loops.
        runs: For each node, whether the device runs it.
        plan: The plan.
    """
    warn_of_watch(graph, _item(plan), runs, plan.source)


def _item(plan: DumpPlan) -> ModelItem:
    return plan.compiled.models[-1] if plan.compiled.models else ModelItem()


def _is_layer(node: Node, layers: frozenset[str]) -> bool:
    """Tell whether watched outputs are read again after a node: without names, after every one."""
    if is_collective(node.operator.op_type):
        return False
    return not layers or not layers.isdisjoint(model_names.all_names(node))


@dataclass(frozen=True, slots=True)
class WatchedResults:
    """The results of a watched operator that has run.

    Attributes:
        operator: The operator.
        results: Its results in device memory.
    """

    operator: OperatorRef
    results: tuple[StoredResult, ...]


@dataclass(slots=True)
class WatcherRun:
    """The state of one run that the watchers of a model's graphs share.

    Attributes:
        memory: Device memory.
        watched: Watched operators that have run, by the index of their graph and their position in it.
        directory: Where files of the run go.
    """

    memory: DeviceImage = field(default_factory=DeviceImage)
    watched: dict[tuple[int, int], WatchedResults] = field(default_factory=dict)
    directory: str = ""


class WatcherCapture:
    """The watcher of one graph: an observer of its operators while an iteration runs.

    Attributes:
        bodies: The watchers of the model's graphs by their index; they share the state of the run.
    """

    wants_inputs = False
    wants_outputs = True

    def __init__(
        self, plan: DumpPlan, device: Ascend, memory: Memory, pipeline: Pipeline, run: WatcherRun
    ) -> None:
        """Compile a plan for a graph.

        Args:
            plan: What is dumped.
            device: The emulated device with the compiled graph.
            memory: Gives the addresses of the run that goes on.
            pipeline: What tensors walk through into files.
            run: The state that the watchers of all graphs of the model share.
        """
        self._index = device.graph.index
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        # every operator: each one writes to memory that a watched output may lie in
        self.watched: Sequence[bool] = (True,) * len(self._nodes)
        self.holds_up = self.watched  # faulty kernels change values
        self._watch = select_watch(device.graph, plan, tuple(task is not None for task in device.tasks))
        self._image = GraphImage(device, memory, run.memory)
        self._run = run
        self._pipeline = pipeline
        self.bodies: Mapping[int, WatcherCapture] = {}

    def begin(self, directory: str, iteration: int, inputs: Mapping[str, Any]) -> None:
        """Direct the files of the operators that run from now on into an execution's directory."""
        del iteration, inputs
        self.end()
        self._run.directory = directory

    def end(self) -> None:
        """Empty the emulated memory: what a run leaves there is nothing to the next one."""
        self._run.memory.clear()
        self._run.watched.clear()

    def starting(self, position: int, inputs: Arrays) -> None:
        """Ignore what is about to run: the watcher writes outputs alone."""

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> dict[str, np.ndarray]:
        """Store results in memory, let a faulty kernel write past them, and read watched outputs.

        Returns:
            Values that were overwritten, as they read now.
        """
        del inputs, saturated
        results = self._image.put(position, outputs)
        if self._watch.watched[position]:
            operator = self._nodes[position].operator
            self._run.watched[self._index, position] = WatchedResults(operator, results)
        changed = self._image.stomp(position, results)
        task = self._tasks[position]
        if task is not None:
            self._write_outputs(position, task)
        return changed

    def looks_into(self, body: Graph) -> bool:
        """Look into every branch and loop: each operator writes to memory."""
        return body.index in self.bodies

    def enter(self, body: Graph) -> WatcherCapture | None:
        """Return the watcher of a branch or the body of a loop."""
        return self.bodies.get(body.index)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write nothing: a failed operator has no results, and no exception dump goes with the watcher."""

    def _write_outputs(self, position: int, task: Task) -> None:
        """Write the operator's own outputs if they are watched, or those of others after it."""
        watched = self._run.watched
        if self._watch.watched[position]:
            own = watched[self._index, position]
            self._write(own.operator, task, own.results)
        elif self._watch.layers[position]:
            layer = self._nodes[position].operator.full_name
            for other in watched.values():
                # vendor: type and outputs of the watched operator, task and stream of the layer
                name = f"{layer}_To_{other.operator.full_name}"
                self._write(OperatorRef(other.operator.op_type, name), task, other.results)

    def _write(self, operator: OperatorRef, task: Task, results: Sequence[StoredResult]) -> None:
        """Write the file of an operator with results as memory reads now."""
        moment = CLOCK.now()
        records = (
            self._run.memory.record(result)._replace(operator=operator, timestamp=moment)
            for result in results
        )
        self._pipeline.take(self._run.directory, operator, task, records)
