"""How far two tensors are apart, in float64 and without rounding: the numbers that verdicts are drawn from.

The scores of reports (``tools/scores``) have the definitions and the six decimals of CANN's tool,
which tell too little: they cast to float32 and hide what differs beyond the sixth decimal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.errors import FormatError
from msdump.statistics import pairs
from msdump.tools.judge import bits, lanes
from msdump.tools.judge.singles import SingleSums
from msdump.tools.judge.sums import BLOCK, LastPlace, PairTotals, Sums, blocks
from msdump.tools.scores import algorithms
from msdump.tools.scores.algorithms import Score

SHORTER: Final = ("float32", "float16", "bfloat16")
"""What devices round weights to."""


@dataclass(frozen=True, slots=True)
class TensorError:
    """How far two tensors are apart.

    Masked lanes (``lanes``) have no part in the numbers, nor elements that are NaN or the same infinity
    on both sides.

    Attributes:
        is_same: Whether every element has the same bits, once the narrower type is widened.
        distance: Norm of the difference, divided by the norm of the golden tensor; infinite where
            that is zero and the other is not, and where elements are misplaced.
        cosine: Cosine similarity; NaN where one of the two is zero, and where elements are misplaced.
        largest: Largest absolute difference of two elements; infinite where elements are misplaced.
        misplaced: Number of elements that are NaN or infinite on one side, and not the same on the
            other.
        nonfinite: How many of these are NaN or infinite on the examined side.
        norm: Norm of the difference; infinite where elements are misplaced.
        scaled: Largest difference, divided by the largest golden element; infinite as the distance is.
        ulps: Largest difference in units of the last place: those of the coarser type, at the golden
            element's own magnitude, but at least at the type's epsilon of the largest element; 0 of
            integers and truth values.
        masked: Number of elements in masked lanes.
        changed: Number of elements that differ, of integers and truth values; else 0.
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
        dtype: The coarser element type of the two, whose units ``ulps`` counts; "": that of the arrays.
        is_unlike: Whether it is known already that the bits of an element differ.
    """
    unit = _unit(dtype) or _unit_of_arrays(dumped.dtype, golden.dtype)
    x, y = _in_one_type(dumped.reshape(-1), golden.reshape(-1))
    # Most tensors of two good runs are the same; comparing bits is far cheaper than the sums.
    if not is_unlike and bits.are_same(x, y):
        return TensorError(is_same=True)
    with np.errstate(all="ignore"):
        singles = _singles(x, y, unit)
        if singles is not None:
            return _error(singles)
        sums = Sums(lanes.read(x, y), unit, len(x))
        for a, b in blocks(x, y):
            sums.add(a, b)
    return _error(sums)


def _singles(x: np.ndarray, y: np.ndarray, unit: LastPlace | None) -> SingleSums | None:
    """Return the sums over two vectors by the compiled pass, None where it does not take such vectors."""
    kernel = pairs.PAIRS
    if kernel is None or unit is None or not (kernel.takes(x) and kernel.takes(y)):
        return None
    sums, singles = kernel.apart(x, y, BLOCK), SingleSums(unit)
    if sums is None or not singles.begins_with(sums):
        return None
    singles.add_by(kernel, x, y)
    return singles


def measure_with_scores(
    dumped: np.ndarray, golden: np.ndarray, dtype: str = ""
) -> tuple[tuple[Score, ...], TensorError]:
    """Return all scores of two tensors, and how far they are apart; faster than one after the other.

    >>> scores, error = measure_with_scores(np.float32([3, 4]), np.float32([3, 5]))
    >>> scores[1].text, error.largest
    ('1.000000', 1.0)

    Args:
        dumped: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
        dtype: The coarser element type of the two, whose units ``ulps`` counts; "": that of the arrays.

    Raises:
        FormatError: The tensors differ in their number of elements, or hold text.
    """
    unit = _unit(dtype) or _unit_of_arrays(dumped.dtype, golden.dtype)
    sums = SingleSums(unit) if unit is not None and SingleSums.takes(dumped.dtype, golden.dtype) else None
    scores = algorithms.compare(dumped, golden, further=sums)
    if sums is not None and sums.is_whole:
        return scores, _error(sums)
    return scores, measure(dumped, golden, dtype)


def is_rounding(dumped: np.ndarray, golden: np.ndarray, dtypes_held: Iterable[str] = SHORTER) -> bool:
    """Tell whether one tensor is the other one, rounded to an element type of fewer bits.

    Files may hold such elements in a longer type.

    >>> is_rounding(np.float32([0.1]).astype("f2").astype("f4"), np.float32([0.1]))
    True

    Args:
        dumped: The tensor that is examined.
        golden: Its counterpart.
        dtypes_held: Names of the types that either side may have rounded to.
    """
    x, y = _in_one_type(dumped.reshape(-1), golden.reshape(-1))
    if x.dtype.kind != "f":
        return False
    kinds = [dtypes.from_name(name).numpy for name in SHORTER if name in {*dtypes_held}]
    shorter = [kind for kind in kinds if kind.itemsize < x.dtype.itemsize]
    with np.errstate(all="ignore"):
        return any(
            _is_rounded_to(kind, longer, rounded) for kind in shorter for longer, rounded in ((x, y), (y, x))
        )


def _is_rounded_to(kind: np.dtype, longer: np.ndarray, rounded: np.ndarray) -> bool:
    return all(np.array_equal(a.astype(kind).astype(a.dtype), b) for a, b in blocks(longer, rounded))


def _in_one_type(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in a type that holds the elements of both; complex numbers as pairs of real ones."""
    if x.dtype != y.dtype:
        common = _common(x.dtype, y.dtype)
        x, y = x.astype(common, copy=False), y.astype(common, copy=False)
    return _real(x), _real(y)


def _common(dumped: np.dtype, golden: np.dtype) -> np.dtype:
    try:
        return np.promote_types(dumped, golden)
    except TypeError:
        # numpy knows no common type of two of ml_dtypes' types; all of them are exact in float32.
        return np.dtype(np.float32)


def _real(vector: np.ndarray) -> np.ndarray:
    return vector.view(vector.real.dtype) if vector.dtype.kind == "c" else vector


@functools.cache
def _unit(dtype: str) -> LastPlace | None:
    """Return the unit of an element type by its name, None of one that is not rounded or not known."""
    try:
        return _unit_of(dtypes.from_name(dtype).numpy) if dtype else None
    except FormatError:
        return None


@functools.cache
def _unit_of(dtype: np.dtype) -> LastPlace | None:
    if dtype.kind == "c":
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    try:
        numbers = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return LastPlace(float(numbers.eps), float(numbers.smallest_subnormal))


def _unit_of_arrays(*kinds: np.dtype) -> LastPlace | None:
    units = [unit for unit in map(_unit_of, kinds) if unit is not None]
    return max(units, key=lambda unit: unit.epsilon, default=None)


def _error(sums: PairTotals) -> TensorError:
    """Return the numbers of the elements that were added."""
    error = TensorError(
        is_same=False,
        distance=sums.distance,
        cosine=sums.cosine,
        largest=sums.largest,
        misplaced=sums.misplaced,
        nonfinite=sums.nonfinite,
        norm=sums.norm,
        scaled=sums.scaled,
        ulps=sums.ulps,
        masked=sums.masked,
        changed=sums.changed,
    )
    if not sums.misplaced:
        return error
    # one NaN on one side outweighs all distances
    far = math.inf
    return replace(error, distance=far, cosine=math.nan, largest=far, norm=far, scaled=far, ulps=far)
