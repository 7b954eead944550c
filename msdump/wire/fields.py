"""The fields of a protobuf message.

    field   tag value
    tag     varint: the number of the field << 3 | wire type
    value   wire type 0  varint            1  8 bytes
                      2  varint n, n bytes 5  4 bytes

Nothing that is read is trusted: a size counts only once it is known to fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msdump.wire.faults import WireError, WireFault
from msdump.wire.varints import read_varint, varint

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

    Args:
        view: The bytes.
        at: First byte of the message.
        end: Its end.

    Raises:
        WireError: A field that is none, or that goes beyond the end.
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
