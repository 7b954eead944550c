"""Element types below a byte as the device packs them."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from msdump.errors import FormatError

Packed = Literal["int4", "uint1"]

_RANGES: Final[dict[Packed, tuple[int, int]]] = {"int4": (-8, 7), "uint1": (0, 1)}


def pack(array: np.ndarray, kind: Packed) -> np.ndarray:
    """Return the bytes of integers, in C order and padded with zero bits to a whole byte.

    Two int4 share a byte, the first in the low half; eight uint1 share a byte, the
    first in the highest bit.

    Args:
        array: One element per item: an integer type, ml_dtypes' int4 or bool.
        kind: What to pack.

    Raises:
        FormatError: A value that the type cannot hold.
    """
    values = array.astype(np.int64).reshape(-1)
    low, high = _RANGES[kind]
    if values.size and (values.min() < low or values.max() > high):
        raise FormatError(
            f"values from {values.min()} to {values.max()} do not fit {kind}, which holds {low} to {high}"
        )
    if kind == "uint1":
        return np.packbits(values.astype(np.uint8))
    halves = np.zeros((-(-values.size // 2), 2), np.uint8)
    halves.reshape(-1)[: values.size] = values & 0xF
    return halves[:, 0] | (halves[:, 1] << 4)


def unpack(data: np.ndarray, kind: Packed, shape: tuple[int, ...]) -> np.ndarray:
    """Return the elements of packed bytes: int4 as int8, uint1 as uint8.

    Args:
        data: Bytes, uint8; those beyond the last element do not count.
        kind: What is packed.
        shape: Shape of the elements.

    Raises:
        FormatError: Too few bytes.
    """
    count = int(np.prod(shape, dtype=np.int64))
    per_byte = 8 if kind == "uint1" else 2
    if data.size * per_byte < count:
        raise FormatError(
            f"{data.size} bytes hold {data.size * per_byte} {kind} elements, {count} are needed"
        )
    if kind == "uint1":
        return np.unpackbits(data, count=count).reshape(shape)
    halves = np.empty((data.size, 2), np.int8)
    halves[:, 0] = (data << 4).view(np.int8) >> 4  # shifting back extends the sign
    halves[:, 1] = data.view(np.int8) >> 4
    return halves.reshape(-1)[:count].reshape(shape)
