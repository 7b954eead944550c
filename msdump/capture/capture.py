"""Takes the tensors of running operators and hands complete files to a sink."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump import dtypes
from msdump.capture.selection import Selection
from msdump.capture.steps import Step, compile_steps
from msdump.encode import npy
from msdump.graph import arguments
from msdump.graph.graph import Graph
from msdump.plan import DumpPlan
from msdump.record import IO, Artifact, OperatorRef, TensorRecord
from msdump.store import names
from msdump.store.clock import Clock
from msdump.store.sinks import Sink

Arrays = Sequence[np.ndarray | None]


class Capture:
    """The dump of one graph: an observer of its operators while an iteration runs.

    Files of an operator are handed to the sink before ``ran`` returns, inputs
    first, each with a timestamp of its own.
    """

    def __init__(self, graph: Graph, plan: DumpPlan, selection: Selection, sink: Sink, clock: Clock) -> None:
        """Compile the plan for a graph."""
        self.watched = selection.watched
        self.wants_inputs = plan.keeps_inputs
        self.wants_outputs = plan.keeps_outputs
        self._graph = graph
        self._operators = tuple(node.operator for node in graph.nodes)
        self._sink = sink
        self._clock = clock
        self._steps: tuple[Step, ...] = compile_steps(sink.skip)
        self._file_name = names.namer(plan.naming, plan.context.device_target)
        self._keeps_args = plan.saves_kernel_args
        self._directory = ""

    def begin(self, directory: str) -> None:
        """Direct the files of the operators that run from now on into a directory."""
        self._directory = directory

    def ran(self, position: int, inputs: Arrays, outputs: Arrays) -> None:
        """Write the tensors of an operator that has just run."""
        operator = self._operators[position]
        if self._keeps_args:
            self._write_args(position)
        for slot, array in enumerate(inputs):
            if array is not None:
                self._write(operator, IO.INPUT, slot, array, self._directory)
        for slot, array in enumerate(outputs):
            if array is not None:
                self._write(operator, IO.OUTPUT, slot, array, self._directory)

    def write_parameter(self, name: str, array: np.ndarray) -> None:
        """Write a weight or graph input as ``Parameter.{name}``."""
        self._write(OperatorRef(names.PARAMETER, name), IO.OUTPUT, 0, array, self._directory)

    def write_constant(self, number: int, array: np.ndarray, directory: str) -> None:
        """Write a constant as ``Parameter.data-{number}``."""
        self._write(names.constant(number), IO.OUTPUT, 0, array, directory)

    def _write(self, operator: OperatorRef, io: IO, slot: int, array: np.ndarray, directory: str) -> None:
        record = TensorRecord(operator, io, slot, dtypes.from_numpy(array.dtype), array, self._clock.now())
        for step in self._steps:
            kept = step(record)
            if kept is None:
                return
            record = kept
        self._sink.write(
            Artifact(directory, self._file_name(record), npy.encode(record.array), record.array.nbytes)
        )

    def _write_args(self, position: int) -> None:
        node = self._graph.nodes[position]
        data = arguments.kernel_args_json(node, self._graph)
        self._sink.replace(Artifact(self._directory, names.kernel_args_name(node.operator), (data,)))
