"""Protobuf's numbers: seven bits a byte, the lowest first, the highest bit set where a byte follows."""

from __future__ import annotations

from typing import Final

from msdump.wire.faults import WireError, WireFault

ALL_BITS: Final = (1 << 64) - 1
"""The largest number; a negative one stands for itself plus 2**64."""

_MORE: Final = 0x80  # the bit of a byte behind which a number goes on
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

    Args:
        view: The bytes.
        at: First byte of the number.
        end: End of the message.

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
