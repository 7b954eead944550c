"""Builds a Graph from a checked message, branches and loops included: typed, ordered and named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import onnx

from msdump import dtypes
from msdump.errors import FormatError, GraphError
from msdump.graph import bodies, names, validity, weights
from msdump.graph.graph import UNKNOWN, Attribute, Graph, Node, Value, ValueType, canonical_domain
from msdump.graph.operators import Use, primitive_name, update_of
from msdump.graph.order import execution_order, free_names, used_values
from msdump.record import OperatorRef

_OVERRIDABLE_SINCE: Final = 4  # before IR 4 every initializer had to be listed as an input
_SCALAR_KINDS: Final = "biuf"


@dataclass(slots=True)
class Shared:
    """State that all graphs of one model share."""

    source: str
    model: onnx.ModelProto
    keeps_classes: bool  # scopes carry class names
    is_mindspore_export: bool = False  # MindSpore has written the .onnx file
    # numbers the operators, each number once in the whole model
    full_names: names.FullNames = field(default_factory=names.FullNames)
    graphs: int = 0  # number of graphs so far


class Builder:
    """Turns the message of one graph into a Graph."""

    def __init__(
        self,
        shared: Shared,
        proto: onnx.GraphProto,
        inferred: onnx.GraphProto,
        initializers: dict[str, np.ndarray],
        outer: Builder | None = None,
        *,
        variables: frozenset[str] = frozenset(),
    ) -> None:
        self._shared = shared
        self._proto = proto
        self._inferred = {node.name: node for node in inferred.node}
        self._own_infos = (*inferred.value_info, *inferred.input, *inferred.output)
        self._infos = {info.name: info for info in self._own_infos}
        self._types = {info.name: value_type(info.type) for info in self._own_infos}
        self._weights = initializers
        self._parameters = set(initializers)
        # up to IR 3 initializers stand among the inputs, too
        self._inputs = [value.name for value in proto.input if value.name not in initializers]
        self._outer: frozenset[str] = frozenset()
        self._producers: dict[str, str] = {}
        self._variables = variables & self._parameters
        self._overridable = self._listed_initializers() if outer is None else frozenset()
        if outer is not None:
            self._take_over(outer, tuple(dict.fromkeys(free_names(proto))))

    def _listed_initializers(self) -> frozenset[str]:
        if self._shared.model.ir_version < _OVERRIDABLE_SINCE:
            return frozenset()
        # an initializer that is listed as an input is that input's default
        return frozenset(value.name for value in self._proto.input if value.name in self._weights)

    def _take_over(self, outer: Builder, taken: tuple[str, ...]) -> None:
        self._outer = frozenset(taken)
        for name in taken:
            if name in outer._types:
                self._types[name] = outer._types[name]
            if name in outer._infos:
                self._infos[name] = outer._infos[name]
            if name not in outer._weights:
                self._inputs.append(name)
                continue
            self._weights[name] = outer._weights[name]
            if name in outer._parameters:
                self._parameters.add(name)
        self._overridable = self._outer & outer._overridable
        self._variables = self._outer & outer._variables
        self._producers = {name: outer._producers[name] for name in self._outer & outer._producers.keys()}

    def graph(self) -> Graph:
        """Build the graph and the graphs inside it."""
        # before the bodies get an index: outer graphs have lower ones
        index = self._shared.graphs
        self._shared.graphs += 1
        operators = self._lift_constants(list(self._proto.node))
        for name, array in self._weights.items():
            # a model need not declare its initializers, and may declare them wrongly
            self._types[name] = ValueType(dtypes.from_numpy(array.dtype), array.shape)
        ordered = execution_order(operators, {*self._weights, *self._inputs})
        available = {*self._weights, *self._inputs}
        available.update(*(node.output for node in ordered))
        for value in self._proto.output:
            if not value.name or value.name not in available:
                raise GraphError(
                    f"graph output {value.name!r}: no node, input or initializer has this output"
                )
        readers: dict[str, list[str]] = {}
        scopes = {}
        for proto in reversed(ordered):  # backwards: the scopes of all readers are known then
            metadata = names.metadata_of(proto)
            own = metadata.get(names.FULL_NAME, "").rpartition("/")[0] or None
            if own is None and self._shared.is_mindspore_export:
                own = names.exported_scope(proto, self._weights)
            elif own is None:
                own = names.scope_of(proto.name, metadata, keeps_classes=self._shared.keeps_classes)
            if own is None:
                own = names.shared_scope(scope for name in proto.output for scope in readers.get(name, ()))
            scopes[proto.name] = own
            for name in used_values(proto):
                readers.setdefault(name, []).append(own)

        # operators are numbered in execution order, bodies after all of this graph
        nodes = [self._node(proto, scopes[proto.name]) for proto in ordered]
        model = self._shared.model
        return Graph(
            source=self._shared.source,
            name=self._proto.name,
            nodes=tuple(self._with_bodies(node) for node in nodes),
            inputs=tuple(Value(name, self._types.get(name, UNKNOWN)) for name in self._inputs),
            outputs=tuple(
                Value(value.name, self._types.get(value.name, UNKNOWN)) for value in self._proto.output
            ),
            weights=self._weights,
            constants=tuple(name for name in self._weights if name not in self._parameters),
            overridable=self._overridable,
            types=self._types,
            opsets=validity.opsets(model),
            ir_version=model.ir_version,
            proto=self._body_model() if index else model,
            index=index,
            outer=self._outer,
            variables=self._variables,
        )

    def _body_model(self) -> onnx.ModelProto:
        whole = self._shared.model
        # without weights: kernels get weights as arrays
        model = onnx.ModelProto(ir_version=whole.ir_version)
        model.opset_import.extend(whole.opset_import)
        model.functions.extend(whole.functions)
        model.graph.name = self._proto.name
        model.graph.node.extend(self._proto.node)
        model.graph.input.extend(self._infos[name] for name in self._inputs if name in self._infos)
        model.graph.output.extend(self._proto.output)
        model.graph.value_info.extend(info for info in self._own_infos if info.name not in self._inputs)
        return model

    def _lift_constants(self, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Turn Constant nodes into weights: they are values, not operators, in MindSpore too."""
        operators = []
        for node in nodes:
            value = weights.constant(node)
            if value is None:
                operators.append(node)
            elif node.output[0] in self._weights:
                raise GraphError(
                    f"node {node.name!r} writes value {node.output[0]!r}, which an initializer or a"
                    " constant already has"
                )
            else:
                self._weights[node.output[0]] = value
        return operators

    def _node(self, proto: onnx.NodeProto, scope: str) -> Node:
        attributes = {attribute.name: weights.decoded_attribute(attribute) for attribute in proto.attribute}
        domain = canonical_domain(proto.domain)
        metadata = names.metadata_of(proto)
        operator = names.operator_of(metadata)
        if operator is None:
            primitive = primitive_name(proto.op_type, domain, partial(self._use, proto, attributes))
            operator = OperatorRef(primitive, self._shared.full_names.next(scope, primitive))
        self._producers |= dict.fromkeys(proto.output, proto.op_type)
        unlisted = set(map(int, metadata.get(names.UNLISTED_INPUTS, "").split()))
        return Node(
            name=proto.name,
            op_type=proto.op_type,
            domain=domain,
            inputs=tuple("" if slot in unlisted else name for slot, name in enumerate(proto.input)),
            outputs=tuple(proto.output),
            attributes=attributes,
            operator=operator,
            arguments=names.arguments_of(metadata),
            source=names.source_of(metadata),
            proto=proto,
            forward=metadata.get(names.FORWARD, ""),
            kernel_graph=int(number)
            if (number := metadata.get(names.KERNEL_GRAPH, "")).isdecimal()
            else None,
            update=update_of(proto.op_type, domain),
        )

    def _with_bodies(self, node: Node) -> Node:
        """Return a node with its bodies built.

        Operators are numbered graph by graph: all nodes of the outer graph have names before its bodies'.
        """
        graphs = bodies.protos(node.proto)
        if not graphs or bodies.obstacle(node.proto, validity.opsets(self._shared.model).get("", 1)):
            return node
        inferred = bodies.protos(self._inferred[node.name])
        builders = {
            name: Builder(self._shared, body, inferred[name], weights.inner_initializers(body), self)
            for name, body in graphs.items()
        }
        return replace(node, bodies={name: builder.graph() for name, builder in builders.items()})

    def _use(self, proto: onnx.NodeProto, attributes: Mapping[str, Attribute]) -> Use:
        arrays = [self._weights.get(name) for name in proto.input]
        shapes = [self._types.get(name, UNKNOWN).shape for name in proto.input]
        return Use(
            input_ranks=tuple(None if shape is None else len(shape) for shape in shapes),
            attributes=attributes,
            producers=tuple(self._producers.get(name) for name in proto.input),
            initializer_ranks=tuple(None if array is None else array.ndim for array in arrays),
            scalars=tuple(scalar_of(array) for array in arrays),
        )


def scalar_of(array: np.ndarray | None) -> float | None:
    """Return the one number of an array, None for arrays of more elements, of another kind or for none."""
    if array is None or array.size != 1 or array.dtype.kind not in _SCALAR_KINDS:
        return None
    return float(array.reshape(-1)[0])


def value_type(proto: onnx.TypeProto) -> ValueType:
    """Return the type of a TypeProto; an element type that ONNX does not define counts as unknown."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return UNKNOWN
    if kind in {"sequence_type", "optional_type"}:
        inner = value_type(getattr(proto, kind).elem_type)
        return ValueType(inner.dtype, kind=kind.removesuffix("_type"))
    if kind != "tensor_type":
        return ValueType(kind=kind.removesuffix("_type"))
    tensor = proto.tensor_type
    try:
        dtype = dtypes.from_onnx(tensor.elem_type)
    # an element type that is newer than this program: the runtime may know it
    except FormatError:
        dtype = None
    if not tensor.HasField("shape"):
        return ValueType(dtype)
    dims = tensor.shape.dim
    return ValueType(
        dtype, tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims)
    )
