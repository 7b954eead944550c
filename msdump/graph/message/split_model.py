"""Split a serialised ModelProto into a small message and the places of its large weights.

protobuf would copy every weight twice while parsing. The scan walks only the
fields that lead to weights (ModelProto.graph = 7, GraphProto.initializer = 5,
TensorProto.raw_data = 9), keeps everything else byte for byte, and leaves the
raw data of large initializers where they lie in the mapped file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msdump.errors import GraphError
from msdump.wire.faults import WireError, WireFault
from msdump.wire.fields import LENGTH, Span, fields, length_delimited, tag_of

_MODEL_GRAPH: Final = tag_of(7, LENGTH)
_GRAPH_INITIALIZER: Final = tag_of(5, LENGTH)
_TENSOR_RAW_DATA: Final = tag_of(9, LENGTH)

SMALL_BYTES: Final = 1024
"""Raw data up to this size stay in the message: shape inference reads their values."""

_FAULTS: Final[Mapping[WireFault, str]] = {
    WireFault.LONG_NUMBER: "no protobuf message: a number of more than ten bytes at byte {0.end}",
    WireFault.TORN_NUMBER: "truncated: the file ends inside a number at byte {0.end}",
    WireFault.FIELD_NUMBER: "no protobuf message: field number {0.value} at byte {0.start}",
    WireFault.WIRE_TYPE: "no protobuf message: wire type {0.value} at byte {0.start}",
    WireFault.TORN_FIELD: "truncated: the field at byte {0.start} lacks {0.missing} bytes at its end",
}


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
    try:
        return _split(data)
    except WireError as error:
        raise GraphError(_FAULTS[error.fault].format(error)) from None


def _split(data: memoryview) -> SplitModel:
    pieces: list[bytes] = []
    raw_data: dict[int, Span] = {}
    count = 0
    for tag, _, start, body, end in fields(data, 0, len(data)):
        if tag == _MODEL_GRAPH:
            graph, count = _strip_graph(data, body, end, raw_data, count)
            pieces.append(length_delimited(_MODEL_GRAPH, graph))
        else:
            pieces.append(bytes(data[start:end]))
    return SplitModel(b"".join(pieces), raw_data)


def _strip_graph(
    data: memoryview, start: int, end: int, raw_data: dict[int, Span], position: int
) -> tuple[bytes, int]:
    """Return the graph without large raw data, and the position that its next initializer would have."""
    pieces: list[bytes] = []
    kept_from = start
    for tag, _, field, body, stop in fields(data, start, end):
        if tag != _GRAPH_INITIALIZER:
            continue
        if stop - body > SMALL_BYTES:
            tensor, span = _strip_tensor(data, body, stop)
            if span is not None:
                raw_data[position] = span
                pieces.append(bytes(data[kept_from:field]))
                pieces.append(length_delimited(_GRAPH_INITIALIZER, tensor))
                kept_from = stop
        position += 1
    pieces.append(bytes(data[kept_from:end]))
    return b"".join(pieces), position


def _strip_tensor(data: memoryview, start: int, end: int) -> tuple[bytes, Span | None]:
    pieces: list[bytes] = []
    span: Span | None = None
    for tag, _, field, body, stop in fields(data, start, end):
        if tag == _TENSOR_RAW_DATA:
            span = (body, stop) if stop - body > SMALL_BYTES else None  # the last one counts
        if tag != _TENSOR_RAW_DATA or span is None:
            pieces.append(bytes(data[field:stop]))
    return b"".join(pieces), span
