"""A MindIR file as checked messages, decoded values and mapped weights.

The protobuf messages (package mind_ir, proto2) are one table of their fields; fields that no reader needs are
left out, and protobuf passes over them. Enumerations are plain numbers here: ``ELEMENTS`` has MindSpore's
names of element types, ``Kind`` the kinds of attributes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from msdump import dtypes
from msdump.errors import FormatError, GraphError
from msdump.graph import weights
from msdump.graph.graph import ValueType
from msdump.wire import LENGTH, tag_of

_MESSAGES: Final = {
    "AttributeProto": "name=1:string f=2:float i=3:int64 d=4:double s=5:bytes t=6:TensorProto "
    "floats=8:float* doubles=9:double* ints=10:int64* strings=11:bytes* tensors=12:TensorProto* "
    "type=16:int32 values=17:AttributeProto* seq_info=18:SeqInfoProto",
    "SeqInfoProto": "is_dyn_len=1:bool",
    "ValueInfoProto": "name=1:string tensor=2:TensorProto* attr_info=5:AttributeProto",
    "NodeProto": "input=1:string* output=2:string* name=3:string op_type=4:string "
    "attribute=5:AttributeProto* domain=7:string primal_attr=9:AttributeProto*",
    "ModelProto": "ir_version=1:string producer_name=2:string model_version=5:string graph=7:GraphProto "
    "functions=8:GraphProto* little_endian=10:bool parallel=11:ParallelProto primitives=12:PrimitiveProto* "
    "mind_ir_version=13:int64",
    "GraphProto": "node=1:NodeProto* name=2:string parameter=3:TensorProto* input=5:ValueInfoProto* "
    "output=6:ValueInfoProto* map_parameter=10:MapTensorProto*",
    "TensorProto": "dims=1:int64* data_type=2:int32 name=7:string raw_data=9:bytes "
    "external_data=12:ExternalDataProto ref_key=13:string compression_type=16:int32 "
    "quant_params=17:QuantParamProto*",
    "ExternalDataProto": "location=1:string offset=2:int64 length=3:int64",
    "QuantParamProto": "quant_algo_name=1:string",
    "MapTensorProto": "name=1:string",
    "ParallelProto": "layout=1:LayoutProto*",
    "LayoutProto": "name=1:string",
    "PrimitiveProto": "name=1:string op_type=2:string attribute=3:AttributeProto* instance_name=4:string "
    "prim_type=5:int32",
}
"""By message: its fields, ``name=number:type``, with a star where they repeat."""


class Kind(enum.IntEnum):
    """Kinds of attributes and of abstract values (AttributeProto.AttributeType)."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    BFLOAT16 = 16
    TENSOR = 17
    TENSORS = 19
    TUPLE = 20
    LIST = 21
    DICT = 22
    UMONAD = 23
    IOMONAD = 24
    NONE = 25
    FUNCTION = 27
    PARTIAL = 28
    FUNCTIONS = 29
    SCALAR = 39


ELEMENTS: Final = tuple(
    """
    undefined float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64
    complex128 bfloat16 float64
    """.split()  # noqa: SIM905 - numbered in this order
)
"""MindSpore's name of each TensorProto.DataType, by number; the numbers are not ONNX's."""


@cache
def message_class(name: str) -> Any:
    """Return the protobuf class of a message, ``ModelProto``."""
    # as proto2, but that texts must be UTF-8
    file = descriptor_pb2.FileDescriptorProto(name="msdump/mind_ir.proto", package="mind_ir")
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    scalars = descriptor_pb2.FieldDescriptorProto
    for title, rows in _MESSAGES.items():
        message = file.message_type.add(name=title)
        for row in rows.split():
            field, _, kind = row.partition(":")
            own_name, _, number = field.partition("=")
            added = message.field.add(name=own_name, number=int(number))
            added.label = scalars.LABEL_REPEATED if kind.endswith("*") else scalars.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in _MESSAGES:
                added.type, added.type_name = scalars.TYPE_MESSAGE, f".mind_ir.{kind}"
            else:
                added.type = getattr(scalars, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"mind_ir.{name}"))


SUFFIX: Final = ".mindir"
_PARAMETER: Final = tag_of(3, LENGTH)  # GraphProto.parameter
_START: Final = b"\x0a"  # ModelProto.ir_version, a text; ONNX's is a number
_ENCRYPTED: Final = {b"\xd8\x5e\x3a\x7f": "AES-GCM", b"\xd9\x5e\x3a\x7f": "AES-CBC"}
_LITE: Final = b"MSL"  # file identifier of MindSpore Lite's FlatBuffers, behind four bytes
_NEWEST: Final = 3
_KNOWN_VERSION: Final = "2.10"
_NESTING: Final = 64

MONAD: Final = object()
"""The value of a monad: it orders side effects, and is no data."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operator of the file with its decoded attributes, which nodes with equal attributes share."""

    op_type: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MindIR:
    """A checked file."""

    graph: Any  # the main GraphProto, without large weights
    functions: Mapping[str, Any]  # the other graphs by name: branches, loops, called functions
    primitives: Mapping[str, Primitive]  # by the name that nodes refer to
    # read-only arrays by the name of the parameter, with the graph's prefix
    weights: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()  # sentences on parts of the file that the reader passes over


def is_mindir(data: memoryview, name: str) -> bool:
    """Return whether a file is one of MindSpore's rather than ONNX's, by its first bytes or its suffix."""
    start = bytes(data[:8])
    marked = start[:4] in _ENCRYPTED or start[4:7] == _LITE
    # a text of printable characters in the first field: ONNX has a number there
    first = start[:1] == _START and len(start) > 2 and bytes(start[2:3]).isdigit()  # noqa: PLR2004
    return marked or first or name.endswith(SUFFIX)


def read(data: memoryview, files: weights.SideFiles) -> MindIR:
    """Return the contents of a mapped file; ``files`` are beside it, with weights of models above 1 GiB.

    Raises:
        GraphError: No MindIR, encrypted, cut off, newer than version 3, or with parts that cannot run here.
    """
    start = bytes(data[:8])
    cipher = _ENCRYPTED.get(start[:4])
    if cipher:
        raise GraphError(
            f"the file is encrypted ({cipher}); export it again without enc_key, or load it with its dec_key"
            " in MindSpore and export that"
        )
    if start[4:7] == _LITE:
        raise GraphError(
            "a .ms file of MindSpore Lite, which has no names of MindSpore's operators; give the .mindir that"
            " it was converted from"
        )
    if start[:1] == b"\x08":
        raise GraphError(
            "not a MindIR file: its first field is ONNX's; rename it to .onnx if it is an ONNX model"
        )
    if start[:1] != _START:
        raise GraphError('not a MindIR file; write one with mindspore.export(..., file_format="MINDIR")')
    split = weights.split(data, _PARAMETER)
    model = message_class("ModelProto")()
    try:
        model.ParseFromString(split.message)
    except DecodeError as error:
        raise GraphError("not a MindIR file, or cut off: the protobuf message cannot be parsed") from error
    if model.producer_name != "MindSpore" or not model.HasField("graph"):
        raise GraphError(
            "not a MindIR file of MindSpore: it names no producer MindSpore, or has no graph; write it with"
            ' mindspore.export(..., file_format="MINDIR")'
        )
    notes = tuple(_checked(model))
    raw = np.frombuffer(data, np.uint8)
    arrays = {}
    for position, tensor in enumerate(model.graph.parameter):
        span = split.raw_data.get(position)
        if tensor.HasField("external_data"):
            place = tensor.external_data
            contents = files.section(tensor.name, place.location, place.offset, place.length)
        else:
            contents = np.frombuffer(tensor.raw_data, np.uint8) if span is None else raw[slice(*span)]
        if tensor.name in arrays:
            raise GraphError(f"parameter {tensor.name!r} is listed twice")
        arrays[tensor.name] = _array(tensor, contents)
    primitives = {
        each.name: Primitive(each.op_type, {item.name: decoded(item) for item in each.attribute})
        for each in model.primitives
    }
    functions = {each.name: each for each in model.functions}
    return MindIR(model.graph, functions, primitives, arrays, notes)


def _checked(model: Any) -> Iterator[str]:
    """Yield warnings; refuse files that cannot run."""
    if model.mind_ir_version > _NEWEST:
        raise GraphError(
            f"mind_ir_version {model.mind_ir_version} is newer than this reader, which knows up to {_NEWEST};"
            " export the network with an older MindSpore"
        )
    if model.HasField("little_endian") and not model.little_endian:
        raise GraphError("the weights are big-endian; export the network on a little-endian machine")
    if model.HasField("parallel") and model.parallel.layout:
        raise GraphError(
            "the weights are sharded over ranks (parallel layout); export the merged network of one rank"
        )
    if model.graph.map_parameter:
        name = model.graph.map_parameter[0].name
        raise GraphError(
            f"parameter {name!r} is a MapParameter (hash table), which cannot run here; export a network"
            " with an ordinary Parameter"
        )
    for tensor in model.graph.parameter:
        if tensor.compression_type or tensor.quant_params:
            raise GraphError(
                f"parameter {tensor.name!r} is compressed or quantised by converter_lite; give the file that"
                " MindSpore exported, before the converter"
            )
    if not model.model_version.startswith(_KNOWN_VERSION):
        yield (
            f"written by MindSpore {model.model_version or 'of an unknown version'}; files of 2.10 are known,"
            " others may have other arguments"
        )


def element_type(number: int) -> dtypes.DType:
    """Return the element type of a TensorProto.DataType of MindIR; GraphError if it has none here."""
    if not 0 < number < len(ELEMENTS):
        raise GraphError(f"element type {number} of MindIR is not known")
    return dtypes.from_name(ELEMENTS[number])


def _array(tensor: Any, raw: np.ndarray) -> np.ndarray:
    shape = tuple(tensor.dims)
    dtype = element_type(tensor.data_type)
    if dtype.name in {"complex64", "complex128", "string"}:
        raise GraphError(
            f"tensor {tensor.name!r} is of {dtype.name}, which cannot run here; export a network with real"
            " numbers alone"
        )
    if any(size < 0 for size in shape):
        raise GraphError(f"tensor {tensor.name!r} has the shape {shape}: sizes must be 0 or more")
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise GraphError(
            f"tensor {tensor.name!r} of {dtype.name}{list(shape)} has {len(raw)} bytes of data,"
            f" {math.prod(shape) * dtype.itemsize} are needed; is the file cut off?"
        )
    try:
        array = raw.view(dtype.numpy).reshape(shape)
    except (ValueError, TypeError, FormatError) as error:
        raise GraphError(f"tensor {tensor.name!r}: {error}") from error
    array.flags.writeable = False
    return array


def decoded(attribute: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - one for each kind
    """Return the value of an attribute: a number, text, array, a tuple of values, None, or ``MONAD``.

    A number inside a tuple lies in the field of repeated numbers, one outside in the field of a single one.
    A tensor without sizes and data is an element type: its name.

    Raises:
        GraphError: A kind without a value here, or tuples that are nested too deeply.
    """
    if depth > _NESTING:
        raise GraphError(f"attribute {attribute.name!r}: tuples are nested more than {_NESTING} deep")
    kind = attribute.type
    if kind in _FIELDS:
        single, repeated, number = _FIELDS[kind]
        values = [number(each) for each in getattr(attribute, repeated) or (getattr(attribute, single),)]
        return values[0] if len(values) == 1 else tuple(values)
    if kind == Kind.STRING:
        texts = [each.decode(errors="replace") for each in attribute.strings or (attribute.s,)]
        return texts[0] if len(texts) == 1 else tuple(texts)
    if kind in {Kind.TENSOR, Kind.TENSORS}:
        tensors = [attribute.t] if attribute.HasField("t") else list(attribute.tensors)
        if len(tensors) == 1 and not tensors[0].dims and not tensors[0].HasField("raw_data"):
            return element_type(tensors[0].data_type).name
        arrays = [_array(each, np.frombuffer(each.raw_data, np.uint8)) for each in tensors]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)
    if kind in {Kind.TUPLE, Kind.LIST}:
        return tuple(decoded(each, depth + 1) for each in attribute.values)
    if kind == Kind.DICT:
        return {each.name: decoded(each, depth + 1) for each in attribute.values}
    if kind in {Kind.UMONAD, Kind.IOMONAD}:
        return MONAD
    return None


_FIELDS: Final[Mapping[int, tuple[str, str, type]]] = {
    **dict.fromkeys((Kind.FLOAT, Kind.FLOAT16, Kind.BFLOAT16), ("f", "floats", float)),
    Kind.DOUBLE: ("d", "doubles", float),
    Kind.BOOL: ("i", "ints", bool),
    **dict.fromkeys((Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64), ("i", "ints", int)),
    **dict.fromkeys((Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64), ("i", "ints", int)),
}
"""By kind of number: the field of a single one, that of repeated ones, and Python's type."""


def abstract_types(attribute: Any | None, node: str, depth: int = 0) -> tuple[ValueType | None, ...]:
    """Return the types of the outputs of a node, tuples flattened; None for an output that is no tensor.

    Negative sizes are dynamic dimensions. Errors name the node.
    """
    if attribute is None or depth > _NESTING:
        return (None,)
    if attribute.type in {Kind.TENSOR, Kind.TENSORS}:
        return tuple(tensor_type(each) for each in attribute.tensors) or (tensor_type(attribute.t),)
    if attribute.type in {Kind.TUPLE, Kind.LIST}:
        if attribute.seq_info.is_dyn_len:
            raise GraphError(
                f"node {node!r}: a tuple of dynamic length cannot run here; export a"
                " network with tuples of fixed lengths"
            )
        return tuple(kind for each in attribute.values for kind in abstract_types(each, node, depth + 1))
    return (None,)


def tensor_type(tensor: Any) -> ValueType:
    """Return the type of a TensorProto; a dynamic dimension has no size, a shape of -2 no rank."""
    shape = tuple(tensor.dims)
    dtype = element_type(tensor.data_type) if tensor.data_type else None
    return ValueType(dtype, None if -2 in shape else tuple(size if size >= 0 else None for size in shape))  # noqa: PLR2004
