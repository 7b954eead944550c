"""CANN's dump messages by google.protobuf, and the places of elements in device formats, written out."""

import itertools
import math

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = """
OriginalOp name=1:string output_index=2:uint32 data_type=3:int32 format=4:int32
Shape dim=1:uint64*
DimRange dim_start=1:uint64 dim_end=2:uint64
OpOutput data_type=1:int32 format=2:int32 shape=3:Shape original_op=4:OriginalOp data=5:bytes size=6:uint64
    original_shape=7:Shape sub_format=8:int32 address=9:uint64 dim_range=10:DimRange* offset=11:uint64
OpInput data_type=1:int32 format=2:int32 shape=3:Shape data=4:bytes size=5:uint64 original_shape=6:Shape
    sub_format=7:int32 address=8:uint64 offset=9:uint64 arg_index=10:uint32 input_type=11:uint32
OpBuffer buffer_type=1:int32 data=2:bytes size=3:uint64
OpAttr name=1:string value=2:string
Workspace type=1:int32 data=2:bytes size=3:uint64
DumpData version=1:string dump_time=2:uint64 output=3:OpOutput* input=4:OpInput* buffer=5:OpBuffer*
    op_name=6:string attr=7:OpAttr* space=8:Workspace* dfx_message=9:string
"""


KINDS = {"float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}


def message_class(package, text, last, enums=None):
    """Return the class of the last message of a text, which names messages and fields, repeated ones by *.

    Args:
        package: Name of the package.
        text: A message a line; further lines are indented.
        last: Name of the message.
        enums: Prefix and words of the members of each enumeration. The fields of AttrDef are a union.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, (prefix, members) in (enums or {}).items():
        kind = file.enum_type.add(name=name)
        for number, member in enumerate(members.split()):
            kind.value.add(name=f"{prefix}{member}", number=number)
    for line in text.strip().replace("\n    ", " ").split("\n"):
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for field in fields:
            left, kind = field.rstrip("*").split(":")
            label, number = left.split("=")
            added = message.field.add(name=label, number=int(number), label=3 if field.endswith("*") else 1)
            added.type = KINDS.get(kind, 14 if kind in (enums or {}) else 11)
            if kind not in KINDS:
                added.type_name = f".{package}.{kind}"
        if name == "AttrDef":
            message.oneof_decl.add(name="value")
            for added in message.field:
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{last}"))


DumpData = message_class("toolkit.dumpdata", PROTO, "DumpData")


def file_of(message, blocks=()):
    """Return a whole file: the length, the message and the blocks."""
    data = message.SerializeToString(deterministic=True)
    return len(data).to_bytes(8, "little") + data + b"".join(blocks)


def _image(place):
    """Return a rule that names the place of (n, c, h, w) in a shape."""
    return lambda shape, index: np.ravel_multi_index(place(shape, *index), shape)


PLACES = {
    "NCHW": _image(lambda _, n, c, h, w: (n, c, h, w)),
    "NHWC": _image(lambda _, n, c, h, w: (n, h, w, c)),
    "HWCN": _image(lambda _, n, c, h, w: (h, w, c, n)),
    "NC1HWC0": _image(lambda s, n, c, h, w: (n, c // s[4], h, w, c % s[4])),
    "NDC1HWC0": _image(lambda s, n, c, d, h, w: (n, d, c // s[5], h, w, c % s[5])),
}


def _fractal_z(height, width):
    return _image(lambda s, n, c, h, w: ((c // s[3] * height + h) * width + w, n // 16, n % 16, c % s[3]))


def _fractal_nz(shape, index):
    *batch, row, column = index
    c0 = shape[-1]
    return np.ravel_multi_index((*batch, column // c0, row // 16, row % 16, column % c0), shape)


def laid_out(array, name, shape):
    """Return a host array in a device format, element by element; padding is zero."""
    places = PLACES | {
        "FRACTAL_Z": _fractal_z(*array.shape[-2:]),
        "FRACTAL_NZ": _fractal_nz,
        "ND": lambda shape, index: np.ravel_multi_index(index, shape),
    }
    device = np.zeros(math.prod(shape), array.dtype)
    for index in itertools.product(*map(range, array.shape)):
        device[places[name](shape, index)] = array[index]
    return device.reshape(shape)
