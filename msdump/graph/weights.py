"""Initializers: split off the message before it is parsed, then views of mapped files where possible."""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from msdump import dtypes, reading
from msdump.errors import FormatError, GraphError
from msdump.graph.graph import Attribute, canonical_domain
from msdump.wire import LENGTH, Span, WireError, WireFault, fields, length_delimited, tag_of

_EXTERNAL: Final = onnx.TensorProto.EXTERNAL
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


MODEL_GRAPH: Final = tag_of(7, LENGTH)
GRAPH_INITIALIZER: Final = tag_of(5, LENGTH)
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
    """A model without the raw data of its large initializers."""

    message: bytes  # serialised ModelProto
    raw_data: dict[int, Span]  # start and end in the original buffer, by the initializer's position


def split(data: memoryview, weight: int = GRAPH_INITIALIZER) -> SplitModel:
    """Split a serialised model; ``weight`` is the tag of a graph's weights, by default that of ONNX.

    protobuf would copy every weight while parsing. The scan walks the fields that lead to weights
    (ModelProto.graph, GraphProto.initializer, TensorProto.raw_data), keeps all others byte for byte, and
    leaves the raw data of large initializers in the mapped file.

    Raises:
        GraphError: The buffer ends inside a field or is no protobuf message.
    """
    try:
        pieces: list[bytes] = []
        raw_data: dict[int, Span] = {}
        count = 0
        for tag, _, start, body, end in fields(data, 0, len(data)):
            if tag == MODEL_GRAPH:
                graph, count = _strip_graph(data, (body, end), weight, raw_data, count)
                pieces.append(length_delimited(MODEL_GRAPH, graph))
            else:
                pieces.append(bytes(data[start:end]))
        return SplitModel(b"".join(pieces), raw_data)
    except WireError as error:
        raise GraphError(_FAULTS[error.fault].format(error)) from None


def _strip_graph(
    data: memoryview, graph: Span, weight: int, raw_data: dict[int, Span], position: int
) -> tuple[bytes, int]:
    """Return the graph without large raw data, and the position that its next initializer would have."""
    pieces: list[bytes] = []
    kept_from, end = graph
    for tag, _, field, body, stop in fields(data, *graph):
        if tag != weight:
            continue
        if stop - body > SMALL_BYTES:
            tensor, span = _strip_tensor(data, body, stop)
            if span is not None:
                raw_data[position] = span
                pieces.append(bytes(data[kept_from:field]))
                pieces.append(length_delimited(weight, tensor))
                kept_from = stop
        position += 1
    pieces.append(bytes(data[kept_from:end]))
    return b"".join(pieces), position


def _strip_tensor(data: memoryview, start: int, end: int) -> tuple[bytes, Span | None]:
    pieces: list[bytes] = []
    span: Span | None = None
    for tag, _, field, body, stop in fields(data, start, end):
        if tag == _TENSOR_RAW_DATA:
            span = (body, stop) if stop - body > SMALL_BYTES else None  # the last field counts
        if tag != _TENSOR_RAW_DATA or span is None:
            pieces.append(bytes(data[field:stop]))
    return b"".join(pieces), span


class SideFiles:
    """The external data files of one model, each mapped once."""

    def __init__(self, folder: Path | None) -> None:
        """Remember the model's folder; None where the model came without a file."""
        self._folder = folder
        self._maps: dict[str, np.ndarray] = {}

    def read(self, tensor: onnx.TensorProto) -> np.ndarray:
        """Return the bytes of an external tensor, mapped; GraphError if the model's folder lacks them."""
        fields = {entry.key: entry.value for entry in tensor.external_data}
        offset = _number(fields, "offset", 0, tensor.name)
        length = _number(fields, "length", -1, tensor.name) if "length" in fields else None
        return self.section(tensor.name, fields.get("location", ""), offset, length)

    def section(self, tensor: str, location: str, offset: int, length: int | None) -> np.ndarray:
        """Return bytes of a file, mapped, by default all from the offset on; GraphError if it lacks them."""
        if location not in self._maps:  # the weights of a model mostly lie in one file
            if self._folder is None:
                raise GraphError(
                    f"initializer {tensor!r} is in the external file {location!r:.80}, but a model "
                    "in memory has no"
                    " folder; load the model by its path"
                )
            if "\0" in location:
                raise GraphError(
                    f"initializer {tensor!r}: external data {location!r:.80} contains a NUL byte"
                )
            # with symbolic links resolved, which may lead out of the folder
            path = (self._folder / location).resolve()
            # an untrusted model must not read other files of the user
            if not location or not path.is_relative_to(self._folder.resolve()):
                raise GraphError(
                    f"initializer {tensor!r}: external data {location!r:.80} is outside the model's folder"
                )

            try:
                self._maps[location] = np.frombuffer(reading.map_file(path), np.uint8)
            except OSError as error:
                raise GraphError(
                    f"initializer {tensor!r}: external data file {location!r:.80} cannot be read:"
                    f" {error.strerror}; put the file beside the model"
                ) from error
        content = self._maps[location]
        length = len(content) - offset if length is None else length
        if offset < 0 or length < 0 or offset + length > len(content):
            raise GraphError(
                f"initializer {tensor!r}: external data file {location!r:.80} has {len(content)} bytes,"
                f" bytes {offset} to {offset + length} are needed; is the file truncated?"
            )
        return content[offset : offset + length]


def _number(fields: dict[str, str], key: str, default: int, tensor: str) -> int:
    text = fields.get(key)
    if text is None:
        return default
    if not _NUMBER.fullmatch(text):
        raise GraphError(f"initializer {tensor!r}: {key} {text!r:.80} must be a number of bytes")
    return int(text)


_IN_MESSAGE: Final = SideFiles(None)


def to_array(
    tensor: onnx.TensorProto, raw: np.ndarray | None = None, files: SideFiles = _IN_MESSAGE
) -> np.ndarray:
    """Return an initializer as a read-only array (``raw``: split-off bytes); GraphError for wrong data."""
    # numpy's reshape would infer a dimension of -1
    if any(size < 0 for size in tensor.dims):
        raise GraphError(
            f"initializer {tensor.name!r} has the shape {tuple(tensor.dims)}: sizes must be 0 or more"
        )
    if tensor.data_location == _EXTERNAL:
        raw = files.read(tensor)
    try:
        dtype = dtypes.from_onnx(tensor.data_type)
        if raw is None:
            array = numpy_helper.to_array(tensor)
        elif dtype.per_byte > 1:
            whole = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=raw.tobytes())
            array = numpy_helper.to_array(whole)
        else:
            array = raw.view(dtype.numpy).reshape(tuple(tensor.dims))
    except (ValueError, TypeError, FormatError) as error:
        raise GraphError(_size_message(tensor, raw, error)) from error
    # read-only: sessions and dumps share the memory
    array = array.view()
    array.flags.writeable = False
    return array


def _size_message(tensor: onnx.TensorProto, raw: np.ndarray | None, error: Exception) -> str:
    if raw is None:
        return f"initializer {tensor.name!r}: {error}"
    shape = tuple(tensor.dims)
    return (
        f"initializer {tensor.name!r} of shape {shape} ({math.prod(shape)} elements of type"
        f" {tensor.data_type}) has {len(raw)} bytes of data: {error}"
    )


def sparse_to_array(sparse: onnx.SparseTensorProto, files: SideFiles = _IN_MESSAGE) -> np.ndarray:
    """Return a sparse initializer as a dense array (linear or coordinate indices)."""
    values = to_array(sparse.values, None, files)
    indices = to_array(sparse.indices, None, files)
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        # linear indices; else one row of coordinates for each value
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError, TypeError, MemoryError) as error:
        raise GraphError(f"sparse initializer {sparse.values.name!r}: {error}") from error
    return dense


def embed(tensor: onnx.TensorProto, files: SideFiles) -> None:
    """Read the external data of a tensor inside a node into the message."""
    if tensor.data_location == _EXTERNAL:
        tensor.raw_data = files.read(tensor).tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def decoded_attribute(attribute: onnx.AttributeProto) -> Attribute:
    """Return the value of an attribute: text, number, array, a tuple of these, or a graph's message."""
    value: Any = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return to_array(value)
    if attribute.type in {onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS}:
        return tuple(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return tuple(item.decode(errors="replace") for item in value)
    return value


def inner_initializers(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Return the initializers of a graph in a node's attribute, their data in the message."""
    dense = {tensor.name: to_array(tensor) for tensor in graph.initializer}
    return dense | {sparse.values.name: sparse_to_array(sparse) for sparse in graph.sparse_initializer}


def constant(node: onnx.NodeProto) -> np.ndarray | None:
    """Return the value of a Constant node, None for any other node."""
    if node.op_type != "Constant" or canonical_domain(node.domain) or not (node.attribute and node.output):
        return None
    attribute = node.attribute[0]
    make = _CONSTANTS.get(attribute.name)
    return None if make is None else make(attribute)


_CONSTANTS: Final[Mapping[str, Callable[[onnx.AttributeProto], np.ndarray]]] = {
    "value": lambda attribute: to_array(attribute.t),
    "sparse_value": lambda attribute: sparse_to_array(attribute.sparse_tensor),
    "value_float": lambda attribute: np.asarray(attribute.f, np.float32),
    "value_floats": lambda attribute: np.asarray(attribute.floats, np.float32),
    "value_int": lambda attribute: np.asarray(attribute.i, np.int64),
    "value_ints": lambda attribute: np.asarray(attribute.ints, np.int64),
    "value_string": lambda attribute: np.array(decoded_attribute(attribute), dtype=object),
    "value_strings": lambda attribute: np.array(decoded_attribute(attribute), dtype=object),
}
"""The attributes of Constant and how each becomes an array."""


def forget_pages(array: np.ndarray) -> None:
    """Release the memory of a mapped weight; its pages are read from the file again when they are next used.

    Does nothing for an array that does not lie in a read-only file mapping.
    """
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap):
        return
    base = np.frombuffer(owner, np.uint8).ctypes.data
    # only whole pages: the first and last one may hold parts of other weights
    start = -(-(array.ctypes.data - base) // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (array.ctypes.data - base + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        owner.madvise(mmap.MADV_DONTNEED, start, end - start)
