"""Loads an .onnx file as a Graph: reads, checks, inlines and names; the builder makes the graph of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import shape_inference

from msdump import reading
from msdump.errors import GraphError
from msdump.graph import names, validity, weights
from msdump.graph.builder import Builder, Shared
from msdump.graph.collectives.standins import with_standins
from msdump.graph.graph import IN_MEMORY, Graph, Training
from msdump.graph.message import functions, pass_through, split_model, training_info
from msdump.graph.message.training_info import TrainingMessage


def load(
    model: str | os.PathLike[str] | onnx.ModelProto | bytes,
    *,
    keeps_classes: bool = True,
    sizes: Mapping[str, int] = MappingProxyType({}),
    update_binding: Mapping[str, str] | None = None,
    variables: frozenset[str] = frozenset(),
    source: str = "",
) -> Graph:
    """Return the graph of a model.

    Large weights are views of the mapped file; no copy of them is made.

    Args:
        model: Path of an .onnx file, a ModelProto, or a serialised one.
        keeps_classes: Scopes carry class names (``reserve_class_name_in_scope``).
        sizes: Sizes of dynamic dimensions by name, from which the shapes of all values follow.
        update_binding: The output that each initializer takes after a training step, for a model that
            has no ``training_info``.
        variables: Initializers that the training of another model changes, where this one describes none.
        source: What messages call a model that was made from another one; the path, or "<ModelProto>".

    Raises:
        GraphError: Not an ONNX file, truncated, missing external data, or a graph that
            cannot run, or bindings that do not fit; the message names the file and the node.
    """
    if isinstance(model, onnx.ModelProto):
        own_name, folder, data = IN_MEMORY, None, memoryview(model.SerializeToString())
    elif isinstance(model, bytes):
        own_name, folder, data = IN_MEMORY, None, memoryview(model)
    else:
        path = Path(model)
        own_name, folder, data = str(path), path.parent, _map_file(path)
    source = source or own_name
    try:
        loading = _Loading(source, folder, keeps_classes=keeps_classes, sizes=sizes)
        return loading.graph(data, update_binding, variables)
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


class _Loading:
    """Builds the graphs of one model: its own, and those of its training."""

    def __init__(
        self, source: str, folder: Path | None, *, keeps_classes: bool, sizes: Mapping[str, int]
    ) -> None:
        self._source = source
        self._files = weights.SideFiles(folder)
        self._keeps_classes = keeps_classes
        self._sizes = sizes

    def graph(
        self, data: memoryview, update_binding: Mapping[str, str] | None, variables: frozenset[str]
    ) -> Graph:
        """Return the graph of a serialised model.

        Raises:
            GraphError: As for ``load``.
        """
        # protobuf would copy every weight; shape inference needs the small ones only
        split = split_model.split(data)
        model = validity.parsed(split.message)
        raw = np.frombuffer(data, np.uint8)
        parts = {position: raw[start:end] for position, (start, end) in split.raw_data.items()}
        initializers = self._initializers(model.graph, parts)
        training = training_info.take(model, update_binding)
        if training is None:
            return self._build(model, initializers, variables)
        if training.obstacle or training.gradient:
            graph = self._build(model, initializers, variables)
            return replace(graph, training=Training(obstacle=training.obstacle, gradient=training.gradient))
        return self._trained(model, initializers, training, parts)

    def _trained(
        self,
        model: onnx.ModelProto,
        initializers: dict[str, np.ndarray],
        training: TrainingMessage,
        parts: Mapping[int, np.ndarray],
    ) -> Graph:
        """Return the graph of a model that can be trained, its bindings checked."""
        step, initialization = None, None
        if training.step is not None:
            # the model's initializers come first, in the same order, and are the same arrays
            own = {**self._initializers(training.step.graph, parts), **initializers}
            validity.check_names(training.step.graph)
            step = self._build(training.step, own, training.variables)
        if training.initialization is not None:
            own = self._initializers(training.initialization.graph)
            initialization = self._build(training.initialization, own)
        # the last, since messages are renamed and inlined in place
        graph = self._build(model, initializers, training.variables)
        whole = step or graph
        bindings = training_info.checked(training.bindings, whole, whole, "update_binding")
        initial_values = {}
        if initialization is not None:
            pairs = training.initial_values
            initial_values = training_info.checked(pairs, whole, initialization, "initialization_binding")
        if step is None:
            graph = replace(graph, bindings=bindings)
        else:
            step = replace(step, bindings=bindings, training=Training())
        return replace(graph, training=Training(step, initialization, initial_values))

    def _initializers(
        self, graph: onnx.GraphProto, parts: Mapping[int, np.ndarray] = MappingProxyType({})
    ) -> dict[str, np.ndarray]:
        """Return the initializers of a main graph by name.

        Args:
            graph: The graph.
            parts: Bytes of initializers that were split off, by position.
        """
        initializers = {
            tensor.name: weights.to_array(tensor, parts.get(position), self._files)
            for position, tensor in enumerate(graph.initializer)
        }
        for sparse in graph.sparse_initializer:
            initializers[sparse.values.name] = weights.sparse_to_array(sparse, self._files)
        return initializers

    def _build(
        self,
        model: onnx.ModelProto,
        initializers: dict[str, np.ndarray],
        variables: frozenset[str] = frozenset(),
    ) -> Graph:
        _settle(model.graph, self._sizes)
        # the runtime gets nodes as messages: what they hold must be in them
        for tensor in validity.inner_tensors(model):
            weights.embed(tensor, self._files)
        # Named twice: calls have names before they are inlined, since inner nodes are named after them, and
        # what the inliner adds has names of its own after that.
        names.name_nodes(model.graph)
        model = functions.inline(model)
        pass_through.take_out(model.graph, variables)
        names.name_nodes(model.graph)
        shared = Shared(self._source, model, self._keeps_classes)
        builder = Builder(shared, model.graph, _inferred(model).graph, initializers, variables=variables)
        return builder.graph()


def _settle(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Replace named dimensions by their sizes in the types that the model declares."""
    if not sizes:
        return
    for value in (*graph.input, *graph.value_info, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in sizes:
                dimension.dim_value = sizes[dimension.dim_param]


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types of its values, those inside branches and loops included."""
    try:
        return shape_inference.infer_shapes(with_standins(model), data_prop=True)
    except Exception:  # noqa: BLE001 - inference is a convenience: a model runs without it
        return model
