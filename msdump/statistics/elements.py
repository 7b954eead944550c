"""Fast conversion and sums of blocks of elements.

Sums are taken in double. Only long blocks of float32 are added up in float32, over
short runs with sums that are added in double: right to about 1e-8, at worst 1e-7.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from msdump.dtypes import BFLOAT16

BLOCK: Final = 1 << 17
"""Elements that are measured together, and stay in the cache meanwhile."""

_RUN: Final = 1 << 9  # terms per BLAS call in float32: few, to bound rounding errors
_SINGLES_FROM: Final = 1 << 15  # float32 blocks of at least this many elements are summed in float32
# 512 squares of the largest peak make 5e32, where float32 ends at 3e38.
_SMALLEST_PEAK: Final = 1e-12  # below it squares vanish in float32
_LARGEST_PEAK: Final = 1e15  # above it a sum of a run's squares overflows
_FLOAT16_BITS: Final = np.int32(-0x70002000)  # the bits of float32 that hold a float16
_FLOAT16_SCALE: Final = np.float32(2.0**112)  # ratio of the values that the same bits have
_FLOAT16_END: Final = 2.0**16  # value of the bits of inf; NaN becomes larger


class _Scratch(threading.local):
    """Buffers of one thread, each with a block's number of elements."""

    # Reused for each block: new memory of this size would be mapped and zeroed every time.

    def __init__(self) -> None:
        self.singles = np.empty(BLOCK, np.float32)
        self.doubles = np.empty(BLOCK, np.float64)


_SCRATCH: Final = _Scratch()
_ONES: Final[dict[int, np.ndarray]] = {4: np.ones(_RUN, np.float32), 8: np.ones(_RUN, np.float64)}


def widened(block: np.ndarray) -> np.ndarray:
    """Convert float16 or bfloat16 (at most a block) to float32; valid until the thread's next call.

    Other types, with which numpy is fast, are returned unchanged.
    """
    if block.dtype == np.float16:
        return from_float16(block, _SCRATCH.singles[: len(block)])
    return block.astype(np.float32) if block.dtype == BFLOAT16.numpy else block


def from_float16(block: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write float16 into an array of float32, four times as fast as numpy converts them; return the array.

    >>> from_float16(np.array([1.5, -2, 6e-8, np.inf], np.float16), np.empty(4, np.float32)).tolist()
    [1.5, -2.0, 5.960464477539063e-08, inf]
    """
    # Shift the bits, then correct the exponent by a factor: exact for all numbers, subnormal ones too.
    bits = out.view(np.int32)
    np.left_shift(block.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, _FLOAT16_BITS, out=bits)
    np.multiply(out, _FLOAT16_SCALE, out=out)
    if len(out) and max(np.maximum.reduce(out), -np.minimum.reduce(out)) >= _FLOAT16_END:
        np.copyto(out, block)
    return out


def terms(values: np.ndarray, peak: float) -> np.ndarray:
    """Convert finite values to the type in which they are summed; valid until the thread's next call."""
    is_double = values.dtype == np.float64
    is_long_single = values.dtype == np.float32 and len(values) >= _SINGLES_FROM
    if is_double or (is_long_single and _SMALLEST_PEAK < peak < _LARGEST_PEAK):
        return values
    doubles = _SCRATCH.doubles[: len(values)]
    np.copyto(doubles, values)
    return doubles


def total(addends: np.ndarray) -> float:
    """Return the sum of terms.

    >>> total(np.array([0.5, 1, 2]))
    3.5
    """
    ones = _ONES[addends.dtype.itemsize]
    whole = len(addends) - len(addends) % _RUN
    sum_of_runs = _sum_of_runs(addends[:whole].reshape(-1, _RUN), ones) if whole else 0.0
    return sum_of_runs + float(np.dot(addends[whole:], ones[: len(addends) - whole]))


def total_of_squares(addends: np.ndarray) -> float:
    """Return the sum of the squares of terms.

    >>> total_of_squares(np.array([0.5, 1, 2]))
    5.25
    """
    return total_of_products(addends, addends)


def total_of_products(addends: np.ndarray, factors: np.ndarray) -> float:
    """Return the dot product of two arrays of terms.

    >>> total_of_products(np.array([0.5, 1, 2]), np.array([2.0, 1, 0]))
    2.0
    """
    whole = len(addends) - len(addends) % _RUN
    runs, others = (terms[:whole].reshape(-1, _RUN) for terms in (addends, factors))
    return (_sum_of_runs(runs, others) if whole else 0.0) + float(np.dot(addends[whole:], factors[whole:]))


def _sum_of_runs(runs: np.ndarray, factors: np.ndarray) -> float:
    """Return the dot product of two arrays, run by run: with ones a sum, with itself a sum of squares."""
    # Short runs also keep BLAS from waking threads, which would compete with the network's threads.
    return float(np.add.reduce(np.vecdot(runs, factors), dtype=np.float64))
