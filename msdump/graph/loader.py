"""Loads an .onnx file as a Graph: reads, checks, inlines and names; the builder makes the graph of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import shape_inference

from msdump import reading
from msdump.errors import GraphError
from msdump.graph import functions, names, pass_through, split_model, validity, weights
from msdump.graph.builder import Builder, Shared
from msdump.graph.graph import IN_MEMORY, Graph
from msdump.wire.fields import Span

_log = logging.getLogger("msdump.graph")


def load(
    model: str | os.PathLike[str] | onnx.ModelProto | bytes,
    *,
    keeps_classes: bool = True,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Return the graph of a model.

    Large weights are views of the mapped file; no copy of them is made.

    Args:
        model: Path of an .onnx file, a ModelProto, or a serialised one.
        keeps_classes: Scopes carry class names (``reserve_class_name_in_scope``).
        sizes: Sizes of dynamic dimensions by name, from which the shapes of all values follow.

    Raises:
        GraphError: Not an ONNX file, truncated, missing external data, or a graph that
            cannot run; the message names the file and the node.
    """
    if isinstance(model, onnx.ModelProto):
        source, folder, data = IN_MEMORY, None, memoryview(model.SerializeToString())
    elif isinstance(model, bytes):
        source, folder, data = IN_MEMORY, None, memoryview(model)
    else:
        path = Path(model)
        source, folder, data = str(path), path.parent, _map_file(path)
    try:
        return _build(source, folder, data, keeps_classes=keeps_classes, sizes=sizes)
    except GraphError as error:
        # below nobody knows the file: its name is put in front of every message here
        raise type(error)(f"{source}: {error}") from error.__cause__


def _map_file(path: Path) -> memoryview:
    try:
        data = reading.map_file(path)
    except OSError as error:
        raise GraphError(f"{path}: the model cannot be read: {error.strerror}") from error
    if not data:
        raise GraphError(f"{path}: the file is empty; an ONNX model is expected")
    return data


def _build(
    source: str,
    folder: Path | None,
    data: memoryview,
    *,
    keeps_classes: bool,
    sizes: Mapping[str, int],
) -> Graph:
    # protobuf would copy every weight; shape inference needs the small ones only
    split = split_model.split(data)
    model = validity.parsed(split.message)
    _settle(model.graph, sizes)
    if model.training_info:
        _log.warning("%s: training_info has no effect: only the graph runs, without gradients", source)
    files = weights.SideFiles(folder)
    raw = np.frombuffer(data, np.uint8)
    initializers = {
        tensor.name: weights.to_array(tensor, _slice(raw, split.raw_data.get(position)), files)
        for position, tensor in enumerate(model.graph.initializer)
    }
    for sparse in model.graph.sparse_initializer:
        initializers[sparse.values.name] = weights.sparse_to_array(sparse, files)
    # the runtime gets nodes as messages: what they hold must be in them
    for tensor in validity.inner_tensors(model):
        weights.embed(tensor, files)
    # Named twice: calls have names before they are inlined, since inner nodes are named after them, and
    # what the inliner adds has names of its own after that.
    names.name_nodes(model.graph)
    model = functions.inline(model)
    pass_through.take_out(model.graph)
    names.name_nodes(model.graph)
    shared = Shared(source, model, keeps_classes)
    return Builder(shared, model.graph, _inferred(model).graph, initializers).graph()


def _settle(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Replace named dimensions by their sizes in the types that the model declares."""
    if not sizes:
        return
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in sizes:
                dimension.dim_value = sizes[dimension.dim_param]


def _slice(raw: np.ndarray, span: Span | None) -> np.ndarray | None:
    return None if span is None else raw[span[0] : span[1]]


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types of its values, those inside branches and loops included."""
    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - inference is a convenience: a model runs without it
        return model
