"""One pass over a tensor's elements for every statistic but the hashes.

If the compiled pass is installed, it reads every element once. Otherwise, and for types that it cannot read
directly, elements are processed in blocks, which stay in the cache between numpy calls.

Sums are taken in double. Only long blocks of float32 are added up in float32, over
short runs with sums that are added in double: right to about 1e-8, at worst 1e-7.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Final

import numpy as np

from msdump.dtypes import BFLOAT16, DType
from msdump.statistics import compiled
from msdump.statistics.totals import NOTHING, StatisticNeed, Totals
from msdump.threads import map_threads, split_by_size, thread_count

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


PART: Final = 1 << 19
"""Elements that keep a thread busy for longer than it takes to wake one."""

_MEASURABLE_KINDS: Final = "bifu"

_Key = tuple[int, str]
"""Identity of an array that is measured with others, and the type that it is measured as."""


def is_measurable(dtype: DType) -> bool:
    """Return whether a type has statistics; text and complex numbers have none.

    >>> from msdump import dtypes
    >>> [is_measurable(dtypes.from_name(name)) for name in ("bfloat16", "int4", "bool", "complex64")]
    [True, True, True, False]
    """
    return dtype.saved.kind in _MEASURABLE_KINDS


def measure(array: np.ndarray, dtype: DType, need: StatisticNeed) -> Totals:
    """Measure a tensor: fill in the needed fields of ``Totals``; other fields are meaningless.

    NaN makes extremes and sums NaN; infinities count as values; sums are in double. Where the largest
    or smallest element is zero, it has the sign of the first zero, as MindSpore's element by element
    comparison leaves it.

    >>> from msdump import dtypes
    >>> array = np.array([[-2, 1], [0, 3]], np.float32)
    >>> need = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
    >>> totals = measure(array, dtypes.from_name("float32"), need)
    >>> totals.high, totals.low, totals.mean, totals.squares
    (3.0, -2.0, 0.5, 14.0)
    >>> totals.negative, totals.positive, totals.zero
    (1, 2, 1)

    Args:
        array: At least one element, in the original type; any shape and strides.
        dtype: The array's type, which ``is_measurable`` accepts.
        need: The statistics that are wanted.
    """
    if need == NOTHING:
        return Totals(array.size)
    flat = array.reshape(-1)  # a view, unless strides forbid one
    if dtype.saved.kind == "b" and compiled.finds(need):
        totals = Totals(len(flat), positive=int(np.count_nonzero(flat)))
        totals.stretch(float(totals.positive > 0), float(totals.positive == len(flat)))
        totals.total = totals.squares = float(totals.positive)
        return totals
    if len(flat) < 2 * PART:
        return _totals(flat, dtype, need)
    return _joined(map_threads(partial(_totals, dtype=dtype, need=need), _parts(flat)))


def measure_all(tensors: Sequence[tuple[np.ndarray, DType]], need: StatisticNeed) -> list[Totals]:
    """Return the statistics of several tensors, measured by threads; a repeated array is read once."""
    if len(tensors) == 1 or need == NOTHING:
        return [measure(*tensor, need) for tensor in tensors]
    distinct = {(id(array), dtype.name): (array, dtype) for array, dtype in tensors}
    measured: dict[_Key, Totals] = {}
    kernel = compiled.KERNEL
    if kernel is not None and compiled.finds(need):
        # tensors that the compiled pass reads without conversion or copy: one call for each thread
        ready: dict[_Key, Sequence[np.ndarray]] = {}
        for key, (array, dtype) in distinct.items():
            known_as, flags = _known_as(dtype), array.flags
            if array.dtype == known_as and kernel.takes(known_as) and flags.c_contiguous and flags.aligned:
                ready[key] = (array,) if array.size < 2 * PART else _parts(array.reshape(-1))
        spans = [kernel.span(part) for parts in ready.values() for part in parts]
        shares = split_by_size(spans, itemgetter(1), PART)
        found = itertools.chain(*map_threads(lambda share: kernel.of_spans(share, need), shares))
        for key, parts in ready.items():
            measured[key] = _joined([*itertools.islice(found, len(parts))])
    others = {key: each for key, each in distinct.items() if key not in measured}
    if others:  # each long tensor is measured by all threads, short ones are spread over threads
        short = {key: tensor for key, tensor in others.items() if tensor[0].size < 2 * PART}
        measured |= {key: measure(*tensor, need) for key, tensor in others.items() if key not in short}
        each = split_by_size([*short.values()], lambda tensor: tensor[0].size, PART)
        found = itertools.chain(*map_threads(lambda share: [measure(*one, need) for one in share], each))
        measured |= dict(zip(short, found, strict=True))
    return [measured[id(array), dtype.name] for array, dtype in tensors]


def _joined(parts: Sequence[Totals]) -> Totals:
    if len(parts) == 1:
        return parts[0]
    # in the order of parts, not of completion, so that sums do not depend on the timing of threads
    totals = Totals(sum(part.count for part in parts))
    for part in parts:
        totals.join(part)
    return totals


def _parts(flat: np.ndarray) -> list[np.ndarray]:
    """Split a large tensor into parts, one for each thread, none shorter than PART."""
    count = min(thread_count(), len(flat) // PART)
    bounds = [len(flat) * number // count for number in range(count + 1)]
    return [flat[start:end] for start, end in itertools.pairwise(bounds)]


def _totals(part: np.ndarray, dtype: DType, need: StatisticNeed) -> Totals:
    known_as, kernel = _known_as(dtype), compiled.KERNEL
    if kernel is None or not kernel.takes(known_as) or not compiled.finds(need):
        find = partial(_find_in_block, need=need)
    elif part.dtype == known_as and part.flags.c_contiguous:
        return kernel.totals(part, need)
    else:
        find = partial(kernel.totals, need=need)
    totals = Totals(len(part))
    with np.errstate(all="ignore"):
        for start in range(0, len(part), BLOCK):  # converted copies of a block stay in the cache
            totals.join(find(np.ascontiguousarray(part[start : start + BLOCK], known_as)))
    return totals


def _known_as(dtype: DType) -> np.dtype:
    """Return the type in which elements are measured: the next larger type for types without a pass."""
    if dtype.saved.kind == "b":
        return np.dtype(np.uint8)
    return dtype.numpy if dtype.numpy in compiled.TYPES else dtype.saved


def _find_in_block(block: np.ndarray, need: StatisticNeed) -> Totals:
    """Measure a block by numpy."""
    block = widened(block)
    high, low = float(np.maximum.reduce(block)), float(np.minimum.reduce(block))
    is_finite = low > -math.inf and high < math.inf
    totals = Totals(len(block), high, low)
    if need.extremes and not (high and low):  # zero extremes have the sign of the first zero
        zero = float(block[np.argmax(block == 0)])
        totals.high, totals.low = high or zero, low or zero
    if need.counts:
        # the extremes often imply the counts; with NaN extremes both signs are counted
        totals.negative = 0 if low >= 0 else int(np.count_nonzero(block < 0))
        totals.positive = 0 if high <= 0 else len(block) if low > 0 else int(np.count_nonzero(block > 0))
        if not is_finite:
            totals.nan = int(np.count_nonzero(np.isnan(block)))
            totals.negative_inf = int(np.count_nonzero(block == -math.inf))
            totals.positive_inf = int(np.count_nonzero(block == math.inf))
    if not is_finite:
        # The extremes add up to the sum of the block: NaN with a NaN or with both infinities, else infinite.
        totals.total, totals.squares = high + low, high * high + low * low
    elif high == low:  # constant blocks (masks, fills) are exact
        totals.total, totals.squares = len(block) * high, len(block) * high * high
    elif need.total or need.squares:
        addends = terms(block, max(high, -low))
        totals.total = total(addends) if need.total else 0.0
        totals.squares = total_of_squares(addends) if need.squares else 0.0
    return totals
