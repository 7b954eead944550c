"""The watcher: outputs of watched operators, read again from device memory after other operators.

A kernel that writes into another operator's output shows in the difference between two files of that output:
one written when the watched operator ran, one after the operator under suspicion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.capture import writers
from msdump.capture.compiled import model_selection
from msdump.capture.compiled.model_selection import warn_of_watch
from msdump.capture.pipeline import OperatorTensors, Pipeline
from msdump.capture.steps import Memory, OperatorRecords, to_device_memory
from msdump.device import Ascend, Contents, Task, formats, moves_nothing
from msdump.encode import TensorInfo, dump_data
from msdump.graph import Graph, Node
from msdump.graph.kernel import stomped_bytes
from msdump.observer import Arrays, Interest, NodeRun, Observer
from msdump.plan import DumpPlan, ModelItem
from msdump.record import Buffer, OperatorRef, TensorRecord
from msdump.statistics import TotalsArray
from msdump.store import CLOCK, is_collective

_STOMP: Final = 0x5A  # the byte that a faulty kernel writes


_NO_TIME: Final = 0  # timestamp of results in memory; each file gets its own


@dataclass(frozen=True, slots=True)
class StoredResult:
    """An operator's result that is stored in device memory.

    Attributes:
        graph: Index of the operator's graph.
        value: Name of the result in the graph.
        record: The result as the host holds it, with the address that it had when it was stored.
        info: Its fields in the header of a dump file: address, size, shape, format and type on the device.
    """

    graph: int
    value: str
    record: TensorRecord
    info: TensorInfo

    @property
    def start(self) -> int:
        """Address of its first byte."""
        return self.info.address

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.info.address + self.info.size

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether it has bytes in a range of addresses."""
        return self.start < end and start < self.end


class DeviceImage:
    """The results of one run at their addresses: of the main graph, its branches and loops."""

    def __init__(self) -> None:
        """Start with empty memory."""
        self.clear()

    def clear(self) -> None:
        """Empty the memory."""
        self._contents = Contents()
        self._results: dict[tuple[int, str], StoredResult] = {}
        # arrays that ``changed`` returned: kept alive while later operators read them
        self._overwritten: list[dict[str, np.ndarray]] = []
        self._unreported: dict[int, dict[str, np.ndarray]] = {}

    def write(self, result: StoredResult, data: Buffer, *, is_view: bool) -> None:
        """Store the bytes of a result at its address.

        Results that were stored there before are gone, unless the new one is a view of them.
        """
        self._contents.write(result.start, data)
        for old in self._overlapping(result.start, result.end):
            if not (is_view and old.start == result.start):
                del self._results[old.graph, old.value]
        self._results[result.graph, result.value] = result

    def stomp(self, start: int, size: int) -> None:
        """Overwrite the memory behind a faulty kernel's last result; ``changed`` returns damaged values."""
        self._contents.fill(start, size, _STOMP)
        for hit in self._overlapping(start, start + size):
            array = self._array(hit).astype(hit.record.dtype.numpy, copy=False)  # in the host's type
            self._unreported.setdefault(hit.graph, {})[hit.value] = array

    def changed(self, graph: int) -> dict[str, np.ndarray]:
        """Return the values of a graph that were overwritten since the last call for it.

        Values are copies in the host's type and layout; they stay alive until the memory is cleared.
        """
        changed = self._unreported.pop(graph, {})
        if changed:
            self._overwritten.append(changed)
        return changed

    def _overlapping(self, start: int, end: int) -> list[StoredResult]:
        return [result for result in self._results.values() if result.overlaps(start, end)]

    def record(self, result: StoredResult) -> TensorRecord:
        """Return a result with the present contents of memory, in the device's type and the host's layout."""
        record = result.record
        dtype = record.dtype if record.device is None else record.device.element_type(record.dtype)
        return record._replace(array=self._array(result), dtype=dtype, host=record.array)

    def _array(self, result: StoredResult) -> np.ndarray:
        """Return the present contents of a result's memory, in the device's type, without padding."""
        info, part = result.info, result.record.device
        array = dump_data.tensor(info, memoryview(self._contents.read(info.address, info.size)))
        if part is None or info.shape == info.original_shape:
            return array.reshape(info.original_shape)
        return formats.decode(part.format, array, info.original_shape, part.groups)


class GraphImage:
    """The results of one graph's operators in device memory."""

    def __init__(self, device: Ascend, memory: Memory, image: DeviceImage) -> None:
        """Prepare the memory of a graph.

        Args:
            device: The emulated device with the graph.
            memory: Gives the addresses of the current run.
            image: The memory.
        """
        self._index = device.graph.index
        self._nodes = device.graph.nodes
        self._stomps = tuple([stomped_bytes(node) for node in self._nodes])
        self._records = OperatorRecords(device, memory)
        self._image = image

    @property
    def count(self) -> int:
        """Number of the graph's operators."""
        return len(self._nodes)

    def put(self, position: int, outputs: Arrays) -> tuple[StoredResult, ...]:
        """Store the results of an operator that have an address; return them."""
        node = self._nodes[position]
        is_view = moves_nothing(node)  # the input's bytes under another name
        results = []
        for record in self._records.of(node.operator, position, (), outputs, lambda: _NO_TIME):
            if record.device is None or not record.device.address:
                continue
            pinned = record._replace(device=record.device.pinned())
            shown = to_device_memory(pinned)
            result = StoredResult(self._index, node.outputs[record.slot], pinned, writers.info(shown))
            self._image.write(result, writers.contents(shown), is_view=is_view)
            results.append(result)
        return tuple(results)

    def stomp(self, position: int, results: Sequence[StoredResult]) -> dict[str, np.ndarray]:
        """Let a faulty kernel write past its last result; return the values of the graph that faults changed.

        Args:
            position: Place of the kernel in the graph's execution order; a sound one writes nothing.
            results: Its own results, as ``put`` returned them.
        """
        if self._stomps[position] and results:
            self._image.stomp(results[-1].end, self._stomps[position])
        return self._image.changed(self._index)


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

    Watched operators have compiled names, layers also names from before fusion. Watched and collective
    operators are no layers.

    Args:
        graph: The compiled graph.
        plan: The plan.
        runs: For each node, whether the device runs it.
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
    """Log the names of the watcher's item that no operator has, or that fusion has hidden.

    Args:
        graph: The compiled graph, with the operators of its branches and loops.
        runs: For each node, whether the device runs it.
        plan: The plan.
    """
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
    """The state of one run that the watchers of a model's graphs share.

    Attributes:
        memory: Device memory.
        watched: Results of watched operators by graph index and position.
        directory: Where files of the run go.
    """

    memory: DeviceImage = field(default_factory=DeviceImage)
    watched: dict[tuple[int, int], tuple[OperatorRef, Sequence[StoredResult]]] = field(default_factory=dict)
    directory: str = ""


class WatcherCapture(Observer):
    """The watcher of one graph: an observer of its operators while an iteration runs.

    Attributes:
        bodies: The watchers of the model's graphs by their index; they share the state of the run.
    """

    def __init__(
        self, plan: DumpPlan, device: Ascend, memory: Memory, pipeline: Pipeline, run: WatcherRun
    ) -> None:
        """Compile a plan for a graph.

        Args:
            plan: The plan.
            device: The emulated device with the compiled graph.
            memory: Returns the addresses of the current run.
            pipeline: Steps and writer of the records.
            run: State that the watchers of the model's graphs share.
        """
        self._index = device.graph.index
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        # all operators are observed: any may overwrite a watched output; faulty kernels change values
        self.interest = Interest((True,) * len(self._nodes), outputs=True, one_by_one=True)
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
        """Empty the emulated memory for the next run."""
        self._run.memory.clear()
        self._run.watched.clear()

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> dict[str, np.ndarray]:
        """Store results in memory, let a faulty kernel write past them, and read watched outputs.

        Returns:
            Values that were overwritten, with their present contents.
        """
        del found
        ((position, _, outputs, _),) = batch
        results = self._image.put(position, outputs)
        if self._watch.watched[position]:
            operator = self._nodes[position].operator
            self._run.watched[self._index, position] = operator, results
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

    def _write_outputs(self, position: int, task: Task) -> None:
        """Write the outputs of a watched operator, or, after a layer, of all watched operators."""
        watched = self._run.watched
        if self._watch.watched[position]:
            operator, results = watched[self._index, position]
            self._write(operator, task, results)
        elif self._watch.layers[position]:
            layer = self._nodes[position].operator.full_name
            for operator, results in watched.values():
                # vendor: type and outputs of the watched operator, task and stream of the layer
                name = f"{layer}_To_{operator.full_name}"
                self._write(OperatorRef(operator.op_type, name), task, results)

    def _write(self, operator: OperatorRef, task: Task, results: Sequence[StoredResult]) -> None:
        """Write the file of an operator with the present memory contents of results."""
        moment = CLOCK.now()
        records = (
            self._run.memory.record(result)._replace(operator=operator, timestamp=moment)
            for result in results
        )
        self._pipeline.take(self._run.directory, (OperatorTensors(operator, task, records),))
