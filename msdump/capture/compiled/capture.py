"""Observers of compiled graphs: they hand each operator with its tensors to a writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.capture.compiled.model_selection import ModelSelection
from msdump.capture.steps import OperatorRecords, count_no_tensors, unwritten
from msdump.capture.triggers import OverflowTrigger
from msdump.capture.writers import ArtifactWriter
from msdump.device import Ascend, Task
from msdump.encode import DebugRecord, OldRecord, Unit, dump_data, ge, op_debug
from msdump.graph import Graph
from msdump.observer import Arrays, Interest, NodeRun, Observer
from msdump.plan import DumpPlan, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO, Artifact, OperatorRef
from msdump.statistics import TotalsArray
from msdump.store import CLOCK, OP_DEBUG, OperatorFileKind, OperatorName, is_collective
from msdump.store.write import Sink

_OVERFLOW: Final = 2048  # vendor: the code of a floating-point overflow in CANN's own example


class OpDebugWriter:
    """Writes a record file for each floating-point overflow.

    The file name has the ids of the debug task, which follow the ids of the model's tasks; the record in the
    file has the ids of the operator that overflowed.
    """

    def __init__(self, sink: Sink, tasks: Sequence[Task | None], model_id: int, *, is_json: bool) -> None:
        """Write into a sink."""
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
        """Compile a plan for a graph."""
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
