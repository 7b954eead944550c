"""The sums and extremes of two tensors from which the algorithms compute their scores."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from msdump.statistics import elements
from msdump.statistics.pairs import PairSums, SideSums

_LEAST_SPREAD: Final = 1e-3  # of the squares; smaller deviations would lose digits as a difference of sums


class ScoreNeed(enum.Flag):
    """The sums and extremes that algorithms need; a combined member holds those of one algorithm."""

    NORMS = enum.auto()
    DISTANCES = enum.auto()
    DIFFERENCES = enum.auto()
    RATIOS = enum.auto()
    RANGES = enum.auto()
    DEVIATIONS = enum.auto()
    PRODUCT = enum.auto()
    DENSITIES = enum.auto()
    COSINE = NORMS | PRODUCT
    DIVERGENCE = RANGES | DENSITIES


@dataclass(slots=True)
class TensorFacts:
    """Sums and extremes of one of the two tensors.

    Attributes:
        squares: Sum of the squares.
        rounded_squares: The same as the vendor's tool adds it up, in float32.
        low: Smallest element.
        high: Largest element.
        total: Sum of the elements.
        deviations: Sum of the squared distances from the mean.
        counted: Number of elements whose squares, total and deviations were added.
    """

    squares: float = 0.0
    rounded_squares: np.float32 = field(default_factory=lambda: np.float32(0))
    low: np.float32 = field(default_factory=lambda: np.float32(math.inf))
    high: np.float32 = field(default_factory=lambda: np.float32(-math.inf))
    total: float = 0.0
    deviations: float = 0.0
    counted: int = 0

    def add(self, values: np.ndarray, spare: np.ndarray) -> None:
        """Add squares, total and deviations of float64 elements.

        Args:
            values: The elements.
            spare: Memory for as many.
        """
        total, squares, count = elements.total(values), elements.total_of_squares(values), len(values)
        mean = total / count
        deviations = squares - mean * total
        if not deviations >= _LEAST_SPREAD * squares:  # NaN, too
            deviations = elements.total_of_squares(np.subtract(values, mean, out=spare))
        self.join(count, total, squares, deviations)

    def join(self, count: int, total: float, squares: float, deviations: float) -> None:
        """Add what was found of other elements."""
        self.deviations += deviations
        if self.counted:  # the means of the parts differ: Chan, Golub, LeVeque, "Updating Formulae", 1979
            shift = total / count - self.total / self.counted
            self.deviations += shift * shift * self.counted * count / (self.counted + count)
        self.squares += squares
        self.total += total
        self.counted += count

    def join_sums(self, count: int, sums: SideSums) -> None:
        """Add what was found of other elements, their extremes too."""
        self.low = np.minimum(self.low, np.float32(sums.low))
        self.high = np.maximum(self.high, np.float32(sums.high))
        self.join(count, sums.total, sums.squares, sums.deviations)

    @property
    def extent(self) -> np.float32:
        """Distance of the largest element from the smallest."""
        return np.float32(self.high - self.low)

    @property
    def norm(self) -> np.float32:
        """Euclidean norm."""
        return np.float32(math.sqrt(self.rounded_squares))


@dataclass(slots=True)
class Findings:
    """Sums and extremes of a pair of tensors; a number that was not asked for has no meaning.

    Attributes:
        count: Number of elements of each; a complex one counts twice.
        is_scalar: All dimensions are 1.
        dumped: Numbers of the tensor that is examined.
        golden: Numbers of the tensor that it is compared with.
        largest: Largest distance of two elements, as float32.
        farthest: The same, not rounded.
        squares: Sum of the squared distances.
        largest_ratio: Largest ``|dumped / golden - 1|``, 0 where golden is almost zero.
        products: Sum of the products of the elements.
        single_sums: Of each block, float32 sums in the vendor's order, as ``PairSums.singles`` has them.
        rounded_squares: Sum of the squared distances, of these sums.
        distances: That of the distances.
        ratios: That of the ratios.
        cosine: Sum of the products of elements that are divided by their tensor's norm, in the same order.
        divergence: Sum of ``p * log(p / q)`` over the densities, in the same order.
    """

    count: int
    is_scalar: bool = False
    dumped: TensorFacts = field(default_factory=TensorFacts)
    golden: TensorFacts = field(default_factory=TensorFacts)
    largest: np.float32 = field(default_factory=lambda: np.float32(0))
    farthest: float = 0.0
    squares: float = 0.0
    largest_ratio: np.float32 = field(default_factory=lambda: np.float32(0))
    products: float = 0.0
    single_sums: list[np.ndarray] = field(default_factory=list)
    rounded_squares: np.float32 = field(default_factory=lambda: np.float32(0))
    distances: float = 0.0
    ratios: float = 0.0
    cosine: float = 0.0
    divergence: float = 0.0

    def join(self, sums: PairSums) -> None:
        """Add what was found of other elements of both."""
        self.dumped.join_sums(sums.count, sums.x)
        self.golden.join_sums(sums.count, sums.y)
        self.largest = np.maximum(self.largest, np.float32(sums.largest))
        self.farthest = max(self.farthest, sums.largest)
        self.squares += sums.differences
        self.largest_ratio = np.maximum(self.largest_ratio, np.float32(sums.largest_ratio))
        self.products += sums.products
        self.single_sums.append(sums.singles)


class FurtherSums(Protocol):
    """Sums over the same blocks that somebody else takes, while these are in the core's cache."""

    def has_pass(self, findings: Findings) -> bool:
        """Tell whether elements are needed, now that the sums of the first pass are known."""

    def add(self, dumped: np.ndarray, golden: np.ndarray, spare: np.ndarray) -> None:
        """Add elements in the second pass, as float32.

        Args:
            dumped: Elements of the tensor that is examined.
            golden: Those of the other one.
            spare: Memory for twice as many elements.
        """
