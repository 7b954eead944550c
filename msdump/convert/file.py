"""Converts one dump file: a file for every tensor, buffer, workspace and overflow record in it.

Names of the results, as msaccucmp makes them: F is the name of the dump file, T the section (input, output),
N the tensor's number:

    npy, pt     F.T.N.npy                 converted to a format:  F.T.N.2x20x5x4.npy
    bin         F.T.N.640.float16.NC1HWC0.bin                     F.T.N.2_20_5_4.float16.NCHW.bin
    msnpy       Conv2D.Conv2D-op12.1.2.1612439563338030.T.N.NCHW.npy
    buffers     F.l1buffer.N.bin          workspaces  F.space.N.bin          overflow  F.output.N.json

A name of 255 bytes or more becomes a hash, and ``mapping.csv`` beside it has the name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import itertools
import math
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.dtypes import DType
from msdump.encode import (
    DataSpan,
    DumpData,
    RawInfo,
    TensorInfo,
    dump_data,
    dump_message,
    element_bytes,
    npy,
    op_debug,
)
from msdump.errors import DumpReadError, FormatError, MsdumpError, ToolError
from msdump.read import load_file
from msdump.record import Buffer
from msdump.return_codes import ReturnCode
from msdump.store.write import DUMP_MODE, DiskFiles, FileRange

if TYPE_CHECKING:
    import numpy as np


_LONGEST_NAME: Final = 254  # vendor: one less than file systems allow
_DUMP_FIELDS: Final = 5  # type, name, task, stream, timestamp


class OutputKind(enum.StrEnum):
    """Type of the files that converted tensors are written to (``-t``)."""

    NPY = "npy"
    BIN = "bin"
    MSNPY = "msnpy"
    PT = "pt"


@dataclass(frozen=True, slots=True)
class ConvertedTensor:
    """The elements of a tensor as they are written."""

    shape: tuple[int, ...]
    format: str
    dtype: str  # numpy's name of their type, one that .npy files hold
    descr: str  # their type as in the header of a .npy file, ``<f2``
    pieces: Iterable[Buffer | FileRange]  # their bytes, piece by piece, also ranges of another file
    is_kept: bool = False  # whether they stay in their format although another one is wanted


def _name_tensor(
    dump: str, op_name: str, place: str, tensor: ConvertedTensor, kind: OutputKind, *, is_converted: bool
) -> str:
    """Return the name of a tensor's file, given the name of the dump file, and of the operator in the header.

    >>> dump = "Conv2D.Default_Conv2D-op12.1.2.1612439563338030"
    >>> tensor = ConvertedTensor((2, 20, 5, 4), "NCHW", "float16", "<f2", ())
    >>> full_name = "Default/Conv2D-op12"
    >>> _name_tensor(dump, full_name, "output.0", tensor, OutputKind.NPY, is_converted=True)
    'Conv2D.Default_Conv2D-op12.1.2.1612439563338030.output.0.2x20x5x4.npy'
    >>> _name_tensor(dump, full_name, "output.0", tensor, OutputKind.MSNPY, is_converted=True)
    'Conv2D.Conv2D-op12.1.2.1612439563338030.output.0.NCHW.npy'
    """
    if kind is OutputKind.MSNPY:
        return f"{_with_plain_name(dump, op_name)}.{place}.{tensor.format}.npy"
    if kind is OutputKind.BIN:
        # vendor: without -f the shape in the name is that of the flat elements.
        sizes = tensor.shape if is_converted else (math.prod(tensor.shape),)
        return f"{dump}.{place}.{'_'.join(map(str, sizes))}.{tensor.dtype}.{tensor.format}.bin"
    dims = f".{'x'.join(map(str, tensor.shape))}" if is_converted else ""
    return f"{dump}.{place}{dims}.{kind}"


def shorten_name(name: str) -> str:
    """Return a file name, replaced by a hash with the same suffix if it is too long.

    >>> shorten_name("Add.output.0.npy"), shorten_name(f"{'x' * 300}.npy")
    ('Add.output.0.npy', '691bc0cab3063617ac0226a79780515d.npy')
    """
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    suffix = name.rpartition(".")[2]
    return f"{uuid.uuid3(uuid.NAMESPACE_DNS, name).hex}.{suffix}"


def _with_plain_name(dump: str, op_name: str) -> str:
    """Return the name of a dump file with the operator's name from the header, without its scope.

    >>> _with_plain_name("MatMul.Default_fc_MatMul-op0.1.2.3", "Default/fc/MatMul-op0")
    'MatMul.MatMul-op0.1.2.3'
    """
    # vendor: a name of more or less than five fields stays as it is.
    fields = dump.split(".")
    if len(fields) == _DUMP_FIELDS and op_name:
        fields[1] = op_name.rpartition("/")[2].replace("\0", "_")
    return ".".join(fields)


VERSION: Final = 2
"""Version of dump files with tensors behind the header; in version 1 they are inside."""


@dataclass(frozen=True, slots=True)
class Target:
    """Options of a conversion."""

    format: str = ""  # name of the memory format that tensors are converted to, "": they stay as they are
    kind: OutputKind = OutputKind.NPY  # type of the files that tensors are written to
    # shape of the one tensor that is converted, empty: the one that its header implies
    shape: tuple[int, ...] = ()
    only: tuple[str, int] | None = None  # section and number of the one tensor that is converted, None: all
    scripts: str = ""  # directory of the user's own conversions, "": none
    version: int = VERSION  # version of the dump files, 1 or 2


@dataclass(frozen=True, slots=True)
class Source:
    """A dump file and the directory for its results."""

    path: str
    directory: str  # directory that the converted files are written to


@dataclass(frozen=True, slots=True)
class ConvertFailure:
    """A tensor, or a whole file, that was not converted.

    Attributes:
        tensor: ``input:0``; "" for the whole file.
        code: msaccucmp's return code.
        message: Text of the error.
    """

    tensor: str
    code: int
    message: str


@dataclass(slots=True)
class FileResult:
    """The result of converting one dump file.

    Attributes:
        path: The dump file.
        files: Number of files that were written.
        size: Number of bytes that were written.
        kept: Number of tensors that were written in their own format, ND, which needs no conversion.
        failures: The tensors that were not converted.
        renamed: (directory, hash, name) of each file that is named by a hash because its name is too long.
    """

    path: str
    files: int = 0
    size: int = 0
    kept: int = 0
    failures: list[ConvertFailure] = field(default_factory=list)
    renamed: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Return code of msaccucmp: that of the last failure."""
        return self.failures[-1].code if self.failures else ReturnCode.DONE


_RECORDS: Final = f"{op_debug.OP_TYPE}.{op_debug.NODE}."
_RESERVED: Final = dump_message.FORMATS["RESERVED"]
_CHUNK: Final = 1 << 20  # elements that are widened at once


def convert_file(target: Target, source: Source) -> FileResult:
    """Convert a dump file. A tensor that fails is listed in the result, and the others are converted."""
    result = FileResult(source.path)
    try:
        view, op_name, blocks = _read(source.path, target.version)
        if target.only is not None:
            section, index = target.only
            section_blocks = [block for block in blocks if block.section == section]
            if index >= len(section_blocks):
                fault = f"{section} {index} is out of range; the file has {len(section_blocks)} {section}s"
                raise ToolError(ReturnCode.INDEX, fault)
            blocks = (section_blocks[index],)
    except MsdumpError as error:
        result.failures.append(_failure("", error))
        return result
    # One DiskFiles for all results: it keeps their directory open.
    with contextlib.closing(DiskFiles()) as files:
        converter = _Converter(target, source, view, op_name, files, result)
        for block in blocks:
            try:
                converter.convert(block)
            except (MsdumpError, OSError, ValueError, MemoryError) as error:
                result.failures.append(_failure(f"{block.section}:{block.index}", error))
    return result


def _read(path: str, version: int) -> tuple[memoryview, str, tuple[DataSpan, ...]]:
    """Return a dump file's bytes, the operator's name in its header ("" of a .npy file), and its blocks."""
    view = load_file(path)
    if path.endswith(".npy"):
        # vendor: a .npy file among dump files counts as a dump of one tensor, of the format RESERVED.
        header = npy.read_header(view, path)
        if header.is_fortran:
            raise DumpReadError(path, "the array is in Fortran order; save it in C order", 0)
        dtype = dtypes.from_numpy(header.dtype)
        size = math.prod(header.shape) * header.dtype.itemsize
        info = TensorInfo(dtype.dump or dump_message.UNDEFINED, _RESERVED, header.shape, header.shape, size)
        return view, "", (DataSpan("output", 0, info, header.offset),)
    data: DumpData
    if version != VERSION:
        data, blocks = dump_data.read_message(view, path)
    else:
        data, offset = dump_data.read_header(view, path)
        blocks = dump_data.blocks(data, offset)
    return view, data.op_name, blocks


@dataclass(frozen=True, slots=True)
class _Converter:
    """Converts the blocks of one file."""

    target: Target
    source: Source
    view: memoryview
    op_name: str
    files: DiskFiles
    result: FileResult

    @property
    def name(self) -> str:
        return os.path.basename(self.source.path)  # noqa: PTH119 - a Path costs more than the call

    def convert(self, block: DataSpan) -> None:
        info = block.info
        if self.name.startswith(_RECORDS):
            if block.section == "output":
                record = op_debug.decode(self._bytes(block), self.source.path, block.offset)
                self._write(f"{self.name}.output.{block.index}.json", (op_debug.to_json(record),))
        elif isinstance(info, RawInfo):
            is_other_buffer = block.section == "l1buffer" and info.type != 0
            section = f"{info.type}buffer" if is_other_buffer else block.section
            name = f"{self.name}.{section}.{block.index}.bin"
            self._write(name, (FileRange(self.source.path, block.offset, info.size),))
        elif self.target.format:
            try:
                elements = self._in_format(block, info)
            except (MsdumpError, ValueError):
                # vendor: msnpy file names state the format: a tensor that cannot be converted is written raw.
                if self.target.kind is OutputKind.MSNPY:
                    self._save(block, self._as_on_device(block, info), is_converted=False)
                raise
            self._save(block, elements, is_converted=True)
            self.result.kept += elements.is_kept
        else:
            self._save(block, self._as_on_device(block, info), is_converted=False)

    def _as_on_device(self, block: DataSpan, info: TensorInfo) -> ConvertedTensor:
        dtype = dump_data.dtype_of(info)
        shape, size = dump_data.extent(info, info.size, self.source.path, block.offset)
        pieces: Iterable[Buffer | FileRange]
        if size and not dtype.is_widened:
            # Most tensors are copied from file to file, byte by byte, without becoming an array.
            pieces = (FileRange(self.source.path, block.offset, size),)
        else:
            pieces = _widened((self._array(block, info),), dtype)
        format_name = dump_message.format_name(info.format)
        return ConvertedTensor(shape, format_name, dtypes.written(dtype).name, dtype.descr, pieces)

    def _in_format(self, block: DataSpan, info: TensorInfo) -> ConvertedTensor:
        # not above: without -f nothing needs them, nor numpy
        from msdump.convert import format as convert_format

        dtype = dump_data.dtype_of(info)
        array = self._array(block, info)
        if info.data_type == dump_message.UNDEFINED:  # raw bytes: only the array has their number
            info = dataclasses.replace(info, shape=array.shape, format=dump_message.ND)
        target, source = self.target, convert_format.source_of(info)
        script = convert_format.find_script(target.scripts, source, target.format) if target.scripts else None
        # A script of the user's own comes before the conversions of the tool.
        if script is not None and source != target.format:
            shape = target.shape or info.original_shape
            converted = convert_format.call_script(script, dtypes.widen(array, dtype), shape, info.sub_format)
            descr = converted.dtype.newbyteorder("<").str
            pieces = iter((element_bytes(converted),))
            return ConvertedTensor(converted.shape, target.format, converted.dtype.name, descr, pieces)
        plan = convert_format.plan(info, dtype, target.format, target.shape)
        return ConvertedTensor(
            plan.shape,
            plan.format,
            dtypes.written(dtype).name,
            dtype.descr,
            _widened(plan.parts(array), dtype),
            plan.is_kept,
        )

    def _save(self, block: DataSpan, elements: ConvertedTensor, *, is_converted: bool) -> None:
        kind, place = self.target.kind, f"{block.section}.{block.index}"
        name = _name_tensor(self.name, self.op_name, place, elements, kind, is_converted=is_converted)
        match kind:
            case OutputKind.BIN:
                self._write(name, elements.pieces)
            case OutputKind.PT:
                self._write(name, _torch_file(elements))
            case _:
                head = npy.numpy_header(elements.descr, elements.shape)
                self._write(name, itertools.chain((head,), elements.pieces))

    def _write(self, name: str, pieces: Iterable[Buffer | FileRange]) -> None:
        directory, file_name = self.source.directory, shorten_name(name)
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
        return self.view[block.offset : block.end]


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


def _torch_file(elements: ConvertedTensor) -> Iterator[Buffer]:
    """Yield the bytes of a file that ``torch.load`` reads as a tensor."""
    import numpy as np
    import torch

    # From a bytearray, not bytes: torch warns of arrays that cannot be written.
    pieces = (piece if isinstance(piece, FileRange) else (piece,) for piece in elements.pieces)
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
