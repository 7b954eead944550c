"""Split a serialised ModelProto into a small message and the places of its large weights.

protobuf would copy every weight twice while parsing. The scan walks only the
fields that lead to weights (ModelProto.graph = 7, GraphProto.initializer = 5,
TensorProto.raw_data = 9), keeps everything else byte for byte, and leaves the
raw data of large initializers where they lie in the mapped file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msdump.errors import GraphError

_MODEL_GRAPH: Final = 7
_GRAPH_INITIALIZER: Final = 5
_TENSOR_RAW_DATA: Final = 9
_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}

SMALL_BYTES: Final = 1024
"""Raw data up to this size stay in the message: shape inference reads their values."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SplitModel:
    """A model without the raw data of its large initializers.

    Attributes:
        message: Serialised ModelProto.
        raw_data: Start and end in the original buffer, by the initializer's position.
    """

    message: bytes
    raw_data: dict[int, Span]


def split(data: memoryview) -> SplitModel:
    """Split a serialised model.

    Raises:
        GraphError: The buffer ends inside a field or is no protobuf message.
    """
    pieces: list[bytes] = []
    raw_data: dict[int, Span] = {}
    count = 0
    for number, start, body, end in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            graph, count = _strip_graph(data, body, end, raw_data, count)
            pieces.append(_tag(_MODEL_GRAPH) + _varint(len(graph)) + graph)
        else:
            pieces.append(bytes(data[start:end]))
    return SplitModel(b"".join(pieces), raw_data)


def _strip_graph(
    data: memoryview, start: int, end: int, raw_data: dict[int, Span], position: int
) -> tuple[bytes, int]:
    """Return the graph without large raw data, and the position that its next initializer would have."""
    pieces: list[bytes] = []
    kept_from = start
    for number, field, body, stop in _fields(data, start, end):
        if number != _GRAPH_INITIALIZER:
            continue
        if stop - body > SMALL_BYTES:
            tensor, span = _strip_tensor(data, body, stop)
            if span is not None:
                raw_data[position] = span
                pieces.append(bytes(data[kept_from:field]))
                pieces.append(_tag(_GRAPH_INITIALIZER) + _varint(len(tensor)) + tensor)
                kept_from = stop
        position += 1
    pieces.append(bytes(data[kept_from:end]))
    return b"".join(pieces), position


def _strip_tensor(data: memoryview, start: int, end: int) -> tuple[bytes, Span | None]:
    pieces: list[bytes] = []
    span: Span | None = None
    for number, field, body, stop in _fields(data, start, end):
        if number == _TENSOR_RAW_DATA:
            span = (body, stop) if stop - body > SMALL_BYTES else None  # the last one counts
        if number != _TENSOR_RAW_DATA or span is None:
            pieces.append(bytes(data[field:stop]))
    return b"".join(pieces), span


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, start of the field, start of its body, end) of one message.

    The number of a field that is no length-delimited one is 0: nothing looks into it.
    """
    while at < end:
        start = at
        tag, at = _read_varint(data, at, end)
        kind = tag & 7
        if kind == _LEN:
            size, at = _read_varint(data, at, end)
        elif kind == _VARINT:
            size = _read_varint(data, at, end)[1] - at
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise GraphError(f"no protobuf message: wire type {kind} at byte {start}")
        if tag >> 3 == 0:
            raise GraphError(f"no protobuf message: field number 0 at byte {start}")
        if at + size > end:
            missing = at + size - end
            raise GraphError(f"truncated: the field at byte {start} lacks {missing} bytes at its end")
        yield tag >> 3 if kind == _LEN else 0, start, at, at + size
        at += size


def _read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit of a varint
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004 - a varint has at most ten bytes
            raise GraphError(f"no protobuf message: a number of more than ten bytes at byte {at}")
    raise GraphError(f"truncated: the file ends inside a number at byte {at}")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _LEN)
