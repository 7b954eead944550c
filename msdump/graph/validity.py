"""Checks a serialised ModelProto before a graph is built from it."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import onnx
from google.protobuf.message import DecodeError
from onnx import defs

from msdump import dtypes
from msdump.errors import FormatError, GraphError, UnsupportedIRVersionError
from msdump.graph import weights
from msdump.graph.graph import Graph, Node, canonical_domain
from msdump.graph.order import subgraphs, walk_graphs

_Kind: Final = onnx.AttributeProto.AttributeType
_FIELDS: Final = {
    _Kind.TENSOR: "t",
    _Kind.GRAPH: "g",
    _Kind.SPARSE_TENSOR: "sparse_tensor",
    _Kind.TYPE_PROTO: "tp",
}
"""The field that an attribute of a message type must have."""


def skeleton(data: memoryview) -> onnx.ModelProto:
    """Return the model of a serialised ModelProto, without the raw data of its large initializers."""
    return parsed(weights.split(data).message)


def parsed(message: bytes) -> onnx.ModelProto:
    """Return the model of a serialised ModelProto.

    Raises:
        GraphError: Not a model, or invalid texts or attributes; the message names the node.
        UnsupportedIRVersionError: A model newer than the installed onnx package.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(message)
    except DecodeError as error:
        raise GraphError("not an ONNX model: the protobuf message cannot be parsed") from error
    # protobuf parses many other files without error: a model has a graph and an opset
    if not model.HasField("graph") or not model.opset_import:
        raise GraphError("not an ONNX model: the message has no graph or no opset import")
    _check_texts(model)
    if model.ir_version > onnx.IR_VERSION:
        raise UnsupportedIRVersionError(
            f"IR version {model.ir_version} is newer than the installed onnx package supports"
            f" ({onnx.IR_VERSION}); upgrade onnx or export the model with an older IR version"
        )
    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if not canonical_domain(opset.domain) and opset.version > newest:
            raise UnsupportedIRVersionError(
                f"opset {opset.version} is newer than the installed onnx package supports ({newest});"
                " upgrade onnx or export the model with an older opset"
            )
    versions = opsets(model)
    for node in _nodes(model):
        _check_attributes(node, versions)
    _check_inputs(model.graph)
    for graph in _graphs(model):
        _check_initializers(graph)
    open_dimensions(model)
    return model


def open_dimensions(model: onnx.ModelProto) -> None:
    """Make sizes unknown that are negative, or have a name without letters: exporters write -1 or "?".

    Equal texts of this kind are not equal sizes. Shape inference also finds negative sizes, where a
    window is larger than its input.
    """
    declared = [infos for graph in _graphs(model) for infos in (graph.input, graph.output, graph.value_info)]
    declared += [function.value_info for function in model.functions]
    for info in chain.from_iterable(declared):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_value < 0 or (dim.dim_param and not any(map(str.isalpha, dim.dim_param))):
                dim.Clear()


def check_names(graph: onnx.GraphProto) -> None:
    """Check that a graph that was put together lists no input and no initializer twice."""
    _check_inputs(graph)
    _check_initializers(graph)


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Return the version of each domain; "" is ONNX's own."""
    return {canonical_domain(opset.domain): opset.version for opset in model.opset_import}


def inner_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors that lie in attributes: constants, and initializers of subgraphs."""
    for node in _nodes(model):
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
        for graph in subgraphs(node):
            yield from graph.initializer


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in _graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    inits = (graph for info in model.training_info for graph in (info.initialization, info.algorithm))
    inner = (graph for each in model.functions for node in each.node for graph in subgraphs(node))
    for graph in (model.graph, *inits, *inner):
        yield from walk_graphs(graph)


def _check_inputs(graph: onnx.GraphProto) -> None:
    for name, count in Counter(value.name for value in graph.input).items():
        if not name or count > 1:
            raise GraphError(f"graph input {name!r}: {'is listed twice' if name else 'no name'}")


def _check_initializers(graph: onnx.GraphProto) -> None:
    tensors = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
    for name, count in Counter(tensor.name for tensor in tensors).items():
        if count > 1:
            raise GraphError(f"initializer {name!r}: is listed {count} times")


def _check_texts(model: onnx.ModelProto) -> None:
    """Refuse names that are not UTF-8; protobuf returns them as bytes."""
    texts = [text for graph in _graphs(model) for text in _graph_texts(graph)]
    texts += [opset.domain for opset in model.opset_import]
    for info in model.training_info:
        pairs = (*info.update_binding, *info.initialization_binding)
        texts += [text for entry in pairs for text in (entry.key, entry.value)]
    for function in model.functions:
        texts += [function.name, function.domain, function.overload, *function.input, *function.output]
    for node in _nodes(model):
        texts += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
        texts += [text for entry in node.metadata_props for text in (entry.key, entry.value)]
    stored = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    for tensor in (*stored, *inner_tensors(model)):
        texts += [text for entry in tensor.external_data for text in (entry.key, entry.value)]
    for text in texts:
        if not isinstance(text, str):
            raise GraphError(f"not an ONNX model: the text {text!r:.80} is not UTF-8")


def _graph_texts(graph: onnx.GraphProto) -> Iterator[str]:
    yield graph.name
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def _check_attributes(node: onnx.NodeProto, versions: dict[str, int]) -> None:
    if not node.attribute:
        return
    domain = canonical_domain(node.domain)
    schema = _attributes_of(node.op_type, versions.get(domain, 1), domain)
    for attribute in node.attribute:
        # attribute of a node in a function: the value comes from the call
        if attribute.ref_attr_name:
            continue
        # limits are known for ONNX's domain only
        if not domain:
            _check_number(node, attribute)
        kind, expected = attribute.type, schema.get(attribute.name)
        if kind not in _Kind.values() or kind == _Kind.UNDEFINED:
            raise _attribute_error(node, attribute, "has no type")
        if kind in _FIELDS and not attribute.HasField(_FIELDS[kind]):
            raise _attribute_error(node, attribute, "has no value")
        if expected is not None and expected.type.value != kind:
            fault = f"is of type {_Kind.Name(kind)}; must be of type {expected.type.name}"
            raise _attribute_error(node, attribute, fault)


@functools.lru_cache(maxsize=1024)
def _attributes_of(op_type: str, version: int, domain: str) -> Mapping[str, Any]:
    with contextlib.suppress(defs.SchemaError):
        return dict(defs.get_schema(op_type, version, domain).attributes)
    return {}


# onnx and onnxruntime cast most attributes to 32 bits unchecked
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_TARGET: Final = ("Cast", "to")

_RANGES: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    # limits far above the numbers of networks, far below an overflow in a kernel
    ("DepthToSpace", "blocksize"): (1, 1 << 15),
    ("SpaceToDepth", "blocksize"): (1, 1 << 15),
    ("GatherND", "batch_dims"): (0, 64),
    ("RoiAlign", "sampling_ratio"): (0, 1 << 10),
    **dict.fromkeys(
        (("Constant", "value_int"), ("Shape", "start"), ("Shape", "end"), ("EyeLike", "k")), _INT64
    ),
}
"""Where a number of an ai.onnx operator may lie, if not in 32 bits; a Scan scans at most its inputs.

Outside, the libraries below loop for ever, divide by zero or read foreign memory instead of
refusing the operator.
"""


def _check_number(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    if attribute.type != _Kind.INT:
        return
    name = (node.op_type, attribute.name)
    is_count = name == ("Scan", "num_scan_inputs")
    low, high = (1, len(node.input)) if is_count else _RANGES.get(name, _INT32)
    if not low <= attribute.i <= high:
        fault = f"is {attribute.i}; must be a number from {low} to {high}"
        raise _attribute_error(node, attribute, fault)
    if name == _TARGET:
        try:
            dtypes.from_onnx(attribute.i)
        except FormatError as error:
            raise _attribute_error(node, attribute, f"is not an element type: {error}") from error


def _attribute_error(node: onnx.NodeProto, attribute: onnx.AttributeProto, fault: str) -> GraphError:
    return GraphError(f"node {node.name!r} ({node.op_type}): attribute {attribute.name!r} {fault}")


@dataclass(frozen=True, slots=True)
class MixedTypes:
    """An operator with different types in inputs that ONNX's schema binds to one type variable.

    Attributes:
        node: The operator.
        variable: Name of the type variable, such as T.
        inputs: Element types of these inputs by name.
    """

    node: Node
    variable: str
    inputs: Mapping[str, str]

    def __str__(self) -> str:
        """Return operator, inputs and types in a sentence."""
        types = ", ".join(f"{name!r} {dtype}" for name, dtype in self.inputs.items())
        return (
            f"{self.node.operator.full_name} ({self.node.op_type}) mixes types: {types}; ONNX has one type"
            f" {self.variable} for these inputs, and onnxruntime refuses the model: insert a Cast"
        )


def mixed_types(graph: Graph) -> Iterator[MixedTypes]:
    """Yield the operators with mixed input types, also in branches and loops."""
    for inner in graph.walk():
        for node in inner.nodes:
            dtypes = [inner.type_of(name).dtype for name in node.inputs if name]
            if all(dtype is dtypes[0] for dtype in dtypes):  # the quick way past most operators
                continue
            variables = _variables(node.op_type, graph.opsets.get(node.domain, 1), node.domain)
            variables += variables[-1:] * (len(node.inputs) - len(variables))
            bound: dict[str, dict[str, str]] = {}
            for name, variable in zip(node.inputs, variables, strict=False):
                dtype = inner.type_of(name).dtype
                if dtype is not None and variable:
                    bound.setdefault(variable, {})[name] = dtype.name
            for variable, inputs in bound.items():
                if len({*inputs.values()}) > 1:
                    yield MixedTypes(node, variable, inputs)


@functools.lru_cache(maxsize=1024)
def _variables(op_type: str, version: int, domain: str) -> tuple[str, ...]:
    """Return the type variable of each formal input, "" for none; the last one may stand for many inputs."""
    if not defs.has(op_type, version, domain):
        return ()
    schema = defs.get_schema(op_type, version, domain)
    names = {each.type_param_str for each in schema.type_constraints}
    return tuple(
        each.type_str if each.type_str in names and each.is_homogeneous else "" for each in schema.inputs
    )
