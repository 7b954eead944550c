"""An artifact for each tensor: its .npy file, its row of ``statistic.csv``, or both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.capture.statistics.hashing import HashingSink
from msdump.device.tasks import Task
from msdump.dtypes import widen
from msdump.encode import npy
from msdump.record import Artifact, OperatorRef, TensorRecord
from msdump.statistics.totals import StatisticNeed
from msdump.store import layouts
from msdump.store.names import NameTensor
from msdump.store.write.sinks import Sink
from msdump.store.write.standins import LONGEST_NAME

if TYPE_CHECKING:
    from msdump.capture.statistics.rows import Cells, Statistics
    from msdump.capture.statistics.sheets import RowSheet
    from msdump.store.session_files import NameParts

_FLOAT32: Final = dtypes.from_name("float32")
_SOME_TIME: Final = 9999999999999999  # has as many digits as the next 250 years
_SOME_DIGITS: Final = str(_SOME_TIME).encode()
_MOST_GATHERED: Final = 16 << 20
"""Bytes of tensors that wait to be measured together: they, and what steps made of them, stay in memory."""


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
        # rows alone may be put off: what is saved and what is hashed has an order of its own
        self._may_gather = statistics is not None and not keeps_tensors and self._hashing is None
        self._gathered: list[tuple[str, Task, TensorRecord]] | None = None
        self._gathered_bytes = 0

    @property
    def gathers(self) -> bool:
        """Whether rows of operators that have run together are written together."""
        return self._may_gather

    @property
    def has_sheets(self) -> bool:
        """Whether rows are all that is written, of the elements as they are."""
        return self._may_gather and not self._measures_saved

    @contextmanager
    def together(self) -> Iterator[None]:
        """Measure the tensors that are written in this context together, and add their rows at once."""
        if not self._may_gather:
            yield
            return
        self._gathered, self._gathered_bytes = [], 0
        try:
            yield
        finally:  # also where an operator raises: the rows of those before it are there
            gathered, self._gathered = self._gathered, None
            self._write_gathered(gathered)

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

    def name_parts(self, record: TensorRecord) -> NameParts | None:
        """Return the name of a tensor's file around its timestamp, where the file is all that is written.

        None elsewhere, and where a name is too long for a file.
        """
        if self._statistics is not None or not self._keeps_tensors:
            return None
        from msdump.store.session_files import NameParts

        head, *tails = os.fsencode(self._name(record._replace(timestamp=_SOME_TIME))).split(_SOME_DIGITS)
        longest = len(head) + len(_SOME_DIGITS) + sum(map(len, tails))
        return NameParts(head, *tails) if len(tails) == 1 and longest <= LONGEST_NAME else None

    @property
    def need(self) -> StatisticNeed | None:
        """What rows tell of elements, where rows are all that is written and a pass over them finds it."""
        return self._statistics.need if self._statistics is not None and self.has_sheets else None

    def sheet(self, records: Sequence[TensorRecord]) -> RowSheet | None:
        """Return what is the same in every step of the rows of tensors, None where there are no such rows."""
        return self._statistics.sheet(records) if self._statistics is not None and self.has_sheets else None

    def add_rows(self, directory: str, rows: bytes) -> None:
        """Add rows that a sheet has given."""
        assert self._statistics is not None, "it has given the sheet"
        self._sink.append(f"{directory}/{layouts.STATISTICS}", rows, self._statistics.header)

    def _write_row(self, statistics: Statistics, path: str, task: Task, record: TensorRecord) -> None:
        if self._gathered is not None:
            self._gathered.append((path, task, record))
            self._gathered_bytes += record.array.nbytes
            if self._gathered_bytes >= _MOST_GATHERED:
                gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
                self._write_gathered(gathered)
            return
        begun = statistics.begin(self._measured(record))
        if begun is None:
            return
        finish, message = begun

        def make() -> bytes:
            return statistics.row(record, finish(), task.task_id, task.stream_id)

        if self._hashing is None:
            self._sink.append(path, make(), statistics.header)
        else:
            self._hashing.append_later(path, make, statistics.header, record.array.nbytes, message)

    def _write_gathered(self, gathered: Sequence[tuple[str, Task, TensorRecord]]) -> None:
        """Measure tensors together, and add the rows of one file at once."""
        statistics = self._statistics
        assert statistics is not None, "who gathers rows measures"
        records = [record for _, _, record in gathered]
        if self._measures_saved:
            records = [*map(self._measured, records)]
        cells = statistics.measure_all(records)
        files: dict[str, list[tuple[TensorRecord, Cells, Task]]] = {}
        for (path, task, record), measured in zip(gathered, cells, strict=True):
            if measured is not None:
                files.setdefault(path, []).append((record, measured, task))
        for path, rows in files.items():
            self._sink.append(path, statistics.rows(rows), statistics.header)

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
