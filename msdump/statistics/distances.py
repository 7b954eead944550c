"""Distances of the vectors of float32 pairs, computed in float32, many pairs in one compiled call.

Without the compiled library (``compiled``) numpy measures one pair after the other.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from msdump.statistics import compiled
from msdump.statistics.compiled import address
from msdump.threads import map_threads, thread_count

_SHARED: Final = 1 << 18  # elements from which on threads share the work: waking a thread takes as long
_BLOCK: Final = 1 << 13  # elements of a block in numpy: few enough that BLAS wakes no threads


class Distance(NamedTuple):
    """Measures of the difference of two vectors x and y, with ``x - y`` in float32.

    Any element that is NaN or infinite makes at least one of the two sums NaN or infinite.
    """

    differences: float  # sum of ``(x - y)^2``
    squares: float  # sum of ``y^2``
    largest: float  # largest ``|x - y|``
    most: float  # largest ``|y|``


def takes(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether two arrays are float32, contiguous and of the same shape; any alignment."""
    return x.shape == y.shape and all(side.dtype == np.float32 and side.flags.c_contiguous for side in (x, y))


def distances(pairs: Sequence[tuple[np.ndarray, np.ndarray]], *, is_shared: bool = True) -> list[Distance]:
    """Return the distance of each pair that ``takes`` accepts; threads may share it, without the GIL."""
    kernel = compiled.KERNEL
    if kernel is None:
        return [_distance(*pair) for pair in pairs]
    table = array("q", itertools.chain.from_iterable((address(x), address(y), x.size) for x, y in pairs))
    count = sum(x.size for x, _ in pairs)
    parts = thread_count() if is_shared and count >= _SHARED else 1
    bounds = [count * part // parts for part in range(parts + 1)]
    found = np.zeros((parts, len(pairs), len(Distance._fields)))

    def find(part: int) -> None:
        begin, end = bounds[part : part + 2]
        kernel.find_distances(table.buffer_info()[0], begin, end, found[part].ctypes.data)

    map_threads(find, range(parts))
    sums, largest = found[..., :2].sum(axis=0), found[..., 2:].max(axis=0)
    return list(itertools.starmap(Distance, np.concatenate((sums, largest), axis=1).tolist()))


@np.errstate(all="ignore")
def _distance(x: np.ndarray, y: np.ndarray) -> Distance:
    x, y = x.reshape(-1), y.reshape(-1)
    differences = squares = largest = most = 0.0
    for start in range(0, len(x), _BLOCK):
        golden = y[start : start + _BLOCK]
        apart = x[start : start + _BLOCK] - golden
        differences += float(np.dot(apart, apart))
        squares += float(np.dot(golden, golden))
        largest = max(largest, float(np.abs(apart).max()))
        most = max(most, float(np.abs(golden).max()))
    return Distance(differences, squares, largest, most)
