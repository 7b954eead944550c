"""Tensors of operators that the session which runs these writes to their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump.capture.pipeline import Pipeline, completes_operators
from msdump.capture.steps.records import OperatorRecords
from msdump.graph.graph import Graph
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.observer import TensorSlot
from msdump.plan import DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import IO, TensorRecord
from msdump.store import session_files
from msdump.store.clock import Clock
from msdump.store.session_files import SessionFiles, WantedFile, WantedFiles
from msdump.store.write.sinks import SyncSink

_Files = Mapping[TensorSlot, WantedFile]
"""The files of an operator."""


class SessionWriter:
    """Has tensors of one graph written in the sessions that run it, where that gives the same files."""

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        pipeline: Pipeline,
        records: OperatorRecords,
        *,
        sink: SyncSink,
        clock: Clock,
    ) -> None:
        """Set the graph.

        Args:
            graph: The graph.
            plan: What is dumped, a plan of which ``may_write`` tells.
            pipeline: What tensors walk through elsewhere.
            records: Makes their records.
            sink: Where files go.
            clock: Gives timestamps.
        """
        self._graph = graph
        self._plan = plan
        self._pipeline = pipeline
        self._records = records
        self._sink = sink
        self._clock = clock
        self._files: dict[int, _Files | None] = {}
        self._by_session: dict[Sequence[TensorSlot], WantedFiles] = {}

    def takes(self, position: int) -> bool:
        """Tell whether a session may write the tensors of the operator at a position."""
        if position not in self._files:
            self._files[position] = self._files_of(position)
        return self._files[position] is not None

    def _files_of(self, position: int) -> _Files | None:
        """Return the files of an operator; None where one of its tensors needs more than writing."""
        node, what = self._graph.nodes[position], self._plan.what
        if what.keeps_inputs and node.update.new_values:  # of these, what is there once it has run is shown
            return None
        sides = {
            IO.INPUT: node.inputs_after_run if what.keeps_inputs else (),
            IO.OUTPUT: node.declared_outputs if what.keeps_outputs else (),
        }
        files: dict[TensorSlot, WantedFile] = {}
        for io, names in sides.items():
            dtypes = [self._graph.type_of(name).dtype if name else None for name in names]
            if not all(session_files.takes(dtype) for name, dtype in zip(names, dtypes, strict=True) if name):
                return None
            arrays = [None if dtype is None else np.zeros(1, dtype.numpy) for dtype in dtypes]
            for record in self._records.of(node.operator, position, io, arrays, lambda: 0):
                file = self._file_of(record)
                if file is None:
                    return None
                files[TensorSlot(position, io, record.slot)] = file
        return files

    def _file_of(self, record: TensorRecord) -> WantedFile | None:
        name = self._pipeline.name_parts(record)
        part, host = record.device, record.dtype
        held = host if part is None else part.element_type(host)
        if name is None or held is host:
            return name and WantedFile(name)
        # vendor: a file has the host's type, but its values have been through the device's
        is_rounded = host is FLOAT32 and held in HALVES
        return WantedFile(name, held, part.saturates(held)) if part and is_rounded else None

    def begin(self, directory: str, tensors: Sequence[TensorSlot]) -> SessionFiles | None:
        """Return the files of a run of a session, None where it cannot write them now.

        Args:
            directory: Where they go.
            tensors: What it may write; it writes none of operators that ``takes`` does not tell of.
        """
        place = self._sink.for_session(directory)
        if place is None:
            return None
        wanted = self._by_session.get(tensors)
        if wanted is None:
            wanted = self._by_session[tensors] = WantedFiles([*map(self._file, tensors)])
        return SessionFiles(wanted, place, self._clock)

    def _file(self, tensor: TensorSlot) -> WantedFile | None:
        files = self._files.get(tensor.position)
        return None if files is None else files.get(tensor)

    def count(self, directory: str, files: SessionFiles) -> None:
        """Count what a session has written into a directory, which goes where that is nothing."""
        count, size = files.written
        self._sink.count(count, size)
        if not count:
            self._sink.leave(directory)
        for _ in range(files.empty):
            self._pipeline.skip(Reason.NO_ELEMENTS)


def may_write(plan: DumpPlan, pipeline: Pipeline) -> bool:
    """Tell whether a plan wants files of tensors and nothing else, each before the next operator runs."""
    return (
        pipeline.is_in_sessions
        and plan.when.trigger is Trigger.ALWAYS
        and not plan.what.saves_kernel_args
        and completes_operators(plan)
    )
