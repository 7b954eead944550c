"""The protobuf messages of CANN's dump files (toolkit.dumpdata, proto3): one table for both directions.

A message is written from the attributes of an object and read into a dict by the same names.

Formats and element types are the numbers of OutputFormat and OutputDataType. ACL and GE number formats the
same way, but element types differently: ``dtypes.DType`` has both numbers.

    >>> FORMATS["NC1HWC0"], format_name(29), DATA_TYPES["FLOAT16"], data_type_name(27), format_name(99)
    (3, 'FRACTAL_NZ', 2, 'DT_BF16', '99')

The bytes of tensors are not copied: their place is given. Sizes are checked before they count, and the number
of fields, the text and the dimensions have limits, so that a small file cannot fill the memory.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from msdump.errors import DumpReadError, FormatError
from msdump.wire import (
    ALL_BITS,
    LENGTH,
    VARINT,
    WireError,
    WireFault,
    length_delimited,
    read_varint,
    tag_of,
    varint,
)
from msdump.wire import (
    fields as wire_fields,
)

# numbered from 0 in this order, by OutputFormat of toolkit.dumpdata
_FORMATS_FROM_0: Final = """
    NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0
    FRACTAL_DECONV_TRANSPOSE FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN
    FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT FILTER_HWCK
    HASHTABLE_LOOKUP_LOOKUPS HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT
    HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D
    CN NC DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS
    FRACTAL_ZN_RNN YUV YUV_A NCL FRACTAL_Z_WINO C1HWC0
"""

# by OutputDataType; types from COMPLEX32 on are known to newer toolkits only
_DATA_TYPES_FROM_0: Final = """
    UNDEFINED FLOAT FLOAT16 INT8 UINT8 INT16 UINT16 INT32 INT64 UINT32 UINT64 BOOL DOUBLE STRING
    DUAL_SUB_INT8 DUAL_SUB_UINT8 COMPLEX64 COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE
    STRING_REF DUAL VARIANT BF16 INT4 UINT1 INT2 UINT2 COMPLEX32 HIFLOAT8 FLOAT8_E5M2 FLOAT8_E4M3FN
    FLOAT8_E8M0 FLOAT6_E3M2 FLOAT6_E2M3 FLOAT4_E2M1 FLOAT4_E1M2
"""

FORMATS: Final = MappingProxyType(
    {name: number for number, name in enumerate(_FORMATS_FROM_0.split())} | {"MAX": 255}
)
"""OutputFormat: number by name."""

DATA_TYPES: Final = MappingProxyType({name: number for number, name in enumerate(_DATA_TYPES_FROM_0.split())})
"""OutputDataType: number by name, without its ``DT_``."""

UNDEFINED: Final = DATA_TYPES["UNDEFINED"]
"""The data type of a tensor that has none here: plain bytes."""

ND: Final = FORMATS["ND"]

_FORMAT_NAMES: Final = {number: name for name, number in FORMATS.items()}
_DATA_TYPE_NAMES: Final = {number: name for name, number in DATA_TYPES.items()}


def format_name(number: int) -> str:
    """Return the name of a format, ``NC1HWC0``; the digits of a number that has none."""
    return _FORMAT_NAMES.get(number, str(number))


def data_type_name(number: int) -> str:
    """Return the name of a data type, ``DT_FLOAT16``; the digits of a number that has none."""
    name = _DATA_TYPE_NAMES.get(number)
    return str(number) if name is None else f"DT_{name}"


class FieldKind(enum.Enum):
    """Type of a field: a number, a text, or a message; BYTES are only read."""

    UINT64 = enum.auto()
    UINT32 = enum.auto()
    INT32 = enum.auto()
    TEXT = enum.auto()
    BYTES = enum.auto()
    SHAPE = enum.auto()
    MESSAGE = enum.auto()
    MESSAGES = enum.auto()


RANGES: Final[dict[FieldKind, tuple[int, int]]] = {
    FieldKind.UINT64: (0, ALL_BITS),
    FieldKind.UINT32: (0, (1 << 32) - 1),
    FieldKind.INT32: (-(1 << 31), (1 << 31) - 1),
}
"""Least and greatest value of the kinds that are numbers."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message."""

    number: int
    attribute: str  # name of the field in the dataclass of the message
    kind: FieldKind
    of: str = ""  # name of the nested message's type, "" if the field is no message


def _fields(**kinds: FieldKind | tuple[FieldKind, str]) -> tuple[MessageField, ...]:
    pairs = (kind if isinstance(kind, tuple) else (kind, "") for kind in kinds.values())
    numbered = enumerate(zip(kinds, pairs, strict=True), 1)
    return tuple(MessageField(number, name, *pair) for number, (name, pair) in numbered)


MESSAGES: Final = MappingProxyType(
    {
        "OriginalOp": _fields(
            name=FieldKind.TEXT,
            output_index=FieldKind.UINT32,
            data_type=FieldKind.INT32,
            format=FieldKind.INT32,
        ),
        "DimRange": _fields(
            dim_start=FieldKind.UINT64,
            dim_end=FieldKind.UINT64,
        ),
        "OpBuffer": _fields(
            type=FieldKind.INT32,
            data=FieldKind.BYTES,
            size=FieldKind.UINT64,
        ),
        "OpAttr": _fields(name=FieldKind.TEXT, value=FieldKind.TEXT),
        "Workspace": _fields(
            type=FieldKind.INT32,
            data=FieldKind.BYTES,
            size=FieldKind.UINT64,
        ),
        "OpOutput": _fields(
            data_type=FieldKind.INT32,
            format=FieldKind.INT32,
            shape=FieldKind.SHAPE,
            original_op=(FieldKind.MESSAGE, "OriginalOp"),
            data=FieldKind.BYTES,
            size=FieldKind.UINT64,
            original_shape=FieldKind.SHAPE,
            sub_format=FieldKind.INT32,
            address=FieldKind.UINT64,
            dim_range=(FieldKind.MESSAGES, "DimRange"),
            offset=FieldKind.UINT64,
        ),
        "OpInput": _fields(
            data_type=FieldKind.INT32,
            format=FieldKind.INT32,
            shape=FieldKind.SHAPE,
            data=FieldKind.BYTES,
            size=FieldKind.UINT64,
            original_shape=FieldKind.SHAPE,
            sub_format=FieldKind.INT32,
            address=FieldKind.UINT64,
            offset=FieldKind.UINT64,
            arg_index=FieldKind.UINT32,
            input_type=FieldKind.UINT32,
        ),
        "DumpData": _fields(
            version=FieldKind.TEXT,
            dump_time=FieldKind.UINT64,
            # outputs precede inputs in the message; the data behind it has inputs first
            outputs=(FieldKind.MESSAGES, "OpOutput"),
            inputs=(FieldKind.MESSAGES, "OpInput"),
            buffers=(FieldKind.MESSAGES, "OpBuffer"),
            op_name=FieldKind.TEXT,
            attributes=(FieldKind.MESSAGES, "OpAttr"),
            spaces=(FieldKind.MESSAGES, "Workspace"),
            dfx_message=FieldKind.TEXT,
        ),
    }
)
"""Fields of every message, in ascending order of their numbers."""

SHAPE_DIM: Final = 1
"""Number of the only field of a Shape."""

_DIM_TAG: Final = tag_of(SHAPE_DIM, LENGTH)


def encode(message: str, value: object) -> bytes:
    """Return a serialised message of ``MESSAGES``; zeros and empty texts are left out, shapes never.

    ``value`` has the attributes of the message's fields; fields of bytes are not written.

    Raises:
        FormatError: A number that does not fit its field, or a text that is no Unicode.
    """
    parts: list[bytes] = []
    for tag, attribute, kind, of, limits in _PLANS[message]:
        content = getattr(value, attribute)
        # A shape is written even where it is empty: without it CANN's tools take a scalar for shape (size,).
        # Other fields follow proto3, which leaves out zeros and empty texts.
        if kind is FieldKind.SHAPE:
            parts += (tag, _shape(content))
        elif not content:
            continue
        elif limits is not None:
            parts += (tag, _number(attribute, content, limits))
        elif kind is FieldKind.TEXT:
            body = _text(attribute, content)
            parts += (tag, varint(len(body)), body)
        else:
            for item in content if kind is FieldKind.MESSAGES else (content,):
                body = encode(of, item)
                parts += (tag, varint(len(body)), body)
    return b"".join(parts)


def _number(attribute: str, value: int, limits: tuple[int, int]) -> bytes:
    low, high = limits
    if not low <= value <= high:
        raise FormatError(f"{attribute} {value} does not fit a dump file, which holds {low} to {high} there")
    return varint(value & ALL_BITS)  # protobuf widens negative numbers to 64 bits, ten bytes


def _text(attribute: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{attribute} {value!r} is no Unicode text, which dump files hold") from None


# A network has few shapes, and writes them with every tensor of every step.
@lru_cache(maxsize=4096)
def _shape(dims: tuple[int, ...]) -> bytes:
    packed = b"".join(_number("dimension", size, RANGES[FieldKind.UINT64]) for size in dims)
    body = length_delimited(_DIM_TAG, packed) if packed else b""
    return varint(len(body)) + body


_Plan = tuple[bytes, str, FieldKind, str, tuple[int, int] | None]
"""Tag, attribute, kind, message and limits of a field."""


def _plan(field: MessageField) -> _Plan:
    limits = RANGES.get(field.kind)
    tag = tag_of(field.number, LENGTH if limits is None else VARINT)
    return varint(tag), field.attribute, field.kind, field.of, limits


_PLANS: Final = {
    name: tuple(_plan(field) for field in fields if field.kind is not FieldKind.BYTES)
    for name, fields in MESSAGES.items()
}
"""Steps of ``encode`` for each message."""


MOST_FIELDS: Final = 1 << 18
"""Enough for an operator of 20,000 tensors."""

MOST_TEXT: Final = 1 << 24
MOST_DIMENSIONS: Final = 64

_BY_NUMBER: Final = {name: {field.number: field for field in fields} for name, fields in MESSAGES.items()}
_DIMENSIONS: Final = frozenset({tag_of(SHAPE_DIM, VARINT), tag_of(SHAPE_DIM, LENGTH)})  # unpacked, packed
_FAULTS: Final[Mapping[WireFault, str]] = {
    WireFault.LONG_NUMBER: "no protobuf message: a number of more than ten bytes",
    WireFault.TORN_NUMBER: "truncated: the message ends inside a number",
    WireFault.FIELD_NUMBER: "no protobuf message: a field has the number {0.value}",
    WireFault.WIRE_TYPE: "no protobuf message: a field has the wire type {0.value}",
    WireFault.TORN_FIELD: "truncated: a field of {0.value} bytes, {0.left} are left",
}


@dataclass(slots=True)
class Parser:
    """Reads messages out of a file's bytes."""

    view: memoryview
    source: str
    fields_left: int = MOST_FIELDS  # how many more fields may come
    text_left: int = MOST_TEXT  # how many more bytes of text may come

    def read(self, message: str, start: int, end: int) -> dict[str, Any]:
        """Return the fields of a message by attribute.

        Numbers are int, texts str, shapes tuples of dimensions, messages dicts (or lists of dicts where the
        field repeats), and bytes are spans in the file.

        Fields that are not there are left out; unknown ones are skipped.

        Raises:
            DumpReadError: The bytes are no such message.
        """
        fields: dict[str, Any] = {}
        try:
            self._merge(message, start, end, fields)
        except WireError as error:
            raise self.fault(error.start, _FAULTS[error.fault].format(error)) from None
        return fields

    def _merge(self, message: str, offset: int, end: int, into: dict[str, Any]) -> None:
        by_number = _BY_NUMBER[message]
        for tag, value, body, stop in self._fields(offset, end):
            field = by_number.get(tag >> 3)
            if field is None:
                continue
            if tag & 7 == LENGTH:
                name = field.attribute
                match field.kind:
                    case FieldKind.BYTES:
                        into[name] = (body, stop)
                    case FieldKind.TEXT:
                        into[name] = self._text(name, body, stop)
                    case FieldKind.SHAPE:
                        into[name] = self._dims(body, stop, into.get(name, ()))
                    case FieldKind.MESSAGE:  # a message that comes twice is merged
                        self._merge(field.of, body, stop, into.setdefault(name, {}))
                    case FieldKind.MESSAGES:
                        into.setdefault(name, []).append(self.read(field.of, body, stop))
            elif tag & 7 == VARINT and field.kind in RANGES:
                into[field.attribute] = _fitted(value, field.kind)

    def _fields(self, offset: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (tag, value of a varint, start and end of the body) of each field; count down the limit."""
        for tag, value, start, body, stop in wire_fields(self.view, offset, end):
            self.fields_left -= 1
            if self.fields_left < 0:
                raise self.fault(start, f"more than the {MOST_FIELDS} fields allowed")
            yield tag, value, body, stop

    def _text(self, name: str, offset: int, stop: int) -> str:
        self.text_left -= stop - offset
        if self.text_left < 0:
            raise self.fault(offset, f"{name} goes beyond the {MOST_TEXT} bytes of text allowed")
        try:
            return str(self.view[offset:stop], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(offset, f"{name} is no UTF-8 text") from None

    def _dims(self, offset: int, end: int, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions ``before`` (of an earlier Shape message) with the ones of this message."""
        dims = list(before)
        for tag, _, body, stop in self._fields(offset, end):
            if tag in _DIMENSIONS:
                place = body
                while place < stop:
                    if len(dims) == MOST_DIMENSIONS:
                        raise self.fault(place, f"a shape of more than {MOST_DIMENSIONS} dimensions")
                    dim, place = read_varint(self.view, place, stop)
                    dims.append(dim)
        return tuple(dims)

    def fault(self, offset: int, message: str) -> DumpReadError:
        """Return an error that names the file and the offset of the fault."""
        return DumpReadError(self.source, message, offset)


def _fitted(value: int, kind: FieldKind) -> int:
    """Truncate a number to the bits of its field's kind, signed or unsigned, as protobuf does."""
    low, high = RANGES[kind]
    return (value - low & high - low) + low
