"""One pass over a tensor's elements, block by block, for every statistic but the hashes.

A block stays in the cache while all of its numbers are taken. Sums are taken
in double. Only long float32 blocks are added up in float32, over short runs
whose sums are added in double: right to about 1e-8, at worst 1e-7.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from msdump.dtypes import DType

BLOCK: Final = 1 << 17
"""Elements that are looked at together."""

_RUN: Final = 1 << 8  # terms that BLAS adds up
_SINGLES_FROM: Final = 1 << 15  # elements from which on float32 is added up in float32
_SMALLEST_PEAK: Final = 1e-12  # below it squares vanish in float32
_LARGEST_PEAK: Final = 1e15  # above it a run of them overflows
_ZERO_BLOCK: Final = 1 << 12  # a tensor that holds a zero mostly holds one early
_MEASURABLE_KINDS: Final = "bifu"
_SIGN: Final = 0x8000
_FLOAT16_BITS: Final = np.int32(-0x70002000)  # where float32 has what a float16 consists of
_FLOAT16_SCALE: Final = np.float32(2.0**112)  # by which the same bits differ in value


@dataclass(frozen=True, slots=True)
class Need:
    """What a pass is to find out.

    Attributes:
        extremes: The largest and the smallest element.
        counts: How many are negative, positive, NaN or infinite.
        total: The sum.
        squares: The sum of squares.
    """

    extremes: bool = False
    counts: bool = False
    total: bool = False
    squares: bool = False

    def __or__(self, other: Need) -> Need:
        """Return what one of the two needs."""
        return Need(
            self.extremes or other.extremes,
            self.counts or other.counts,
            self.total or other.total,
            self.squares or other.squares,
        )


NOTHING: Final = Need()


@dataclass(slots=True)
class Totals:
    """What is known of the elements seen so far.

    Attributes:
        count: Number of elements of the whole tensor.
        high: The largest; NaN where one is NaN.
        low: The smallest; NaN where one is NaN.
        negative: Elements below zero, -inf included.
        positive: Elements above zero, inf included.
        nan: Elements that are NaN.
        negative_inf: Elements that are -inf.
        positive_inf: Elements that are inf.
        total: Sum of the elements.
        squares: Sum of their squares.
    """

    count: int
    high: float = -math.inf
    low: float = math.inf
    negative: int = 0
    positive: int = 0
    nan: int = 0
    negative_inf: int = 0
    positive_inf: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def zero(self) -> int:
        """Elements that are zero, of either sign."""
        return self.count - self.negative - self.positive - self.nan

    @property
    def mean(self) -> float:
        """The sum divided by the number of elements."""
        return self.total / self.count

    @property
    def norm(self) -> float:
        """Square root of the sum of squares."""
        return math.sqrt(self.squares)

    def stretch(self, high: float, low: float) -> None:
        """Take in the extremes of a block; NaN stays."""
        if high > self.high or math.isnan(high):
            self.high = high
        if low < self.low or math.isnan(low):
            self.low = low


class _Scratch(threading.local):
    """The buffers of a thread, each as long as a block."""

    def __init__(self) -> None:
        self.flags = np.empty(BLOCK, np.bool_)
        self.singles = np.empty(BLOCK, np.float32)
        self.doubles = np.empty(BLOCK, np.float64)


_SCRATCH: Final = _Scratch()
_ONES: Final[dict[int, np.ndarray]] = {4: np.ones((_RUN, 1), np.float32), 8: np.ones((_RUN, 1), np.float64)}


class _Elements(Protocol):
    """How elements of a type are looked at, a block at a time."""

    def bounds(self, block: np.ndarray) -> tuple[float, float]:
        """Return the largest and the smallest, NaN twice where one is NaN."""

    def signs(self, block: np.ndarray, high: float, low: float) -> tuple[int, int]:
        """Return how many are below and above zero."""

    def nonfinite(self, block: np.ndarray) -> tuple[int, int, int]:
        """Return how many are NaN, -inf and inf."""

    def values(self, block: np.ndarray) -> np.ndarray:
        """Return elements that are all finite in a type that numpy is fast with."""


class _Numbers:
    """Integers, float32 and float64: numpy is fast with them."""

    def bounds(self, block: np.ndarray) -> tuple[float, float]:
        return float(np.maximum.reduce(block)), float(np.minimum.reduce(block))

    def signs(self, block: np.ndarray, high: float, low: float) -> tuple[int, int]:
        negative = 0 if low >= 0 else _count(np.less, block, 0)
        positive = 0 if high <= 0 else len(block) if low > 0 else _count(np.greater, block, 0)
        return negative, positive

    def nonfinite(self, block: np.ndarray) -> tuple[int, int, int]:
        nan = _count(np.not_equal, block, block)
        return nan, _count(np.equal, block, -math.inf), _count(np.equal, block, math.inf)

    def values(self, block: np.ndarray) -> np.ndarray:
        return block


class _Halves:
    """float16 and bfloat16, by their bit patterns.

    numpy takes these types one by one, but integers many at a time, and within
    a sign the patterns have the order of the values.
    """

    def __init__(self, infinity: int, values: Callable[[np.ndarray], np.ndarray]) -> None:
        """Take the pattern of inf and the way to float32."""
        self._infinity = infinity
        self.values = values

    def bounds(self, block: np.ndarray) -> tuple[float, float]:
        signed, unsigned = block.view(np.int16), block.view(np.uint16)
        top, bottom = int(np.maximum.reduce(signed)), int(np.maximum.reduce(unsigned))
        if top > self._infinity or bottom > self._infinity + _SIGN:
            return math.nan, math.nan
        if top < 0:
            top = int(np.minimum.reduce(unsigned))
        if bottom < _SIGN:
            bottom = int(np.minimum.reduce(unsigned))
        high, low = np.array((top, bottom), np.uint16).view(block.dtype)
        return float(high), float(low)

    def signs(self, block: np.ndarray, high: float, low: float) -> tuple[int, int]:
        signed, unsigned = block.view(np.int16), block.view(np.uint16)
        negative = 0 if low >= 0 else _count(np.greater, unsigned, _SIGN)
        positive = 0 if high <= 0 else len(block) if low > 0 else _count(np.greater, signed, 0)
        if math.isnan(high):
            negative -= _count(np.greater, unsigned, self._infinity + _SIGN)
            positive -= _count(np.greater, signed, self._infinity)
        return negative, positive

    def nonfinite(self, block: np.ndarray) -> tuple[int, int, int]:
        patterns = block.view(np.uint16)
        nan = _count(np.greater, patterns & (_SIGN - 1), self._infinity)
        negative = _count(np.equal, patterns, self._infinity + _SIGN)
        return nan, negative, _count(np.equal, patterns, self._infinity)


def _from_float16(block: np.ndarray) -> np.ndarray:
    """Return finite float16 as float32: the bits in their places, then the exponent put right."""
    singles = _SCRATCH.singles[: len(block)]
    bits = singles.view(np.int32)
    np.left_shift(block.view(np.int16), 13, out=bits, dtype=np.int32)
    np.bitwise_and(bits, _FLOAT16_BITS, out=bits)
    return np.multiply(singles, _FLOAT16_SCALE, out=singles)


def _from_bfloat16(block: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float32: the same bits, sixteen places higher."""
    singles = _SCRATCH.singles[: len(block)]
    np.left_shift(block.view(np.int16), 16, out=singles.view(np.int32), dtype=np.int32)
    return singles


_NUMBERS: Final = _Numbers()
_HALVES: Final = {
    "float16": _Halves(0x7C00, _from_float16),
    "bfloat16": _Halves(0x7F80, _from_bfloat16),
}


def is_measurable(dtype: DType) -> bool:
    """Tell whether a type has statistics; text and complex numbers have none."""
    return dtype.saved.kind in _MEASURABLE_KINDS


def measure(array: np.ndarray, dtype: DType, need: Need) -> Totals:
    """Return what is needed of a tensor; what is not needed has no meaning.

    Where the largest or smallest element is zero, it has the sign of the first
    zero, as MindSpore's element by element comparison leaves it.

    Args:
        array: At least one element, in the original type; any shape and strides.
        dtype: That type, one that is measurable.
        need: What to find out.
    """
    totals = Totals(array.size)
    if need == NOTHING:
        return totals
    flat = array.reshape(-1)
    if dtype.saved.kind == "b":
        _add_booleans(flat, totals)
        return totals
    elements = _HALVES.get(dtype.name, _NUMBERS)
    with np.errstate(all="ignore"):
        for block in _blocks(flat, dtype, BLOCK):
            _add(block, elements, need, totals)
        if need.extremes and dtype.saved.kind == "f":
            _sign_zeros(flat, dtype, totals)
    return totals


def _blocks(flat: np.ndarray, dtype: DType, length: int) -> Iterator[np.ndarray]:
    """Yield the elements, those of types that numpy does not know in the next larger one."""
    wanted = dtype.numpy if dtype.name in _HALVES else dtype.saved
    for start in range(0, len(flat), length):
        yield np.ascontiguousarray(flat[start : start + length], wanted)


def _add(block: np.ndarray, elements: _Elements, need: Need, totals: Totals) -> None:
    high, low = elements.bounds(block)
    is_finite = low > -math.inf and high < math.inf
    totals.stretch(high, low)
    if need.counts:
        _add_counts(block, elements, totals, (high, low))
    if not (need.total or need.squares):
        return
    if not is_finite:
        totals.total += high + low
        totals.squares += high * high + low * low
        return
    if high == low:
        totals.total += len(block) * high
        totals.squares += len(block) * high * high
        return
    terms = _terms(elements.values(block), max(high, -low))
    if need.total:
        totals.total += _sum(terms)
    if need.squares:
        totals.squares += _sum_of_squares(terms)


def _add_counts(block: np.ndarray, elements: _Elements, totals: Totals, bounds: tuple[float, float]) -> None:
    high, low = bounds
    negative, positive = elements.signs(block, high, low)
    totals.negative += negative
    totals.positive += positive
    if low > -math.inf and high < math.inf:
        return
    nan, negative_inf, positive_inf = elements.nonfinite(block)
    totals.nan += nan
    totals.negative_inf += negative_inf
    totals.positive_inf += positive_inf


def _add_booleans(flat: np.ndarray, totals: Totals) -> None:
    """Truth values count as 0 and 1."""
    totals.positive = int(np.count_nonzero(flat))
    totals.stretch(float(totals.positive > 0), float(totals.positive == len(flat)))
    totals.total = totals.squares = float(totals.positive)


def _count(compare: np.ufunc, block: np.ndarray, with_what: np.ndarray | float) -> int:
    flags = _SCRATCH.flags[: len(block)]
    compare(block, with_what, out=flags)
    return int(np.count_nonzero(flags))


def _terms(values: np.ndarray, peak: float) -> np.ndarray:
    """Return the values in the type they are added in."""
    is_double = values.dtype == np.float64
    is_long_single = values.dtype == np.float32 and len(values) >= _SINGLES_FROM
    if is_double or (is_long_single and _SMALLEST_PEAK < peak < _LARGEST_PEAK):
        return values
    doubles = _SCRATCH.doubles[: len(values)]
    np.copyto(doubles, values)
    return doubles


def _sum(terms: np.ndarray) -> float:
    ones = _ONES[terms.dtype.itemsize]
    whole = len(terms) - len(terms) % _RUN
    total = 0.0
    if whole:
        total = _sum_of_runs(terms[:whole].reshape(-1, 1, _RUN), ones)
    if whole < len(terms):
        total += float(np.dot(terms[whole:], ones[: len(terms) - whole, 0]))
    return total


def _sum_of_squares(terms: np.ndarray) -> float:
    whole = len(terms) - len(terms) % _RUN
    total = 0.0
    if whole:
        runs = terms[:whole]
        total = _sum_of_runs(runs.reshape(-1, 1, _RUN), runs.reshape(-1, _RUN, 1))
    if whole < len(terms):
        total += float(np.dot(terms[whole:], terms[whole:]))
    return total


def _sum_of_runs(rows: np.ndarray, columns: np.ndarray) -> float:
    # Short runs also keep BLAS from waking threads, which would wait for those of the network.
    return float(np.add.reduce(np.matmul(rows, columns), axis=None, dtype=np.float64))


def _sign_zeros(flat: np.ndarray, dtype: DType, totals: Totals) -> None:
    """Give extremes that are zero the sign of the first zero."""
    if totals.high and totals.low:
        return
    for block in _blocks(flat, dtype, _ZERO_BLOCK):
        is_zero = block.view(f"u{block.itemsize}") << 1 == 0
        first = int(is_zero.argmax())
        if is_zero[first]:
            zero = float(block[first])
            totals.high = totals.high or zero
            totals.low = totals.low or zero
            return
