"""An artifact for each tensor: its .npy file, its row of ``statistic.csv``, or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msdump import dtypes
from msdump.capture.statistics.hashing import HashingSink
from msdump.capture.statistics.rows import Statistics
from msdump.device.tasks import Task
from msdump.dtypes import widen
from msdump.encode import npy
from msdump.record import Artifact, OperatorRef, TensorRecord
from msdump.store import layouts
from msdump.store.names import NameTensor
from msdump.store.write.sinks import Sink

_FLOAT32: Final = dtypes.from_name("float32")


class TensorWriter:
    """Writes tensors as .npy files and rows of ``statistic.csv``."""

    def __init__(
        self,
        sink: Sink,
        name: NameTensor,
        statistics: Statistics | None,
        *,
        keeps_tensors: bool = True,
        measures_saved: bool = False,
    ) -> None:
        """Write into a sink.

        Args:
            sink: Where files and rows go.
            name: Names the files.
            statistics: What is measured, None: nothing.
            keeps_tensors: Whether .npy files are written.
            measures_saved: Measure tensors as the files hold them: bfloat16 as float32 (Ascend O2).
        """
        self._sink = sink
        has_hashes = statistics is not None and statistics.has_hashes
        self._hashing = sink if has_hashes and isinstance(sink, HashingSink) else None
        self._name = name
        self._statistics = statistics
        self._keeps_tensors = keeps_tensors
        self._measures_saved = measures_saved

    def write(
        self,
        directory: str,
        operator: OperatorRef,  # noqa: ARG002 - every record names it
        task: Task,
        tensors: Iterable[TensorRecord],
    ) -> None:
        """Write the files and rows of an operator, one tensor after the other."""
        rows = f"{directory}/{layouts.STATISTICS}"
        for record in tensors:
            saved = widened(record) if self._keeps_tensors or self._measures_saved else record
            # vendor: the file first, then its row
            if self._keeps_tensors:
                name = self._name(record, task.task_id, task.stream_id)
                self._sink.write(Artifact(directory, name, npy.encode(saved.array), saved.array.nbytes))
            if self._statistics is not None:
                # but for O2, hashes and sizes are those of bfloat16, whatever type the file holds
                measured = saved if self._measures_saved else record
                self._write_row(self._statistics, rows, task, measured)

    def _write_row(self, statistics: Statistics, path: str, task: Task, record: TensorRecord) -> None:
        finish = statistics.begin(self._measured(record))
        if finish is None:
            return
        if self._hashing is None:
            row = statistics.row(record, finish(), task.task_id, task.stream_id)
            self._sink.append(path, row, statistics.header)
            return

        def make() -> bytes:
            return statistics.row(record, finish(), task.task_id, task.stream_id)

        self._hashing.append_later(path, make, statistics.header, record.array.nbytes)

    def _measured(self, record: TensorRecord) -> TensorRecord:
        # vendor: under O2 a bfloat16 tensor is measured, sized and hashed as the float32 that is saved.
        if self._measures_saved and record.dtype is dtypes.BFLOAT16:
            return record._replace(dtype=_FLOAT32)
        return record


def widened(record: TensorRecord) -> TensorRecord:
    """Store types that numpy lacks in the next larger one: bfloat16 as float32, int4 as int8."""
    if record.dtype.saved == record.array.dtype:
        return record
    return record._replace(array=widen(record.array, record.dtype))
