"""How far two tensors are apart: sums and extremes over their elements, and the numbers that follow.

Elements that are NaN or infinite are left out, of which misplaced ones are counted, and so are masked lanes:
attention adds -1e4, -65504, -3.4e38 or -inf to the scores of tokens that are not there, and such elements
would outweigh all others in a norm.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.errors import FormatError
from msdump.statistics import address, from_float16, total_of_products, total_of_squares

SHORTER: Final = ("float32", "float16", "bfloat16")
"""Element types that devices round weights to."""

MASK: Final = -8192.0
"""Upper bound of masked elements: the mildest mask in use is -1e4, and scores are added to it."""

_BOTTOM: Final = -65000.0  # always masked: float16 turns a mask of -3.4e38 into -inf or, saturating, -65504
_LARGE: Final = 65504.0  # the largest number of float16, the type with the smallest range
_BEYOND: Final = 65520.0  # larger numbers overflow in float16
_NEAR: Final = 2.0**-6  # masked elements of the two sides differ by at most bfloat16's rounding
_GAP: Final = 16.0  # large numbers are masks only if all others are this many times smaller
_LINES: Final = ("row", "column")
_FEW: Final = 8  # a matrix differs in few rows if it differs in at most this part of them
_BLOCK: Final = 1 << 16  # elements that stay in a core's cache while all sums over them are taken
_EXPONENT: Final = np.uint64(0x7FF0_0000_0000_0000)  # mask of the exponent bits of float64


@dataclass(frozen=True, slots=True)
class TensorError:
    """How far two tensors are apart.

    The numbers leave out masked lanes, and elements that are NaN or the same infinity on both sides.

    Attributes:
        is_same: Whether every element has the same bits, once the narrower type is widened.
        distance: Norm of the difference, divided by the norm of the golden tensor; infinite where
            that is zero and the other is not, and where elements are misplaced.
        cosine: Cosine similarity; NaN where one of the two is zero, and where elements are misplaced.
        largest: Largest absolute difference of two elements; infinite where elements are misplaced.
        misplaced: Number of elements that are NaN or infinite on one side, and not the same on the
            other.
        nonfinite: How many misplaced elements are NaN or infinite on the examined side.
        norm: Norm of the difference; infinite where elements are misplaced.
        scaled: Largest difference, divided by the largest golden element; infinite as the distance is.
        ulps: Largest difference in units of the last place: of the coarser type, at the golden
            element's own magnitude, but at least at the type's epsilon of the largest element; 0 of
            integers and truth values.
        masked: Number of elements in masked lanes.
        changed: Number of elements that differ, of integers and truth values; else 0.
        beside_masks: The error without all elements in masked lanes, if no other elements are misplaced; else
            None. It is the error of a tensor that only a softmax reads.
    """

    is_same: bool
    distance: float = 0.0
    cosine: float = 1.0
    largest: float = 0.0
    misplaced: int = 0
    nonfinite: int = 0
    norm: float = 0.0
    scaled: float = 0.0
    ulps: float = 0.0
    masked: int = 0
    changed: int = 0
    beside_masks: TensorError | None = None


SAME: Final = TensorError(is_same=True)

SCORES: Final = ("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance")
"""Titles of the numbers that ``scores`` returns."""


def scores(error: TensorError) -> tuple[str, ...]:
    """Return the numbers of an error that other tools print, too, with six decimals.

    >>> dict(zip(SCORES, scores(measure(np.float32([3, 4]), np.float32([3, 5])))))["MaxAbsoluteError"]
    '1.000000'
    """
    return tuple(f"{number:.6f}" for number in (error.cosine, error.largest, error.distance))


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Units of the last place (ulp) of an element type."""

    epsilon: float  # the unit at 1
    smallest: float  # the smallest unit of any number


@dataclass(slots=True)
class PairSums:
    """Sums and extremes over the elements of two tensors x and y, and the error that follows from them."""

    unit: LastPlace | None  # None for types that do not round, such as integers
    low: float  # smallest element of y, NaN if any element is
    high: float  # largest element of y, NaN if any element is
    peak: float  # largest finite magnitude of y, outside of masked lanes
    # A power of two near the largest magnitude, by which float64 elements are divided, as their squares
    # could overflow or vanish; 1 for other types, with squares that fit into float64
    power: float
    has_masks: bool = False  # whether large elements are masks
    x_squares: float = 0.0
    y_squares: float = 0.0
    products: float = 0.0  # sum of x * y
    differences: float = 0.0  # sum of (x - y)^2
    largest: float = 0.0  # largest |x - y|
    misplaced: int = 0
    nonfinite: int = 0
    masked: int = 0
    changed: int = 0
    units: float = 0.0  # largest difference in multiples of the power of two at or below the golden element

    @property
    def least_power(self) -> float:
        """The smallest power of two at which units of the last place are counted, by the tensor's scale."""
        if self.unit is None:
            return math.inf
        least = max(self.peak * self.unit.epsilon, self.unit.smallest / self.unit.epsilon) / self.power
        return max(least, float(np.finfo(np.float64).tiny))

    @property
    def error(self) -> TensorError:
        """The numbers that verdicts are drawn from."""
        norms = math.sqrt(self.x_squares) * math.sqrt(self.y_squares)  # a product of squares could overflow
        # The cosine of two zero tensors is 1 by convention, of one zero tensor it is undefined.
        cosine = 1.0 if self.x_squares == self.y_squares else math.nan
        far, largest = math.inf, self.largest * self.power
        ratio = self.differences / self.y_squares if self.y_squares else far
        error = TensorError(
            is_same=False,
            distance=math.sqrt(ratio) if self.differences else 0.0,
            cosine=float(np.clip(self.products / norms, -1, 1)) if norms else cosine,
            largest=largest,
            misplaced=self.misplaced,
            nonfinite=self.nonfinite,
            norm=math.sqrt(self.differences) * self.power,
            scaled=(largest / self.peak if self.peak else far) if largest else 0.0,
            ulps=self.units / self.unit.epsilon if self.unit is not None else 0.0,
            masked=self.masked,
            changed=self.changed,
        )
        if not self.misplaced:
            return error
        # one misplaced NaN makes every distance infinite
        return replace(error, distance=far, cosine=math.nan, largest=far, norm=far, scaled=far, ulps=far)


def measure(
    dumped: np.ndarray, golden: np.ndarray, dtype: str = "", *, is_unlike: bool = False
) -> TensorError:
    """Return how far two tensors are apart.

    >>> error = measure(np.array([[3, 0], [0, 4]]), np.array([[3, 0], [0, 5]]))
    >>> error.is_same, error.largest, round(error.distance, 4), round(error.cosine, 4)
    (False, 1.0, 0.1715, 0.9947)
    >>> measure(np.float32([1, 2]), np.nextafter(np.float32([1, 2]), np.float32(3))).ulps
    1.0

    Args:
        dumped: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
        dtype: The coarser element type of the two, with the units of ``ulps``; "": that of the arrays.
        is_unlike: Whether it is known already that the bits of an element differ.
    """
    x, y = _in_one_type(dumped, golden)
    # Most tensors of two good runs are the same; comparing bits is far cheaper than the sums.
    if not is_unlike and are_same(x, y):
        return SAME
    units = [each for each in (_unit(dumped.dtype), _unit(golden.dtype)) if each is not None]
    unit = _unit(dtype) or max(units, key=lambda each: each.epsilon, default=None)
    error = _error(x, y, unit)
    if not error.misplaced or error.masked:
        return error
    beside = _error(x, y, unit, drops_masks=True)
    return error if beside.misplaced else replace(error, beside_masks=beside)


def _error(x: np.ndarray, y: np.ndarray, unit: LastPlace | None, *, drops_masks: bool = False) -> TensorError:
    with np.errstate(all="ignore"):
        low, high, peak = _extremes(y)
        largest = max(peak, _extremes(x)[2]) if y.dtype == np.float64 else 0.0
        power = math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 1.0
        sums = PairSums(unit, low, high, peak, power)
        is_finite = math.isfinite(low) and math.isfinite(high)
        if y.dtype.kind not in "iub" and not (is_finite and low > MASK):
            pairs = zip(_blocks(x, 0), _blocks(y, 1), strict=True)
            outside = max(_largest(b, np.isfinite(b) & ~are_masked(a, b)) for a, b in pairs)
            if (drops_masks or may_be_masks(outside)) and any(np.any(block <= MASK) for block in _blocks(y)):
                sums.has_masks, sums.peak = True, outside
        _MEMORY.least[: len(x)] = sums.least_power
        for a, b in zip(_blocks(x, 0), _blocks(y, 1), strict=True):
            _add_block(sums, a, b)
            if sums.unit is None:
                sums.changed += int(np.count_nonzero(a != b))
    return sums.error


def is_rounding(
    dumped: np.ndarray,
    golden: np.ndarray,
    dtypes_held: Iterable[str] = SHORTER,
    rounds_apart: tuple[str, ...] = (),
) -> bool:
    """Return whether one tensor is the other one, rounded to an element type of fewer bits.

    Files may hold such elements in a longer type. Where each side has rounded to a type of its own, they are
    roundings of the same numbers; without given types, where the elements of each side fit into one.

    >>> is_rounding(np.float32([0.1]).astype("f2").astype("f4"), np.float32([0.1]))
    True
    >>> halves = ("float16", "bfloat16")
    >>> is_rounding(np.float32([0.0999755859375]), np.float32([0.10009765625]), rounds_apart=halves)
    True

    ``dtypes_held`` are the types that either side may have rounded to, ``rounds_apart`` the shortest ones to
    which the examined side and golden round, none where it is one type.
    """
    x, y = _in_one_type(dumped, golden)
    if x.dtype.kind != "f":
        return False
    held = frozenset(dtypes_held)
    if _type_rounded_to(x, y, held) or _type_rounded_to(y, x, held):
        return True
    coarsest = (
        _type_rounded_to(each, each, held & {"bfloat16"}) or _type_rounded_to(each, each, held)
        for each in (x, y)
    )
    apart = rounds_apart or tuple({*coarsest})
    return len(apart) > 1 and all(apart) and _are_of_one_number(x, y, apart)


def rounded_to(dumped: np.ndarray, golden: np.ndarray) -> str:
    """Return the type of 16 bits to which the examined tensor is golden's, rounded; "" where it is not."""
    x, y = _in_one_type(dumped, golden)
    return _type_rounded_to(y, x, frozenset(SHORTER)) if x.dtype.kind == "f" else ""


def _type_rounded_to(longer: np.ndarray, rounded: np.ndarray, held: frozenset[str]) -> str:
    """Return the type, of some of ``SHORTER``, to which one array is the other one, rounded; "" for none."""
    kinds = ((name, dtypes.from_name(name).numpy) for name in SHORTER if name in held)
    with np.errstate(all="ignore"):
        for name, kind in kinds:
            if kind.itemsize < longer.dtype.itemsize and all(
                np.array_equal(a.astype(kind).astype(a.dtype), _unsaturated(b, a))
                for a, b in zip(_blocks(longer, 0), _blocks(rounded, 1), strict=True)
            ):
                return name
    return ""


def _are_of_one_number(x: np.ndarray, y: np.ndarray, kinds: Iterable[str]) -> bool:
    """Return whether numbers exist that become the elements of two arrays, each rounded twice to a type.

    A device may compute a constant in a type, and read it in the same type.
    """
    numbers = [dtypes.from_name(name).numpy for name in kinds]
    infos = [ml_dtypes.finfo(each) for each in numbers]  # type: ignore[no-untyped-call]
    for blocks in zip(_blocks(x, 0), _blocks(y, 1), strict=True):
        a, b = (block.astype(np.float64) for block in blocks)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return False
        a, b = np.nan_to_num(a), np.nan_to_num(b)  # infinities of both sides become the same number
        exponents = np.frexp(np.maximum(np.abs(a), np.abs(b)))[1]
        # the spacing of the type's numbers around the larger magnitude of the two
        steps = (
            np.maximum(np.ldexp(float(info.eps), exponents - 1), float(info.smallest_subnormal))
            for info in infos
        )
        if not np.all(np.abs(a - b) <= sum(steps)):
            return False
    return True


def _unsaturated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return elements with infinities where a device wrote float16's largest number in place of them."""
    return np.where((np.abs(x) == _LARGE) & (np.abs(y) > _BEYOND), np.copysign(np.inf, x), x).astype(x.dtype)


def overflowed(dumped: np.ndarray, golden: np.ndarray) -> int:
    """Return how many elements are infinite where golden has a number beyond float16's range, masks aside."""
    x, y = _in_one_type(dumped, golden)
    with np.errstate(all="ignore"):
        x = _unsaturated(x, y)
        return int(np.count_nonzero(np.isinf(x) & np.isfinite(y) & (np.abs(y) > _LARGE) & (y > _BOTTOM)))


def places_text(dumped: np.ndarray, golden: np.ndarray) -> str:
    """Return how many elements differ, and in which few rows or columns, in words; "" for a single element.

    >>> golden = np.zeros((8, 32))
    >>> places_text(golden + (np.arange(32) < 2), golden), places_text(golden + 1, golden)
    ('16 of 256 elements, all in 2 columns from 0 to 1', '256 of 256 elements')
    >>> places_text(golden + (np.arange(32) == 5), golden)
    '8 of 256 elements, all in column 5'
    """
    apart = (dumped != golden) & ~(np.isnan(dumped) & np.isnan(golden))
    text = f"{int(np.count_nonzero(apart)):,} of {apart.size:,} elements" if apart.size > 1 else ""
    if apart.ndim != len(_LINES):
        return text
    for axis, line in enumerate(_LINES):
        places = np.flatnonzero(apart.any(axis=1 - axis))
        if 0 < len(places) * _FEW <= apart.shape[axis]:
            first, last = int(places[0]), int(places[-1])
            several = f"{len(places):,} {line}s from {first} to {last}"
            return f"{text}, all in {f'{line} {first}' if first == last else several}"
    return text


_COMPARE_MEMORY: Final = ctypes.CDLL(None).memcmp
_COMPARE_MEMORY.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_COMPARE_MEMORY.restype = ctypes.c_int


def are_same(x: np.ndarray, y: np.ndarray) -> bool:
    """Return whether two arrays of one element type and shape hold the same bytes, element by element.

    Equal NaN are the same although they differ as numbers, and -0 is not 0. Other threads run meanwhile.
    numpy takes several times as long where elements are not aligned, as weights in a model's file.

    >>> are_same(np.float32([1, np.nan]), np.float32([1, np.nan]))
    True
    >>> are_same(np.float32([0.0]), np.float32([-0.0]))
    False
    """
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    return not _COMPARE_MEMORY(address(x), address(y), x.nbytes)


def are_masked(dumped: np.ndarray, golden: np.ndarray) -> np.ndarray:
    """Return which elements a mask has pushed down on both sides, so far that softmax makes nothing of them.

    >>> are_masked(np.float32([-9999, -65504, 1]), np.float32([-1e4, -np.inf, -1e4])).tolist()
    [True, True, False]
    """
    with np.errstate(all="ignore"):
        are_near = np.abs(dumped - golden) <= np.abs(golden) * _NEAR
        are_low = (dumped <= MASK) & (golden <= MASK)
        are_lost = (dumped <= _BOTTOM) & (golden <= _BOTTOM)
        return np.asarray(are_low & (are_near | are_lost))


def may_be_masks(largest: float) -> bool:
    """Return whether large elements are masks, by the largest magnitude outside of masked lanes."""
    return 0 < largest * _GAP <= -MASK


def _in_one_type(dumped: np.ndarray, golden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in a type that holds the elements of both; complex numbers as pairs of real ones."""
    x, y = dumped.reshape(-1), golden.reshape(-1)
    if x.dtype != y.dtype or not x.dtype.isnative:
        try:
            common = np.promote_types(x.dtype, y.dtype)
        except TypeError:
            # numpy has no common type for two of ml_dtypes' types; all of them are exact in float32.
            common = np.dtype(np.float32)
        x, y = x.astype(common, copy=False), y.astype(common, copy=False)
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    return (x.view(x.real.dtype), y.view(y.real.dtype)) if x.dtype.kind == "c" else (x, y)


@functools.cache
def _unit(dtype: str | np.dtype) -> LastPlace | None:
    """Return the unit in the last place of an element type; None for integers and unknown names."""
    try:
        kind = dtypes.from_name(dtype).numpy if isinstance(dtype, str) else dtype
        kind = np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind
        numbers = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    except (FormatError, ValueError):
        return None
    return LastPlace(float(numbers.eps), float(numbers.smallest_subnormal))


class _Memory(threading.local):
    """The blocks of a thread, used again for each pair of tensors."""

    def __init__(self) -> None:
        self.doubles = np.empty((4, _BLOCK))
        self.singles = np.empty((2, _BLOCK), np.float32)
        self.least = np.empty(_BLOCK)  # numpy takes the larger of two arrays faster than with a scalar


_MEMORY: Final = _Memory()


def _blocks(elements: np.ndarray, row: int = 0) -> Iterator[np.ndarray]:
    """Yield the blocks of a vector, in a type and at an address that numpy is fast with.

    Two vectors at a time need different rows of the memory that copies go to.
    """
    dtype, spare = elements.dtype, _MEMORY.singles[row]
    is_short = dtype.itemsize < spare.itemsize and dtype.kind not in "iub"
    for start in range(0, len(elements), _BLOCK):
        block = elements[start : start + _BLOCK]
        single = spare[: len(block)]
        if dtype == single.dtype and not block.flags.aligned:  # bytes are copied faster than elements
            single.view(np.uint8)[:] = block.view(np.uint8)
            block = single
        elif dtype == np.float16:
            block = from_float16(block, single)
        elif is_short:
            np.copyto(single, block, casting="unsafe")
            block = single
        yield block


def _largest(block: np.ndarray, chosen: np.ndarray) -> float:
    """Return the largest magnitude of chosen elements, 0 of none."""
    # numpy's abs with ``where`` is slow: one element at a time
    kept = np.where(chosen, block, block.dtype.type(0))
    return max(float(kept.max(initial=0)), -float(kept.min(initial=0)))


def _extremes(elements: np.ndarray) -> tuple[float, float, float]:
    """Return the smallest and largest element, NaN if any is, and the largest finite magnitude."""
    lows, highs = zip(*((block.min(), block.max()) for block in _blocks(elements)), strict=True)
    low, high = float(np.min(lows)), float(np.max(highs))
    if math.isfinite(low) and math.isfinite(high):
        return low, high, max(-low, high)
    return low, high, max(_largest(block, np.isfinite(block)) for block in _blocks(elements))


def _add_block(sums: PairSums, x: np.ndarray, y: np.ndarray) -> None:
    a, b, apart, spare = _MEMORY.doubles[:, : len(x)]
    np.copyto(a, x, casting="unsafe")
    np.copyto(b, y, casting="unsafe")
    if sums.has_masks:
        masked = are_masked(x, y)
        sums.masked += int(np.count_nonzero(masked))
        a[masked] = b[masked] = 0
    # a kernel that saturates writes float16's largest number in place of an infinity
    if sums.unit is not None and max(-sums.low, sums.high) > _BEYOND:
        np.copyto(a, _unsaturated(a, b))
    if sums.power != 1:
        np.divide(a, sums.power, out=a)
        np.divide(b, sums.power, out=b)
    squares = total_of_squares(a), total_of_squares(b)
    # NaN and infinities show in the sums of squares, so only blocks that hold some are searched for them.
    if not math.isfinite(sum(squares)):
        is_finite = np.isfinite(a)
        finite = is_finite & np.isfinite(b)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        misplaced = ~finite & ~alike
        sums.misplaced += int(np.count_nonzero(misplaced))
        sums.nonfinite += int(np.count_nonzero(misplaced & ~is_finite))
        a[~finite] = b[~finite] = 0
        squares = total_of_squares(a), total_of_squares(b)
    sums.x_squares += squares[0]
    sums.y_squares += squares[1]
    sums.products += total_of_products(a, b)
    np.subtract(a, b, out=apart)
    sums.differences += total_of_squares(apart)
    np.abs(apart, out=apart)
    sums.largest = float(np.maximum(sums.largest, apart.max()))
    if sums.unit is not None:
        # Without sign and fraction the power of two at or below the magnitude is left.
        powers = np.bitwise_and(b.view(np.uint64), _EXPONENT, out=spare.view(np.uint64)).view(np.float64)
        np.maximum(powers, _MEMORY.least[: len(powers)], out=powers)
        sums.units = max(sums.units, float(np.divide(apart, powers, out=apart).max()))
