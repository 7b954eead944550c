"""Sums over two tensors of float32, taken while the scores of reports are computed from the same blocks."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.pairs import Apart, PairKernel
from msdump.tools.judge.lanes import MASK, Scale
from msdump.tools.judge.sums import LastPlace, PairTotals
from msdump.tools.scores.blocks import BLOCK
from msdump.tools.scores.sums import Findings

_EXPONENT: Final = np.uint32(0x7F80_0000)  # a float32 without sign and fraction
_ALMOST: Final = np.float32(1 - 2**-21)
_HELD: Final = frozenset({"float32", "float16", "bfloat16"})


class SingleSums(PairTotals):
    """Sums over elements that float32 holds, all of them finite and in no masked lane.

    Where they are not, or are the same, other sums have to tell (``is_whole``).

    Attributes:
        is_whole: Whether the sums tell how far the tensors are apart.
    """

    def __init__(self, unit: LastPlace) -> None:
        """Begin without elements.

        Args:
            unit: Units of the last place.
        """
        super().__init__(Scale(0))
        self.is_whole = False
        self._unit = unit
        self._least = 0.0
        self._least_powers = np.empty(0, np.float32)

    @staticmethod
    def takes(*kinds: np.dtype) -> bool:
        """Tell whether float32 holds the elements of types."""
        return all(kind.name in _HELD for kind in kinds)

    def has_pass(self, findings: Findings) -> bool:
        """Take what the first pass found; tell whether these sums are for such tensors."""
        golden = findings.golden
        sums = Apart(
            float(golden.low),
            float(golden.high),
            findings.dumped.squares,
            golden.squares,
            findings.products,
            findings.squares,
            findings.farthest,
        )
        if self.begins_with(sums):
            # numpy takes the larger of two arrays faster than with a scalar
            self._least_powers = np.full(min(findings.count, BLOCK), self._least, np.float32)
        return self.is_whole

    def begins_with(self, sums: Apart) -> bool:
        """Take sums over all elements; tell whether these sums are for such tensors."""
        self._dumped, self._golden = sums.x_squares, sums.y_squares
        self._product, self._difference = sums.products, sums.differences
        self._largest = sums.largest
        # An element that is NaN or infinite on either side has a distance that is.
        self.is_whole = 0 < float(np.float32(sums.largest)) < math.inf and sums.low > MASK
        if self.is_whole:
            self._scale = Scale(max(-sums.low, sums.high))
            self._least = self.least_power(self._unit)
        return self.is_whole

    def add(self, dumped: np.ndarray, golden: np.ndarray, spare: np.ndarray) -> None:
        """Find the largest difference of elements in units of the last place."""
        kernel = pairs.PAIRS
        if kernel is not None and kernel.takes(dumped) and kernel.takes(golden):
            self.add_by(kernel, dumped, golden)
            return
        distances = np.abs(np.subtract(dumped, golden, out=spare[0]), out=spare[0])
        # Without sign and fraction what stays is the power of two at or below the magnitude.
        powers = spare[1]
        np.bitwise_and(golden.view(np.uint32), _EXPONENT, out=powers.view(np.uint32))
        np.maximum(powers, self._least_powers[: len(powers)], out=powers)
        ratios = np.divide(distances, powers, out=distances)
        largest = ratios[ratios.argmax()]
        self.is_whole &= bool(np.isfinite(largest))
        # float32 rounds distances and ratios: the largest is one of those that are almost the largest
        places = np.flatnonzero(ratios >= largest * _ALMOST)
        x, y = dumped[places].astype(np.float64), golden[places]
        exponents = (y.view(np.uint32) & _EXPONENT).view(np.float32)
        exact = np.abs(x - y) / np.maximum(exponents, self._least, dtype=np.float64)
        most = float(exact.max(initial=0))
        self.ulps = max(self.ulps, most / self._unit.epsilon)

    def add_by(self, kernel: PairKernel, dumped: np.ndarray, golden: np.ndarray) -> None:
        """Do the same by the compiled pass, for elements that it takes."""
        units = kernel.most_units(dumped, golden, self._least)
        self.ulps = max(self.ulps, units / self._unit.epsilon)
