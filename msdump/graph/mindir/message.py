"""The protobuf messages of a MindIR file (package mind_ir, proto2), as one table of their fields.

Enumerations are plain numbers here: ``ELEMENTS`` has MindSpore's names of element types, ``Kind`` the kinds
of attributes. Fields that no reader needs are left out; protobuf passes over them.
"""

from __future__ import annotations

import enum
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
