"""The protobuf messages of CANN's dump files (toolkit.dumpdata, proto3): one table for both directions.

A message is written from the attributes of an object and read (``dump_parser``) into a
dict by the same names.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from msdump.errors import FormatError
from msdump.wire.fields import LENGTH, VARINT, length_delimited, tag_of
from msdump.wire.varints import ALL_BITS, varint


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
    """One field of a message.

    Attributes:
        number: Its number.
        attribute: Name of the attribute that the dataclass of the message has for it.
        kind: Type of its content.
        of: Name of the message that it holds, "" for other kinds.
    """

    number: int
    attribute: str
    kind: FieldKind
    of: str = ""


MESSAGES: Final = MappingProxyType(
    {
        "OriginalOp": (
            MessageField(1, "name", FieldKind.TEXT),
            MessageField(2, "output_index", FieldKind.UINT32),
            MessageField(3, "data_type", FieldKind.INT32),
            MessageField(4, "format", FieldKind.INT32),
        ),
        "DimRange": (
            MessageField(1, "dim_start", FieldKind.UINT64),
            MessageField(2, "dim_end", FieldKind.UINT64),
        ),
        "OpBuffer": (
            MessageField(1, "type", FieldKind.INT32),
            MessageField(2, "data", FieldKind.BYTES),
            MessageField(3, "size", FieldKind.UINT64),
        ),
        "OpAttr": (MessageField(1, "name", FieldKind.TEXT), MessageField(2, "value", FieldKind.TEXT)),
        "Workspace": (
            MessageField(1, "type", FieldKind.INT32),
            MessageField(2, "data", FieldKind.BYTES),
            MessageField(3, "size", FieldKind.UINT64),
        ),
        "OpOutput": (
            MessageField(1, "data_type", FieldKind.INT32),
            MessageField(2, "format", FieldKind.INT32),
            MessageField(3, "shape", FieldKind.SHAPE),
            MessageField(4, "original_op", FieldKind.MESSAGE, "OriginalOp"),
            MessageField(5, "data", FieldKind.BYTES),
            MessageField(6, "size", FieldKind.UINT64),
            MessageField(7, "original_shape", FieldKind.SHAPE),
            MessageField(8, "sub_format", FieldKind.INT32),
            MessageField(9, "address", FieldKind.UINT64),
            MessageField(10, "dim_range", FieldKind.MESSAGES, "DimRange"),
            MessageField(11, "offset", FieldKind.UINT64),
        ),
        "OpInput": (
            MessageField(1, "data_type", FieldKind.INT32),
            MessageField(2, "format", FieldKind.INT32),
            MessageField(3, "shape", FieldKind.SHAPE),
            MessageField(4, "data", FieldKind.BYTES),
            MessageField(5, "size", FieldKind.UINT64),
            MessageField(6, "original_shape", FieldKind.SHAPE),
            MessageField(7, "sub_format", FieldKind.INT32),
            MessageField(8, "address", FieldKind.UINT64),
            MessageField(9, "offset", FieldKind.UINT64),
            MessageField(10, "arg_index", FieldKind.UINT32),
            MessageField(11, "input_type", FieldKind.UINT32),
        ),
        "DumpData": (
            MessageField(1, "version", FieldKind.TEXT),
            MessageField(2, "dump_time", FieldKind.UINT64),
            # the fields of outputs come first, the data of inputs
            MessageField(3, "outputs", FieldKind.MESSAGES, "OpOutput"),
            MessageField(4, "inputs", FieldKind.MESSAGES, "OpInput"),
            MessageField(5, "buffers", FieldKind.MESSAGES, "OpBuffer"),
            MessageField(6, "op_name", FieldKind.TEXT),
            MessageField(7, "attributes", FieldKind.MESSAGES, "OpAttr"),
            MessageField(8, "spaces", FieldKind.MESSAGES, "Workspace"),
            MessageField(9, "dfx_message", FieldKind.TEXT),
        ),
    }
)
"""Fields of every message, in ascending order of their numbers."""

SHAPE_DIM: Final = 1
"""Number of the only field of a Shape."""

_DIM_TAG: Final = tag_of(SHAPE_DIM, LENGTH)


def encode(message: str, value: object) -> bytes:
    """Return a serialised message; zeros and empty texts are left out, shapes never.

    Args:
        message: Its name in ``MESSAGES``.
        value: An object with the attributes of the message's fields; those of bytes are not written.

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
    """Return a Shape message, its dimensions packed, behind its length."""
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
"""What ``encode`` does for each message."""
