"""How far two tensors are apart, in float64 and without rounding: the numbers that verdicts are drawn from.

The scores of reports (``tools/scores``) have the definitions and the six decimals of CANN's tool,
which tell too little: they cast to float32 and hide what differs beyond the sixth decimal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

_BLOCK: Final = 1 << 15  # elements; a few float64 blocks fit into a core's cache


@dataclass(frozen=True, slots=True)
class TensorError:
    """How far two tensors are apart.

    Attributes:
        is_same: Whether every element has the same bits, once the narrower type is widened.
        distance: Norm of the difference, divided by the norm of the golden tensor; infinite where
            that is zero and the other is not, and where elements are misplaced.
        cosine: Cosine similarity; NaN where one of the two is zero, and where elements are misplaced.
        largest: Largest absolute difference of two elements; infinite where elements are misplaced.
        misplaced: Number of elements that are NaN or infinite on one side, and not the same on the
            other. Those that are NaN or the same infinity on both have no part in the numbers.
    """

    is_same: bool
    distance: float = 0.0
    cosine: float = 1.0
    largest: float = 0.0
    misplaced: int = 0


def measure(dumped: np.ndarray, golden: np.ndarray) -> TensorError:
    """Return how far two tensors are apart.

    >>> error = measure(np.array([[3, 0], [0, 4]]), np.array([[3, 0], [0, 5]]))
    >>> error.is_same, error.largest, round(error.distance, 4), round(error.cosine, 4)
    (False, 1.0, 0.1715, 0.9947)

    Args:
        dumped: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
    """
    x, y = _in_one_type(dumped.reshape(-1), golden.reshape(-1))
    # Most tensors of two good runs are the same; comparing bits is far cheaper than the sums.
    if all(_has_same_bits(a, b) for a, b in _blocks(x, y)):
        return TensorError(is_same=True)
    sums = _Sums(_scale(x, y), min(len(x), _BLOCK))
    with np.errstate(all="ignore"):
        for a, b in _blocks(x, y):
            sums.add(a, b)
    return sums.error()


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


def _blocks(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(x), _BLOCK):
        yield x[start : start + _BLOCK], y[start : start + _BLOCK]


def _has_same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    # As integers: equal NaN are the same bits although they differ as numbers, and -0 is not 0.
    bits = f"u{x.dtype.itemsize}"
    return bool(np.array_equal(x.view(bits), y.view(bits)))


def _scale(x: np.ndarray, y: np.ndarray) -> float:
    """Return a power of two near the largest finite element of float64 tensors, 1 for all other types.

    Elements are divided by it because squares of float64 could overflow or vanish; squares of all other
    types fit into float64.
    """
    if x.dtype.kind != "f" or x.dtype.itemsize < np.dtype(np.float64).itemsize:
        return 1.0
    largest = max(
        float(np.abs(side, where=np.isfinite(side), out=np.zeros_like(side)).max())
        for pair in _blocks(x, y)
        for side in pair
    )
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 1.0


class _Sums:
    """Sums over the elements that are finite on both sides."""

    def __init__(self, scale: float, length: int) -> None:
        self._scale = scale
        self._memory = np.empty((2, length))
        self._dumped = self._golden = self._product = self._difference = 0.0
        self._largest = 0.0
        self._misplaced = 0

    def add(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        """Add the elements of a block to the sums."""
        x, y = self._memory[:, : len(dumped)]
        for block, values in ((x, dumped), (y, golden)):
            np.copyto(block, values)
            if self._scale != 1:
                np.divide(block, self._scale, out=block)
        # NaN and infinities show in the sums of squares, so only blocks that hold some are searched for them.
        if not math.isfinite(_product(x, x) + _product(y, y)):
            self._clear(x, y)
        self._dumped += _product(x, x)
        self._golden += _product(y, y)
        self._product += _product(x, y)
        x -= y  # last, and in place: the blocks stay in the core's cache
        self._difference += _product(x, x)
        self._largest = max(self._largest, float(x.max()), -float(x.min()))

    def _clear(self, x: np.ndarray, y: np.ndarray) -> None:
        """Set elements that are not finite on both sides to zero, and count those that are not the same."""
        finite = np.isfinite(x) & np.isfinite(y)
        alike = (x == y) | (np.isnan(x) & np.isnan(y))
        self._misplaced += int(np.count_nonzero(~finite & ~alike))
        x[~finite] = y[~finite] = 0

    def error(self) -> TensorError:
        """Return how far all elements that were added are apart."""
        if self._misplaced:  # one NaN on one side outweighs all distances
            return TensorError(False, math.inf, math.nan, math.inf, self._misplaced)
        return TensorError(
            is_same=False,
            distance=_ratio(self._difference, self._golden),
            cosine=self._cosine(),
            largest=self._largest * self._scale,
        )

    def _cosine(self) -> float:
        norms = math.sqrt(self._dumped) * math.sqrt(self._golden)  # a product of squares could overflow
        if norms:
            return min(1.0, max(-1.0, self._product / norms))
        # Two zero tensors have the same direction, a zero tensor and another one have none in common.
        return 1.0 if self._dumped == self._golden else math.nan


def _ratio(difference: float, golden: float) -> float:
    if not difference:
        return 0.0
    return math.sqrt(difference / golden) if golden else math.inf


def _product(x: np.ndarray, y: np.ndarray) -> float:
    # Not np.dot: BLAS would wake threads, which get in the way of the other processes.
    return float(np.einsum("i,i->", x, y))
