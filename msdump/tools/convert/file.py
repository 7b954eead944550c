"""Converts one dump file: a file for every tensor, buffer, workspace and overflow record in it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.dtypes import DType
from msdump.encode import dump_data, dump_enums, npy, op_debug
from msdump.encode.dump_data import DataSpan, DumpData, RawInfo, TensorInfo
from msdump.encode.elements import element_bytes
from msdump.errors import DumpReadError, FormatError, MsdumpError, ToolError
from msdump.record import Buffer
from msdump.store.read import mapped
from msdump.store.write.files import DUMP_MODE, DiskFiles
from msdump.store.write.stretch import Stretch
from msdump.tools.convert import names
from msdump.tools.convert.names import OutputKind
from msdump.tools.convert.result import VERSION, ConvertFailure, FileResult, Source, Target
from msdump.tools.return_codes import ReturnCode

if TYPE_CHECKING:
    import numpy as np

_RECORDS: Final = f"{op_debug.OP_TYPE}.{op_debug.NODE}."
_RESERVED: Final = dump_enums.FORMATS["RESERVED"]
_CHUNK: Final = 1 << 20  # elements that are widened at once


def convert_file(target: Target, source: Source) -> FileResult:
    """Convert a dump file. A tensor that fails is listed in the result, and the others are converted.

    Args:
        target: What tensors are converted to.
        source: The file and the directory of the results.
    """
    result = FileResult(source.path)
    try:
        file = _read(source.path, target.version)
        blocks = _chosen(file.blocks, target)
    except MsdumpError as error:
        result.failures.append(_failure("", error))
        return result
    # One DiskFiles for all results: it keeps their directory open.
    with contextlib.closing(DiskFiles()) as files:
        converter = _Converter(target, source, file, files, result)
        for block in blocks:
            try:
                converter.convert(block)
            except (MsdumpError, OSError, ValueError, MemoryError) as error:
                result.failures.append(_failure(f"{block.section}:{block.index}", error))
    return result


@dataclass(frozen=True, slots=True)
class _File:
    """A dump file that was read.

    Attributes:
        name: Its name, without the directory.
        view: Its bytes.
        op_name: Name of the operator, as the header has it; "" of a .npy file.
        blocks: Its tensors, buffers and workspaces.
    """

    name: str
    view: memoryview
    op_name: str
    blocks: tuple[DataSpan, ...]


def _read(path: str, version: int) -> _File:
    view, name = mapped.load(path), os.path.basename(path)  # noqa: PTH119 - a Path costs more than the call
    if name.endswith(".npy"):
        return _File(name, view, "", (_array_block(view, path),))
    data: DumpData
    if version != VERSION:
        data, blocks = dump_data.read_message(view, path)
    else:
        data, offset = dump_data.read_header(view, path)
        blocks = dump_data.blocks(data, offset)
    return _File(name, view, data.op_name, blocks)


def _array_block(view: memoryview, path: str) -> DataSpan:
    """Return the array of a .npy file as output 0 of an operator."""
    # vendor: a .npy file among dump files counts as a dump of one tensor, of the format RESERVED.
    header = npy.read_header(view, path)
    if header.is_fortran:
        raise DumpReadError(path, "the array is in Fortran order; save it in C order", 0)
    dtype = dtypes.from_numpy(header.dtype)
    size = math.prod(header.shape) * header.dtype.itemsize
    info = TensorInfo(dtype.dump or dump_enums.UNDEFINED, _RESERVED, header.shape, header.shape, size)
    return DataSpan("output", 0, info, header.offset)


def _chosen(blocks: tuple[DataSpan, ...], target: Target) -> list[DataSpan]:
    """Return the blocks that are converted."""
    if target.only is None:
        return list(blocks)
    section, index = target.only
    section_blocks = [block for block in blocks if block.section == section]
    if index >= len(section_blocks):
        fault = f"{section} {index} is out of range; the file has {len(section_blocks)} {section}s"
        raise ToolError(ReturnCode.INDEX, fault)
    return [section_blocks[index]]


@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of a converted tensor.

    Attributes:
        shape: Shape of the elements.
        format: Name of their format.
        dtype: numpy's name of their type, one that .npy files hold.
        descr: Their type as headers of .npy files tell it.
        pieces: Their bytes, piece by piece, also those of another file.
        is_kept: Whether they stay in their format although another is asked for.
    """

    shape: tuple[int, ...]
    format: str
    dtype: str
    descr: str
    pieces: Iterable[Buffer | Stretch]
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class _Converter:
    """Converts the blocks of one file."""

    target: Target
    source: Source
    file: _File
    files: DiskFiles
    result: FileResult

    def convert(self, block: DataSpan) -> None:
        """Write the file of a tensor, buffer, workspace or overflow record."""
        info = block.info
        if self.file.name.startswith(_RECORDS):
            self._convert_record(block)
        elif isinstance(info, RawInfo):
            name = names.of_block(self.file.name, block.section, info.type, block.index)
            self._write(name, (Stretch(self.source.path, block.offset, info.size),))
        elif self.target.format:
            self._convert_tensor(block, info)
        else:
            self._save(block, self._as_on_device(block, info), is_converted=False)

    def _convert_record(self, block: DataSpan) -> None:
        if block.section == "output":
            record = op_debug.decode(self._bytes(block), self.source.path, block.offset)
            self._write(names.of_record(self.file.name, block.index), (op_debug.to_json(record),))

    def _convert_tensor(self, block: DataSpan, info: TensorInfo) -> None:
        try:
            elements = self._in_format(block, info)
        except (MsdumpError, ValueError):
            # vendor: a tensor that cannot be converted is written as it is where the name tells its format.
            if self.target.kind is OutputKind.MSNPY:
                self._save(block, self._as_on_device(block, info), is_converted=False)
            raise
        self._save(block, elements, is_converted=True)
        self.result.kept += elements.is_kept

    def _as_on_device(self, block: DataSpan, info: TensorInfo) -> _Elements:
        dtype = dump_data.dtype_of(info)
        shape, size = dump_data.extent(info, info.size, self.source.path, block.offset)
        pieces: Iterable[Buffer | Stretch]
        if size and not dtype.is_widened:
            # Most tensors are copied from file to file, byte by byte, without becoming an array.
            pieces = (Stretch(self.source.path, block.offset, size),)
        else:
            pieces = _widened((self._array(block, info),), dtype)
        format_name = dump_enums.format_name(info.format)
        return _Elements(shape, format_name, dtypes.written(dtype).name, dtype.descr, pieces)

    def _in_format(self, block: DataSpan, info: TensorInfo) -> _Elements:
        # not above: without -f nothing needs them, nor numpy
        from msdump.tools.convert import format as convert_format
        from msdump.tools.convert import scripts

        dtype = dump_data.dtype_of(info)
        array = self._array(block, info)
        if info.data_type == dump_enums.UNDEFINED:  # bytes, whose number is in the array alone
            info = dataclasses.replace(info, shape=array.shape, format=dump_enums.ND)
        target, source = self.target, convert_format.source_of(info)
        script = scripts.find(target.scripts, source, target.format) if target.scripts else None
        # A script of the user's own comes before the conversions of the tool.
        if script is not None and source != target.format:
            shape = target.shape or info.original_shape
            converted = scripts.call(script, dtypes.widen(array, dtype), shape, info.sub_format)
            descr = converted.dtype.newbyteorder("<").str
            pieces = iter((element_bytes(converted),))
            return _Elements(converted.shape, target.format, converted.dtype.name, descr, pieces)
        plan = convert_format.plan(info, dtype, target.format, target.shape)
        return _Elements(
            *(plan.shape, plan.format, dtypes.written(dtype).name, dtype.descr),
            _widened(plan.parts(array), dtype),
            plan.is_kept,
        )

    def _save(self, block: DataSpan, elements: _Elements, *, is_converted: bool) -> None:
        kind = self.target.kind
        tensor = names.Tensor(
            *(block.section, block.index, elements.shape, elements.dtype, elements.format),
            is_converted=is_converted,
        )
        name = names.of_tensor(self.file.name, self.file.op_name, tensor, kind)
        match kind:
            case OutputKind.BIN:
                self._write(name, elements.pieces)
            case OutputKind.PT:
                self._write(name, _torch_file(elements))
            case _:
                head = npy.numpy_header(elements.descr, elements.shape)
                self._write(name, itertools.chain((head,), elements.pieces))

    def _write(self, name: str, pieces: Iterable[Buffer | Stretch]) -> None:
        directory, file_name = self.source.directory, names.stand_in(name)
        try:
            self.result.size += self.files.stream(directory, file_name, pieces, DUMP_MODE)
        except OSError as error:
            if isinstance(error, MsdumpError):  # its message already says which file
                raise
            fault = f"{directory}/{file_name}: cannot be written: {error.strerror or error}"
            raise ToolError(ReturnCode.WRITE, fault) from error
        self.result.files += 1
        if file_name != name:
            self.result.renamed.append((directory, file_name, name))

    def _array(self, block: DataSpan, info: TensorInfo) -> np.ndarray:
        return dump_data.tensor(info, self._bytes(block), self.source.path, block.offset)

    def _bytes(self, block: DataSpan) -> memoryview:
        return self.file.view[block.offset : block.end]


def _widened(arrays: Iterable[np.ndarray], dtype: DType) -> Iterator[Buffer]:
    """Yield the bytes of arrays in the type that .npy files hold."""
    if not dtype.is_widened:
        yield from map(element_bytes, arrays)
        return
    # In chunks: widened to float32 or to bits, a large tensor would need several times its memory.
    for array in arrays:
        flat = array.reshape(-1)
        pieces = (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))
        yield from (element_bytes(dtypes.widen(piece, dtype)) for piece in pieces)


def _torch_file(elements: _Elements) -> Iterator[Buffer]:
    """Yield the bytes of a file that ``torch.load`` reads as a tensor."""
    import numpy as np
    import torch

    # From a bytearray, not bytes: torch warns of arrays that cannot be written.
    pieces = (piece if isinstance(piece, Stretch) else (piece,) for piece in elements.pieces)
    data = bytearray().join(itertools.chain.from_iterable(pieces))
    array = np.frombuffer(data, elements.descr).reshape(elements.shape)
    file = io.BytesIO()
    torch.save(torch.from_numpy(array), file)
    yield file.getbuffer()


def _failure(tensor: str, error: Exception) -> ConvertFailure:
    match error:
        case ToolError():
            code = error.code
        case DumpReadError():
            is_system = isinstance(error.__cause__, OSError)
            code = ReturnCode.OPEN if is_system else ReturnCode.DUMP_DATA
        case FormatError():
            code = ReturnCode.DATA_TYPE
        case _:
            code = ReturnCode.UNKNOWN
    return ConvertFailure(tensor, code, str(error) or type(error).__name__)
