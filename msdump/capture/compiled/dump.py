"""The dump of one graph that a device compiled as a whole: Ascend O2, GE, acl and torchair."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msdump.capture.compiled import acl_json, model_selection, watcher
from msdump.capture.compiled.capture import CompiledCapture
from msdump.capture.compiled.model_selection import ModelSelection
from msdump.capture.compiled.op_debug_files import OpDebugWriter
from msdump.capture.compiled.watcher import WatcherCapture, WatcherRun
from msdump.capture.pipeline import failure_pipeline, operator_records, pipeline
from msdump.capture.process import Process
from msdump.capture.selection import used_items
from msdump.capture.steps.device import reader
from msdump.capture.steps.records import Memory, memory_of
from msdump.capture.triggers import OverflowTrigger
from msdump.counters import ModelIdentity, Run
from msdump.device import tasks
from msdump.device.ascend import Ascend
from msdump.errors import DumpWriteError
from msdump.graph.graph import Graph, Node
from msdump.plan import DumpLevel, DumpPlan, FileFormat, Scene, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import Artifact
from msdump.selector import Selector
from msdump.store import names
from msdump.store.clock import CLOCK
from msdump.store.existing import free_time
from msdump.store.run_paths import ModelLayout
from msdump.store.write.sinks import Sink
from msdump.store.write.standins import LONGEST_NAME

_log = logging.getLogger("msdump.capture")

_UNNAMED: Final = "graph"


class CompiledDump:
    """Everything that one compiled graph writes below the dump path.

    Attributes:
        plan: What is dumped.
        sink: Where it goes.
        directory: Directory of the model, ``{model_name}``.
        model_id: Number of the model in its process.
    """

    def __init__(
        self,
        plan: DumpPlan,
        process: Process,
        device: Ascend,
        memory: Memory,
        model: ModelIdentity,
    ) -> None:
        """Give the model its number and directory; nothing is written yet.

        Args:
            plan: What is dumped.
            process: What all networks share.
            device: The emulated device with the compiled graph.
            memory: Gives the device memory of the run that goes on.
            model: What the model is called.
        """
        self.plan = plan
        self.sink = process.sink(plan)
        self.model_id = next(process.counters.model_ids) if model.model_id is None else model.model_id
        self.directory = _directory(plan, model.file_name, device.graph.name)
        self._layout = ModelLayout(plan.files.path, plan.context.device_id, self.directory, self.model_id)
        self._process = process
        self._file_name = model.file_name
        self._time = model.time
        self._has_own_time = False  # no other program writes into the directory of this time
        self._warned = False
        self._memory = memory
        self._devices = tuple(device.walk())
        self._input_tasks = tasks.of_inputs((inner.graph, inner.tasks) for inner in self._devices)
        watch = process.flight(plan).graph_watch(inner.graph for inner in self._devices)
        self._pipeline = pipeline(plan, self.sink, watch)
        self._op_debug = _op_debug(plan, self._devices, self.sink, self.model_id)
        self._failures = {
            inner.graph.index: failure_pipeline(plan, inner.graph, self.sink) for inner in self._devices
        }
        self._capture: CompiledCapture | WatcherCapture
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select anew: the full names of the operators that ``set_dump`` marked have changed."""
        self._capture = (
            self._watcher() if self.plan.compiled.scene is Scene.WATCHER else self._main_capture(marked)
        )
        names = [name for device in self._devices for node in device.graph.nodes for name in full_names(node)]
        self._layers = acl_json.layers(self.plan, names, marked)
        self._used = used_items(self.plan, names)
        self._process.suggest(
            self.plan, self._used, [node for device in self._devices for node in device.graph.nodes]
        )

    def _watcher(self) -> WatcherCapture:
        watcher.warn_of_unknown(*_whole(self._devices), self.plan)
        run = WatcherRun()
        captures = {
            device.graph.index: WatcherCapture(
                self.plan, device, self._memory_of(device), self._pipeline, run
            )
            for device in self._devices
        }
        for capture in captures.values():
            capture.bodies = captures
        return captures[self._devices[0].graph.index]

    def _memory_of(self, device: Ascend) -> Memory:
        return memory_of(device, self._devices[0], self._memory)

    def _main_capture(self, marked: frozenset[str]) -> CompiledCapture:
        selections = select_compiled(self._devices, self.plan, marked, self._file_name)
        return self._captures(self._devices[0], dict(zip(self._devices, selections, strict=True)))

    def _captures(self, device: Ascend, selections: Mapping[Ascend, ModelSelection]) -> CompiledCapture:
        """Return the observer of a graph, with those of the branches and loops in it."""
        capture = CompiledCapture(
            self.plan,
            device,
            selections[device],
            operator_records(self.plan, device, self._memory_of(device)),
            self._pipeline,
            input_tasks=self._input_tasks,
            overflow=self._trigger(device),
            failure=self._failures[device.graph.index],
        )
        capture.bodies = {index: self._captures(inner, selections) for index, inner in device.bodies.items()}
        return capture

    def _trigger(self, device: Ascend) -> tuple[OverflowTrigger, OpDebugWriter] | None:
        if self._op_debug is None:
            return None
        limit = self._process.overflow_limit(self.plan)
        return OverflowTrigger(limit, reader(device)), self._op_debug

    def write_graph_files(self) -> None:
        """Complete the files of the compilation; O2 saves no .ir files by itself."""
        self.sink.flush()

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> CompiledCapture | WatcherCapture:
        """Return the observer of a dumped run.

        Args:
            run: Its numbers.
            inputs: What the network is fed.
        """
        self._process.use(self.plan, self._used)
        self._warn_of_no_target()
        self._pipeline.begin(run.iteration)
        self._capture.begin(self._execution(run), run.iteration, dict(inputs))
        return self._capture

    def end(self) -> None:
        """Finish a dumped iteration: its files are complete."""
        self._capture.end()
        self.sink.flush()

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed; what goes wrong here is only logged."""
        self._capture.end()
        with contextlib.suppress(DumpWriteError):
            self.sink.flush()

    def pass_by(self, run: Run) -> None:
        """Note a run that is about to go undumped."""
        del run
        if self.plan.files.tree is Tree.STEPS:
            # vendor: a step that is not dumped is configured, too, with a step number that never comes
            self._configure(self.plan.files.path, is_dumped=False)

    def _execution(self, run: Run) -> str:
        """Return the directory of a run."""
        number, step = run.execution, run.iteration
        if self.plan.files.tree is not Tree.STEPS:
            return self._of_configuration(number)
        self._configure(f"{self.plan.files.path.rstrip('/')}/{step}", is_dumped=True)
        # another program may have written into the directory of this second
        time = free_time(CLOCK.seconds(), lambda time: self._layout.execution(time, number, step))
        return self._layout.execution(time, number, step)

    def _of_configuration(self, number: int) -> str:
        """Return the directory of an execution below the time at which the dump was configured."""
        if not self._has_own_time:
            configured = self._time or self._process.configured(self.plan)
            self._time = free_time(configured, lambda time: self._layout.execution(time, number))
            self._has_own_time = True
        assert self._time
        return self._layout.execution(self._time, number)

    def _configure(self, root: str, *, is_dumped: bool) -> None:
        """Write the acl.json of a step, as MindSpore does before each one."""
        data = acl_json.content(self.plan, self._layers, root, is_dumped=is_dumped)
        self.sink.replace(Artifact(*os.path.split(self._layout.acl_config()), (data,)))

    def _warn_of_no_target(self) -> None:
        if self._layers == (acl_json.NO_TARGET,) and not self._warned:
            self._warned = True
            _log.warning("%s: set_dump has marked no operator of %s", self.plan.source, self.directory)


def select_compiled(
    devices: Sequence[Ascend], plan: DumpPlan, marked: frozenset[str], file_name: str = ""
) -> list[ModelSelection]:
    """Return what a plan dumps of a compiled model; operators without a task are never dumped.

    Args:
        devices: The emulated device with the main graph, then those of its branches and loops.
        plan: The plan.
        marked: Full names of the operators that ``set_dump`` marked.
        file_name: Name of the model's file without suffix.

    Returns:
        The selection of each graph.
    """
    graph, runs = _whole(devices)
    whole = _select(graph, plan, marked, (file_name, runs))
    parts, start = [], 0
    for device in devices:
        end = start + len(device.graph.nodes)
        parts.append(_part(whole, range(start, end)))
        start = end
    return parts


def _whole(devices: Sequence[Ascend]) -> tuple[Graph, tuple[bool, ...]]:
    """Return a model with the operators of its branches and loops, and whether the device runs each."""
    nodes = tuple(node for device in devices for node in device.graph.nodes)
    runs = tuple(task is not None for device in devices for task in device.tasks)
    return replace(devices[0].graph, nodes=nodes), runs


def _select(
    graph: Graph, plan: DumpPlan, marked: frozenset[str], model: tuple[str, tuple[bool, ...]]
) -> ModelSelection:
    file_name, runs = model
    # vendor: dump_level kernel is about the kernels of operators that are called alone
    if plan.compiled.level is DumpLevel.KERNEL:
        return ModelSelection((Reason.KERNEL_LEVEL,) * len(runs), {}, {})
    if plan.when.trigger is Trigger.EXCEPTION:
        return ModelSelection((Reason.NO_FAILURE,) * len(runs), {}, {})
    if plan.compiled.models is not None:
        return model_selection.select_model(graph, plan, file_name, runs)
    return model_selection.selected(
        graph, [_refusal(node, plan.what.selector, marked) for node in graph.nodes], runs
    )


def _refusal(node: Node, selector: Selector, marked: frozenset[str]) -> Reason | None:
    """Return why no name of an operator selects it, None where one does."""
    refusal = None
    for name in full_names(node):
        refusal = selector.refusal(name, is_marked=name in marked)
        if refusal is None:
            return None
    return refusal


def full_names(node: Node) -> tuple[str, ...]:
    """Return the names that select an operator: those of the operators that are fused in it, and its own."""
    return (*(part.operator.full_name for part in node.parts), node.operator.full_name)


def _part(whole: ModelSelection, nodes: range) -> ModelSelection:
    """Return the selection of one graph, of the one of all graphs of a model."""
    return ModelSelection(
        whole.refusals[nodes.start : nodes.stop],
        {position - nodes.start: inputs for position, inputs in whole.data.items() if position in nodes},
        {position - nodes.start: slots for position, slots in whole.blocked.items() if position in nodes},
    )


def _directory(plan: DumpPlan, file_name: str, graph_name: str) -> str:
    name = names.sanitize(model_selection.directory_name(plan, file_name, graph_name))
    return name[:LONGEST_NAME] or _UNNAMED  # its number tells two of the same beginning apart


def _op_debug(plan: DumpPlan, devices: Sequence[Ascend], sink: Sink, model_id: int) -> OpDebugWriter | None:
    if plan.when.trigger is not Trigger.OVERFLOW:
        return None
    model_tasks = [task for device in devices for task in device.tasks]
    return OpDebugWriter(sink, model_tasks, model_id, is_json=plan.files.file_format is FileFormat.NPY)
