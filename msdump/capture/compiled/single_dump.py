"""The dump of an operator that is called alone (acl): files beside the directories of models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msdump.capture.pipeline import failure_pipeline, operator_records, pipeline
from msdump.capture.process import Process
from msdump.capture.steps.records import Memory, unwritten
from msdump.counters import Run, RunCounter
from msdump.device.ascend import Ascend
from msdump.device.tasks import Task
from msdump.errors import DumpWriteError
from msdump.graph.graph import Graph, Node
from msdump.observer import Arrays
from msdump.plan import DumpLevel, DumpPlan
from msdump.record import OperatorRef
from msdump.store import run_paths
from msdump.store.clock import CLOCK


@dataclass(slots=True)
class SingleOperator:
    """An operator that is called alone.

    Attributes:
        op_type: Its name, as the caller gave it.
        time: When the dump was configured, ``YYYYMMDDHHMMSS``.
        stream_id: The stream of the call that comes next.
        first_task: Number of that call's first task.
        runs: Counts its calls.
    """

    op_type: str
    time: str
    stream_id: int = 0
    first_task: int = 0
    runs: RunCounter = field(default_factory=RunCounter)

    def begin(self, stream_id: int, first_task: int) -> None:
        """Set the stream and the first task of the next call."""
        self.stream_id = stream_id
        self.first_task = first_task


class SingleDump:
    """Everything that one operator writes each time it is called.

    Attributes:
        plan: What is dumped.
        sink: Where it goes.
    """

    holds_up = ()

    def __init__(
        self, plan: DumpPlan, process: Process, device: Ascend, memory: Memory, single: SingleOperator
    ) -> None:
        """Prepare a dump; nothing is written yet.

        Args:
            plan: What is dumped.
            process: What all networks share.
            device: The emulated device with the operator's graph.
            memory: Gives the device memory of the call that goes on.
            single: The operator.
        """
        self.plan = plan
        self.sink = process.sink(plan)
        self._numbers = _numbers(device, single.op_type)
        self.watched = tuple(
            plan.compiled.dumps_single_operators and number is not None for number in self._numbers
        )
        self.wants_inputs = plan.what.keeps_inputs
        self.wants_outputs = plan.what.keeps_outputs
        self._device = device
        self._single = single
        self._records = operator_records(plan, device, memory)
        self._pipeline = pipeline(plan, self.sink)
        self._failure = failure_pipeline(plan, device.graph, self.sink)
        self._directory = run_paths.single_operators(plan.files.path, single.time, plan.context.device_id)

    def mark(self, marked: frozenset[str]) -> None:
        """Ignore marks: ``set_dump`` chooses no operators that are called alone."""

    def write_graph_files(self) -> None:
        """Write nothing: an operator that is called alone has no graph files."""

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> SingleDump:
        """Return the observer of a call."""
        del run, inputs
        return self

    def starting(self, position: int, inputs: Arrays) -> None:
        """Ignore what is about to run: an operator that is called alone is written once it ran."""

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> None:
        """Write the operator that has just run, once for each level."""
        del saturated
        for operator in self._operators(position):
            records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
            self._pipeline.take(self._directory, operator, self._task(position), records)

    def looks_into(self, body: Graph) -> bool:
        """Return False: an operator that is called alone has no branches or loops."""
        del body
        return False

    def enter(self, body: Graph) -> None:
        """Return None: an operator that is called alone has no branches or loops to observe."""

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write the tensors of an operator that has just failed, in an exception scene."""
        if self._failure is not None and self._numbers[position] is not None:
            operator = replace(self._device.graph.nodes[position].operator, op_type=self._op_type(position))
            outputs = unwritten(self._device, position)
            records = self._records.at_once(operator, position, inputs, outputs, CLOCK.now())
            self._failure.take(self._directory, operator, self._task(position), records)

    def end(self) -> None:
        """Finish a call: its files are complete."""
        self.sink.flush()

    def broken_off(self) -> None:
        """Complete the files of a call that failed; what goes wrong here is only logged."""
        with contextlib.suppress(DumpWriteError):
            self.sink.flush()

    def pass_by(self, run: Run) -> None:
        """Ignore a call that is not dumped: no file counts calls."""

    def _operators(self, position: int) -> Iterator[OperatorRef]:
        """Yield the names of an operator: as a graph operator, and as the kernel of aclnn's API."""
        op_type = self._op_type(position)
        if self.plan.compiled.level is not DumpLevel.KERNEL:
            yield OperatorRef(op_type, op_type)
        if self.plan.compiled.level is not DumpLevel.OP:
            yield OperatorRef(op_type, f"aclnn{self._single.op_type}_{position}_{op_type}AiCore")

    def _op_type(self, position: int) -> str:
        """Return an operator's type: as the caller named it, that of a TransData or Cast beside it."""
        node = self._device.graph.nodes[position]
        return node.name if _is_called(node, self._single.op_type) else node.operator.op_type

    def _task(self, position: int) -> Task:
        number = self._numbers[position]
        assert number is not None
        return Task(self._single.first_task + number, self._single.stream_id)


def _numbers(device: Ascend, op_type: str) -> tuple[int | None, ...]:
    """Return the number of each operator's task in a call, None for one that the device runs none for.

    The operator that is called always has one: only where graphs run are joins, splits and changes of shape
    settled without the device (CANN, offline model dump).
    """
    numbers: list[int | None] = []
    count = 0
    for node, task in zip(device.graph.nodes, device.tasks, strict=True):
        has_task = task is not None or _is_called(node, op_type)
        numbers.append(count if has_task else None)
        count += has_task
    return tuple(numbers)


def _is_called(node: Node, op_type: str) -> bool:
    """Tell the operator that is called from a TransData or Cast that the device puts beside it."""
    return node.name == op_type
