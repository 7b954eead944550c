"""Masked lanes: elements that a mask has pushed so far down that softmax makes nothing of them.

Attention adds -1e4, -65504, -3.4e38 or -inf to the scores of tokens that are not there. Such elements
outweigh all others in a norm, so that nothing else would count beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

MASK: Final = -8192.0
"""Elements of masked lanes lie below: -1e4 is the mildest mask in use, and scores are added to it."""

BOTTOM: Final = -65000.0
"""Below, a lane is masked whatever its number: float16 turns -3.4e38 into -inf, or -65504 by saturation."""

NEAR: Final = 2.0**-6
"""An element of a masked lane differs at most as much as bfloat16 rounds."""

_BLOCK: Final = 1 << 16  # elements; a block of float32 fits into a core's cache
_GAP: Final = 16.0  # other elements are at least so many times smaller; else large numbers are what they are


@dataclass(frozen=True, slots=True)
class Scale:
    """What the elements of a golden tensor are measured by.

    Attributes:
        largest: Largest finite magnitude outside of masked lanes.
        is_masked: Whether it has masked lanes.
        power: A power of two near the largest element of either tensor of float64, else 1. Elements are
            divided by it because squares of float64 could overflow or vanish; squares of all other types
            fit into float64.
    """

    largest: float
    is_masked: bool = False
    power: float = 1.0


def read(dumped: np.ndarray, golden: np.ndarray) -> Scale:
    """Return the scale of a golden tensor.

    Args:
        dumped: The elements of the tensor that is examined, at least one.
        golden: Those of the golden tensor, in the same type.
    """
    power = _power(dumped, golden)
    if golden.dtype.kind in "iub":
        return Scale(max(-float(golden.min()), float(golden.max())), power=power)
    low, high = _extremes(golden)
    if math.isfinite(low) and math.isfinite(high) and low > MASK:
        return Scale(max(-low, high), power=power)
    largest = _largest(golden, np.isfinite(golden))
    if not np.any(golden <= MASK):
        return Scale(largest, power=power)
    outside = max(_largest_outside(x, y) for x, y in zip(_blocks(dumped), _blocks(golden), strict=True))
    is_masked = may_be_masked(outside)
    return Scale(outside if is_masked else largest, is_masked, power)


def may_be_masked(largest: float) -> bool:
    """Tell whether large elements are masks, by the largest magnitude outside of masked lanes."""
    return 0 < largest * _GAP <= -MASK


def _blocks(elements: np.ndarray) -> Iterator[np.ndarray]:
    return (elements[start : start + _BLOCK] for start in range(0, len(elements), _BLOCK))


def _extremes(elements: np.ndarray) -> tuple[float, float]:
    """Return the least and the greatest element, NaN where one is."""
    # numpy compares elements of 16 bits one by one; a cast of a block costs a tenth of that
    single = np.dtype(np.float32)
    fast = (part if part.itemsize >= single.itemsize else part.astype(single) for part in _blocks(elements))
    lows, highs = zip(*((part.min(), part.max()) for part in fast), strict=True)
    return float(np.min(lows)), float(np.max(highs))


def _power(x: np.ndarray, y: np.ndarray) -> float:
    if x.dtype != np.float64:
        return 1.0
    largest = max(_largest(side, np.isfinite(side)) for side in (x, y))
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 1.0


def masked(dumped: np.ndarray, golden: np.ndarray) -> np.ndarray:
    """Return which elements lie in masked lanes on both sides.

    >>> masked(np.float32([-9999, -65504, 1]), np.float32([-1e4, -np.inf, -1e4])).tolist()
    [True, True, False]
    """
    with np.errstate(all="ignore"):
        are_near = np.abs(dumped - golden) <= np.abs(golden) * NEAR
        are_low = (dumped <= MASK) & (golden <= MASK)
        are_lost = (dumped <= BOTTOM) & (golden <= BOTTOM)
        return np.asarray(are_low & (are_near | are_lost))


def _largest_outside(dumped: np.ndarray, golden: np.ndarray) -> float:
    return _largest(golden, np.isfinite(golden) & ~masked(dumped, golden))


def _largest(elements: np.ndarray, chosen: np.ndarray) -> float:
    # numpy's abs, told where, takes the elements one by one
    kept = np.where(chosen, elements, elements.dtype.type(0))
    return max(float(kept.max(initial=0)), -float(kept.min(initial=0)))
