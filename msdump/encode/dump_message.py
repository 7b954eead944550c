"""The protobuf messages of CANN's dump files (package toolkit.dumpdata, proto3): one table, both directions.

A message is written from the attributes of an object and read into a dict; its
tensors' bytes are never copied: reading gives their place. What is read is not
trusted: counts and texts have limits, so that a small file cannot fill the memory.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from msdump.errors import DumpReadError, FormatError

Span = tuple[int, int]
"""Start and end of bytes in a file."""

MOST_DIMENSIONS: Final = 64
MOST_ITEMS: Final = 1 << 16
LONGEST_TEXT: Final = 1 << 20
"""Bytes of the longest name or attribute that is read."""


class Kind(enum.Enum):
    """What a field holds."""

    UINT64 = enum.auto()
    UINT32 = enum.auto()
    INT32 = enum.auto()
    TEXT = enum.auto()
    BYTES = enum.auto()
    SHAPE = enum.auto()
    MESSAGE = enum.auto()
    MESSAGES = enum.auto()


_ALL_BITS: Final = (1 << 64) - 1
_RANGES: Final[dict[Kind, tuple[int, int]]] = {
    Kind.UINT64: (0, _ALL_BITS),
    Kind.UINT32: (0, (1 << 32) - 1),
    Kind.INT32: (-(1 << 31), (1 << 31) - 1),
}
"""Least and greatest value of the kinds that are numbers."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        number: Its number.
        attribute: What the object that holds the message calls it.
        kind: What it holds.
        of: The message that it holds.
    """

    number: int
    attribute: str
    kind: Kind
    of: str = ""


MESSAGES: Final = MappingProxyType(
    {
        "OriginalOp": (
            Field(1, "name", Kind.TEXT),
            Field(2, "output_index", Kind.UINT32),
            Field(3, "data_type", Kind.INT32),
            Field(4, "format", Kind.INT32),
        ),
        "DimRange": (Field(1, "dim_start", Kind.UINT64), Field(2, "dim_end", Kind.UINT64)),
        "OpBuffer": (
            Field(1, "type", Kind.INT32),
            Field(2, "data", Kind.BYTES),
            Field(3, "size", Kind.UINT64),
        ),
        "OpAttr": (Field(1, "name", Kind.TEXT), Field(2, "value", Kind.TEXT)),
        "Workspace": (
            Field(1, "type", Kind.INT32),
            Field(2, "data", Kind.BYTES),
            Field(3, "size", Kind.UINT64),
        ),
        "OpOutput": (
            Field(1, "data_type", Kind.INT32),
            Field(2, "format", Kind.INT32),
            Field(3, "shape", Kind.SHAPE),
            Field(4, "original_op", Kind.MESSAGE, "OriginalOp"),
            Field(5, "data", Kind.BYTES),
            Field(6, "size", Kind.UINT64),
            Field(7, "original_shape", Kind.SHAPE),
            Field(8, "sub_format", Kind.INT32),
            Field(9, "address", Kind.UINT64),
            Field(10, "dim_range", Kind.MESSAGES, "DimRange"),
            Field(11, "offset", Kind.UINT64),
        ),
        "OpInput": (
            Field(1, "data_type", Kind.INT32),
            Field(2, "format", Kind.INT32),
            Field(3, "shape", Kind.SHAPE),
            Field(4, "data", Kind.BYTES),
            Field(5, "size", Kind.UINT64),
            Field(6, "original_shape", Kind.SHAPE),
            Field(7, "sub_format", Kind.INT32),
            Field(8, "address", Kind.UINT64),
            Field(9, "offset", Kind.UINT64),
            Field(10, "arg_index", Kind.UINT32),
            Field(11, "input_type", Kind.UINT32),
        ),
        "DumpData": (
            Field(1, "version", Kind.TEXT),
            Field(2, "dump_time", Kind.UINT64),
            Field(3, "outputs", Kind.MESSAGES, "OpOutput"),
            Field(4, "inputs", Kind.MESSAGES, "OpInput"),
            Field(5, "buffers", Kind.MESSAGES, "OpBuffer"),
            Field(6, "op_name", Kind.TEXT),
            Field(7, "attributes", Kind.MESSAGES, "OpAttr"),
            Field(8, "spaces", Kind.MESSAGES, "Workspace"),
            Field(9, "dfx_message", Kind.TEXT),
        ),
    }
)
"""Fields of every message, in ascending order of their numbers."""

_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_BY_NUMBER: Final = {name: {field.number: field for field in fields} for name, fields in MESSAGES.items()}
_SMALL: Final = tuple(bytes((number,)) for number in range(0x80))
_DIM_TAG: Final = bytes((1 << 3 | _LEN,))
_SHAPE_DIM: Final = 1


def encode(message: str, value: object) -> bytes:
    """Return a serialised message; zeros and empty texts are left out, shapes never.

    Args:
        message: Its name in ``MESSAGES``.
        value: Has the attributes of its fields, except bytes, which are not written.

    Raises:
        FormatError: A number that does not fit its field, or a text that is no Unicode.
    """
    parts: list[bytes] = []
    for tag, attribute, kind, of, limits in _PLANS[message]:
        given = getattr(value, attribute)
        if kind is Kind.SHAPE:
            parts += (tag, _shape(given))
        elif not given:
            continue
        elif limits is not None:
            parts += (tag, _number(attribute, given, limits))
        elif kind is Kind.TEXT:
            body = _text(attribute, given)
            parts += (tag, varint(len(body)), body)
        else:
            for item in given if kind is Kind.MESSAGES else (given,):
                body = encode(of, item)
                parts += (tag, varint(len(body)), body)
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Return a number, not negative, in seven bits a byte."""
    if value < 0x80:  # noqa: PLR2004 - seven bits a byte
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - the same
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(attribute: str, value: int, limits: tuple[int, int]) -> bytes:
    low, high = limits
    if not low <= value <= high:
        raise FormatError(f"{attribute} {value} does not fit a dump file, which holds {low} to {high} there")
    return varint(value & _ALL_BITS)


def _text(attribute: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{attribute} {value!r} is no Unicode text, which dump files hold") from None


@lru_cache(maxsize=4096)
def _shape(dims: tuple[int, ...]) -> bytes:
    """Return a Shape message, its dimensions packed, behind its length."""
    packed = b"".join(_number("dimension", size, _RANGES[Kind.UINT64]) for size in dims)
    body = _DIM_TAG + varint(len(packed)) + packed if packed else b""
    return varint(len(body)) + body


_Plan = tuple[bytes, str, Kind, str, tuple[int, int] | None]
"""Tag, attribute, kind, message and limits of a field."""


def _plan(field: Field) -> _Plan:
    limits = _RANGES.get(field.kind)
    wire = _LEN if limits is None else _VARINT
    return varint(field.number << 3 | wire), field.attribute, field.kind, field.of, limits


_PLANS: Final = {
    name: tuple(_plan(field) for field in fields if field.kind is not Kind.BYTES)
    for name, fields in MESSAGES.items()
}
"""What ``encode`` does for each message."""


@dataclass(slots=True)
class Reader:
    """Reads messages out of a file's bytes.

    Attributes:
        view: The bytes.
        source: Name of the file for messages.
    """

    view: memoryview
    source: str

    def read(self, message: str, start: int, end: int) -> dict[str, Any]:
        """Return the fields of a message by attribute: numbers, texts, tuples of dimensions, dicts, spans.

        Fields that are not there are left out; unknown ones are skipped.

        Raises:
            DumpReadError: The bytes are no such message.
        """
        fields: dict[str, Any] = {}
        self._merge(message, start, end, fields)
        return fields

    def _merge(self, message: str, at: int, end: int, into: dict[str, Any]) -> None:
        known = _BY_NUMBER[message]
        while at < end:
            start = at
            tag, at = self.varint(at, end)
            wire = tag & 7
            if tag >> 3 == 0:
                raise self.fault(start, "no protobuf message: a field has the number 0")
            field = known.get(tag >> 3)
            if wire == _VARINT:
                value, at = self.varint(at, end)
                if field is not None and field.kind in _RANGES:
                    into[field.attribute] = _fitted(value, field.kind)
                continue
            at, stop = self._body(wire, start, at, end)
            if wire == _LEN and field is not None:
                self._take(field, at, stop, into)
            at = stop

    def _body(self, wire: int, start: int, at: int, end: int) -> Span:
        """Return where the value of a field lies."""
        if wire == _LEN:
            size, at = self.varint(at, end)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise self.fault(start, f"no protobuf message: a field has the wire type {wire}")
        if size > end - at:
            raise self.fault(start, f"truncated: a field of {size} bytes, {end - at} are left")
        return at, at + size

    def _take(self, field: Field, at: int, stop: int, into: dict[str, Any]) -> None:
        name = field.attribute
        match field.kind:
            case Kind.BYTES:
                into[name] = (at, stop)
            case Kind.TEXT:
                into[name] = self._text(name, at, stop)
            case Kind.SHAPE:
                into[name] = self._dims(at, stop, into.get(name, ()))
            case Kind.MESSAGE:  # a message that comes twice is merged
                self._merge(field.of, at, stop, into.setdefault(name, {}))
            case Kind.MESSAGES:
                items = into.setdefault(name, [])
                if len(items) == MOST_ITEMS:
                    raise self.fault(at, f"more than {MOST_ITEMS} {name}, which no operator has")
                items.append(self.read(field.of, at, stop))

    def _text(self, name: str, at: int, stop: int) -> str:
        if stop - at > LONGEST_TEXT:
            raise self.fault(at, f"{name} of {stop - at} bytes is over the {LONGEST_TEXT} allowed")
        try:
            return str(self.view[at:stop], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(at, f"{name} is no UTF-8 text") from None

    def _dims(self, at: int, end: int, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions of a Shape message, after those of an earlier one."""
        dims = list(before)
        while at < end:
            start = at
            tag, at = self.varint(at, end)
            if tag >> 3 == 0:
                raise self.fault(start, "no protobuf message: a field has the number 0")
            if tag == _SHAPE_DIM << 3 | _VARINT:
                at, stop = start + 1, self.varint(at, end)[1]
            elif tag & 7 == _VARINT:
                _, at = self.varint(at, end)
                continue
            else:
                at, stop = self._body(tag & 7, start, at, end)
            if tag >> 3 == _SHAPE_DIM and tag & 7 in {_VARINT, _LEN}:
                self._packed(at, stop, dims)
            at = stop
        return tuple(dims)

    def _packed(self, at: int, end: int, dims: list[int]) -> None:
        while at < end:
            if len(dims) == MOST_DIMENSIONS:
                raise self.fault(at, f"a shape of more than {MOST_DIMENSIONS} dimensions")
            size, at = self.varint(at, end)
            dims.append(size)

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number of at most 64 bits and where it ends."""
        value = shift = 0
        start = at
        view = self.view
        while at < end:
            byte = view[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit of a varint
                return value & _ALL_BITS, at
            shift += 7
            if shift > 63:  # noqa: PLR2004 - a varint has at most ten bytes
                raise self.fault(start, "no protobuf message: a number of more than ten bytes")
        raise self.fault(start, "truncated: the message ends inside a number")

    def fault(self, at: int, message: str) -> DumpReadError:
        """Return the error of a byte."""
        return DumpReadError(self.source, message, at)


def _fitted(value: int, kind: Kind) -> int:
    """Return a number cut to its field's bits, as protobuf does."""
    low, high = _RANGES[kind]
    return (value - low & high - low) + low
