"""Protobuf's wire format: numbers and fields, written and read without a schema.

A number (varint) has seven bits a byte, the lowest first, the highest bit set where a byte follows.

    field   tag value
    tag     varint: the number of the field << 3 | wire type
    value   wire type 0  varint            1  8 bytes
                      2  varint n, n bytes 5  4 bytes

Nothing that is read is trusted: a size counts only once it is known to fit.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final


class WireFault(enum.Enum):
    """Reasons why bytes are no message."""

    LONG_NUMBER = enum.auto()
    TORN_NUMBER = enum.auto()
    FIELD_NUMBER = enum.auto()
    WIRE_TYPE = enum.auto()
    TORN_FIELD = enum.auto()


class WireError(ValueError):
    """The bytes are not a valid protobuf message. File readers catch this and name the file.

    Attributes:
        start: First byte of the number or field.
        end: End of an incomplete number.
        value: The field number, the wire type or the size that is wrong.
        left: Bytes of the message from the field's value to the end.
    """

    def __init__(self, fault: WireFault, start: int, *, end: int = 0, value: int = 0, left: int = 0) -> None:
        super().__init__(fault.name, start)
        self.fault = fault
        self.start = start
        self.end = end
        self.value = value
        self.left = left

    @property
    def missing(self) -> int:
        """Bytes that a field lacks."""
        return self.value - self.left


ALL_BITS: Final = (1 << 64) - 1
"""The largest number; a negative one stands for itself plus 2**64."""

_MORE: Final = 0x80  # set in each byte of a number but the last
_BITS: Final = 0x7F
_MOST_SHIFTED: Final = 63  # a number has at most ten bytes
_SMALL: Final = tuple(bytes((number,)) for number in range(_MORE))


def varint(value: int) -> bytes:
    """Return a number, not negative, in seven bits a byte, the lowest first.

    >>> varint(1).hex(), varint(300).hex()
    ('01', 'ac02')
    """
    if value < _MORE:
        return _SMALL[value]
    out = bytearray()
    while value >= _MORE:
        out.append(value & _BITS | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and where it ends.

    >>> read_varint(memoryview(bytes.fromhex("ac02ff")), 0, 3)
    (300, 2)

    Raises:
        WireError: It has more than ten bytes, or the message ends inside.
    """
    value = shift = 0
    start = at
    while at < end:
        byte = view[at]
        value |= (byte & _BITS) << shift
        at += 1
        if byte < _MORE:
            return value & ALL_BITS, at
        shift += 7
        if shift > _MOST_SHIFTED:
            raise WireError(WireFault.LONG_NUMBER, start, end=at)
    raise WireError(WireFault.TORN_NUMBER, start, end=at)


VARINT: Final = 0
LENGTH: Final = 2
"""Wire types: a number, and bytes behind their length."""

Span = tuple[int, int]
"""Start and end of bytes."""

_FIXED_SIZES: Final = {1: 8, 5: 4}
_HIGHEST_TAG: Final = (1 << 32) - 1


def tag_of(number: int, wire_type: int) -> int:
    """Return the tag of a field."""
    return number << 3 | wire_type


def length_delimited(tag: int, body: bytes) -> bytes:
    """Return a field of bytes: a text, packed numbers or a message.

    >>> length_delimited(tag_of(7, LENGTH), b"abc").hex()
    '3a03616263'
    """
    return varint(tag) + varint(len(body)) + body


def fields(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (tag, number that it holds, start, start of the value, end) of each field of a message.

    The number is 0 where the field holds bytes.

    >>> list(fields(memoryview(bytes.fromhex("08ac02" "3a03616263")), 0, 8))
    [(8, 300, 0, 1, 3), (58, 0, 3, 5, 8)]

    Raises:
        WireError: A tag is invalid, or a field goes beyond the end.
    """
    while at < end:
        start = at
        tag, at = read_varint(view, at, end)
        if tag >> 3 == 0 or tag > _HIGHEST_TAG:
            raise WireError(WireFault.FIELD_NUMBER, start, value=tag >> 3)
        kind = tag & 7
        if kind == VARINT:
            value, stop = read_varint(view, at, end)
            yield tag, value, start, at, stop
            at = stop
            continue
        if kind == LENGTH:
            size, at = read_varint(view, at, end)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise WireError(WireFault.WIRE_TYPE, start, value=kind)
        if size > end - at:
            raise WireError(WireFault.TORN_FIELD, start, value=size, left=end - at)
        yield tag, 0, start, at, at + size
        at += size
