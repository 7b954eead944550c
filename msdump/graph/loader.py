"""Any .onnx file -> Graph: read, checked, inlined, typed, ordered and named."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import shape_inference

from msdump import dtypes
from msdump.errors import FormatError, GraphError
from msdump.graph import functions, names, validity, weights, wire
from msdump.graph.graph import Attribute, Graph, Node, Value, ValueType
from msdump.graph.order import execution_order
from msdump.graph.primitives import Use, primitive_name
from msdump.record import OperatorRef

_IN_MEMORY: Final = "<ModelProto>"
_OVERRIDABLE_SINCE: Final = 4  # before IR 4 every initializer had to be listed as an input
_SCALAR_KINDS: Final = "biufc"


def load(model: str | os.PathLike[str] | onnx.ModelProto | bytes, *, keeps_classes: bool = True) -> Graph:
    """Read a model.

    Large weights stay in the mapped file; nothing of them is copied here.

    Args:
        model: Path of an .onnx file, a ModelProto, or a serialised one.
        keeps_classes: Scopes carry class names (``reserve_class_name_in_scope``).

    Raises:
        GraphError: Not an ONNX file, truncated, missing external data, or a graph that
            cannot run; the message names the file and the node.
    """
    if isinstance(model, onnx.ModelProto):
        source, folder, data = _IN_MEMORY, None, memoryview(model.SerializeToString())
    elif isinstance(model, bytes):
        source, folder, data = _IN_MEMORY, None, memoryview(model)
    else:
        path = Path(model)
        source, folder, data = str(path), path.parent, _map_file(path)
    try:
        return _build(source, folder, data, keeps_classes=keeps_classes)
    except GraphError as error:
        raise type(error)(f"{source}: {error}") from error.__cause__


def _map_file(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise GraphError(f"{path}: the file is empty; an ONNX model is expected")
            return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    except OSError as error:
        raise GraphError(f"{path}: the model cannot be read: {error.strerror}") from error


def _build(source: str, folder: Path | None, data: memoryview, *, keeps_classes: bool) -> Graph:
    split = wire.split(data)
    model = validity.parsed(split.message)
    files = weights.SideFiles(folder)
    raw = np.frombuffer(data, np.uint8)
    initializers = {
        tensor.name: weights.to_array(tensor, _slice(raw, split.raw_data.get(position)), files)
        for position, tensor in enumerate(model.graph.initializer)
    }
    for sparse in model.graph.sparse_initializer:
        initializers[sparse.values.name] = weights.sparse_to_array(sparse, files)
    for tensor in validity.inner_tensors(model):
        weights.embed(tensor, files)
    _name_nodes(model.graph)
    model = functions.inline(model)
    return _Builder(source, model, initializers, keeps_classes=keeps_classes).graph()


def _slice(raw: np.ndarray, span: wire.Span | None) -> np.ndarray | None:
    return None if span is None else raw[span[0] : span[1]]


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every nameless or doubly named node a name of its own."""
    taken = {node.name for node in graph.node}
    seen: set[str] = set()
    for position, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            base = name = node.name or f"{node.op_type}_{position}"
            while name in taken:
                name = f"{base}_{position}"
                position += 1  # noqa: PLW2901 - the next free number
            node.name = name
            taken.add(name)
        seen.add(node.name)


class _Builder:
    """Turns one checked message into a Graph."""

    def __init__(
        self, source: str, model: onnx.ModelProto, initializers: dict[str, np.ndarray], *, keeps_classes: bool
    ) -> None:
        self._source = source
        self._model = model
        self._weights = initializers
        self._keeps_classes = keeps_classes
        self._types = _value_types(model)
        self._full_names = names.FullNames()
        self._producers: dict[str, str] = {}

    def graph(self) -> Graph:
        graph = self._model.graph
        parameters = frozenset(self._weights)
        operators = self._lift_constants(list(graph.node))
        for name, array in self._weights.items():
            self._types[name] = ValueType(dtypes.from_numpy(array.dtype), array.shape)
        inputs = tuple(Value(i.name, self._type(i.name)) for i in graph.input if i.name not in parameters)
        ordered = execution_order(operators, {*self._weights, *(value.name for value in inputs)})
        self._check_outputs(ordered, inputs)
        return Graph(
            source=self._source,
            name=graph.name,
            nodes=tuple(self._node(proto) for proto in ordered),
            inputs=inputs,
            outputs=tuple(Value(o.name, self._type(o.name)) for o in graph.output),
            weights=self._weights,
            constants=tuple(name for name in self._weights if name not in parameters),
            overridable=self._overridable(),
            types=self._types,
            opsets=validity.opsets(self._model),
            ir_version=self._model.ir_version,
            proto=self._model,
        )

    def _check_outputs(self, nodes: list[onnx.NodeProto], inputs: tuple[Value, ...]) -> None:
        made = {*self._weights, *(value.name for value in inputs)}
        made.update(*(node.output for node in nodes))
        for value in self._model.graph.output:
            if not value.name or value.name not in made:
                raise GraphError(f"graph output {value.name!r}: no node, input or initializer makes it")

    def _overridable(self) -> frozenset[str]:
        if self._model.ir_version < _OVERRIDABLE_SINCE:
            return frozenset()
        return frozenset(value.name for value in self._model.graph.input if value.name in self._weights)

    def _type(self, name: str) -> ValueType:
        return self._types.get(name, ValueType(kind=""))

    def _lift_constants(self, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Turn Constant nodes into weights; they are values, not operators, as in MindSpore."""
        operators = []
        for node in nodes:
            value = weights.constant(node)
            if value is None:
                operators.append(node)
            elif node.output[0] in self._weights:
                raise GraphError(
                    f"node {node.name!r} writes value {node.output[0]!r}, which an initializer or a"
                    " constant already makes"
                )
            else:
                self._weights[node.output[0]] = value
        return operators

    def _node(self, proto: onnx.NodeProto) -> Node:
        metadata = {entry.key: entry.value for entry in proto.metadata_props}
        attributes = {attribute.name: _attribute(attribute) for attribute in proto.attribute}
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        primitive = primitive_name(proto.op_type, domain, self._use(proto, attributes))
        scope = names.scope_of(proto.name, metadata, keeps_classes=self._keeps_classes)
        self._producers |= dict.fromkeys(proto.output, proto.op_type)
        return Node(
            name=proto.name,
            op_type=proto.op_type,
            domain=domain,
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes=attributes,
            operator=OperatorRef(primitive, self._full_names.next(scope, primitive)),
            source=names.source_of(metadata),
            proto=proto,
        )

    def _use(self, proto: onnx.NodeProto, attributes: Mapping[str, Attribute]) -> Use:
        arrays = [self._weights.get(name) for name in proto.input]
        return Use(
            input_ranks=tuple(_rank(self._type(name)) for name in proto.input),
            attributes=attributes,
            producers=tuple(self._producers.get(name) for name in proto.input),
            initializer_ranks=tuple(None if array is None else array.ndim for array in arrays),
            scalars=tuple(_scalar(array) for array in arrays),
        )


def _rank(known: ValueType) -> int | None:
    return None if known.shape is None else len(known.shape)


def _scalar(array: np.ndarray | None) -> float | None:
    if array is None or array.size != 1 or array.dtype.kind not in _SCALAR_KINDS[:3]:
        return None
    return float(array.reshape(-1)[0])


def _attribute(attribute: onnx.AttributeProto) -> Attribute:
    value: Any = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return weights.inner_array(value)
    if attribute.type in {onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS}:
        return tuple(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return tuple(item.decode(errors="replace") for item in value)
    return value


def _value_types(model: onnx.ModelProto) -> dict[str, ValueType]:
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - inference is a convenience: a model runs without it
        inferred = model
    graph = inferred.graph
    return {value.name: value_type(value.type) for value in (*graph.value_info, *graph.input, *graph.output)}


def value_type(proto: onnx.TypeProto) -> ValueType:
    """Return what a TypeProto says."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return ValueType(kind="")
    if kind == "sequence_type":
        return ValueType(value_type(proto.sequence_type.elem_type).dtype, kind="sequence")
    if kind == "optional_type":
        return ValueType(value_type(proto.optional_type.elem_type).dtype, kind="optional")
    if kind != "tensor_type":
        return ValueType(kind=kind.removesuffix("_type"))
    tensor = proto.tensor_type
    try:
        dtype = dtypes.from_onnx(tensor.elem_type)
    except FormatError:
        dtype = None
    if not tensor.HasField("shape"):
        return ValueType(dtype)
    return ValueType(dtype, tuple(_dimension(dim) for dim in tensor.shape.dim))


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or None
