"""How blocks of elements of a type are compared, counted and summed fast.

Sums are taken in double. Only long blocks of float32 are added up in float32,
over short runs whose sums are added in double: right to about 1e-8, at worst 1e-7.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

import numpy as np

BLOCK: Final = 1 << 17
"""Elements that are looked at together, and stay in the cache meanwhile."""

_RUN: Final = 1 << 9  # terms that BLAS adds up: few, so that their rounding errors stay few
_SINGLES_FROM: Final = 1 << 15  # elements from which on float32 is added up in float32
# 512 squares of the largest peak make 5e32, where float32 ends at 3e38.
_SMALLEST_PEAK: Final = 1e-12  # below it squares vanish in float32
_LARGEST_PEAK: Final = 1e15  # above it a run of them overflows
_SIGN: Final = 0x8000  # the sign bit of a pattern, and the pattern of -0.0
_FLOAT16_BITS: Final = np.int32(-0x70002000)  # where float32 has what a float16 consists of
_FLOAT16_SCALE: Final = np.float32(2.0**112)  # by which the same bits differ in value


class _Scratch(threading.local):
    """The buffers of a thread, each as long as a block."""

    # Used again for each block: new memory of that size would have to be mapped and zeroed every time.

    def __init__(self) -> None:
        self.flags = np.empty(BLOCK, np.bool_)
        self.singles = np.empty(BLOCK, np.float32)
        self.doubles = np.empty(BLOCK, np.float64)


_SCRATCH: Final = _Scratch()
_ONES: Final[dict[int, np.ndarray]] = {4: np.ones(_RUN, np.float32), 8: np.ones(_RUN, np.float64)}


class _Numbers:
    """Integers, float32 and float64: numpy is fast with them. At most a block is looked at."""

    def bounds(self, block: np.ndarray) -> tuple[float, float]:
        """Return the largest and the smallest element, NaN twice where one is NaN."""
        return float(np.maximum.reduce(block)), float(np.minimum.reduce(block))

    def signs(self, block: np.ndarray, high: float, low: float) -> tuple[int, int]:
        """Return how many elements are below and above zero, given the bounds."""
        # the bounds often answer without a look at the elements; with NaN for bounds both are counted
        negative = 0 if low >= 0 else _count(np.less, block, 0)
        positive = 0 if high <= 0 else len(block) if low > 0 else _count(np.greater, block, 0)
        return negative, positive

    def nonfinite(self, block: np.ndarray) -> tuple[int, int, int]:
        """Return how many elements are NaN, -inf and inf."""
        nan = _count(np.not_equal, block, block)  # NaN alone differs from itself
        return nan, _count(np.equal, block, -math.inf), _count(np.equal, block, math.inf)

    def values(self, block: np.ndarray) -> np.ndarray:
        """Return elements that are all finite in a type that numpy is fast with."""
        return block


class _Halves:
    """float16 and bfloat16, by their bit patterns.

    numpy takes these types one by one, but integers many at a time, and within
    a sign the patterns have the order of the values.
    """

    def __init__(self, infinity: int, values: Callable[[np.ndarray], np.ndarray]) -> None:
        """Set up a type.

        Args:
            infinity: Bit pattern of inf; those of NaN are larger.
            values: Converts finite elements to float32.
        """
        self._infinity = infinity
        self.values = values

    def bounds(self, block: np.ndarray) -> tuple[float, float]:
        # Signed, a pattern of a number below zero is less than all others; unsigned, it is greater, and the
        # more so the further below zero the number is.
        signed, unsigned = block.view(np.int16), block.view(np.uint16)
        top, bottom = int(np.maximum.reduce(signed)), int(np.maximum.reduce(unsigned))
        if top > self._infinity or bottom > self._infinity + _SIGN:
            return math.nan, math.nan
        if top < 0:  # all are below zero: the one nearest to it
            top = int(np.minimum.reduce(unsigned))
        if bottom < _SIGN:  # none is below zero
            bottom = int(np.minimum.reduce(unsigned))
        high, low = np.array((top, bottom), np.uint16).view(block.dtype)
        return float(high), float(low)

    def signs(self, block: np.ndarray, high: float, low: float) -> tuple[int, int]:
        signed, unsigned = block.view(np.int16), block.view(np.uint16)
        negative = 0 if low >= 0 else _count(np.greater, unsigned, _SIGN)
        positive = 0 if high <= 0 else len(block) if low > 0 else _count(np.greater, signed, 0)
        if math.isnan(high):  # NaN has a sign bit, too, but is neither below nor above zero
            negative -= _count(np.greater, unsigned, self._infinity + _SIGN)
            positive -= _count(np.greater, signed, self._infinity)
        return negative, positive

    def nonfinite(self, block: np.ndarray) -> tuple[int, int, int]:
        patterns = block.view(np.uint16)
        nan = _count(np.greater, patterns & (_SIGN - 1), self._infinity)
        negative = _count(np.equal, patterns, self._infinity + _SIGN)
        return nan, negative, _count(np.equal, patterns, self._infinity)


def _from_float16(block: np.ndarray) -> np.ndarray:
    """Return finite float16 as float32: the bits in their places, then the exponent put right.

    The product is exact, that of subnormal numbers too; inf and NaN would become large numbers.

    >>> _from_float16(np.array([1.5, -2, 6e-8], np.float16)).tolist()
    [1.5, -2.0, 5.960464477539063e-08]
    """
    singles = _SCRATCH.singles[: len(block)]
    bits = singles.view(np.int32)
    np.left_shift(block.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, _FLOAT16_BITS, out=bits)
    return np.multiply(singles, _FLOAT16_SCALE, out=singles)


def _from_bfloat16(block: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float32, as it is the upper half of one: the same bits, sixteen places higher."""
    singles = _SCRATCH.singles[: len(block)]
    np.left_shift(block.view(np.int16), 16, out=singles.view(np.int32), dtype=np.int32)
    return singles


ElementView = _Numbers | _Halves
NUMBERS: Final = _Numbers()
"""What looks at the types that numpy is fast with."""

HALVES: Final = {
    "float16": _Halves(0x7C00, _from_float16),
    "bfloat16": _Halves(0x7F80, _from_bfloat16),
}
"""What looks at types by their bit patterns, by name."""


def terms(values: np.ndarray, peak: float) -> np.ndarray:
    """Return finite values in the type they are added in; valid until the thread's next call.

    Args:
        values: At most a block.
        peak: The largest absolute value.
    """
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
    """Return the sum of the products of terms with as many others.

    >>> total_of_products(np.array([0.5, 1, 2]), np.array([2.0, 1, 0]))
    2.0
    """
    whole = len(addends) - len(addends) % _RUN
    runs, others = (terms[:whole].reshape(-1, _RUN) for terms in (addends, factors))
    return (_sum_of_runs(runs, others) if whole else 0.0) + float(np.dot(addends[whole:], factors[whole:]))


def _sum_of_runs(runs: np.ndarray, factors: np.ndarray) -> float:
    """Return the sum of products of two arrays, row by row: with ones a sum, with itself a sum of squares."""
    # Short runs also keep BLAS from waking threads, which would wait for those of the network.
    return float(np.add.reduce(np.vecdot(runs, factors), dtype=np.float64))


def _count(compare: np.ufunc, block: np.ndarray, operand: np.ndarray | float) -> int:
    flags = _SCRATCH.flags[: len(block)]
    compare(block, operand, out=flags)
    return int(np.count_nonzero(flags))
