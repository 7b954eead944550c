"""CANN's dump files read back: every tensor of an operator behind one header."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from msdump import dtypes
from msdump.device import formats
from msdump.device.tasks import is_collective
from msdump.encode import dump_data, dump_enums, op_debug
from msdump.encode.dump_data import DataSpan, DumpData, TensorInfo
from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store.names import TensorName
from msdump.store.operator_names import OperatorName
from msdump.store.read import mapped
from msdump.store.read.records import Directory, Record

if TYPE_CHECKING:
    import numpy as np

    from msdump.encode.op_debug import DebugRecord, OldRecord


def side_of(name: OperatorName, path: str) -> IO | None:
    """Return whether the file of a collective holds inputs or outputs.

    None for a file of another operator, and for one that holds both or cannot be read.
    """
    if not is_collective(name.op_type):
        return None
    try:
        blocks = dump_data.blocks(*dump_data.read_header(mapped.load(path), path))
        sides = {IO(block.section) for block in blocks if isinstance(block.info, TensorInfo)}
    except DumpReadError:
        return None
    return sides.pop() if len(sides) == 1 else None


@dataclass(frozen=True)
class OperatorFile:
    """The file of an operator, or of an overflow.

    Attributes:
        name: The fields of its name; of the original name where the file has a stand-in.
        path: The file.
        directory: The directory that it stands in.
        pass_number: Which run of the operator within the execution, from 0: the pass of a loop, or the
            call of an operator that is called alone.
    """

    name: OperatorName
    path: str
    directory: Directory = field(repr=False, compare=False)
    pass_number: int = 0

    @property
    def side(self) -> IO | None:
        """Whether it holds the inputs or the outputs of a collective, whose two files are of one run.

        None for a file of another operator, and for one that holds both or cannot be read.
        """
        return side_of(self.name, self.path)

    @cached_property
    def header(self) -> DumpData:
        """The DumpData header that stands before the tensors' bytes.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        return dump_data.read_header(mapped.load(self.path), self.path)[0]

    @cached_property
    def records(self) -> tuple[OperatorRecord, ...]:
        """Its inputs, then its outputs; DumpReadError as in ``header``."""
        data, offset = dump_data.read_header(mapped.load(self.path), self.path)
        return tuple(
            self._record(block, block.info, data)
            for block in dump_data.blocks(data, offset)
            if isinstance(block.info, TensorInfo)
        )

    def _record(self, block: DataSpan, info: TensorInfo, data: DumpData) -> OperatorRecord:
        name = TensorName(
            self.name.op_type,
            self.name.op_name,
            self.name.timestamp,
            IO(block.section),
            block.index,
            dump_enums.format_name(info.format),
            _dtype_name(info),
            self.name.task_id,
            self.name.stream_id,
        )
        return OperatorRecord(
            name,
            self.path,
            self.directory,
            info,
            block.offset,
            told_name=data.op_name,
            pass_number=self.pass_number,
        )

    @property
    def overflow(self) -> DebugRecord | OldRecord:
        """The overflow record of an ``Opdebug`` file.

        Raises:
            DumpReadError: The file is missing or corrupt, or tells of none.
        """
        for record in self.records:  # an ``Opdebug`` file has one output and nothing else
            return op_debug.decode(record.data, self.path, record.offset)
        raise DumpReadError(self.path, "no overflow record: the file has no output")


@dataclass(frozen=True, slots=True)
class OperatorRecord(Record):
    """A tensor in an operator's dump file; its bytes are laid out as in device memory.

    Attributes:
        info: Its message in the header: element type, format, shapes, size.
        offset: Offset of its first byte in the file.
        told_name: Full name of its operator in the header, "" where it has none.
    """

    info: TensorInfo
    offset: int
    told_name: str = ""

    @property
    def full_name(self) -> str | None:
        """Full name of the operator as the file's header tells it, None where it does not."""
        return self.told_name or None

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the device's element type, ``float16``."""
        return self.name.dtype or ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions on the device, in elements."""
        return self.info.shape

    @property
    def original_shape(self) -> tuple[int, ...]:
        """Dimensions on the host, in elements."""
        return self.info.original_shape

    @property
    def data(self) -> memoryview:
        """The bytes of the tensor; DumpReadError where the file cannot be read."""
        return mapped.load(self.path)[self.offset : self.offset + self.info.size]

    @property
    def array(self) -> np.ndarray:
        """The elements as they lie on the device; types that numpy lacks are widened.

        Raises:
            DumpReadError: The file is missing, or too short for the shape.
            FormatError: An element type that cannot be read.
        """
        return dtypes.widen(self.raw, dump_data.dtype_of(self.info))

    @property
    def raw(self) -> np.ndarray:
        """The elements as they lie on the device, bfloat16 and others in ml_dtypes' types; as ``array``."""
        return dump_data.tensor(self.info, self.data, self.path, self.offset)

    @property
    def host(self) -> np.ndarray:
        """The elements in the host's layout; DumpReadError and FormatError as for ``array``.

        Raises:
            FormatError: A format whose bytes are not known, or a shape that it cannot hold.
        """
        raw, info = self.raw, self.info
        if info.original_shape and info.shape != info.original_shape:
            raw = formats.decode(self.format, raw, info.original_shape, max(1, info.sub_format))
        return dtypes.widen(raw, dump_data.dtype_of(info))


def _dtype_name(info: TensorInfo) -> str:
    try:
        return dump_data.dtype_of(info).name
    except FormatError:
        return dump_enums.data_type_name(info.data_type).removeprefix("DT_").lower()
