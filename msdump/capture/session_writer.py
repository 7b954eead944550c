"""Tensors of operators that the session which runs these writes to their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump import dtypes
from msdump.capture.pipeline import Pipeline, writes_at_once
from msdump.capture.steps.device import held_in
from msdump.capture.steps.records import OperatorRecords
from msdump.device.formats import c0
from msdump.graph.graph import Graph, ValueType
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.observer import TensorSlot
from msdump.plan import DumpPlan, Trigger
from msdump.reasons import Reason
from msdump.record import IO, TensorRecord
from msdump.store import session_files, session_layouts
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
            types = [self._graph.type_of(name) if name else None for name in names]
            if not all(session_files.takes(each.dtype) for each in types if each is not None):
                return None
            arrays = [None if each is None else _stand_in(each) for each in types]
            for record in self._records.of(node.operator, position, io, arrays, lambda: 0):
                is_known = self._graph.type_of(names[record.slot]).shape is not None
                file = self._file_of(record, record.array.ndim if is_known else None)
                if file is None:
                    return None
                files[TensorSlot(position, io, record.slot)] = file
        return files

    def _file_of(self, record: TensorRecord, rank: int | None) -> WantedFile | None:
        """Return the file of tensors like one whose elements mean nothing, None where no session writes it.

        Args:
            record: The tensor.
            rank: Number of its dimensions, None where only a run tells.
        """
        part, host, held = record.device, record.dtype, held_in(record)
        if part is not None and self._plan.what.keeps_device_format and part.groups > 1:
            return None
        shown = self._pipeline.shown(record)
        if shown is None or not (held is host or (host is FLOAT32 and held in HALVES)):
            return None
        tensor, name = shown
        layout = None
        if tensor.format != record.format:
            layout = None if rank is None else session_layouts.layout(tensor.format, rank, c0(held))
            if layout is None:
                return None
        saved = dtypes.from_numpy(tensor.array.dtype)
        if part is None or held is host:
            return WantedFile(name, host, saved, layout=layout)
        # vendor: a file in the host's type holds what has been through the device's, too
        return WantedFile(name, host, saved, held, part.saturates(held), layout)

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


def _stand_in(value_type: ValueType) -> np.ndarray | None:
    """Return an array of the type and rank of a value, None where the type is not known."""
    dtype, shape = value_type.dtype, value_type.shape
    rank = 1 if shape is None else len(shape)  # 1: every format has a place for it
    return None if dtype is None else np.zeros((1,) * rank, dtype.numpy)


def may_write(plan: DumpPlan, pipeline: Pipeline) -> bool:
    """Tell whether a plan wants files of tensors and nothing else, whatever becomes of the run."""
    return (
        pipeline.is_in_sessions
        and plan.when.trigger is Trigger.ALWAYS
        and not plan.what.saves_kernel_args
        and writes_at_once(plan)
    )
