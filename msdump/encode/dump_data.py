"""CANN's dump files: every tensor of an operator behind one header.

    0      uint64, little endian: H, the length of the header
    8      H bytes: the message DumpData; its tensors have a size instead of data
    8+H    the bytes of all inputs, then outputs, then buffers, then workspaces, without padding

Files of version 1 are a whole DumpData message with the data inside; they are only read.

    >>> import numpy as np
    >>> one = TensorInfo(data_type=1, format=dump_message.ND, shape=(1,), original_shape=(1,), size=4)
    >>> contents = header(DumpData("one", 1_700_000_000_000_000, outputs=(one,))) + np.float32(3.5).tobytes()
    >>> len(contents), contents[:8].hex(" ")  # the message has 0x25 bytes
    (49, '25 00 00 00 00 00 00 00')
    >>> data, offset = read_header(memoryview(contents))
    >>> data.op_name, data.outputs == (one,), offset
    ('one', True, 45)
    >>> [(span.section, span.index, span.offset, span.end) for span in blocks(data, offset)]
    [('output', 0, 45, 49)]
    >>> tensor(one, memoryview(contents)[45:]).tolist()
    [3.5]
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msdump import dtypes
from msdump.encode import dump_message
from msdump.encode.dump_message import Parser
from msdump.errors import DumpReadError, FormatError
from msdump.wire import Span

if TYPE_CHECKING:
    import numpy as np

LENGTH: Final = struct.Struct("<Q")
VERSION: Final = "2.0"
LONGEST_HEADER: Final = 1 << 24
"""Bytes of the longest header that is read; an operator of 20,000 tensors needs a tenth."""


@dataclass(frozen=True, slots=True)
class OriginalOp:
    """The operator of the graph before fusion that gave a tensor."""

    name: str
    output_index: int = 0
    # number of the element type before compilation, in OutputDataType
    data_type: int = dump_message.UNDEFINED
    format: int = dump_message.ND  # number of the format before compilation, in OutputFormat


@dataclass(frozen=True, slots=True)
class DimRange:
    """The part of a dimension that an output covers, from ``dim_start`` up to ``dim_end``."""

    dim_start: int = 0
    dim_end: int = 0


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output as the header describes it."""

    data_type: int  # number in OutputDataType
    format: int  # number in OutputFormat
    shape: tuple[int, ...]  # device shape in elements
    original_shape: tuple[int, ...]  # shape on the host
    size: int  # bytes in the file; behind the last element lies device padding
    sub_format: int = 0  # groups of the convolution, 0 for none
    address: int = 0  # where the tensor lies in the device's memory
    original_op: OriginalOp | None = None  # where an output comes from; inputs have none
    offset: int = 0  # offset of the tensor in its memory block, in bytes
    dim_range: tuple[DimRange, ...] = ()  # parts of dimensions; inputs have none
    arg_index: int = 0  # which argument of the kernel an input is; outputs have none
    input_type: int = 0  # kind of an input; outputs have none


@dataclass(frozen=True, slots=True)
class RawInfo:
    """A buffer (type 0: L1) or a workspace (type 0: log)."""

    size: int  # bytes in the file
    type: int = 0


Info = TensorInfo | RawInfo


@dataclass(frozen=True, slots=True)
class OpAttr:
    """An attribute of the operator; CANN's tools expect JSON about FFTS+ in the first one."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class DumpData:
    """The header of a dump file: the message ``toolkit.dumpdata.DumpData``."""

    op_name: str  # full name of the operator, ``Default/conv1-Conv2d/Conv2D-op12``
    dump_time: int  # microseconds since the epoch
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    buffers: tuple[RawInfo, ...] = ()  # buffers of the core
    spaces: tuple[RawInfo, ...] = ()
    attributes: tuple[OpAttr, ...] = ()  # empty, except for operators that run under FFTS+
    dfx_message: str = ""
    version: str = VERSION

    def sections(self) -> Iterator[tuple[str, tuple[Info, ...]]]:
        """Yield (section, infos of its parts) in the order of the bytes, named as converted files are."""
        yield "input", self.inputs
        yield "output", self.outputs
        # msaccucmp names the files of buffers and workspaces l1buffer and space
        yield "l1buffer", self.buffers
        yield "space", self.spaces


@dataclass(frozen=True, slots=True)
class DataSpan:
    """The bytes of a tensor, buffer or workspace in a file."""

    section: str  # ``input``, ``output``, ``l1buffer`` or ``space``
    index: int  # number within the section
    info: Info  # its description in the header
    offset: int  # offset of its first byte in the file

    @property
    def end(self) -> int:
        """Offset behind its last byte."""
        return self.offset + self.info.size


def header(data: DumpData) -> bytes:
    """Return everything before the first tensor; FormatError for a number or text that cannot be in it."""
    message = dump_message.encode("DumpData", data)
    return LENGTH.pack(len(message)) + message


def read_header(view: memoryview, source: str = "<buffer>") -> tuple[DumpData, int]:
    """Return the header of a whole file, and the offset of its first block.

    Raises:
        DumpReadError: The bytes are no dump file, or not as long as the header says.
    """
    end = LENGTH.size
    if len(view) <= end:
        raise DumpReadError(source, f"not a dump file: {len(view)} bytes, a header needs more than {end}", 0)
    # most files of other kinds fail here: their first bytes, as a length, exceed the file's size
    length: int = LENGTH.unpack_from(view)[0]
    if length > len(view) - end:
        left = len(view) - end
        raise DumpReadError(
            source, f"not a dump file: the header should have {length} bytes, {left} are left", 0
        )
    if length > LONGEST_HEADER:
        raise DumpReadError(source, f"a header of {length} bytes is over the limit of {LONGEST_HEADER}", 0)
    fields = Parser(view, source).read("DumpData", end, end + length)
    data, _ = _parsed(fields)
    offset = end + length
    # msaccucmp of CANN 8.1 takes a file of another length for one without tensors, and reports success
    needed, size = sum(info.size for _, infos in data.sections() for info in infos), len(view) - offset
    if needed != size:
        fault = f"the tensors have {needed} bytes by the header, the file has {size}"
        raise DumpReadError(source, f"{'truncated' if needed > size else 'too long'}: {fault}", offset)
    return data, offset


def read_message(view: memoryview, source: str = "<buffer>") -> tuple[DumpData, tuple[DataSpan, ...]]:
    """Return header and blocks of a file of version 1; DumpReadError if it is no DumpData message."""
    fields = Parser(view, source).read("DumpData", 0, len(view))
    data, spans = _parsed(fields, has_data=True)
    # spans lie in the order of the message, outputs first; sections are in the order of the data
    starts = iter([start for name, _ in data.sections() for start, _ in spans[name]])
    return data, tuple(
        DataSpan(name, index, info, next(starts))
        for name, infos in data.sections()
        for index, info in enumerate(infos)
    )


def blocks(data: DumpData, offset: int) -> tuple[DataSpan, ...]:
    """Return the span of every tensor, buffer and workspace in the file's order, the first at an offset."""
    spans = []
    for section, infos in data.sections():
        for index, info in enumerate(infos):
            spans.append(DataSpan(section, index, info, offset))
            offset += info.size
    return tuple(spans)


def dtype_of(info: TensorInfo) -> dtypes.DType:
    """Return the element type of a tensor (DT_UNDEFINED: int8); FormatError if it cannot be read."""
    try:
        # types without a numpy counterpart are mapped to STRING, which is refused below
        row = _READ_AS.get(info.data_type) or dtypes.from_dump(info.data_type)
    except FormatError:
        row = dtypes.STRING
    if row is dtypes.STRING:
        raise FormatError(f"elements of {dump_message.data_type_name(info.data_type)} cannot be read")
    return row


def extent(
    info: TensorInfo, available: int, source: str = "<buffer>", offset: int | None = None
) -> tuple[tuple[int, ...], int]:
    """Return the shape of a device tensor and the number of bytes of its elements, without padding.

    A tensor of DT_UNDEFINED counts as int8 of shape (size,). Only ``tensor`` refuses impossible shapes of
    tensors without elements.

    Raises:
        DumpReadError: The bytes are too few for the shape.
        FormatError: Elements of this type cannot be read.
    """
    dtype = dtype_of(info)
    shape = (info.size,) if info.data_type == dump_message.UNDEFINED else info.shape
    # Bytes behind the last element are the device's padding, which CANN's tools ignore as well.
    needed = -(-math.prod(shape) // dtype.per_byte) * dtype.itemsize
    if needed > available:
        tensor_text = f"shape {shape} of {dump_message.data_type_name(info.data_type)}"
        raise DumpReadError(source, f"{tensor_text} needs {needed} bytes, the tensor has {available}", offset)
    return shape, needed


def tensor(
    info: TensorInfo, data: memoryview, source: str = "<buffer>", offset: int | None = None
) -> np.ndarray:
    """Return a device tensor: a view of its bytes, or a copy if several elements share a byte (int4).

    bfloat16 and the like have ml_dtypes' types; a tensor of DT_UNDEFINED is int8 of shape (size,). Bytes
    behind the elements are padding. ``source`` and ``offset`` (of the bytes in the file) are for messages.

    Raises:
        DumpReadError: The bytes are too few for the shape, or the shape is impossible.
        FormatError: Elements of this type cannot be read.
    """
    import numpy as np  # not above: callers that only read headers or copy bytes need no numpy

    from msdump.encode import elements

    dtype = dtype_of(info)
    shape, _ = extent(info, len(data), source, offset)
    count = math.prod(shape)
    try:
        if dtype.per_byte > 1:
            return elements.unpack(np.frombuffer(data, np.uint8), dtype, shape)
        flat = np.frombuffer(data, dtype.numpy, count) if count else np.empty(0, dtype.numpy)
        return flat.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise DumpReadError(source, f"the shape {shape} is impossible: {error}", offset) from None


_READ_AS: Final = {
    dump_message.UNDEFINED: dtypes.from_name("int8"),
    dump_message.DATA_TYPES["RESOURCE"]: dtypes.from_name("int64"),
}
"""Types that CANN's tools read as another."""

# proto3 leaves out zeros: a field that is not there is 0
_TENSOR_DEFAULTS: Final[dict[str, Any]] = {
    "data_type": 0,
    "format": 0,
    "shape": (),
    "original_shape": (),
    "size": 0,
}


def _parsed(fields: dict[str, Any], *, has_data: bool = False) -> tuple[DumpData, dict[str, list[Span]]]:
    """Return the header of a parsed message, and the spans of its data by section."""
    spans = {
        section: [_data_span(item, has_data=has_data) for item in fields.get(attribute, ())]
        for section, attribute in _ATTRIBUTES.items()
    }
    data = DumpData(
        fields.get("op_name", ""),
        fields.get("dump_time", 0),
        inputs=tuple(map(_tensor_info, fields.get("inputs", ()))),
        outputs=tuple(map(_tensor_info, fields.get("outputs", ()))),
        buffers=tuple(map(_raw_info, fields.get("buffers", ()))),
        spaces=tuple(map(_raw_info, fields.get("spaces", ()))),
        attributes=tuple(
            OpAttr(item.get("name", ""), item.get("value", "")) for item in fields.get("attributes", ())
        ),
        dfx_message=fields.get("dfx_message", ""),
        version=fields.get("version", ""),
    )
    return data, spans


_ATTRIBUTES: Final = {"input": "inputs", "output": "outputs", "l1buffer": "buffers", "space": "spaces"}


def _data_span(item: dict[str, Any], *, has_data: bool) -> Span:
    """Remove the field ``data`` (a span in the file) from a tensor's fields and return it.

    ``has_data``: files of version 1, which need ``size`` from the span. In version 2 the span is (0, 0).
    """
    span: Span = item.pop("data", (0, 0))
    if has_data:
        item["size"] = span[1] - span[0]
    return span


def _tensor_info(item: dict[str, Any]) -> TensorInfo:
    original = item.pop("original_op", None)
    if original is not None:
        # an absent field is 0, not the default of OriginalOp
        item["original_op"] = OriginalOp(**{"name": "", "format": 0} | original)
    if "dim_range" in item:
        item["dim_range"] = tuple(DimRange(**part) for part in item["dim_range"])
    return TensorInfo(**_TENSOR_DEFAULTS | item)


def _raw_info(item: dict[str, Any]) -> RawInfo:
    return RawInfo(**{"size": 0} | item)
