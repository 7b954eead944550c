"""Whether two vectors hold the same bits, wherever they lie in memory."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from msdump.statistics.compiled import address


def _compare_memory() -> ctypes._NamedFuncPointer | None:
    """Return C's ``memcmp``, None where the process's own functions cannot be called."""
    try:
        function = ctypes.CDLL(None).memcmp
    except (OSError, TypeError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_int
    return function


_COMPARE: Final = _compare_memory()


def are_same(x: np.ndarray, y: np.ndarray) -> bool:
    """Tell whether two arrays hold the same bytes, element by element.

    As bits: equal NaN are the same although they differ as numbers, and -0 is not 0. Other threads run
    meanwhile. numpy takes several times as long where elements are not aligned, as weights in a model's file.

    >>> are_same(np.float32([1, np.nan]), np.float32([1, np.nan]))
    True
    >>> are_same(np.float32([0.0]), np.float32([-0.0]))
    False

    Args:
        x: The one.
        y: The other, of the same element type and shape.
    """
    is_plain = not x.dtype.hasobject
    if _COMPARE is not None and is_plain and x.flags.c_contiguous and y.flags.c_contiguous:
        return not _COMPARE(address(x), address(y), x.nbytes)
    bits = f"V{x.dtype.itemsize}"
    return bool(np.all(np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)))
