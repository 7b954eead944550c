"""Observes the operators of one compiled graph, and hands each with its tensors to a writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from msdump.capture.compiled.model_selection import ModelSelection
from msdump.capture.pipeline import (
    Pipeline,
    completes_operators,
)
from msdump.capture.steps import OperatorRecords, count_no_tensors, unwritten
from msdump.capture.triggers import OverflowTrigger
from msdump.device import Ascend, Task
from msdump.encode import DebugRecord, OldRecord, Unit, dump_data, ge, op_debug
from msdump.graph import Graph
from msdump.observer import Arrays, Observer
from msdump.plan import DumpPlan, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO, Artifact, OperatorRef
from msdump.store import CLOCK, OP_DEBUG, OperatorFileKind, OperatorName, is_collective
from msdump.store.write import Sink

# vendor: the number of a floating point overflow in CANN's own example
_OVERFLOW: Final = 2048


_OLD_SECTION: Final = "AI Core"


class OpDebugWriter:
    """Writes a file for each overflow.

    Its name has the ids of the debug task, which follow those of the model's tasks; the ids of the operator
    that overflowed stand inside.
    """

    def __init__(self, sink: Sink, tasks: Sequence[Task | None], model_id: int, *, is_json: bool) -> None:
        """Write into a sink.

        Args:
            sink: Where files go.
            tasks: The tasks of the model's operators.
            model_id: Number of the model.
            is_json: MindSpore's JSON (``file_format`` npy) instead of CANN's dump file.
        """
        assigned = [task for task in tasks if task is not None]
        self._sink = sink
        self._model_id = model_id
        self._is_json = is_json
        self._task_id = 1 + max((task.task_id for task in assigned), default=-1)
        self._stream_id = 1 + max((task.stream_id for task in assigned), default=-1)

    def write(self, directory: str, task: Task, timestamp: int) -> None:
        """Write the file that says that the operator of a task has overflowed.

        Args:
            directory: Absolute directory of the operator's own file.
            task: The operator's task.
            timestamp: Microseconds since the epoch.
        """
        name = OperatorName(OP_DEBUG.op_type, OP_DEBUG.full_name, self._task_id, self._stream_id, timestamp)
        if self._is_json:
            self._write_json(directory, name, task)
            return
        body = op_debug.encode(DebugRecord(Unit.AIC, self._fields(task), (_OVERFLOW,)))
        header = dump_data.header(op_debug.header_data(timestamp))
        self._sink.write(Artifact(directory, str(name), (header, body), len(body)))

    def _write_json(self, directory: str, name: OperatorName, task: Task) -> None:
        record = OldRecord({_OLD_SECTION: self._old_fields(task) | {"status": _OVERFLOW}})
        text = op_debug.to_compact_json(record)
        self._sink.write(Artifact(directory, name.file_name(OperatorFileKind.OVERFLOW_JSON), (text,)))

    def _old_fields(self, task: Task) -> dict[str, int]:
        return {"model_id": self._model_id, "stream_id": task.stream_id, "task_id": task.task_id}

    def _fields(self, task: Task) -> dict[str, int]:
        return self._old_fields(task) | {"context_id": op_debug.NONE, "thread_id": op_debug.NONE}


class CompiledCapture(Observer):
    """The dump of one compiled graph: an observer of its operators while an iteration runs.

    All tensors of an operator carry one timestamp; those of a collective have two, since their
    inputs and outputs are files of their own.
    """

    def __init__(
        self,
        plan: DumpPlan,
        device: Ascend,
        selection: ModelSelection,
        records: OperatorRecords,
        pipeline: Pipeline,
        *,
        input_tasks: Mapping[str, Task],
        overflow: tuple[OverflowTrigger, OpDebugWriter] | None = None,
        failure: Pipeline | None = None,
    ) -> None:
        """Compile a plan for a graph.

        Args:
            plan: What is dumped.
            device: The emulated device with the compiled graph.
            selection: Its operators and tensors that are dumped.
            records: Makes the records of its tensors.
            pipeline: What they walk through into files.
            input_tasks: The task that each input of the model goes with.
            overflow: Decides operator by operator under ``op_debug_mode`` 3, and tells of overflows.
            failure: What the operator that fails is handed to, under ``op_debug_mode`` 4 and acl's
                exception scenes.
        """
        self._no_tensors = _count_no_tensors(plan, device, selection)
        # also operators whose sequences are only counted, for the summary
        self.watched: Sequence[bool] = tuple(
            is_watched or count > 0
            for is_watched, count in zip(selection.watched, self._no_tensors, strict=True)
        )
        self.completes_before_next: Sequence[bool] = self.watched if completes_operators(plan) else ()
        self.wants_inputs = plan.what.keeps_inputs
        self.wants_outputs = plan.what.keeps_outputs
        self._nodes = device.graph.nodes
        self._tasks = device.tasks
        self._data = selection.data if plan.what.keeps_outputs and plan.when.trigger is Trigger.ALWAYS else {}
        self._blocked = selection.blocked
        self._device = device
        self._records = records
        self._pipeline = pipeline
        self._input_tasks = input_tasks
        self._overflow = overflow
        self._failure = failure
        # MindSpore's op_debug_mode 4 promises the inputs alone.
        self._shows_unwritten = plan.files.tree is Tree.MODELS or plan.when.trigger is not Trigger.EXCEPTION
        self._directory = ""
        self._iteration = 0
        self._inputs: dict[str, Any] = {}
        self._started: int | None = None  # the collective that goes on, its inputs written
        self.bodies: Mapping[int, CompiledCapture] = {}

    def begin(self, directory: str, iteration: int, inputs: dict[str, Any]) -> None:
        """Direct the files of the operators that run from now on into an execution's directory.

        Args:
            directory: The directory.
            iteration: Number of the step, for messages.
            inputs: What the network is fed and no file tells yet; what is written is taken out.
        """
        self._directory = directory
        self._iteration = iteration
        self._started = None
        self._inputs = inputs

    def end(self) -> None:
        """Drop the references to what the network was fed, which may be large."""
        self._inputs = {}
        for body in self.bodies.values():
            body.end()

    def starting(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of a collective, which then are there, whatever becomes of the other ranks."""
        task = self._tasks[position]
        if task is not None and self._overflow is None:  # else its results decide whether it is dumped
            self._started = position
            self._write(position, task, inputs, None)

    def together(self) -> AbstractContextManager[None]:
        """Return a context for operators that have run together; their rows are there at its end."""
        return self._pipeline.together()

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> None:
        """Write an operator that has just run."""
        for _ in range(self._no_tensors[position]):
            self._pipeline.skip(Reason.NO_TENSOR)
        task = self._tasks[position]
        if task is None:
            return
        operator = self._nodes[position].operator
        if self._overflow is not None:
            trigger, op_debug = self._overflow
            node = self._nodes[position]
            refusal = trigger.refusal(node, self._iteration, inputs, outputs, saturated=saturated)
            if refusal is not None:
                return
            # vendor: a file of its own tells of the overflow, earlier than the operator's
            op_debug.write(self._directory, task, CLOCK.now())
        # vendor: a collective's inputs are captured before it runs, so that they have a file of their own
        if not is_collective(operator.op_type):
            self._write(position, task, inputs, outputs, saturated=saturated)
            return
        if self._started != position:
            self._write(position, task, inputs, None)
        self._started = None
        self._write(position, task, None, outputs, saturated=saturated)

    def _write(
        self,
        position: int,
        task: Task,
        inputs: Arrays | None,
        outputs: Arrays | None,
        *,
        saturated: bool = False,
    ) -> None:
        """Write a file of an operator's tensors; None: those have a file of their own."""
        for name in self._data.get(position, ()):
            self._write_data(name)
        operator = self._nodes[position].operator
        records = self._records.at_once(
            operator,
            position,
            () if inputs is None else self._unblocked(position, IO.INPUT, inputs),
            () if outputs is None else self._unblocked(position, IO.OUTPUT, outputs),
            CLOCK.now(),
        )
        self._pipeline.take(self._directory, operator, task, records, saturated=saturated)

    def looks_into(self, body: Graph) -> bool:
        """Tell whether an operator in a branch or loop body, or deeper, is watched."""
        capture = self.bodies.get(body.index)
        return capture is not None and (any(capture.watched) or any(map(capture.looks_into, body.bodies)))

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
        """Return the inputs or outputs of an operator without those on a black list."""
        blocked = self._blocked.get(position)
        if not blocked:
            return arrays
        return [None if (io, slot) in blocked else array for slot, array in enumerate(arrays)]

    def _write_data(self, name: str) -> None:
        """Write the ``Data`` operator of a graph input, once in an execution."""
        array = self._inputs.pop(name, None)  # shared with the bodies: the first reader writes it
        if isinstance(array, np.ndarray):
            operator = OperatorRef(ge.DATA, name)
            record = self._records.of_graph_input(operator, name, array, CLOCK.now())
            self._pipeline.take(self._directory, operator, self._input_tasks[name], (record,))


def _count_no_tensors(plan: DumpPlan, device: Ascend, selection: ModelSelection) -> tuple[int, ...]:
    """Return how many sequences and maps each operator that is asked for has, with a task or without one."""
    if plan.when.trigger is not Trigger.ALWAYS:
        return (0,) * len(device.graph.nodes)
    return tuple(
        count_no_tensors(device.graph, node, inputs=plan.what.keeps_inputs, outputs=plan.what.keeps_outputs)
        if is_asked and not node.bodies
        else 0
        for node, is_asked in zip(device.graph.nodes, selection.asked, strict=True)
    )
