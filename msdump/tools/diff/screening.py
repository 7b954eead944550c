"""A first look at two float32 tensors that tells whether they clearly agree, in a fifth of the full time.

Sums of squares in float32 are off by far less than the limits of agreement. What the look cannot decide
(NaN, mask constants, tensors that are nearly equal, or near the limit) is left to the full measure.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.pairs import Distance
from msdump.tools.judge.errors import TensorError

_BLOCK: Final = 1 << 13  # elements; fits into a core's cache, and BLAS starts no threads for so few
_SAFE_SHARE: Final = 0.5
"""Of the limit: what lies closer to it is measured in full."""

_SMALLEST: Final = 1e-12
"""Least mean square of golden elements: below it squares may vanish."""

_LARGEST: Final = 4096.0
"""Elements beyond it may be masks, which have no part in an error."""


def look(mine: np.ndarray, golden: np.ndarray, limit: float) -> TensorError | None:
    """Return how far two tensors are apart where they are unequal and clearly agree, None where not.

    Args:
        mine: The tensor that is examined, in C order.
        golden: The tensor that it is compared with; of the same shape.
        limit: Largest relative distance of tensors that agree.
    """
    if mine.dtype != np.float32 or golden.dtype != np.float32:
        return None
    x, y = mine.reshape(-1), golden.reshape(-1)
    kernel = pairs.PAIRS
    difference, norm, largest, most = kernel.distance(x, y) if kernel is not None else _distance(x, y)
    is_near = 0 < difference <= norm * (limit * _SAFE_SHARE) ** 2
    if not (is_near and norm >= _SMALLEST * len(x) and most < _LARGEST):
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
    )


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
