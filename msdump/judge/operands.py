"""The tensors of one dumped operator, read from its files, and their layout on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.convert import LAYOUTS
from msdump.device import formats
from msdump.encode import DataSpan, TensorInfo, dump_data, dump_message, elements, npy
from msdump.errors import FormatError, ToolError
from msdump.read import Folder, FolderKind, NamedFile, load_file, read_npy_header
from msdump.record import DEFAULT_FORMAT, IO
from msdump.return_codes import ReturnCode

_LAYOUTS: Final = frozenset(layout for layouts in LAYOUTS.values() for layout in layouts)


@dataclass(frozen=True, slots=True)
class DumpedOperand:
    """An input or output of a dumped operator.

    Attributes:
        io: Input or output.
        index: Its number.
        path: Its file.
        dtype: Element type on the device, ``float16``; the vendor's number of a type that cannot be read.
        format: Memory format.
        shape: Shape on the device.
        host_shape: Shape on the host; empty where it is not known.
        groups: Groups of the convolution that reads a weight.
        address: Address in the device's memory, 0 where it is not known.
        is_typed: Whether the file has the element type; if not, elements are read as single bytes.
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
        """Return the operand with its bytes read as a type, or as a packed type (int4) that is saved as it.

        Returns the operand itself if the number of bytes does not fit.

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
            return elements.unpack(data, kind, self.shape)
        return data.view(kind.numpy).reshape(self.shape)

    def on_host(self, shape: Sequence[int] = (), groups: int = 1) -> np.ndarray:
        """Return the elements in the host's layout.

        Args:
            shape: The host shape, for a file without it.
            groups: Groups of the convolution that reads a weight, for a file without them.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
            FormatError: The format has no conversion, or the elements do not fit the shape.
        """
        host_shape = self.host_shape or tuple(shape)
        array = self.array
        if array.shape == host_shape or not self.is_converted:
            return array
        # vendor: a header's sub-format, the number of groups, is 0 or 1 for an ungrouped weight.
        groups = max(self.groups, groups if self.format == formats.FRACTAL_Z else 1, 1)
        return formats.decode(self.format, array, host_shape, groups)

    @property
    def is_converted(self) -> bool:
        """Whether the device's memory format differs from the host's, so that elements lie elsewhere."""
        return self.format not in _AS_ON_HOST


_AS_ON_HOST: Final = frozenset({DEFAULT_FORMAT, "", "ND", "RESERVED", "NC", "CN", "MD"}) | _LAYOUTS


def read_operands(
    folder: Folder, files: Sequence[NamedFile], *, is_long_list: bool = False
) -> tuple[DumpedOperand, ...]:
    """Return the tensors of an operator, inputs first; their elements are not read yet.

    Args:
        folder: The directory of the files.
        files: Files of one execution of the operator.
        is_long_list: Whether very many operands are listed: then files with one tensor are closed, and opened
            again for the elements.

    Raises:
        DumpReadError: A file is missing, truncated or corrupt.
    """
    if folder.kind is FolderKind.DUMPS:
        # a collective has two files, one for inputs and one for outputs
        sides = {file.io or "": file.path for file in files}
        each = (_from_dump_file(path, folder.version) for _, path in sorted(sides.items()))
        return tuple(operand for operands in each for operand in operands)
    tensors = [_from_npy(file, is_kept=not is_long_list) for file in files]
    return tuple(sorted(tensors, key=attrgetter("io", "index")))


def _from_dump_file(path: str, version: int) -> tuple[DumpedOperand, ...]:
    view = load_file(path)
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

    # An empty original shape means a scalar, or that the file lacks the shape.
    is_scalar = not info.original_shape and math.prod(info.shape) == 1
    return DumpedOperand(
        IO(block.section),
        block.index,
        path,
        _type_name(info),
        dump_message.format_name(info.format),
        info.shape,
        info.shape if is_scalar else info.original_shape,
        info.sub_format,
        info.address,
        info.data_type != dump_message.UNDEFINED,
        load,
    )


def _type_name(info: TensorInfo) -> str:
    try:
        return dump_data.dtype_of(info).name
    except FormatError:
        return dump_message.data_type_name(info.data_type)


def _from_npy(file: NamedFile, *, is_kept: bool) -> DumpedOperand:
    # Only the header is read here: a comparison lists all tensors before it loads one after the other.
    if not is_kept:
        return _of_npy(file, read_npy_header(file.path), load_file)
    view = load_file(file.path)
    return _of_npy(file, npy.read_header(view, file.path), lambda _path: view)


def _of_npy(file: NamedFile, header: npy.Header, opened: Callable[[str], memoryview]) -> DumpedOperand:
    # The name has the type on the device: bfloat16 lies in the file as float32.
    dtype = file.dtype.lower() if file.dtype else dtypes.from_numpy(header.dtype).name
    shape = _held_shape(file, header.shape)

    def load() -> np.ndarray:
        if _is_cut(file, header.dtype):
            raise CutFileError(
                f"{file.path}: the device held {file.held.dtype} by the graph, but the file is named {dtype}"
                f" and holds only the first part of the bytes"
            )
        return npy.decode(opened(file.path), file.path).reshape(shape)

    io = file.io or IO.OUTPUT
    return DumpedOperand(io, file.slot, file.path, dtype, file.format, shape, groups=file.groups, _load=load)


class CutFileError(FormatError):
    """A file that MindSpore never writes whole; see ``_is_cut``."""


def _is_cut(file: NamedFile, dtype: np.dtype) -> bool:
    """Return whether a file holds fewer bytes of each element than the device did.

    vendor: if a kernel computes in a wider type than its graph declares, MindSpore 2.10 names the file by the
    declared type, and writes as many bytes as that type has.
    """
    if not file.held.dtype:
        return False
    held = dtypes.from_name(file.held.dtype).numpy
    return held.kind == dtype.kind == "f" and held.itemsize > dtype.itemsize


def _held_shape(file: NamedFile, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a file's elements.

    vendor: MindSpore 2.10 gives the file of a view, and of its readers, the shape of the view's input.
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
    """Return the order of an operand's axes on the host, "" where they have no names."""
    if operand.format in _LAYOUTS:
        return operand.format if len(operand.format) == rank else ""
    if not operand.is_converted:
        return ""
    return LAYOUTS[rank][0] if rank in LAYOUTS else ""


def in_one_type(dumped: DumpedOperand, golden: DumpedOperand) -> tuple[DumpedOperand, DumpedOperand]:
    """Return two operands; one without element type is read in the other one's type.

    vendor: CANN has no element type number for uint4; its files say DT_UNDEFINED then.
    """
    if dumped.is_typed == golden.is_typed:
        return dumped, golden
    if golden.is_typed:
        return dumped.read_as(golden.dtype), golden
    return dumped, golden.read_as(dumped.dtype)


def host_arrays(
    dumped: DumpedOperand, golden: DumpedOperand, *, is_handed_on: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of two dumped tensors in the host's layout.

    Where neither has a host shape and both have the same format and device shape, the arrays come
    back as the device holds them.

    Args:
        dumped: The tensor.
        golden: Its counterpart.
        is_handed_on: Whether one side's compiler removed operators between the two values, perhaps a reshape:
            then equal sizes suffice.

    Raises:
        ToolError: Their shapes differ, or a format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    # A dump file may lack the host shape; the counterpart's serves both.
    shape = dumped.host_shape or golden.host_shape or _plain_shape(dumped) or _plain_shape(golden)
    layouts = [(operand.format, operand.shape, operand.host_shape) for operand in (dumped, golden)]
    is_same = layouts[0] == layouts[1]
    if is_same and not shape:
        return dumped.array, golden.array
    try:
        arrays = dumped.on_host(shape), golden.on_host(shape)
    except FormatError as error:
        if is_same:  # no conversion, but both sides have the same layout: compare as they are
            return dumped.array, golden.array
        if not (dumped.is_converted or golden.is_converted):
            raise
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    if is_handed_on and arrays[0].size == arrays[1].size:
        return arrays
    return _checked(dumped, golden, *arrays)


def in_golden_layout(
    dumped: DumpedOperand, golden: DumpedOperand, layout: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return a tensor's array in the layout of a golden one without device format, and the golden array.

    Args:
        dumped: The tensor.
        golden: Its counterpart.
        layout: Order of the counterpart's axes, "" where it is not known.

    Raises:
        ToolError: The shapes do not fit, or the format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    if golden.is_converted:
        return host_arrays(dumped, golden)
    golden_array = golden.array
    try:
        dumped_array = dumped.on_host(_host_shape(golden_array.shape, layout))
    except FormatError as error:
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    candidates = list(_layout_candidates(dumped_array, dumped, layout))
    fitting = [candidate for candidate in candidates if candidate.shape == golden_array.shape]
    chosen = np.ascontiguousarray((fitting or candidates)[0])
    if chosen.size == golden_array.size:  # a reshape may have been optimised away
        return chosen, golden_array
    return _checked(dumped, golden, chosen, golden_array)


def _layout_candidates(dumped_array: np.ndarray, dumped: DumpedOperand, layout: str) -> Iterator[np.ndarray]:
    """Yield an array in a graph file's layout, unchanged, and in every layout of as many axes."""
    host = host_layout(dumped, dumped_array.ndim)
    yield in_layout(dumped_array, host, layout)
    yield dumped_array
    for host_order in LAYOUTS.get(dumped_array.ndim, ()):
        yield in_layout(dumped_array, host, host_order)


def _host_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return a shape of some layout in the order of the host's axes, NCHW or NCDHW.

    >>> _host_shape((1, 28, 20, 3), "NHWC")
    (1, 3, 28, 20)
    """
    if layout not in LAYOUTS.get(len(shape), ()):
        return shape
    return tuple(shape[layout.index(axis)] for axis in LAYOUTS[len(shape)][0])


def _plain_shape(operand: DumpedOperand) -> tuple[int, ...]:
    return () if operand.is_converted else operand.shape


def is_transposed(dumped: DumpedOperand, golden: DumpedOperand) -> bool:
    """Return whether two tensors have the same shape except for the order of the last two axes."""
    if dumped.is_converted or golden.is_converted or len(dumped.shape) <= 1:
        return False
    *batch, rows, columns = dumped.shape
    return rows != columns and golden.shape == (*batch, columns, rows)


def is_square(dumped: DumpedOperand) -> bool:
    """Return whether the last two axes are equal, so that the shape does not show a transposition."""
    return not dumped.is_converted and len(dumped.shape) > 1 and len({*dumped.shape[-2:]}) == 1


def swap_last_axes(array: np.ndarray) -> np.ndarray:
    """Return an array with its last two axes in the other order."""
    return np.ascontiguousarray(array.swapaxes(-1, -2))


def _checked(
    dumped: DumpedOperand, golden: DumpedOperand, dumped_array: np.ndarray, golden_array: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays; ToolError where their shapes differ in more than axes of length 1."""
    # Reshapes that add or drop such axes are optimised away when a graph is compiled.
    sizes = [[size for size in array.shape if size != 1] for array in (dumped_array, golden_array)]
    if sizes[0] == sizes[1]:
        return dumped_array, golden_array
    raise ToolError(
        ReturnCode.SHAPE,
        f"shape {dumped_array.shape} of {dumped.format or 'dumped'} does not fit {golden_array.shape} of"
        f" {golden.format or 'golden'}; was the same input, batch and model dumped?",
    )
