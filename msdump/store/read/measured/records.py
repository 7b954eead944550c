"""Tensors of which only statistics were saved: a row of ``statistic.csv`` and no file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store.layouts import STATISTICS
from msdump.store.names import TensorName
from msdump.store.read.cells import Cell, Row
from msdump.store.read.measured.measurements import Measurements
from msdump.store.read.records import Directory, Record

if TYPE_CHECKING:
    import numpy as np

_IDENTITY: Final = ("Op Type", "Op Name", "IO", "Slot")


@dataclass(frozen=True, slots=True)
class MeasuredRecord(Record):
    """A tensor of which only a row of ``statistic.csv`` was saved.

    Attributes:
        row: The row.
    """

    row: Row

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the element type, as the row has it."""
        name = str(self.row.get("Data Type"))
        try:
            return dtypes.from_name(name).name
        except FormatError:
            return name.lower()

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements, as the row has them."""
        text = str(self.row.get("Shape")).strip("()")
        return tuple(int(size) for size in text.split(",") if size.strip().isdecimal())

    @property
    def array(self) -> np.ndarray:
        """No elements: DumpReadError."""
        return self.raw

    @property
    def raw(self) -> np.ndarray:
        """No elements: DumpReadError."""
        raise DumpReadError(
            f"{self.path}/{STATISTICS}",
            f"{self}: only its statistics were saved (saved_data), not its elements",
        )

    @property
    def stats(self) -> Measurements:
        """The statistics that were saved."""
        return Measurements(self.row, lambda: None)


def without_file(
    records: Sequence[Record], rows: Sequence[Row], directory: Directory, path: str
) -> Iterator[MeasuredRecord]:
    """Yield a record for each row whose tensor has no file.

    Args:
        records: The tensors of an execution that have files.
        rows: The rows of the same execution.
        directory: Their directory.
        path: Its path.
    """
    if not rows:
        return
    filed = {(record.op_type, record.op_name, record.io, record.slot) for record in records}
    passes: defaultdict[tuple[Cell, ...], int] = defaultdict(int)
    for row in rows:
        identity = tuple(row.get(title) for title in _IDENTITY)
        if identity in filed:
            continue
        number = passes[identity]
        passes[identity] += 1
        execution = records[0].execution if records else 0
        yield MeasuredRecord(_name(row), path, directory, execution=execution, pass_number=number, row=row)


def _name(row: Row) -> TensorName:
    return TensorName(
        op_type=str(row.get("Op Type")),
        op_name=str(row.get("Op Name")),
        timestamp=_number(row.get("Timestamp")),
        io=IO.INPUT if row.get("IO") == IO.INPUT else IO.OUTPUT,
        slot=_number(row.get("Slot")),
        dtype=str(row.get("Data Type")),
        task_id=_number(row.get("Task ID")),
        stream_id=_number(row.get("Stream ID")),
    )


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0
