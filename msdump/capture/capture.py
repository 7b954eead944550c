"""Takes the tensors of running operators and hands complete files and rows to a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from msdump import dtypes
from msdump.capture import device_steps, steps
from msdump.capture.sampling import sample
from msdump.capture.selection import Selection, drops_useless, is_useless
from msdump.capture.statistics.rows import Statistics
from msdump.capture.steps import Step
from msdump.capture.triggers import OverflowTrigger
from msdump.device.ascend import Ascend
from msdump.encode import npy
from msdump.graph.files import arguments
from msdump.graph.graph import Graph
from msdump.observer import Arrays
from msdump.plan import DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.store import layouts, names, operator_names
from msdump.store.clock import Clock
from msdump.store.write.sinks import Sink


def compile_steps(plan: DumpPlan, device: Ascend | None) -> tuple[Step, ...]:
    """Return what every tensor of a plan walks through.

    Args:
        plan: The plan.
        device: The emulated device, None on CPU and GPU.
    """
    made: list[Step] = [steps.drop_text(), steps.drop_empty]
    if device is not None:
        made.append(
            device_steps.to_device(device) if plan.what.keeps_device_format else device_steps.to_host(device)
        )
        if plan.what.sample_count is not None:
            made.append(sample(plan.what.sample_count))
    return tuple(made)


class Capture:
    """The dump of one graph: an observer of its operators while an iteration runs.

    Files of an operator are handed to the sink before ``ran`` returns, inputs
    first, each with a timestamp of its own.

    Attributes:
        bodies: What sees the branches and loops directly inside the graph, by their index.
        entered: Whether the graph, as a branch or a body, ran in this iteration.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        selection: Selection,
        sink: Sink,
        clock: Clock,
        *,
        device: Ascend | None = None,
        trigger: OverflowTrigger | None = None,
    ) -> None:
        """Compile the plan for a graph.

        Args:
            graph: The graph, fused where the level fuses.
            plan: What is dumped.
            selection: Its operators and parameters.
            sink: Where files and rows go.
            clock: Gives timestamps.
            device: The emulated device, None on CPU and GPU.
            trigger: Decides operator by operator under ``op_debug_mode`` 3.
        """
        on_failure = plan.when.trigger is Trigger.EXCEPTION
        self.watched = (False,) * len(graph.nodes) if on_failure else selection.watched
        self.wants_inputs = plan.what.keeps_inputs
        self.wants_outputs = plan.what.keeps_outputs
        self._takes_failures = on_failure
        self._plan = plan
        self._graph = graph
        self._operators = tuple(node.operator for node in graph.nodes)
        self._sink = sink
        self._clock = clock
        self._trigger = trigger
        self._steps = compile_steps(plan, device)
        self._file_name = names.namer(plan.files.naming, plan.context.device_target)
        self._statistics = _statistics(plan)
        self._drops_useless = drops_useless(plan)
        self._no_tensors = tuple(
            steps.count_no_tensors(graph, node, inputs=self.wants_inputs, outputs=self.wants_outputs)
            for node in graph.nodes
        )
        self._directory = ""
        self._iteration = 0
        self.bodies: Mapping[int, Capture] = {}
        self.entered = False

    def begin(self, directory: str, iteration: int) -> None:
        """Direct the files of the operators that run from now on into an iteration's directory."""
        self._directory = directory
        self._iteration = iteration
        self.entered = False

    def ran(self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False) -> None:
        """Write the tensors of an operator that has just run."""
        operator = self._operators[position]
        if self._trigger is not None:
            value_names = self._graph.nodes[position].inputs
            refusal = self._trigger.refusal(
                operator, self._iteration, inputs, outputs, saturated=saturated, names=value_names
            )
            if refusal is not None:
                return
        if self._plan.what.saves_kernel_args:
            self._write_args(position)
        for _ in range(self._no_tensors[position]):
            self._sink.skip(Reason.NO_TENSOR)
        for slot, array in _present(inputs):
            self._write(operator, IO.INPUT, slot, array, self._directory)
        for slot, array in _present(outputs):
            if self._drops_useless and is_useless(operator, slot):
                self._sink.skip(Reason.USELESS)
            else:
                self._write(operator, IO.OUTPUT, slot, array, self._directory)

    def enter(self, body: Graph) -> Capture | None:
        """Return what sees a branch or the body of a loop, which is about to run once."""
        capture = self.bodies.get(body.index)
        if capture is not None:
            capture.entered = True
        return capture

    def failed(self, position: int, inputs: Arrays) -> None:
        """Write the inputs of an operator that has just failed (``op_debug_mode`` 4)."""
        if not self._takes_failures:
            return
        for slot, array in _present(inputs):
            self._write(self._operators[position], IO.INPUT, slot, array, self._directory)

    def write_parameter(self, name: str, array: np.ndarray) -> None:
        """Write a weight or graph input as ``Parameter.{name}``."""
        self._write(OperatorRef(names.PARAMETER, name), IO.OUTPUT, 0, array, self._directory)

    def write_constant(self, number: int, array: np.ndarray, directory: str) -> None:
        """Write a constant as ``Parameter.data-{number}``."""
        self._write(names.constant(number), IO.OUTPUT, 0, array, directory)

    def _write(self, operator: OperatorRef, io: IO, slot: int, array: np.ndarray, directory: str) -> None:
        dtype = dtypes.from_numpy(array.dtype)
        record = TensorRecord(operator, io, slot, dtype, array, self._clock.now())
        kept = steps.walk(record, self._steps)
        if isinstance(kept, Reason):
            self._sink.skip(kept)
            return
        if self._plan.files.keeps_tensors:
            wide = steps.widened(kept)
            buffers = npy.encode(wide.array)
            self._sink.write(Artifact(directory, self._file_name(kept), buffers, wide.array.nbytes))
        if self._statistics is not None:
            self._write_row(self._statistics, kept, directory)

    def _write_row(self, statistics: Statistics, record: TensorRecord, directory: str) -> None:
        cells = statistics.measure(record)
        if cells is not None:
            path = f"{directory}/{layouts.STATISTICS}"
            self._sink.append(path, statistics.row(record, cells), statistics.header)

    def _write_args(self, position: int) -> None:
        node = self._graph.nodes[position]
        data = arguments.kernel_args_json(node, self._graph)
        self._sink.replace(Artifact(self._directory, operator_names.kernel_args(node.operator), (data,)))


def _statistics(plan: DumpPlan) -> Statistics | None:
    if plan.statistics is None:
        return None
    return Statistics(plan.statistics, names.STYLES[plan.files.naming, plan.context.device_target])


def _present(arrays: Arrays) -> Iterator[tuple[int, np.ndarray]]:
    return ((slot, array) for slot, array in enumerate(arrays) if array is not None)
