"""The model that a training step is made of, in an opset that bodies and rules are written in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx
from onnx import external_data_helper, version_converter

from msdump import reading
from msdump.errors import GraphError
from msdump.graph import loader, names, validity
from msdump.graph.graph import IN_MEMORY, Graph
from msdump.graph.message import functions, split_model

Model = str | os.PathLike[str] | onnx.ModelProto | bytes

OLDEST_OPSET: Final = 18
"""Axes of reductions are inputs from here on."""

OPSET: Final = 20
"""What older models are converted to."""


def loaded(model: Model, sizes: Mapping[str, int]) -> Graph:
    """Return the graph of a model whose operators are of an opset that bodies and rules are written in.

    Messages call it by the file that was given, also where it had to be converted.

    Args:
        model: The model.
        sizes: Sizes of dynamic dimensions by name.

    Raises:
        GraphError: ONNX cannot convert the model, or it is faulty.
    """
    return loader.load(converted(model), sizes=sizes, source=_name(model))


def _name(model: Model) -> str:
    return IN_MEMORY if isinstance(model, (onnx.ModelProto, bytes)) else str(Path(model))


def converted(model: Model) -> Model:
    """Return a model whose operators are of an opset that bodies and rules are written in.

    One that cannot be read is returned as it is: the loader tells what is wrong with it.

    Raises:
        GraphError: ONNX cannot convert the model.
    """
    try:
        version = validity.opsets(message_of(model)).get("", 1)
        if version >= OLDEST_OPSET:
            return model
        message = _inlined(whole_message(model))
    except (OSError, GraphError, onnx.checker.ValidationError):  # the last one: external data
        return model
    try:
        return _newer(message)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise GraphError(
            f"{_name(model)}: the model has opset {version} and cannot be converted to opset {OPSET}, which"
            f" training needs: {reason}; export it with opset {OLDEST_OPSET} or newer"
        ) from error


def _inlined(message: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions of its own, which the converter drops."""
    if not message.functions:
        return message
    copy = onnx.ModelProto()
    copy.CopyFrom(message)
    names.name_nodes(copy.graph)  # inner nodes are named after calls
    return functions.inline(copy)


def _newer(message: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in ``OPSET``."""
    metadata = {node.name: node.metadata_props for node in message.graph.node if node.name}
    newer = version_converter.convert_version(message, OPSET)
    for node in newer.graph.node:  # the converter forgets where nodes come from
        if node.name in metadata and not node.metadata_props:
            node.metadata_props.extend(metadata[node.name])
    return newer


def message_of(model: Model) -> onnx.ModelProto:
    """Return a model as a message, without its large weights."""
    if isinstance(model, onnx.ModelProto):
        return model
    data = memoryview(model if isinstance(model, bytes) else reading.map_file(Path(model)))
    return validity.parsed(split_model.split(data).message)


def whole_message(model: Model) -> onnx.ModelProto:
    """Return a model as a message with all weights."""
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        return onnx.load_from_string(model)
    message = onnx.load_from_string(bytes(reading.map_file(Path(model))))
    external_data_helper.load_external_data_for_model(message, str(Path(model).parent))
    return message
