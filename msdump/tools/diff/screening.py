"""A first look at two float32 tensors that tells whether they clearly agree, in a fifth of the full time.

Sums of squares in float32 are off by far less than the limits of agreement. What the look cannot decide
(NaN, tensors that are nearly equal, or near the limit) is left to the full measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.pairs import Distance
from msdump.tools.judge import lanes
from msdump.tools.judge.errors import TensorError

_BLOCK: Final = 1 << 13  # elements; fits into a core's cache, and BLAS starts no threads for so few
_SAFE_SHARE: Final = 0.5
"""Of the limit: what lies closer to it is measured in full."""

_SMALLEST: Final = 1e-12
"""Least mean square of golden elements: below it squares may vanish."""

_LARGEST: Final = 4096.0
"""Elements beyond it may be masks, which have no part in an error."""


def quick(
    mine: np.ndarray, golden: np.ndarray, limit: float, found: Distance | None = None
) -> TensorError | None:
    """Return how far two tensors are apart where they are unequal and clearly agree, None where not.

    What ``look`` leaves for the mask constants in it is looked at once more, without masked lanes.

    Args:
        mine: The tensor that is examined, in C order.
        golden: The tensor that it is compared with; of the same shape.
        limit: Largest relative distance of tensors that agree.
        found: What ``first`` or ``distances`` told of them; None: nobody asked.
    """
    found = found or first(mine, golden)
    if found is None:
        return None
    return agreement(found, limit, mine.size) or _outside_of_masks(mine, golden, limit, found)


def first(mine: np.ndarray, golden: np.ndarray) -> Distance | None:
    """Return how far two tensors are apart by their sums in float32, None of other element types."""
    return _found(mine, golden) if _takes(mine, golden) else None


def firsts(tensors: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Distance | None]:
    """Return what ``first`` does of each pair."""
    kernel = pairs.PAIRS
    if kernel is None:
        return [first(*pair) for pair in tensors]
    taken = [pair for pair in tensors if kernel.takes(pair[0]) and kernel.takes(pair[1])]
    found = iter(kernel.distances(taken, is_shared=False))
    return [next(found) if kernel.takes(x) and kernel.takes(y) else first(x, y) for x, y in tensors]


def look(mine: np.ndarray, golden: np.ndarray, limit: float) -> TensorError | None:
    """Return how far two tensors are apart where they are unequal and clearly agree, None where not.

    Args:
        mine: The tensor that is examined, in C order.
        golden: The tensor that it is compared with; of the same shape.
        limit: Largest relative distance of tensors that agree.
    """
    return agreement(_found(mine, golden), limit, mine.size) if _takes(mine, golden) else None


def distances(tensors: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[tuple[int, int], Distance]:
    """Return how far tensors are from golden ones, by the ids of both, for those that one pass takes."""
    kernel = pairs.PAIRS
    if kernel is None:
        return {}
    taken = [(x, y) for x, y in tensors if x.shape == y.shape and kernel.takes(x) and kernel.takes(y)]
    return {(id(x), id(y)): found for (x, y), found in zip(taken, kernel.distances(taken), strict=True)}


def _takes(mine: np.ndarray, golden: np.ndarray) -> bool:
    return mine.dtype == np.float32 and golden.dtype == np.float32


def _found(mine: np.ndarray, golden: np.ndarray) -> Distance:
    x, y = mine.reshape(-1), golden.reshape(-1)
    return pairs.PAIRS.distance(x, y) if pairs.PAIRS is not None else _distance(x, y)


def agreement(found: Distance, limit: float, count: int, masked: int = 0) -> TensorError | None:
    """Return how far two tensors are apart by their sums, None where these do not tell that they agree.

    Args:
        found: The sums.
        limit: Largest relative distance of tensors that agree.
        count: Number of elements.
        masked: How many of them lie in masked lanes, which the sums leave out.
    """
    difference, norm, largest, most = found
    is_near = 0 < difference <= norm * (limit * _SAFE_SHARE) ** 2
    if not (is_near and norm >= _SMALLEST * count and most < _LARGEST):
        return None
    distance = math.sqrt(difference / norm)
    return TensorError(
        is_same=False,
        distance=distance,
        cosine=1 - distance * distance / 2,  # at least: a part of the difference may be one of length alone
        largest=largest,
        norm=math.sqrt(difference),
        scaled=largest / most,
        ulps=math.nan,  # nobody asks for them of tensors that agree, and they take as long as all others
        masked=masked,
    )


def _outside_of_masks(
    mine: np.ndarray, golden: np.ndarray, limit: float, found: Distance
) -> TensorError | None:
    kernel = pairs.PAIRS
    if kernel is None or found.most < -lanes.MASK or not (kernel.takes(mine) and kernel.takes(golden)):
        return None
    outside, masked = kernel.outside(mine, golden, lanes.MASK, lanes.BOTTOM, lanes.NEAR)
    if not (masked and lanes.may_be_masked(outside.most)):
        return None
    return agreement(outside, limit, mine.size, masked)


def _distance(x: np.ndarray, y: np.ndarray) -> Distance:
    """Return how far two vectors are apart, their sums of squares in float32."""
    memory = np.empty(min(len(x), _BLOCK), np.float32)
    difference = norm = 0.0
    largest = most = 0.0
    with np.errstate(all="ignore"):
        for start in range(0, len(x), _BLOCK):
            b = y[start : start + _BLOCK]
            d = np.subtract(x[start : start + _BLOCK], b, out=memory[: len(b)])
            difference += float(np.dot(d, d))
            norm += float(np.dot(b, b))
            largest = max(largest, float(d.max()), -float(d.min()))
            most = max(most, float(b.max()), -float(b.min()))
    return Distance(difference, norm, largest, most)
