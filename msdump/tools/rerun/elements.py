"""Elements of two tensors beside each other, in the narrower of their types."""

from __future__ import annotations

import numpy as np

from msdump import dtypes
from msdump.device.precision import rounded
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.execute.operators.float64.conversions import HALVES
from msdump.tools.judge import bits

_FLOATS = (*HALVES, dtypes.from_name("float32"), dtypes.from_name("float64"))
"""From the narrowest to the widest; of the two halves none holds the other's numbers."""


def type_named(name: str, array: np.ndarray) -> DType:
    """Return the element type of a tensor by the name that the dump has for it, or else by its array."""
    try:
        return dtypes.from_name(name.lower())
    except FormatError:
        return dtypes.from_numpy(array.dtype)


def in_type(array: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Return a tensor with the values of a type, rounded where that is narrower; others as they are."""
    held = dtypes.from_numpy(array.dtype)
    if held is dtype or dtype not in _FLOATS or held not in _FLOATS:
        return array
    if held is _FLOATS[-1] and dtype in HALVES:
        array = array.astype(np.float32)
    with np.errstate(over="ignore"):
        return rounded(array, dtype, saturates=saturates)


def is_rounded(held: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Tell whether a tensor has the elements of another one, rounded to a type."""
    return any(
        held.size == other.size
        and _has_same_bits(held.reshape(-1), in_type(in_type(each, dtype), dtypes.from_numpy(held.dtype)))
        for each in (other.reshape(-1), _bounded(other.reshape(-1), dtype))
    )


def _bounded(array: np.ndarray, dtype: DType) -> np.ndarray:
    return in_type(array, dtype, saturates=True)


def is_same(one: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Tell whether two tensors have the same elements once both are rounded to a type.

    Both ways in which a device may round what lies beyond float16's range count. Elements that are NaN on
    both sides are the same.
    """
    if one.size != other.size:
        return False
    for saturates in (False, True):
        a, b = (in_type(array, dtype, saturates=saturates).reshape(-1) for array in (one, other))
        if _has_same_bits(a, b):
            return True
        if dtype is not HALVES[0]:
            break
    return False


def narrower(one: DType, other: DType) -> DType:
    """Return the narrower of two element types; that of the first where they cannot be compared."""
    if one in _FLOATS and other in _FLOATS:
        return min(one, other, key=lambda dtype: (dtype.numpy.itemsize, dtype is not one))
    return one


def _has_same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype:
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":  # a device may hold integers in another width
            return bool(np.array_equal(a, b))
        return False
    if a.dtype == object or a.dtype.kind == "c":
        return bool(np.array_equal(a, b))
    if bits.are_same(a, b):
        return True
    kind = f"u{a.dtype.itemsize}"
    unlike = np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)
    x, y = a[unlike], b[unlike]
    return bool(np.all((x != x) & (y != y)))  # noqa: PLR0124 - NaN
