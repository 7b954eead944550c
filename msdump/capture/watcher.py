"""The watcher: outputs of watched operators, read again from device memory after other operators (acl).

A fault that no result shows where it happens, a kernel that writes into another
operator's output, shows in the difference between two files of that output: one
written when the watched operator ran, one after the operator under suspicion.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from msdump.capture import model_selection
from msdump.capture.held import Arrays, Held, Holder
from msdump.capture.operator_files import OperatorWriter, device_tensor
from msdump.device import formats
from msdump.device.ascend import Ascend
from msdump.device.contents import Contents
from msdump.device.tasks import Task
from msdump.encode import dump_data
from msdump.encode.dump_data import TensorInfo
from msdump.graph.graph import Graph, Node
from msdump.graph.stomp import stomped_bytes
from msdump.plan import DumpPlan, ModelItem
from msdump.record import IO, OperatorRef
from msdump.store import names
from msdump.store.clock import CLOCK

_log = logging.getLogger("msdump.capture")

_COLLECTIVE: Final = "Hcom"
_STOMP: Final = 0x5A  # what a faulty kernel writes


@dataclass(frozen=True, slots=True)
class Watch:
    """What the watcher looks at.

    Attributes:
        layers: For each node, whether watched outputs are read again after it.
        watched: For each node, whether its outputs are watched.
    """

    layers: tuple[bool, ...]
    watched: tuple[bool, ...]


def select_watch(graph: Graph, plan: DumpPlan, runs: Sequence[bool]) -> Watch:
    """Return what the watcher of a plan looks at in a graph; the last item of ``dump_list`` counts.

    A watched operator is named as it was compiled, a layer also as it was before. Watched and
    collective operators are no layers.

    Args:
        graph: The compiled graph.
        plan: The plan.
        runs: For each node, whether the device runs it.
    """
    item = _item(plan)
    wanted, layers = frozenset(item.watched), frozenset(item.layers)
    watched = tuple(
        is_run and not wanted.isdisjoint(model_selection.names(node))
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
        for name in node.outputs
        if name
    )


def warn_of_unknown(graph: Graph, plan: DumpPlan) -> None:
    """Log the names that no operator of a graph has, and watched ones that fusion has hidden."""
    item = _item(plan)
    known = {name for node in graph.nodes for name in model_selection.all_names(node)}
    compiled = {name for node in graph.nodes for name in model_selection.names(node)}
    for key, listed, allowed in (("layer", item.layers, known), ("watcher_nodes", item.watched, compiled)):
        for name in listed:
            if name not in allowed:
                why = "is the name before fusion" if name in known else "is no operator"
                _log.warning("%s: %s: %r %s of model %s", plan.source, key, name, why, graph.name)


def _item(plan: DumpPlan) -> ModelItem:
    return plan.models[-1] if plan.models else ModelItem()


def _is_layer(node: Node, layers: frozenset[str]) -> bool:
    if node.operator.op_type.startswith(_COLLECTIVE):
        return False
    return not layers or not layers.isdisjoint(model_selection.all_names(node))


@dataclass(frozen=True, slots=True)
class _Lying:
    """A tensor that lies in device memory.

    Attributes:
        value: Its name in the graph.
        held: How it was when it was made.
        info: What a file's header says of it.
    """

    value: str
    held: Held
    info: TensorInfo

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.held.address + self.info.size

    def overlaps(self, start: int, end: int) -> bool:
        """Tell whether it has bytes in a range of addresses."""
        return self.held.address < end and start < self.end


class WatcherCapture:
    """The watcher of one graph: an observer of its operators while an iteration runs."""

    wants_inputs = False
    wants_outputs = True

    def __init__(self, plan: DumpPlan, device: Ascend, holder: Holder, writer: OperatorWriter) -> None:
        """Compile a plan for a graph.

        Args:
            plan: What is dumped.
            device: The emulated device with the compiled graph.
            holder: Shows tensors as the device holds them.
            writer: Writes operators.
        """
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        self.watched: Sequence[bool] = (True,) * len(self._nodes)
        self._watch = select_watch(device.graph, plan, tuple(task is not None for task in device.tasks))
        self._stomps = tuple(map(stomped_bytes, self._nodes))
        self._holder = holder
        self._writer = writer
        self._style = names.STYLES[plan.naming, plan.context.device_target]
        self._directory = ""
        self._forget()

    def _forget(self) -> None:
        """Begin with empty memory."""
        self._contents = Contents()
        self._lying: dict[str, _Lying] = {}
        self._seen: dict[int, tuple[_Lying, ...]] = {}
        self._overwritten: list[dict[str, np.ndarray]] = []

    def begin(self, directory: str, iteration: int, inputs: Mapping[str, Any]) -> None:
        """Direct the files of the operators that run from now on into an execution's directory."""
        del iteration, inputs
        self._directory = directory
        self._forget()

    def end(self) -> None:
        """Let go of the memory."""
        self._forget()

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> dict[str, np.ndarray]:
        """Put results into memory, let a faulty kernel do its harm, and read watched outputs.

        Returns:
            Values that were overwritten, as they read now.
        """
        del inputs, saturated
        made = tuple(self._put(position, outputs))
        if self._watch.watched[position]:
            self._seen[position] = made
        changed = self._stomp(made, self._stomps[position])
        self._overwritten.append(changed)  # the runtime reads these arrays until the run ends
        task = self._tasks[position]
        if task is not None:
            self._look(position, task)
        return changed

    def enter(self, body: Graph) -> None:
        """See nothing of branches and loops: static graphs are watched."""

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write nothing."""

    def _put(self, position: int, outputs: Arrays) -> Iterator[_Lying]:
        """Write an operator's results to their addresses."""
        node = self._nodes[position]
        for held in self._holder.hold(position, IO.OUTPUT, outputs):
            if not held.address:
                continue
            info, data = device_tensor(held)
            self._contents.write(held.address, data)
            lying = _Lying(node.outputs[held.slot], held, info)
            for old in [
                name for name, other in self._lying.items() if other.overlaps(held.address, lying.end)
            ]:
                del self._lying[old]
            self._lying[lying.value] = lying
            yield lying

    def _stomp(self, made: Sequence[_Lying], size: int) -> dict[str, np.ndarray]:
        """Write past the end of an operator's last output; return what that changed."""
        if not size or not made:
            return {}
        start = made[-1].end
        self._contents.fill(start, size, _STOMP)
        hit = [lying for lying in self._lying.values() if lying.overlaps(start, start + size)]
        return {lying.value: self._host_array(lying) for lying in hit}

    def _host_array(self, lying: _Lying) -> np.ndarray:
        """Return what lies where a tensor was put, as the host's operators read it."""
        array = self._array(lying)
        host = lying.held.host
        return array if host is None else array.astype(host.numpy, copy=False)

    def _array(self, lying: _Lying) -> np.ndarray:
        """Return what lies where a tensor was put, in the device's type and the host's layout."""
        held, info = lying.held, lying.info
        data = self._contents.read(held.address, info.size)
        array = dump_data.tensor(info, memoryview(data))
        if held.placed is None or info.shape == held.array.shape:
            return array.reshape(held.array.shape)
        return formats.decode(held.placed.format, array, held.array.shape, held.placed.groups)

    def _look(self, position: int, task: Task) -> None:
        """Write the operator's own outputs if they are watched, or those of others after it."""
        if self._watch.watched[position]:
            operator = self._nodes[position].operator
            self._write(operator, task, self._seen[position])
        elif self._watch.layers[position]:
            layer = self._nodes[position].operator.full_name
            for seen, made in self._seen.items():
                watched = self._nodes[seen].operator
                self._write(OperatorRef(watched.op_type, f"{layer}_To_{watched.full_name}"), task, made)

    def _write(self, operator: OperatorRef, task: Task, made: Sequence[_Lying]) -> None:
        tensors = [replace(lying.held, array=self._array(lying)) for lying in made]
        if tensors:
            name = names.operator_name(operator, self._style, task.task_id, task.stream_id, CLOCK.now())
            self._writer.write(self._directory, operator, name, tensors)
