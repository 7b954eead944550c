"""The file of an operator: one of CANN's dump files with all its tensors, or one .npy file for each.

A writer takes the tensors of one operator at one moment; all its files carry the
same timestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from msdump import dtypes
from msdump.capture import steps
from msdump.capture.compiled.held import Held
from msdump.capture.statistics.rows import Statistics
from msdump.encode import dump_data, dump_enums, npy, packing
from msdump.encode.dump_data import DumpData, OriginalOp, TensorInfo
from msdump.encode.elements import element_bytes
from msdump.errors import FormatError
from msdump.reasons import Reason
from msdump.record import IO, Artifact, Buffer, OperatorRef, TensorRecord
from msdump.store import layouts, operator_names
from msdump.store.names import Style
from msdump.store.operator_names import OperatorName
from msdump.store.write.sinks import Sink

_IMAGE: Final = 4
_REGISTERED: Final = 2  # dtype.isbuiltin of a type that another package gave numpy
_FLOAT32: Final = dtypes.from_name("float32")


class OperatorWriter(Protocol):
    """Writes what an operator read and wrote."""

    def write(
        self, directory: str, operator: OperatorRef, name: OperatorName, tensors: Sequence[Held]
    ) -> None:
        """Write the files of an operator.

        Args:
            directory: Absolute directory.
            operator: The operator.
            name: Its name as files spell it, with task, stream and timestamp.
            tensors: What is to be written, inputs first.
        """


class DumpDataWriter:
    """Writes an operator's tensors into one of CANN's dump files, as they lie in device memory."""

    def __init__(self, sink: Sink) -> None:
        """Write into a sink."""
        self._sink = sink
        self._steps = (steps.drop_text(),)

    def write(
        self, directory: str, operator: OperatorRef, name: OperatorName, tensors: Sequence[Held]
    ) -> None:
        """Write the file of an operator; nothing where it has no tensors."""
        kept = [held for held in tensors if self._keeps(_record(operator, name, held))]
        if not kept:
            return
        parts = [(held.io, *device_tensor(held)) for held in kept]
        header = dump_data.header(
            DumpData(
                operator.full_name,
                name.timestamp,
                inputs=tuple(info for io, info, _ in parts if io is IO.INPUT),
                outputs=tuple(info for io, info, _ in parts if io is IO.OUTPUT),
            )
        )
        buffers = [buffer for _, info, buffer in parts if info.size]
        size = sum(info.size for _, info, _ in parts)
        self._sink.write(Artifact(directory, str(name), (header, *buffers), size))

    def _keeps(self, record: TensorRecord) -> bool:
        """Tell whether the steps keep a tensor; one that they drop is counted."""
        kept = steps.walk(record, self._steps)
        if isinstance(kept, Reason):
            self._sink.skip(kept)
            return False
        return True


class NpyWriter:
    """Writes an operator's tensors as .npy files in the host's layout, and rows of ``statistic.csv``."""

    def __init__(
        self, sink: Sink, style: Style, statistics: Statistics | None, *, keeps_tensors: bool = True
    ) -> None:
        """Write into a sink.

        Args:
            sink: Where files and rows go.
            style: How names are spelled.
            statistics: What is measured, None: nothing.
            keeps_tensors: Whether .npy files are written.
        """
        self._sink = sink
        self._style = style
        self._statistics = statistics
        self._keeps_tensors = keeps_tensors
        self._steps = (steps.drop_text(), steps.drop_empty)

    def write(
        self, directory: str, operator: OperatorRef, name: OperatorName, tensors: Sequence[Held]
    ) -> None:
        """Write the files and rows of an operator.

        Tensors are numbered as in a dump file, which does not know of absent optional ones.
        """
        numbers: Counter[IO] = Counter()
        for held in tensors:
            numbered = replace(_record(operator, name, held), slot=numbers[held.io])
            record = steps.walk(numbered, self._steps)
            numbers[held.io] += held.dtype is not dtypes.STRING
            if isinstance(record, Reason):
                self._sink.skip(record)
                continue
            wide = steps.widened(record)
            if self._keeps_tensors:
                file_name = str(operator_names.of_tensor(name, wide, self._style))
                self._sink.write(Artifact(directory, file_name, npy.encode(wide.array), wide.array.nbytes))
            if self._statistics is not None:
                self._write_row(self._statistics, directory, name, wide)

    def _write_row(
        self, statistics: Statistics, directory: str, name: OperatorName, record: TensorRecord
    ) -> None:
        # vendor: under O2 a bfloat16 tensor is measured, sized and hashed as the float32 that is saved.
        dtype = _FLOAT32 if record.dtype is dtypes.BFLOAT16 else record.dtype
        cells = statistics.measure(replace(record, dtype=dtype))
        if cells is not None:
            row = statistics.row(record, cells, name.task_id, name.stream_id)
            self._sink.append(f"{directory}/{layouts.STATISTICS}", row, statistics.header)


def device_tensor(held: Held) -> tuple[TensorInfo, Buffer]:
    """Return what the header says of a tensor, and its bytes as they lie in device memory."""
    info, array = described(held)
    return info, element_bytes(_plain(packing.pack(array, held.dtype) if held.dtype.per_byte > 1 else array))


def described(held: Held) -> tuple[TensorInfo, np.ndarray]:
    """Return what the header says of a tensor, and the tensor in the device's layout, not packed."""
    array, format_name, groups = _laid_out(held)
    info = TensorInfo(
        dump_enums.UNDEFINED if held.dtype.dump is None else held.dtype.dump,
        dump_enums.FORMATS[format_name],
        array.shape,
        held.array.shape,
        -(-array.size // held.dtype.per_byte) * array.itemsize,
        sub_format=groups if groups > 1 else 0,
        address=held.address,
        original_op=_original(held) if held.io is IO.OUTPUT else None,
    )
    return info, array


def host_format(shape: Sequence[int]) -> str:
    """Return the format of a tensor that lies in memory as on the host (MindSpore's O2 dump)."""
    return "NCHW" if len(shape) == _IMAGE else "ND"


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array of a type that hands out a buffer, as ml_dtypes' types do not; its bytes stay."""
    is_foreign = array.dtype.isbuiltin == _REGISTERED
    return array.view(f"u{array.dtype.itemsize}") if is_foreign else array


def _laid_out(held: Held) -> tuple[np.ndarray, str, int]:
    """Return the device array, the name of its format and its groups."""
    host = held.array
    if held.placed is not None and held.placed.format in dump_enums.FORMATS:
        try:
            return held.lay(host, held.placed), held.placed.format, held.placed.groups
        except FormatError:  # a shape that only the run told, and that the format cannot hold
            pass
    return host, host_format(host.shape), 1


def _original(held: Held) -> OriginalOp:
    dtype = held.host or held.dtype
    number = dump_enums.UNDEFINED if dtype.dump is None else dtype.dump
    return OriginalOp(held.origin, held.slot, number, dump_enums.FORMATS[host_format(held.array.shape)])


def _record(operator: OperatorRef, name: OperatorName, held: Held) -> TensorRecord:
    return TensorRecord(
        operator,
        held.io,
        held.slot,
        held.dtype,
        held.array,
        name.timestamp,
        host_format(held.array.shape),
    )
