"""Model files: reading the source of a training step, writing the step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import onnx
from onnx import external_data_helper, version_converter

from msdump import reading
from msdump.errors import GraphError, InputError
from msdump.graph import IN_MEMORY, Graph, functions, loader, names, validity
from msdump.store.write import write_file

Model = str | os.PathLike[str] | onnx.ModelProto | bytes

OLDEST_OPSET: Final = 18
"""Axes of reductions are inputs from here on."""

OPSET: Final = 20
"""The opset that older models are converted to."""


def loaded(model: Model, sizes: Mapping[str, int]) -> Graph:
    """Return the graph of a model, converted to an opset that training supports; messages name the file.

    Raises:
        GraphError: ONNX cannot convert the model, it is faulty, or a .mindir file.
    """
    if isinstance(model, (str, os.PathLike)) and loader.is_mindir(model):
        raise GraphError(
            f"{Path(model)}: gradients are derived of ONNX models alone; export the training step from"
            " MindSpore (nn.TrainOneStepCell) as a .mindir, which msdump run takes"
        )
    return loader.load(converted(model), sizes=sizes, source=_source_name(model))


def _source_name(model: Model) -> str:
    return IN_MEMORY if isinstance(model, (onnx.ModelProto, bytes)) else str(Path(model))


def converted(model: Model) -> Model:
    """Return a model, converted if its opset is older than training supports.

    An unreadable model is returned as it is: the loader raises the error.

    Raises:
        GraphError: ONNX cannot convert the model.
    """
    try:
        version = validity.opsets(_message(model, validity.skeleton)).get("", 1)
        if version >= OLDEST_OPSET:
            return model
        message = _inlined(_whole(model))
    except (OSError, GraphError, onnx.checker.ValidationError):  # ValidationError: faulty external data
        return model
    try:
        newer = version_converter.convert_version(message, OPSET)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"{_source_name(model)}: the model has opset {version} and cannot be converted to opset {OPSET},"
            f" which training needs: {reason}; export it with opset {OLDEST_OPSET} or newer"
        ) from error
    metadata = {node.name: node.metadata_props for node in message.graph.node if node.name}
    for node in newer.graph.node:  # the converter drops metadata of nodes
        if node.name in metadata and not node.metadata_props:
            node.metadata_props.extend(metadata[node.name])
    return newer


def _inlined(message: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its functions inlined, since the version converter drops functions."""
    if not message.functions:
        return message
    copy = onnx.ModelProto()
    copy.CopyFrom(message)
    names.name_nodes(copy.graph)  # nodes inside functions are named after calls
    return functions.inline(copy)


def _message(model: Model, parse: Callable[[memoryview], onnx.ModelProto]) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    return parse(memoryview(model if isinstance(model, bytes) else reading.map_file(Path(model))))


def _whole(model: Model) -> onnx.ModelProto:
    """Return a model as a message with all weights."""
    message = _message(model, lambda data: onnx.load_from_string(bytes(data)))
    if not isinstance(model, (onnx.ModelProto, bytes)):
        external_data_helper.load_external_data_for_model(message, str(Path(model).parent))
    return message


_MOST_BYTES: Final = 2**31 - 1
"""Of a protobuf message."""

_SMALL: Final = 1024  # bytes; smaller weights stay in the model

_ALIGNMENT: Final = 4096  # of each weight in the file of weights, for readers that map the file


def write_step(model: onnx.ModelProto, path: str, most_bytes: int = _MOST_BYTES) -> tuple[str, ...]:
    """Write a step graph; return the paths of its files.

    Args:
        model: The graph. Weights in a separate file are removed from the graph.
        path: The file, which must end in .onnx; a larger model has its weights in ``{path}.data``.
        most_bytes: Largest size of a single file, in bytes.

    Raises:
        InputError: The path does not end in .onnx.
        DumpWriteError: A file cannot be written.
    """
    file = Path(path)
    if file.suffix != ".onnx":
        raise InputError(f"step graph {path!r}: the name must end in .onnx")
    paths: tuple[str, ...] = (path,)
    graph = model.graph
    parts = (model.functions, graph.node, graph.value_info, graph.input, graph.output)
    weights = sum(len(tensor.raw_data) + _SMALL for tensor in graph.initializer)
    if (weights + sum(part.ByteSize() for repeated in parts for part in repeated)) > most_bytes:
        data = f"{file.name}.data"
        write_file(file.with_name(data), _taken_out(model, data))
        paths = (path, f"{path}.data")
    write_file(file, [model.SerializeToString()])
    return paths


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
