"""The elements of an array as the bytes in files: C order, little endian, int4 and uint1 packed."""

from __future__ import annotations

import math
from pickle import PickleBuffer
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.errors import FormatError


def element_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array: a view if the array is in C order and little endian, else a copy.

    >>> import numpy as np
    >>> element_bytes(np.array([[1, 2], [3, 4]], ">i2").T).tolist()
    [1, 0, 3, 0, 2, 0, 4, 0]

    Raises:
        ValueError: ml_dtypes' types hand out no buffer.
    """
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    # A memoryview of an array without elements, or of several dimensions, cannot be cast to bytes.
    return PickleBuffer(array).raw()  # type: ignore[arg-type]  # numpy's stubs hide the protocol


# vendor: MindSpore reads uint1 from the highest bit, int4 from the low half
_HIGHEST_FIRST: Final = frozenset({"uint1"})


def pack(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the bytes of elements, in C order and padded with zero bits to a whole byte.

    Two int4 share a byte, the first in the low half; eight uint1 share a byte, the first in the highest
    bit.

    >>> from msdump import dtypes
    >>> int4, uint1 = dtypes.from_name("int4"), dtypes.from_name("uint1")
    >>> [f"{byte:08b}" for byte in pack(np.array([1, -1, 7]), int4)]
    ['11110001', '00000111']
    >>> [f"{byte:08b}" for byte in pack(np.array([1, 1, 0, 1]), uint1)]
    ['11010000']

    Raises:
        FormatError: A value that the type cannot hold.
    """
    places = _places(dtype)
    codes = np.zeros(-(-array.size // dtype.per_byte) * dtype.per_byte, np.uint8)
    codes[: array.size] = _exact(array, dtype).reshape(-1).view(np.uint8)
    # ml_dtypes stores each element in a full byte, sign-extended
    codes &= (1 << 8 // dtype.per_byte) - 1
    packed: np.ndarray = np.bitwise_or.reduce(codes.reshape(-1, dtype.per_byte) << places, axis=1)
    return packed


def unpack(data: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return the elements of packed bytes (uint8), one per item, in ml_dtypes' type.

    >>> from msdump import dtypes
    >>> unpack(np.array([0b11110001, 0b00000111], np.uint8), dtypes.from_name("int4"), (3,)).tolist()
    [1, -1, 7]

    Raises:
        FormatError: Too few bytes.
    """
    count = math.prod(shape)
    if data.size * dtype.per_byte < count:
        raise FormatError(
            f"{data.size} bytes hold {data.size * dtype.per_byte} {dtype.name} elements, {count} are needed"
        )
    codes = data[: -(-count // dtype.per_byte), None] >> _places(dtype)
    codes &= (1 << 8 // dtype.per_byte) - 1
    elements: np.ndarray = codes.reshape(-1)[:count].view(dtype.numpy).reshape(shape)
    return elements


def _places(dtype: DType) -> np.ndarray:
    """Return the bit offset of each element within a byte."""
    places: np.ndarray = np.arange(dtype.per_byte, dtype=np.uint8) * np.uint8(8 // dtype.per_byte)
    return places[::-1] if dtype.name in _HIGHEST_FIRST else places


def _exact(array: np.ndarray, dtype: DType) -> np.ndarray:
    if array.dtype == dtype.numpy:
        return array
    cast = array.astype(dtype.numpy)
    # a value that the type cannot represent changes in the round trip
    wrong = array[cast.astype(array.dtype) != array]
    if wrong.size:
        raise FormatError(f"{dtype.name} has no value {wrong.flat[0]}")
    return cast
