"""Step graphs as files: one file, or one more for the weights where a message cannot hold them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
from onnx import external_data_helper

from msdump.errors import InputError
from msdump.store.write.streams import write_stream

_MOST_BYTES: Final = 2**31 - 1
"""Of a protobuf message."""

_SMALL: Final = 1024  # bytes; smaller weights stay in the model
_ALIGNMENT: Final = 4096  # of weights in their file, for readers that map it


def write_step(model: onnx.ModelProto, path: str, most_bytes: int = _MOST_BYTES) -> tuple[str, ...]:
    """Write a step graph; return the paths of its files.

    Args:
        model: The graph. Weights that go to a file of their own are taken out of it.
        path: The file, which must end in .onnx; weights of a model above the size go to ``{path}.data``.
        most_bytes: Largest size of the one file.

    Raises:
        InputError: The name has another ending.
        DumpWriteError: A file cannot be written.
    """
    file = Path(path)
    if file.suffix != ".onnx":
        raise InputError(f"step graph {path!r}: its name must end in .onnx")
    paths: tuple[str, ...] = (path,)
    if _size(model) > most_bytes:
        data = f"{file.name}.data"
        write_stream(str(file.parent), data, _taken_out(model, data))
        paths = (path, f"{path}.data")
    write_stream(str(file.parent), file.name, [model.SerializeToString()])
    return paths


def _size(model: onnx.ModelProto) -> int:
    """Return the bytes of a model, at least; protobuf tells no size above its limit."""
    graph = model.graph
    parts = (model.functions, graph.node, graph.value_info, graph.input, graph.output)
    weights = sum(len(tensor.raw_data) + _SMALL for tensor in graph.initializer)
    return weights + sum(part.ByteSize() for repeated in parts for part in repeated)


def _taken_out(model: onnx.ModelProto, location: str) -> Iterator[bytes]:
    """Yield the bytes of a file of weights, and note in the model where each one stands in it."""
    offset = 0
    for tensor in model.graph.initializer:
        data = tensor.raw_data
        if len(data) < _SMALL:
            continue
        padding = -offset % _ALIGNMENT
        yield bytes(padding)
        offset += padding
        external_data_helper.set_external_data(tensor, location, offset=offset, length=len(data))
        tensor.ClearField("raw_data")
        offset += len(data)
        yield data
