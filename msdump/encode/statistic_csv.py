"""The lines of ``statistic.csv``: one row a tensor.

    Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value
    Add,Default_Add-op0,0,0,1795217009720246,input,0,24,float32,"(2,3)",6

Numbers are printed as by a C++ stream of doubles: six significant digits.

    >>> header(["Max Value", "L2Norm Value"]).decode().strip().split(",")[7:]
    ['Data Size', 'Data Type', 'Shape', 'Max Value', 'L2Norm Value']
    >>> [text(cell) for cell in (9.539392014, 1e6, float("nan"), 6, True, None)]
    ['9.53939', '1e+06', 'nan', '6', 'True', 'null']
    >>> import numpy as np
    >>> from msdump.dtypes import from_name
    >>> from msdump.record import IO, OperatorRef, TensorRecord
    >>> relu = OperatorRef("ReLU", "Default/ReLU-op0")
    >>> array = np.ones((2, 3), np.float32)
    >>> record = TensorRecord(relu, IO.OUTPUT, 0, from_name("float32"), array, timestamp=1795217009720246)
    >>> (template(record, [NUMBER], "ReLU", "Default_ReLU-op0") % (record.timestamp, 1.0)).rstrip()
    'ReLU,Default_ReLU-op0,0,0,1795217009720246,output,0,24,float32,"(2,3)",1'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msdump.record import TensorRecord
    from msdump.statistics import Cell

COLUMNS: Final = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp"),
    *("IO", "Slot", "Data Size", "Data Type", "Shape"),
)
"""Titles of the columns that every file has; those of the statistics follow."""

NUMBER: Final = "%.6g"
WHOLE: Final = "%d"
TEXT: Final = "%s"
"""Conversions of ``%`` that write the cells of one column as ``text`` does."""

NULL: Final = "null"
"""The cell of a statistic that the emulated device does not compute for a type."""


def header(titles: Iterable[str]) -> bytes:
    """Return the first line, with the titles of statistics in the user's order."""
    return f"{','.join((*COLUMNS, *titles))}\n".encode()


def template(  # noqa: PLR0917 - the fields of the line in their order
    record: TensorRecord,
    conversions: Iterable[str],
    op_type: str,
    op_name: str,
    task_id: int = 0,
    stream_id: int = 0,
) -> str:
    """Return the ``%`` format string of a tensor's line; its arguments are the timestamp and the statistics.

    ``conversions`` are ``NUMBER``, ``WHOLE`` or ``TEXT``, one per statistic; ``op_type`` and ``op_name`` are
    spelled as in file names. The record's timestamp and elements are not used.
    """
    # MindSpore ends rows, but not the header, with a comma, which shifts readers' columns: left out here.
    before_time = f"{op_type},{op_name},{task_id},{stream_id}".replace("%", "%%")
    shape = ",".join(map(str, record.array.shape))
    behind_time = f'{record.io},{record.slot},{data_size(record)},{record.dtype.name},"({shape})"'
    return f"{before_time},%d,{','.join([behind_time, *conversions])}\n"


def data_size(record: TensorRecord) -> int:
    """Return the bytes of a tensor's elements on the device, where types below a byte are packed."""
    # the array stores each element in a full byte
    if record.dtype.per_byte > 1:
        return -(-record.array.size // record.dtype.per_byte)
    return record.array.nbytes


def text(cell: Cell) -> str:
    """Return the text of a cell."""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return NULL if cell is None else str(cell)
