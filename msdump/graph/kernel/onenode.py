"""One node as a model of its own, for a single-operator session.

Values are renamed by position (i0, i1, ..., o0, ...), so that equal nodes give
equal bytes and can share a session; a node with subgraphs keeps its names, since
its subgraphs refer to outer values by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference, version_converter

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError, UnsupportedOpError
from msdump.graph.functions import callees, renamed_calls
from msdump.graph.graph import Graph, Node, Shape
from msdump.graph.kernel.emulation import PREFIX, STATUS, Rounding, rounded_operators
from msdump.graph.operators import WITH_MEMORY
from msdump.graph.order import reads, subgraphs


def untyped_model(
    graph: Graph,
    protos: Sequence[onnx.NodeProto],
    inputs: Iterable[str],
    outputs: Iterable[str],
    functions: Sequence[onnx.FunctionProto],
) -> onnx.ModelProto:
    """Return a model of some operators without declared types; inputs and outputs named "" are left out."""
    fed, given = (
        [helper.make_empty_tensor_value_info(name) for name in names if name] for names in (inputs, outputs)
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
    message = helper.make_graph(protos, "node", fed, given)
    return helper.make_model(message, opset_imports=opsets, ir_version=graph.ir_version, functions=functions)


class ReferenceNode:
    """A node that ONNX's reference evaluator computes on numpy arrays."""

    def __init__(self, graph: Graph, node: Node, values: tuple[str, ...]) -> None:
        """Build the evaluator; ``values``: names of all values that ``run`` is given, outer ones included."""
        # imported here: it takes 20 ms, and few networks need it
        from onnx.reference import ReferenceEvaluator

        protos = [part.proto for part in node.members]
        functions = callees(protos, graph.proto.functions)
        self._evaluator = ReferenceEvaluator(untyped_model(graph, protos, values, node.outputs, functions))
        self.outputs = tuple(filter(None, node.outputs))

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the used outputs: arrays, lists of arrays, or None."""
        with np.errstate(all="ignore"):  # onnxruntime does not warn of a division by zero either
            return list(self._evaluator.run(list(self.outputs), dict(values)))


OLDEST_IR: Final = 4  # before IR 4 every initializer must be an input
_TYPE_TEXT: Final = re.compile(r"(?P<outer>\w+)\((?P<inner>.*)\)")
# onnxruntime's spelling where it differs from MindSpore's
_ELEMENTS: Final = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0",
    "float4e2m1": "float4_e2m1",
}


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """The newest versions that the runtime reads."""

    ir_version: int
    opset: int


@dataclass(frozen=True, slots=True)
class Bindings:
    """How the values of one node reach its session."""

    # onnxruntime's type text of each fed value, ``tensor(float)``; "": that of the graph input
    types: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]  # shapes to declare for fed values; empty: none
    embedded: Mapping[str, np.ndarray]  # arrays of initializers that are copied into the model, by value name
    shared: Mapping[str, np.ndarray]  # arrays of external initializers by value name
    # empty optionals; the model creates them, since onnxruntime cannot be fed with them
    absent: frozenset[str] = frozenset()
    # values that are rounded before to the type that the operator reads, and whether one of their elements
    # was beyond float16's range
    rounded: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeModel:
    """A serialised one-node model and its value names."""

    data: bytes
    feeds: tuple[tuple[str, str], ...]  # (name in the model, value of the graph) for every fed input
    # the values of the graph that are external initializers, in the order of their numbers
    shared: tuple[str, ...]
    # (name in the model, position in the node's outputs) for every used output
    outputs: tuple[tuple[str, int], ...]
    has_status: bool = False  # whether the model also gives the device's overflow status, ``STATUS``
    # whether its results depend on how often its session has run, as random numbers do
    has_memory: bool = False


def result_names(outputs: Sequence[tuple[str, int]], *, has_status: bool) -> list[str]:
    """Return the names of all outputs of a one-node model."""
    return [name for name, _ in outputs] + [STATUS] * has_status


def build(
    graph: Graph,
    node: Node,
    bindings: Bindings,
    limits: RuntimeLimits,
    roundings: Sequence[Rounding] | None = None,
) -> NodeModel:
    """Return the model of an operator, or of its parts; UnsupportedOpError if it changed in a newer opset."""
    names = _model_names(node)
    message = empty_model(graph, node, limits)
    written = computation(graph, node, names, bindings, roundings=roundings, opset=onnx_opset(message))
    protos = written.protos
    message.graph.initializer.extend(written.constants)
    message.functions.extend(renamed_calls(protos, callees(protos, graph.proto.functions)))
    message.graph.node.extend(protos)
    model_names = {value: names[value] for value in reads(node)}
    feeds, shared = _declare_inputs(message.graph, model_names, bindings, graph.proto)
    outputs = tuple((names[value], slot) for slot, value in enumerate(node.outputs) if value)
    results = result_names(outputs, has_status=written.has_status)
    message.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in results)
    data = message.SerializeToString(deterministic=True)  # equal bytes, so that equal nodes share a session
    inner = (part for function in message.functions for part in function.node)
    has_memory = any(part.op_type in WITH_MEMORY for part in (*protos, *inner))
    return NodeModel(data, feeds, shared, outputs, has_status=written.has_status, has_memory=has_memory)


@dataclass(frozen=True, slots=True)
class Computation:
    """The nodes of a model that compute one operator."""

    protos: list[onnx.NodeProto]
    constants: list[onnx.TensorProto]
    has_status: bool


def computation(
    graph: Graph,
    node: Node,
    names: Mapping[str, str],
    bindings: Bindings,
    *,
    roundings: Sequence[Rounding] | None,
    opset: int,
    prefix: str = PREFIX,
) -> Computation:
    """Return the nodes that compute one operator; of a fused one, its parts."""
    protos = [_renamed(part.proto, names) for part in node.members]
    if roundings is None:
        return Computation(protos, [], has_status=False)
    types = _element_types(graph, node, bindings, names)
    kept = {names[value]: beyond for value, beyond in bindings.rounded.items()}
    return Computation(*rounded_operators(protos, types, roundings, opset, kept, prefix=prefix))


def _model_names(node: Node) -> dict[str, str]:
    """Return the name in the model of every value that the operator reads or writes; "" stays ""."""
    # subgraphs refer to outer values by name
    if any(subgraphs(part.proto) for part in node.members):
        return {name: name for name in (*reads(node), *node.proto.output, "")}
    names = {"": ""}
    # setdefault: a value that is read twice is one input
    for slot, name in enumerate(node.inputs):
        names.setdefault(name, f"i{slot}")
    for slot, name in enumerate(node.outputs):
        names.setdefault(name, f"o{slot}")
    for name in reads(node):  # inputs that no file shows
        names.setdefault(name, f"h{len(names)}")
    # values between the parts of a fused operator
    for part in node.parts:
        for name in part.outputs:
            names.setdefault(name, f"t{len(names)}")
    return names


def _renamed(proto: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    renamed = onnx.NodeProto(op_type=proto.op_type, domain=proto.domain, overload=proto.overload)
    renamed.input.extend(names[name] for name in proto.input)
    renamed.output.extend(names[name] for name in proto.output)
    renamed.attribute.extend(proto.attribute)
    return renamed


def _element_types(
    graph: Graph, node: Node, bindings: Bindings, names: Mapping[str, str]
) -> dict[str, DType | None]:
    types = {names[value]: graph.type_of(value).dtype for value in names if value}
    # the actual value's type outranks the declared one; a value that is a map has no element type
    types |= {names[value]: _tensor_dtype(text) for value, text in bindings.types.items() if text}
    arrays = {**bindings.embedded, **bindings.shared}
    # an array that was rounded and widened before keeps the half type of the model
    given = (value for value in arrays if value not in bindings.rounded)
    types |= {names[value]: dtypes.from_numpy(arrays[value].dtype) for value in given}
    for part in node.members:  # values between parts: of the input's type, if not declared
        first = next((types.get(names[name]) for name in part.inputs if name), None)
        for name in filter(None, part.outputs):
            types[names[name]] = types[names[name]] or first
    return types


def _tensor_dtype(text: str) -> DType | None:
    proto = type_proto(text)
    return dtypes.from_onnx(proto.tensor_type.elem_type) if proto.HasField("tensor_type") else None


def onnx_opset(model: onnx.ModelProto) -> int:
    """Return the version of ai.onnx that a model imports, 1 without an import."""
    return next((opset.version for opset in model.opset_import if not opset.domain), 1)


def empty_model(graph: Graph, node: Node, limits: RuntimeLimits) -> onnx.ModelProto:
    """Return a model without operators, with IR and opset versions that fit the runtime and an operator."""
    model = onnx.ModelProto(ir_version=min(max(graph.ir_version, OLDEST_IR), limits.ir_version))
    versions = dict(graph.opsets)
    if versions.get("", 0) > limits.opset:
        versions[""] = min(lowered_opset(part, versions[""], limits.opset) for part in node.members)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())
    model.graph.name = "node"
    return model


def lowered_opset(node: Node, version: int, newest: int) -> int:
    """Return an opset that the runtime supports and in which the operator has the same meaning."""
    if node.domain:
        return newest
    try:
        wanted = defs.get_schema(node.op_type, version, "")
        older = defs.get_schema(node.op_type, newest, "")
    except defs.SchemaError:
        raise UnsupportedOpError(_too_new(node, version, newest)) from None
    # the operator is the same in the newest opset that the runtime reads
    if wanted.since_version <= newest:
        return newest
    fits = (
        set(node.attributes) <= set(older.attributes)
        and older.min_input <= len(node.inputs) <= older.max_input
        and older.min_output <= len(node.outputs) <= older.max_output
    )
    if not fits:
        raise UnsupportedOpError(_too_new(node, version, newest))
    return newest


def _too_new(node: Node, version: int, newest: int) -> str:
    return (
        f"node {node.name!r}: {node.op_type} of opset {version} is newer than the installed onnxruntime"
        f" reads (opset {newest})"
    )


def _declare_inputs(
    graph: onnx.GraphProto, model_names: Mapping[str, str], bindings: Bindings, whole: onnx.ModelProto
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    feeds: list[tuple[str, str]] = []
    shared: list[str] = []
    for value, name in model_names.items():
        # no empty optional can be fed: an operator in front of the node makes it
        if value in bindings.absent:
            kind = _declared(whole, value).optional_type.elem_type
            graph.node.insert(0, helper.make_node("Optional", [], [name], type=kind))
        elif value in bindings.embedded:
            graph.initializer.append(numpy_helper.from_array(contiguous(bindings.embedded[value]), name))
        elif value in bindings.shared:
            graph.initializer.append(placeholder(name, bindings.shared[value], len(shared)))
            shared.append(value)
        else:
            text = bindings.types[value]
            kind = type_proto(text) if text else _declared(whole, value)
            graph.input.append(input_info(name, kind, bindings.shapes.get(value)))
            feeds.append((name, value))
    return tuple(feeds), tuple(shared)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return an array in C order."""
    return array if array.flags.c_contiguous else array.copy()


def placeholder(name: str, array: np.ndarray, number: int) -> onnx.TensorProto:
    """Return an initializer without contents, for the array of a number that a session is given."""
    tensor = onnx.TensorProto(
        name=name,
        dims=array.shape,
        data_type=dtypes.from_numpy(array.dtype).onnx,
        # no file has this name: onnxruntime finds the array by it
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, text in (("location", str(number)), ("offset", "0"), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=text)
    return tensor


def _declared(whole: onnx.ModelProto, value: str) -> onnx.TypeProto:
    for info in (*whole.graph.input, *whole.graph.value_info):
        if info.name == value:
            return info.type
    raise GraphError(f"the model does not declare the type of value {value!r}")


def input_info(name: str, proto: onnx.TypeProto, shape: Shape | None) -> onnx.ValueInfoProto:
    """Return the declaration of an input; the shape, if known, is written into the type."""
    if shape is not None and proto.HasField("tensor_type"):
        proto.tensor_type.shape.Clear()
        for size in shape:
            known = {"dim_value": size} if isinstance(size, int) else {"dim_param": size} if size else {}
            proto.tensor_type.shape.dim.add(**known)
        # a scalar has a shape without dimensions; no shape at all would be an unknown rank
        if not shape:
            proto.tensor_type.shape.SetInParent()
    return helper.make_value_info(name, proto)


def type_proto(text: str) -> onnx.TypeProto:
    """Return the TypeProto of onnxruntime's type text, ``seq(tensor(int64))``.

    >>> type_proto("tensor(float)").tensor_type.elem_type
    1
    >>> type_proto("seq(tensor(int64))").WhichOneof("value")
    'sequence_type'
    """
    parts = _TYPE_TEXT.fullmatch(text)
    if parts is None:
        raise GraphError(f"unknown value type {text!r}")
    inner = parts["inner"]
    match parts["outer"]:
        case "tensor":
            return onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=_element(inner)))
        case "seq":
            return helper.make_sequence_type_proto(type_proto(inner))
        case "optional":
            return helper.make_optional_type_proto(type_proto(inner))
        case "map":
            key, _, value = inner.partition(",")
            return helper.make_map_type_proto(_element(key.strip()), type_proto(value.strip()))
        case outer:
            raise GraphError(f"unknown value type {outer!r} in {text!r}")


def _element(name: str) -> int:
    return dtypes.from_name(_ELEMENTS.get(name, name)).onnx


def type_text(value: Any) -> str:
    """Return onnxruntime's type text of a tensor, the inverse of ``type_proto``, from its row of ``DTYPES``.

    >>> type_text(dtypes.from_name("float32")), type_text(dtypes.from_name("bfloat16"))
    ('tensor(float)', 'tensor(bfloat16)')
    """
    back = {row: text for text, row in _ELEMENTS.items()}
    return f"tensor({back.get(value.name, value.name)})"


_OPSET = 17  # old enough for older runtimes, and with all operators of the models below
_IR = 8


def one_operator(
    op_type: str,
    *inputs: tuple[str, str],
    constants: Sequence[onnx.TensorProto] = (),
    ir_version: int = _IR,
    opset: int = _OPSET,
    **attributes: Any,
) -> bytes:
    """Return a model of one operator that gives "y"; inputs are names and onnxruntime's type texts."""
    names = [*(name for name, _ in inputs), *(constant.name for constant in constants)]
    infos = [helper.make_value_info(name, type_proto(text)) for name, text in inputs]
    outputs = [helper.make_empty_tensor_value_info("y")]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return _serialised(helper.make_graph([node], "glue", infos, outputs, constants), ir_version, opset)


def string_model(array: np.ndarray) -> bytes:
    """Return a model without inputs that gives a string tensor as "y"."""
    items = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    encoded = np.array(items, dtype=object).reshape(array.shape)
    return one_operator("Identity", constants=[numpy_helper.from_array(encoded, "x")])


def passage_model(type_text: str) -> bytes:
    """Return a model with "x" as input and output; onnxruntime returns it as Python objects."""
    info = helper.make_value_info("x", type_proto(type_text))
    return _serialised(helper.make_graph([], "glue", [info], [info]), _IR, _OPSET)


def identity_model(*, ir_version: int = _IR, opset: int = 13) -> bytes:
    """Return a model of the given versions that copies a float tensor "x" to "y"."""
    return one_operator("Identity", ("x", "tensor(float)"), ir_version=ir_version, opset=opset)


def _serialised(graph: onnx.GraphProto, ir_version: int, opset: int) -> bytes:
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return bytes(proto.SerializeToString())


OLDEST_OPSET: Final = 7
"""The oldest opset that the runtime guarantees."""

_BROADCASTING: Final = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"}
)


def modern_model(data: bytes) -> bytes:
    """Return a one-node model of an old opset, with shapes of all inputs, as a model of opset 7."""
    model = onnx.ModelProto.FromString(data)
    node = model.graph.node[0]
    if node.op_type in _BROADCASTING:
        _broadcast(model, node)
    else:
        model = version_converter.convert_version(model, OLDEST_OPSET)
        del model.graph.value_info[:]  # the converter leaves types open there
    return bytes(model.SerializeToString())


_KERNEL_SLOTS: Final = {"Conv": 1, "FusedConv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Inputs with the weights of convolutions, by operator."""


def with_stated_pads(data: bytes) -> bytes:
    """Return a model with convolutions that have ``pads`` in place of an ``auto_pad`` SAME.

    The runtime has no convolutions with both SAME and dilations. The model declares the shapes of all inputs.
    """
    model = onnx.ModelProto.FromString(data)
    graph = shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.value_info)
    }
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in model.graph.node:
        given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        automatic = given.pop("auto_pad", b"")
        if node.op_type not in _KERNEL_SLOTS or not automatic.startswith(b"SAME"):
            continue
        sizes, kernel = (shapes[node.input[slot]][2:] for slot in (0, _KERNEL_SLOTS[node.op_type]))
        ones = [1] * len(sizes)
        steps, gaps = given.get("strides", ones), given.get("dilations", ones)
        totals = [
            max(0, (-(-size // step) - 1) * step + (extent - 1) * gap + 1 - size)
            for size, extent, step, gap in zip(sizes, kernel, steps, gaps, strict=True)
        ]
        less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
        given["pads"] = less + more if automatic == b"SAME_UPPER" else more + less
        del node.attribute[:]
        node.attribute.extend(helper.make_attribute(*each) for each in given.items())
    return bytes(model.SerializeToString())


def _broadcast(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Insert an Unsqueeze that aligns the second operand at the ``axis`` of opset 6 and before."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    ranks |= {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    left, right = (ranks[name] for name in node.input)
    # axes of the first operand behind the second one's; since opset 7 shapes are aligned at their ends
    behind = left - right - attributes.get("axis", left - right)
    # axis and broadcast are gone in opset 7
    del node.attribute[:]
    if attributes.get("broadcast") and behind > 0:
        axes = list(range(right, right + behind))
        model.graph.node.insert(0, helper.make_node("Unsqueeze", [node.input[1]], ["aligned"], axes=axes))
        model.graph.node[1].input[1] = "aligned"
    for opset in model.opset_import:
        if not opset.domain:
            opset.version = OLDEST_OPSET
