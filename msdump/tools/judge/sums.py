"""Sums over two tensors, block by block, from which it is told how far they are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.statistics.elements import total_of_products, total_of_squares
from msdump.tools.judge.lanes import Scale, masked

BLOCK: Final = 1 << 15
"""Elements of a block: a few in float64 fit into a core's cache."""

_BITS: Final = {4: np.uint32, 8: np.uint64}
_EXPONENTS: Final[dict[int, np.unsignedinteger]] = {
    4: np.uint32(0x7F80_0000),
    8: np.uint64(0x7FF0_0000_0000_0000),
}  # without sign, fraction


@dataclass(frozen=True, slots=True)
class LastPlace:
    """Units of the last place of an element type.

    Attributes:
        epsilon: That of 1.
        smallest: The least there is.
    """

    epsilon: float
    smallest: float


def blocks(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the blocks of two vectors of the same length."""
    for start in range(0, len(x), BLOCK):
        yield x[start : start + BLOCK], y[start : start + BLOCK]


class PairTotals:
    """Sums over the elements of two tensors, and what follows from them.

    Attributes:
        misplaced: Number of elements that are NaN or infinite on one side, and not the same on the other.
        nonfinite: How many of these are NaN or infinite on the examined side.
        masked: Number of elements in masked lanes.
        changed: Number of elements that differ, of a type that is not rounded.
        ulps: Largest difference in units of the last place.
    """

    def __init__(self, scale: Scale) -> None:
        """Begin without elements.

        Args:
            scale: Scale of the golden tensor.
        """
        self.misplaced = self.nonfinite = self.masked = self.changed = 0
        self.ulps = 0.0
        self._scale = scale
        self._dumped = self._golden = self._product = self._difference = self._largest = 0.0

    def least_power(self, unit: LastPlace) -> float:
        """Return the least power of two whose units count, which are those of the tensor's scale."""
        return max(self._scale.largest * unit.epsilon, unit.smallest / unit.epsilon) / self._scale.power

    @property
    def distance(self) -> float:
        """Norm of the difference, divided by that of the golden tensor."""
        if not self._difference:
            return 0.0
        return math.sqrt(self._difference / self._golden) if self._golden else math.inf

    @property
    def norm(self) -> float:
        """Norm of the difference."""
        return math.sqrt(self._difference) * self._scale.power

    @property
    def largest(self) -> float:
        """Largest absolute difference of two elements."""
        return self._largest * self._scale.power

    @property
    def scaled(self) -> float:
        """Largest difference, divided by the largest golden element."""
        if not self._largest:
            return 0.0
        return self.largest / self._scale.largest if self._scale.largest else math.inf

    @property
    def cosine(self) -> float:
        """Cosine similarity; NaN where one of the two is zero."""
        norms = math.sqrt(self._dumped) * math.sqrt(self._golden)  # a product of squares could overflow
        if norms:
            return min(1.0, max(-1.0, self._product / norms))
        # Two zero tensors have the same direction, a zero tensor and another one have none in common.
        return 1.0 if self._dumped == self._golden else math.nan


class Sums(PairTotals):
    """Sums over the elements that are finite on both sides and in no masked lane."""

    def __init__(self, scale: Scale, unit: LastPlace | None, length: int) -> None:
        """Begin without elements.

        Args:
            scale: Scale of the golden tensor.
            unit: Units of the last place, None where the elements are not rounded.
            length: Number of elements to come.
        """
        super().__init__(scale)
        self._unit = unit
        self._memory = np.empty((2, min(length, BLOCK)))
        self._ratios = np.empty(min(length, BLOCK))

    def add(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        """Add the elements of a block to the sums."""
        x, y = self._memory[:, : len(dumped)]
        for block, values in ((x, dumped), (y, golden)):
            np.copyto(block, values)
            if self._scale.power != 1:
                np.divide(block, self._scale.power, out=block)
        if self._scale.is_masked:
            is_masked = masked(dumped, golden)
            self.masked += int(np.count_nonzero(is_masked))
            np.putmask(x, is_masked, 0)
            np.putmask(y, is_masked, 0)
        squares = total_of_squares(x), total_of_squares(y)
        # NaN and infinities show in the sums of squares, so only blocks that hold some are searched for them.
        if not math.isfinite(sum(squares)):
            self._clear(x, y)
            squares = total_of_squares(x), total_of_squares(y)
        if self._unit is None:
            self.changed += int(np.count_nonzero(dumped != golden))
        self._dumped += squares[0]
        self._golden += squares[1]
        self._product += total_of_products(x, y)
        x -= y  # last, and in place: the blocks stay in the core's cache
        self._difference += total_of_squares(x)
        self._largest = max(self._largest, float(x.max()), -float(x.min()))
        if self._unit is not None:
            self._add_ulps(x, golden if golden.dtype == np.float32 else y, self._unit)

    def _clear(self, x: np.ndarray, y: np.ndarray) -> None:
        """Set elements that are not finite on both sides to zero, and count those that are not the same."""
        is_finite = np.isfinite(x)
        finite = is_finite & np.isfinite(y)
        alike = (x == y) | (np.isnan(x) & np.isnan(y))
        misplaced = ~finite & ~alike
        self.misplaced += int(np.count_nonzero(misplaced))
        self.nonfinite += int(np.count_nonzero(misplaced & ~is_finite))
        x[~finite] = y[~finite] = 0

    def _add_ulps(self, difference: np.ndarray, golden: np.ndarray, unit: LastPlace) -> None:
        """Compare the differences with the units of the golden elements.

        Args:
            difference: The differences, divided by the scale's power of two.
            golden: The golden elements: float32 as they are, float64 divided like the differences.
            unit: Units of the last place.
        """
        bits = golden.view(_BITS[golden.itemsize])
        # Without sign and fraction what stays is the power of two at or below the magnitude.
        powers = np.bitwise_and(bits, _EXPONENTS[golden.itemsize]).view(golden.dtype)
        np.maximum(powers, max(self.least_power(unit), float(np.finfo(golden.dtype).tiny)), out=powers)
        ratios = np.divide(difference, powers, out=self._ratios[: len(powers)])
        self.ulps = max(self.ulps, max(float(ratios.max()), -float(ratios.min())) / unit.epsilon)
