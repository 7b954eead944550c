"""The elements of an array as the bytes that every file holds: C order, little endian."""

from __future__ import annotations

from pickle import PickleBuffer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def element_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array: its own memory where it is in C order and little endian, else a copy.

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
