"""The dump of one graph that a device compiled as a whole: Ascend O2, GE, acl and torchair."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump.capture.compiled import model_selection, watcher
from msdump.capture.compiled.model_selection import ModelSelection
from msdump.capture.compiled.watcher import WatcherCapture, WatcherRun
from msdump.capture.pipeline import ArtifactWriter, failure_pipeline, operator_records, pipeline
from msdump.capture.process import DumpWriter, Process
from msdump.capture.selection import used_items
from msdump.capture.steps import Memory, OperatorRecords, count_no_tensors, memory_of, reader, unwritten
from msdump.capture.triggers import OverflowTrigger
from msdump.counters import ModelIdentity, Run, RunCounter
from msdump.device import Ascend, Task, tasks
from msdump.encode import DebugRecord, OldRecord, Unit, dump_data, ge, op_debug
from msdump.graph import Graph, Node
from msdump.observer import Arrays, Interest, NodeRun, Observer
from msdump.plan import DumpLevel, DumpPlan, FileFormat, Scene, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO, Artifact, OperatorRef
from msdump.selector import DumpMode, PatternKind
from msdump.statistics import TotalsArray
from msdump.store import (
    CLOCK,
    OP_DEBUG,
    Key,
    ModelLayout,
    OperatorFileKind,
    OperatorName,
    PathKind,
    free_time,
    is_collective,
    names,
)
from msdump.store.write import LONGEST_NAME, Sink

_OVERFLOW: Final = 2048  # vendor: the code of a floating-point overflow in CANN's own example


class OpDebugWriter:
    """Writes a record file for each floating-point overflow.

    The file name has the ids of the debug task, which follow the ids of the model's tasks; the record in the
    file has the ids of the operator that overflowed.
    """

    def __init__(self, sink: Sink, tasks: Sequence[Task | None], model_id: int, *, is_json: bool) -> None:
        assigned = [task for task in tasks if task is not None]
        self._sink = sink
        self._model_id = model_id
        self._is_json = is_json
        self._task_id = 1 + max((task.task_id for task in assigned), default=-1)
        self._stream_id = 1 + max((task.stream_id for task in assigned), default=-1)

    def write(self, directory: str, task: Task, timestamp: int) -> None:
        """Write the overflow record of the operator of a task, beside the operator's own file."""
        name = OperatorName(OP_DEBUG.op_type, OP_DEBUG.full_name, self._task_id, self._stream_id, timestamp)
        ids = {"model_id": self._model_id, "stream_id": task.stream_id, "task_id": task.task_id}
        if self._is_json:
            text = op_debug.to_compact_json(OldRecord({"AI Core": ids | {"status": _OVERFLOW}}))
            self._sink.write(Artifact(directory, name.file_name(OperatorFileKind.OVERFLOW_JSON), (text,)))
            return
        fields = ids | {"context_id": op_debug.NONE, "thread_id": op_debug.NONE}
        body = op_debug.encode(DebugRecord(Unit.AIC, fields, (_OVERFLOW,)))
        header = dump_data.header(op_debug.header_data(timestamp))
        self._sink.write(Artifact(directory, str(name), (header, body), len(body)))


class CompiledCapture(Observer):
    """The dump of one compiled graph: an observer of its operators while an iteration runs.

    All tensors of an operator have one timestamp. Inputs and outputs of a collective are two files.
    """

    def __init__(
        self,
        plan: DumpPlan,
        device: Ascend,
        selection: ModelSelection,
        records: OperatorRecords,
        writer: ArtifactWriter,
        *,
        sink: Sink,
        input_tasks: Mapping[str, Task],
        overflow: tuple[OverflowTrigger, OpDebugWriter] | None = None,
        failure: ArtifactWriter | None = None,
    ) -> None:
        if plan.when.trigger is not Trigger.ALWAYS:
            self._no_tensors = (0,) * len(device.graph.nodes)
        else:
            self._no_tensors = tuple(
                count_no_tensors(
                    device.graph, node, inputs=plan.what.keeps_inputs, outputs=plan.what.keeps_outputs
                )
                if is_asked and not node.bodies
                else 0
                for node, is_asked in zip(device.graph.nodes, selection.asked, strict=True)
            )
        # operators with sequences or maps are observed as well: the summary counts these values
        watched = (
            is_watched or count > 0
            for is_watched, count in zip(selection.watched, self._no_tensors, strict=True)
        )
        self.interest = Interest(tuple(watched), plan.what.keeps_inputs, plan.what.keeps_outputs)
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        self._data = selection.data if plan.what.keeps_outputs and plan.when.trigger is Trigger.ALWAYS else {}
        self._blocked = selection.blocked
        self._device = device
        self._records = records
        self._writer = writer
        self._sink = sink
        self._input_tasks = input_tasks
        self._overflow = overflow
        self._failure = failure
        # MindSpore's op_debug_mode 4 dumps only inputs of a failed operator, acl also unwritten outputs.
        self._shows_unwritten = plan.files.tree is Tree.MODELS or plan.when.trigger is not Trigger.EXCEPTION
        self._directory = ""
        self._iteration = 0
        self._inputs: dict[str, Any] = {}
        self._started: int | None = None  # running collective: its inputs are written
        self.bodies: Mapping[int, CompiledCapture] = {}

    def begin(self, directory: str, iteration: int, inputs: dict[str, Any]) -> None:
        """Direct the files of an execution into a directory.

        Each of the graph inputs is removed from ``inputs`` when its ``Data`` operator is written.
        """
        self._directory = directory
        self._iteration = iteration
        self._started = None
        self._inputs = inputs

    def end(self) -> None:
        """Drop the references to graph inputs, which may be large."""
        self._inputs = {}
        for body in self.bodies.values():
            body.end()

    def starting(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of a collective before it runs: other ranks may fail it."""
        task = self._tasks[position]
        if task is not None and self._overflow is None:  # an overflow shows in the results, after the run
            self._started = position
            try:
                self._take_sides(position, task, inputs, ())
            finally:
                self._writer.finish()

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Write operators that have just run."""
        del found
        try:
            for run in batch:
                self._take(run)
        finally:  # also after an error: earlier operators keep their rows
            self._writer.finish()

    def _take(self, run: NodeRun) -> None:
        """Write the overflow record of an operator, then its tensors."""
        position, inputs, outputs, saturated = run
        if self._no_tensors[position]:
            self._sink.skip(Reason.NO_TENSOR, self._no_tensors[position])
        task, node = self._tasks[position], self._nodes[position]
        if task is None:
            return
        if self._overflow is not None:
            trigger, op_debug = self._overflow
            if trigger.refusal(node, self._iteration, inputs, outputs, saturated=saturated) is not None:
                return
            # vendor: the overflow record is a file of its own, earlier than the operator's
            op_debug.write(self._directory, task, CLOCK.now())
        # vendor: a collective's inputs are captured before it runs, so that they have a file of their own
        if is_collective(node.operator.op_type):
            if self._started != position:
                self._take_sides(position, task, inputs, ())
            self._started, inputs = None, ()
        self._take_sides(position, task, inputs, outputs, saturated=saturated)

    def _take_sides(
        self, position: int, task: Task, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> None:
        """Write the ``Data`` operators that an operator reads, and the tensors of one of its files."""
        for name in self._data.get(position, ()):
            array = self._inputs.pop(name, None)  # shared with bodies: the first reader's capture writes it
            if isinstance(array, np.ndarray):
                data = OperatorRef(ge.DATA, name)
                record = self._records.of_graph_input(data, name, array, CLOCK.now())
                self._writer.take(self._directory, data, self._input_tasks[name], (record,))
        operator = self._nodes[position].operator
        inputs = self._unblocked(position, IO.INPUT, inputs)
        outputs = self._unblocked(position, IO.OUTPUT, outputs)
        records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
        self._writer.take(self._directory, operator, task, records, is_saturated=saturated)

    def looks_into(self, body: Graph) -> bool:
        """Return whether an operator in a branch or loop body, or deeper, is watched."""
        capture = self.bodies.get(body.index)
        return capture is not None and (
            any(capture.interest.positions) or any(capture.looks_into(inner) for inner in body.bodies)
        )

    def enter(self, body: Graph) -> CompiledCapture | None:
        """Return the observer of a branch or the body of a loop, which is about to run once."""
        capture = self.bodies.get(body.index)
        if capture is not None:
            capture.begin(self._directory, self._iteration, self._inputs)
        return capture

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write an operator that has just failed: its inputs, and under acl its outputs."""
        task = self._tasks[position]
        if self._failure is None or task is None:
            return
        operator = self._nodes[position].operator
        outputs = unwritten(self._device, position) if self._shows_unwritten else ()
        records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
        self._failure.take(self._directory, operator, task, records)

    def _unblocked(self, position: int, io: IO, arrays: Arrays) -> Arrays:
        """Return the inputs or outputs of an operator, None in place of the ones on a black list."""
        blocked = self._blocked.get(position)
        if not blocked:
            return arrays
        return [None if (io, slot) in blocked else array for slot, array in enumerate(arrays)]


NO_TARGET: Final = "NoSetDumpTarget"
"""The layer of ``dump_mode`` 2 without a mark: no operator has the name."""

_NEVER: Final = "2147483647"  # vendor: a step that no training reaches

_MODES: Final = {(True, True): "all", (True, False): "input", (False, True): "output"}


def content(plan: DumpPlan, layers: tuple[str, ...], root: str, *, is_dumped: bool) -> bytes:
    """Return acl.json for one step: compact JSON with sorted keys.

    >>> from msdump.plan import Context, FilePlan
    >>> plan = DumpPlan("data_dump.json", b"{}", Context(), FilePlan("/dump"))
    >>> content(plan, (), "/dump/0", is_dumped=True)
    b'{"dump":{"dump_list":[],"dump_mode":"all","dump_op_switch":"on","dump_path":"/dump/0"}}'

    The root is the step's directory, or the dump's root for a step that is not dumped.
    """
    settings: dict[str, Any]  # overflow and exception dumps select no operators
    if plan.when.trigger is Trigger.OVERFLOW:
        settings = {"dump_debug": "on", "dump_path": root}
    elif plan.when.trigger is Trigger.EXCEPTION:
        settings = {"dump_scene": "lite_exception"}
    else:
        settings = {
            "dump_list": [{"layer": list(layers)}] if layers else [],
            "dump_mode": _MODES[plan.what.keeps_inputs, plan.what.keeps_outputs],
            "dump_op_switch": "on",
            "dump_path": root,
        }
        if not is_dumped:
            settings["dump_step"] = _NEVER
    return json.dumps({"dump": settings}, separators=(",", ":"), sort_keys=True).encode()


def layers(plan: DumpPlan, full_names: Iterable[str], marked: frozenset[str]) -> tuple[str, ...]:
    """Return the layers for ``dump_list``: sorted items of ``kernels``, then names that their regexes match.

    Under ``dump_mode`` 2 they are the full names that ``set_dump`` marked, in execution order.
    """
    selector = plan.what.selector
    if selector.mode is DumpMode.MARKED:
        return tuple(name for name in full_names if name in marked) or (NO_TARGET,)
    if selector.mode is DumpMode.ALL or not selector.patterns:
        return ()
    items = sorted(pattern.item.replace(" ", "") for pattern in selector.patterns)
    searched = [pattern for pattern in selector.patterns if pattern.kind is PatternKind.REGEX]
    # vendor: regular expressions stand in the list as they were written
    matched = (name for name in full_names if any(pattern.matches(name) for pattern in searched))
    return (*items, *matched)


_log = logging.getLogger("msdump.capture")

_UNNAMED: Final = "graph"


class CompiledDump(DumpWriter):
    """All files of one compiled graph below the dump path."""

    def __init__(
        self, plan: DumpPlan, process: Process, device: Ascend, memory: Memory, model: ModelIdentity
    ) -> None:
        """Give the model its number and directory; nothing is written yet."""
        super().__init__(plan, process)
        # number of the model in its process
        self.model_id = next(process.counters.model_ids) if model.model_id is None else model.model_id
        directory = names.sanitize(model_selection.directory_name(plan, model.file_name, device.graph.name))
        # models with equal beginnings differ in model_id
        self.directory = directory[:LONGEST_NAME] or _UNNAMED  # directory of the model, ``{model_name}``
        self._layout = ModelLayout(plan.files.path, plan.context.device_id, self.directory, self.model_id)
        self._file_name = model.file_name
        self._time = model.time
        self._has_own_time = False  # whether no other program dumps into the directory named by _time
        self._warned = False
        self._memory = memory
        self._devices = tuple(device.walk())
        self._input_tasks = tasks.input_tasks((inner.graph, inner.tasks) for inner in self._devices)
        self._watch = process.watch(plan).graph_watch(inner.graph for inner in self._devices)
        self._writer = pipeline(plan, self.sink, self._watch)
        self._op_debug = None
        if plan.when.trigger is Trigger.OVERFLOW:
            model_tasks = [task for inner in self._devices for task in inner.tasks]
            is_json = plan.files.file_format is FileFormat.NPY
            self._op_debug = OpDebugWriter(self.sink, model_tasks, self.model_id, is_json=is_json)
        self._failures = {
            inner.graph.index: failure_pipeline(plan, inner.graph, self.sink) for inner in self._devices
        }
        self._capture: CompiledCapture | WatcherCapture
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select the dumped operators again, for new full names that ``set_dump`` marked."""
        plan, devices = self.plan, self._devices
        captures: dict[int, CompiledCapture] = {}
        watchers: dict[int, WatcherCapture] = {}
        if plan.compiled.scene is Scene.WATCHER:
            watcher.warn_of_unknown(*_whole(devices), plan)
            run = WatcherRun()
            for device in devices:
                memory = memory_of(device, devices[0], self._memory)
                capture = WatcherCapture(plan, device, memory, self._writer, run)
                watchers[device.graph.index], capture.bodies = capture, watchers
        else:
            selections = select_compiled(devices, plan, marked, self._file_name)
            for device, selection in zip(devices, selections, strict=True):
                overflow = None
                if self._op_debug is not None:
                    trigger = OverflowTrigger(self._process.overflow_limit(plan), reader(device))
                    overflow = trigger, self._op_debug
                captures[device.graph.index] = CompiledCapture(
                    plan,
                    device,
                    selection,
                    operator_records(plan, device, memory_of(device, devices[0], self._memory)),
                    self._writer,
                    sink=self.sink,
                    input_tasks=self._input_tasks,
                    overflow=overflow,
                    failure=self._failures[device.graph.index],
                )
            for device in devices:
                captures[device.graph.index].bodies = {index: captures[index] for index in device.bodies}
        self._capture = (captures or watchers)[devices[0].graph.index]
        nodes = [node for device in devices for node in device.graph.nodes]
        names = [name for node in nodes for name in full_names(node)]
        self._layers = layers(plan, names, marked)
        self._used = used_items(plan, names)
        self._process.suggest(plan, self._used, nodes)

    def write_graph_files(self) -> None:
        """Complete the files of the compilation; O2 saves no .ir files by itself."""
        self.sink.flush()

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> CompiledCapture | WatcherCapture:
        """Return the observer of a dumped run with its numbers and graph inputs."""
        self._process.use(self.plan, self._used)
        if self._layers == (NO_TARGET,) and not self._warned:
            self._warned = True
            _log.warning("%s: set_dump has marked no operator of %s", self.plan.source, self.directory)
        if self._watch is not None:
            self._watch.begin(run.iteration)
        self._capture.begin(self._execution(run), run.iteration, dict(inputs))
        return self._capture

    def end(self) -> None:
        """Finish a dumped iteration: its files are complete."""
        self._capture.end()
        super().end()

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed; write errors are only logged."""
        self._capture.end()
        super().broken_off()

    def pass_by(self, run: Run) -> None:
        """Write the acl.json of a run that is not dumped (Ascend O2)."""
        del run
        if self.plan.files.tree is Tree.STEPS:
            # vendor: undumped steps are configured, too, with a step number that never comes
            self._configure(self.plan.files.path, is_dumped=False)

    def _execution(self, run: Run) -> str:
        """Return the directory that a run dumps into; under Ascend O2, write the step's acl.json first."""
        number, step = run.execution, run.iteration
        if self.plan.files.tree is not Tree.STEPS:
            if not self._has_own_time:
                configured = self._time or self._process.configured(self.plan)
                self._time = free_time(configured, lambda time: self._layout.execution(time, number))
                self._has_own_time = True
            assert self._time
            return self._layout.execution(self._time, number)
        self._configure(f"{self.plan.files.path.rstrip('/')}/{step}", is_dumped=True)
        # another program may already use the directory named after this second
        time = free_time(CLOCK.seconds(), lambda time: self._layout.execution(time, number, step))
        return self._layout.execution(time, number, step)

    def _configure(self, root: str, *, is_dumped: bool) -> None:
        """Write the acl.json of a step, as MindSpore does before each one."""
        data = content(self.plan, self._layers, root, is_dumped=is_dumped)
        self.sink.replace(Artifact(*os.path.split(self._layout.acl_config()), (data,)))


def select_compiled(
    devices: Sequence[Ascend], plan: DumpPlan, marked: frozenset[str], file_name: str
) -> list[ModelSelection]:
    """Return the selection of each graph of a compiled model; operators without a task are never dumped.

    ``devices`` are of the main graph, then of its branches and loops; ``marked`` are full names of
    ``set_dump``.
    """
    graph, runs = _whole(devices)
    # vendor: dump_level kernel is about the kernels of operators that are called alone
    if plan.compiled.level is DumpLevel.KERNEL:
        whole = ModelSelection((Reason.KERNEL_LEVEL,) * len(runs), {}, {})
    elif plan.when.trigger is Trigger.EXCEPTION:
        whole = ModelSelection((Reason.NO_FAILURE,) * len(runs), {}, {})
    elif plan.compiled.models is not None:
        whole = model_selection.select_model(graph, plan, file_name, runs)
    else:
        refusal, requested = plan.what.selector.refusal, []
        for node in graph.nodes:  # an operator is selected by any of its names
            reasons = [refusal(name, is_marked=name in marked) for name in full_names(node)]
            requested.append(None if None in reasons else reasons[-1])
        whole = model_selection.selected(graph, requested, runs)
    parts, start = [], 0
    for device in devices:
        end = start + len(device.graph.nodes)
        data = {place - start: inputs for place, inputs in whole.data.items() if start <= place < end}
        blocked = {place - start: slots for place, slots in whole.blocked.items() if start <= place < end}
        parts.append(ModelSelection(whole.refusals[start:end], data, blocked))
        start = end
    return parts


def _whole(devices: Sequence[Ascend]) -> tuple[Graph, tuple[bool, ...]]:
    """Return the main graph with the operators of branches and loops added, and whether each has a task."""
    nodes = tuple(node for device in devices for node in device.graph.nodes)
    runs = tuple(task is not None for device in devices for task in device.tasks)
    return replace(devices[0].graph, nodes=nodes), runs


def full_names(node: Node) -> tuple[str, ...]:
    """Return the names that select an operator: of the operators fused in it, and its own."""
    return (*(part.operator.full_name for part in node.parts), node.operator.full_name)


@dataclass(slots=True)
class SingleOperator:
    """An operator that is called alone."""

    op_type: str  # type, as the caller spells it
    time: str  # time of the dump's configuration, ``YYYYMMDDHHMMSS``
    stream_id: int = 0  # stream of the next call
    first_task: int = 0
    runs: RunCounter = field(default_factory=RunCounter)  # counts the calls

    def begin(self, stream_id: int, first_task: int) -> None:
        """Set the stream and the first task of the next call."""
        self.stream_id = stream_id
        self.first_task = first_task


class SingleDump(DumpWriter, Observer):
    """All files of an operator that is called alone; ``set_dump`` does not select it."""

    def __init__(
        self, plan: DumpPlan, process: Process, device: Ascend, memory: Memory, single: SingleOperator
    ) -> None:
        """Prepare a dump; nothing is written yet."""
        super().__init__(plan, process)
        self._numbers = _numbers(device, single.op_type)
        watched = (plan.compiled.dumps_single_operators and number is not None for number in self._numbers)
        self.interest = Interest(tuple(watched), plan.what.keeps_inputs, plan.what.keeps_outputs)
        self._device = device
        self._single = single
        self._records = operator_records(plan, device, memory)
        self._writer = pipeline(plan, self.sink)
        self._failure = failure_pipeline(plan, device.graph, self.sink)
        place = Key(PathKind.SINGLE, time=single.time, device=plan.context.device_id)
        self._directory = place.below(plan.files.path)

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> SingleDump:
        """Return the observer of a call."""
        del run, inputs
        return self

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Write operators that have just run: a file as graph operator and one as kernel, by dump_level."""
        del found
        try:
            for position, inputs, outputs, _ in batch:
                for operator in self._operators(position):
                    records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
                    self._writer.take(self._directory, operator, self._task(position), records)
        finally:
            self._writer.finish()

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write the tensors of an operator that has just failed, in an exception scene."""
        if self._failure is not None and self._numbers[position] is not None:
            operator = replace(self._device.graph.nodes[position].operator, op_type=self._op_type(position))
            outputs = unwritten(self._device, position)
            records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
            self._failure.take(self._directory, operator, self._task(position), records)

    def _operators(self, position: int) -> Iterator[OperatorRef]:
        """Yield the names of an operator: as a graph operator, and as the kernel of aclnn's API."""
        op_type = self._op_type(position)
        if self.plan.compiled.level is not DumpLevel.KERNEL:
            yield OperatorRef(op_type, op_type)
        if self.plan.compiled.level is not DumpLevel.OP:
            yield OperatorRef(op_type, f"aclnn{self._single.op_type}_{position}_{op_type}AiCore")

    def _op_type(self, position: int) -> str:
        """Return the type in file names: the caller's spelling; TransData or Cast for inserted operators."""
        node = self._device.graph.nodes[position]
        return node.name if _is_called(node, self._single.op_type) else node.operator.op_type

    def _task(self, position: int) -> Task:
        number = self._numbers[position]
        assert number is not None
        return Task(self._single.first_task + number, self._single.stream_id)


def _numbers(device: Ascend, op_type: str) -> tuple[int | None, ...]:
    """Return the number of each operator's task in a call; None for an operator without a task.

    The called operator always has a task, even a join, split or reshape: only in graphs does CANN run these
    without a task (CANN, offline model dump).
    """
    numbers: list[int | None] = []
    count = 0
    for node, task in zip(device.graph.nodes, device.tasks, strict=True):
        has_task = task is not None or _is_called(node, op_type)
        numbers.append(count if has_task else None)
        count += has_task
    return tuple(numbers)


def _is_called(node: Node, op_type: str) -> bool:
    """Return whether a node is the called operator, not a TransData or Cast that the device inserted."""
    return node.name == op_type
