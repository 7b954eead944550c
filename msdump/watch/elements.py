"""Quantities that only the elements of a tensor tell, block by block, so that copies stay small."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

_BLOCK: Final = 1 << 17  # elements that are looked at together
_PLAIN: Final = frozenset({"f4", "f8"})  # as numpy computes with them, without a wider copy
_MOST_DIMENSIONS_IN_ROWS: Final = 3  # up to these the last dimension holds the units, beyond them the second
FLOAT16_LIMIT: Final = 65504.0


def absolute_mean(array: np.ndarray) -> float:
    """Return the mean of the absolute values.

    >>> absolute_mean(np.array([-2, 4], np.float16))
    3.0
    """
    return _mean(float(np.abs(block).sum(dtype=np.float64)) for block in _blocks(array)) / array.size


def share_within(array: np.ndarray, start: float, end: float) -> float:
    """Return the share of the elements from ``start`` to ``end``, both included, in percent.

    >>> share_within(np.array([-2, 0, 1, 4]), 0, 1)
    50.0
    """
    counts = (int(np.count_nonzero((block >= start) & (block <= end))) for block in _blocks(array))
    return 100 * sum(counts) / array.size


def saturated_share(array: np.ndarray) -> float:
    """Return the share of the elements that are float16's largest or smallest number, in percent.

    >>> saturated_share(np.array([65504, -65504, 1, np.inf], np.float16))
    50.0
    """
    counts = (int(np.count_nonzero(np.abs(block) == FLOAT16_LIMIT)) for block in _blocks(array))
    return 100 * sum(counts) / array.size


def zero_share(array: np.ndarray) -> float:
    """Return the share of the elements that are zero, in percent."""
    return 100 * (array.size - int(np.count_nonzero(array))) / array.size


def nonfinite(array: np.ndarray) -> float:
    """Return how many elements are NaN or infinite."""
    return float(sum(int(np.count_nonzero(~np.isfinite(block))) for block in _blocks(array)))


def dead_share(array: np.ndarray) -> float:
    """Return the share of the units that are zero throughout, in percent.

    A unit is a channel of an image (the second dimension), or else a place of the last dimension.

    >>> dead_share(np.array([[0, 1, 0, 0], [0, 0, 2, 0]]))
    50.0

    Args:
        array: At least one element.
    """
    if not array.ndim:
        return zero_share(array)
    unit = 1 if array.ndim > _MOST_DIMENSIONS_IN_ROWS else array.ndim - 1
    others = tuple(axis for axis in range(array.ndim) if axis != unit)
    alive = np.any(array, axis=others) if others else array != 0
    units = int(alive.size)
    return 100 * (units - int(np.count_nonzero(alive))) / units


def change(array: np.ndarray, before: np.ndarray) -> tuple[float, float]:
    """Return the mean of the absolute differences, and that of the absolute values before.

    >>> change(np.array([1.0, 3.0]), np.array([1.0, -1.0]))
    (2.0, 1.0)
    """
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        apart += float(np.abs(new - previous).sum(dtype=np.float64))
        old += float(np.abs(previous).sum(dtype=np.float64))
    return float(apart / array.size), float(old / array.size)


def step_length(array: np.ndarray, before: np.ndarray) -> tuple[float, float]:
    """Return the norm of the difference, and that of the values before.

    >>> step_length(np.array([3.0, 4.0]), np.array([0.0, 8.0]))
    (5.0, 8.0)
    """
    apart = old = 0.0
    for new, previous in _pairs(array, before):
        difference = np.subtract(new, previous, dtype=np.float64).reshape(-1)
        wide = np.asarray(previous, np.float64).reshape(-1)
        apart += float(np.dot(difference, difference))
        old += float(np.dot(wide, wide))
    return math.sqrt(apart), math.sqrt(old)


def changed_share(
    array: np.ndarray, before: np.ndarray, *, rtol: float, atol: float, equal_nan: bool
) -> float:
    """Return the share of the elements that differ by more than ``atol + rtol * |before|``, in percent.

    >>> changed_share(np.array([1.0, 2.0]), np.array([1.0, 2.1]), rtol=1e-5, atol=0, equal_nan=False)
    50.0
    """
    same = sum(
        int(np.count_nonzero(np.isclose(new, previous, rtol=rtol, atol=atol, equal_nan=equal_nan)))
        for new, previous in _pairs(array, before)
    )
    return 100 * (array.size - same) / array.size


def _mean(sums: Iterator[float]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(sums))


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the elements in a type that holds all their values and in which sums are right."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        yield _wide(flat[start : start + _BLOCK])


def _pairs(array: np.ndarray, before: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with np.errstate(all="ignore"):
        yield from zip(_blocks(array), _blocks(before), strict=True)


def _wide(block: np.ndarray) -> np.ndarray:
    return block if block.dtype.str[1:] in _PLAIN else block.astype(np.float64)
