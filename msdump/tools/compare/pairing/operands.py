"""The tensors of one dumped operator, read from its files, and their layout on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.encode import dump_data, dump_enums, npy, packing
from msdump.encode.dump_data import DataSpan, TensorInfo
from msdump.errors import DumpReadError, FormatError
from msdump.record import DEFAULT_FORMAT, IO
from msdump.store.read import mapped
from msdump.store.read.recent import RecentFiles
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind, NamedFile
from msdump.tools.convert.format import LAYOUTS

_LAYOUTS: Final = frozenset(layout for layouts in LAYOUTS.values() for layout in layouts)


_BEGINNING: Final = 512  # bytes; headers of .npy files have 128 but for the longest shapes


@dataclass(frozen=True, slots=True)
class DumpedOperand:
    """An input or output of a dumped operator.

    Attributes:
        io: Input or output.
        index: Its number among the operator's inputs or outputs.
        path: Its file.
        dtype: Element type on the device, ``float16``; the vendor's number of a type that cannot be read.
        format: Memory format.
        shape: Shape on the device.
        host_shape: Shape on the host; empty where it is not known.
        groups: Groups of the convolution that reads a weight.
        address: Address in the device's memory, 0 where it is not known.
        is_typed: Whether its file tells its element type; else its elements are its bytes.
    """

    io: IO
    index: int
    path: str
    dtype: str
    format: str
    shape: tuple[int, ...]
    host_shape: tuple[int, ...] = ()
    groups: int = 1
    address: int = 0
    is_typed: bool = True
    _load: Callable[[], np.ndarray] = field(default=lambda: np.empty(0), repr=False, compare=False)

    @property
    def array(self) -> np.ndarray:
        """The elements as the device holds them.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
            FormatError: Elements of the type cannot be read.
        """
        return self._load()

    def read_as(self, dtype: str) -> DumpedOperand:
        """Return the operand with its bytes read as elements of a type, or of one that files widen to it.

        Args:
            dtype: Name of the element type.

        Returns:
            The operand itself where its bytes are not as many as elements of these types have.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        data, count = self.array.view(np.uint8), math.prod(self.shape)
        named = dtypes.from_name(dtype)
        packed = (each for each in dtypes.DTYPES if each.per_byte > 1 and each.saved == named.saved)
        for kind in (named, *packed):
            if data.nbytes == -(-count // kind.per_byte) * kind.numpy.itemsize:
                return replace(
                    self, dtype=kind.name, is_typed=True, _load=partial(self._elements, data, kind)
                )
        return self

    def _elements(self, data: np.ndarray, kind: dtypes.DType) -> np.ndarray:
        if kind.per_byte > 1:
            return packing.unpack(data, kind, self.shape)
        return data.view(kind.numpy).reshape(self.shape)

    def on_host(self, shape: Sequence[int] = ()) -> np.ndarray:
        """Return the elements in the host's layout.

        Args:
            shape: The host shape, for a tensor whose file does not tell it.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
            FormatError: The format has no conversion, or the elements do not fit the shape.
        """
        host_shape = self.host_shape or tuple(shape)
        array = self.array
        if array.shape == host_shape or not self.is_converted:
            return array
        # vendor: a header's sub-format, the number of groups, is 0 or 1 for an ungrouped weight.
        return formats.decode(self.format, array, host_shape, max(self.groups, 1))

    @property
    def is_converted(self) -> bool:
        """Whether the device's memory format differs from the host's, so that elements lie elsewhere."""
        return self.format not in _AS_ON_HOST


_AS_ON_HOST: Final = frozenset({DEFAULT_FORMAT, "", "ND", "RESERVED", "NC", "CN", "MD"}) | _LAYOUTS


def read(folder: Folder, files: Sequence[NamedFile]) -> tuple[DumpedOperand, ...]:
    """Return the tensors of an operator, inputs first; their elements are not read yet.

    Args:
        folder: The directory of the files.
        files: Files of one execution of the operator.

    Raises:
        DumpReadError: A file is missing, truncated or corrupt.
    """
    if folder.kind is FolderKind.DUMPS:
        # of a collective, inputs and outputs have a file each
        sides = {file.io: file.path for file in files}
        each = (_from_dump_file(path, folder.version) for _, path in sorted(sides.items(), key=_side))
        return tuple(operand for operands in each for operand in operands)
    tensors = [_from_npy(file) for file in files]
    return tuple(sorted(tensors, key=_place))


def listed(folder: Folder, files: Sequence[NamedFile], recent: RecentFiles) -> tuple[DumpedOperand, ...]:
    """Return the tensors of an operator as ``read`` does, for a list of very many: their files are let go.

    Args:
        folder: The directory of the files.
        files: Files of one execution of the operator.
        recent: What reads a file with one tensor again when its elements are asked for.

    Raises:
        DumpReadError: A file is missing, truncated or corrupt.
    """
    if folder.kind is FolderKind.DUMPS:
        return read(folder, files)
    tensors = [_listed(file, recent) for file in files]
    return tuple(sorted(tensors, key=_place))


def _listed(file: NamedFile, recent: RecentFiles) -> DumpedOperand:
    path = file.path
    beginning = mapped.beginning(path, _BEGINNING)
    if len(beginning) < _BEGINNING:  # that is all of it, as of many a constant
        return _of_npy(file, npy.read_header(beginning, path), lambda _path: beginning)
    try:
        header = npy.read_header(beginning, path)
    except DumpReadError:  # a longer one, or none
        header = npy.read_header(mapped.load(path), path)
    return _of_npy(file, header, recent.load)


def _place(operand: DumpedOperand) -> tuple[IO, int]:
    return operand.io, operand.index


def _side(item: tuple[IO | None, str]) -> str:
    return item[0] or ""


def _from_dump_file(path: str, version: int) -> tuple[DumpedOperand, ...]:
    view = mapped.load(path)
    if version == 1:
        _, blocks = dump_data.read_message(view, path)
    else:
        blocks = dump_data.blocks(*dump_data.read_header(view, path))
    return tuple(
        _from_block(path, view, block, block.info) for block in blocks if isinstance(block.info, TensorInfo)
    )


def _from_block(path: str, view: memoryview, block: DataSpan, info: TensorInfo) -> DumpedOperand:
    def load() -> np.ndarray:
        return dump_data.tensor(info, view[block.offset : block.end], path, block.offset)

    # A tensor without axes has an empty original shape, which is also how an absent one reads.
    is_scalar = not info.original_shape and math.prod(info.shape) == 1
    return DumpedOperand(
        IO(block.section),
        block.index,
        path,
        _type_name(info),
        dump_enums.format_name(info.format),
        info.shape,
        info.shape if is_scalar else info.original_shape,
        info.sub_format,
        info.address,
        info.data_type != dump_enums.UNDEFINED,
        load,
    )


def _type_name(info: TensorInfo) -> str:
    try:
        return dump_data.dtype_of(info).name
    except FormatError:
        return dump_enums.data_type_name(info.data_type)


def _from_npy(file: NamedFile) -> DumpedOperand:
    # Only the header is read here: a comparison lists all tensors before it loads one after the other.
    view = mapped.load(file.path)
    return _of_npy(file, npy.read_header(view, file.path), lambda _path: view)


def _of_npy(file: NamedFile, header: npy.Header, opened: Callable[[str], memoryview]) -> DumpedOperand:
    # The name knows the type on the device: bfloat16 lies in the file as float32.
    dtype = file.dtype.lower() if file.dtype else dtypes.from_numpy(header.dtype).name
    shape = _held_shape(file, header.shape)

    def load() -> np.ndarray:
        if _is_cut(file, header.dtype):
            raise FormatError(
                f"{file.path}: the device held {file.held.dtype} by the graph, the file is named {dtype} and"
                f" holds the first part of the bytes alone"
            )
        return npy.decode(opened(file.path), file.path).reshape(shape)

    io = file.io or IO.OUTPUT
    return DumpedOperand(io, file.slot, file.path, dtype, file.format, shape, groups=file.groups, _load=load)


def _is_cut(file: NamedFile, dtype: np.dtype) -> bool:
    """Tell whether a file holds less bytes of each element than the device did.

    vendor: MindSpore 2.10 names the file of a kernel that computes in a wider type than its graph declares by
    the graph, and writes so many bytes as that type has.
    """
    if not file.held.dtype:
        return False
    held = dtypes.from_name(file.held.dtype).numpy
    return held.kind == dtype.kind == "f" and held.itemsize > dtype.itemsize


def _held_shape(file: NamedFile, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a file's elements.

    vendor: MindSpore 2.10 gives the file of a view, and of what reads it, the shape of the view's input.
    """
    held = file.held.shape
    is_told = held is not None and min(held, default=0) >= 0 and math.prod(held) == math.prod(shape)
    return held if held is not None and is_told else shape


def in_layout(array: np.ndarray, source: str, target: str) -> np.ndarray:
    """Return an array with its axes in the order of another layout.

    The same array comes back where one of the layouts has no named axes, or the two name other ones.

    >>> in_layout(np.zeros((1, 3, 28, 20)), "NCHW", "NHWC").shape
    (1, 28, 20, 3)

    Args:
        array: The array, its axes in the order of ``source``.
        source: Its layout, such as NCHW.
        target: The layout of the result, such as NHWC.
    """
    if source == target or not {source, target} <= _LAYOUTS or sorted(source) != sorted(target):
        return array
    if array.ndim != len(source):
        return array
    return array.transpose([source.index(axis) for axis in target])


def host_layout(operand: DumpedOperand, rank: int) -> str:
    """Return the order of the axes of an operand on the host, "" where it has no names.

    Args:
        operand: The operand.
        rank: Number of axes of its host shape.
    """
    if operand.format in _LAYOUTS:
        return operand.format if len(operand.format) == rank else ""
    if not operand.is_converted:
        return ""
    return LAYOUTS[rank][0] if rank in LAYOUTS else ""
