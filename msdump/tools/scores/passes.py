"""Sums over two tensors from which the algorithms compute their scores, taken block by block.

The elements are cast to float32 and the arithmetic is float32, as CANN's comparison
tool defines it; the sums of blocks are added in float64. Three passes suffice: the
second needs norms, ranges and means, the third the sums of the densities.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.statistics.elements import HALVES

_BLOCK: Final = 1 << 16  # elements; a few float32 blocks fit into a core's cache
_MOST_CAST: Final = 1 << 24  # elements; larger tensors of other types are cast once for each pass

ALMOST_ZERO: Final = float(np.finfo(np.float64).eps)
"""What counts as zero: the float64 machine epsilon."""

FLOOR: Final = np.finfo(np.float32).eps
"""Least density of a Kullback-Leibler divergence."""


class ScoreNeed(enum.Flag):
    """The sums and extremes that algorithms need; a combined member holds those of one algorithm."""

    NORMS = enum.auto()
    DIFFERENCES = enum.auto()
    RATIOS = enum.auto()
    RANGES = enum.auto()
    MEANS = enum.auto()
    PRODUCT = enum.auto()
    DENSITIES = enum.auto()
    SPREADS = enum.auto()
    LOGARITHMS = enum.auto()
    COSINE = NORMS | PRODUCT
    DEVIATIONS = MEANS | SPREADS
    DIVERGENCE = RANGES | DENSITIES | LOGARITHMS


@dataclass(slots=True)
class TensorFacts:
    """Sums and extremes of one of the two tensors, as float32.

    Attributes:
        squares: Sum of the squares.
        low: Smallest element.
        high: Largest element.
        total: Sum of the elements.
        densities: Sum of the elements moved to 0..1 and raised to ``FLOOR``.
        deviations: Sum of the squared distances from the mean.
    """

    squares: float = 0.0
    low: np.float32 = field(default_factory=lambda: np.float32(math.inf))
    high: np.float32 = field(default_factory=lambda: np.float32(-math.inf))
    total: float = 0.0
    densities: float = 0.0
    deviations: float = 0.0

    @property
    def norm(self) -> np.float32:
        """Euclidean norm."""
        return np.float32(math.sqrt(np.float32(self.squares)))


@dataclass(slots=True)
class Findings:
    """Sums and extremes of a pair of tensors; a number that was not asked for has no meaning.

    Attributes:
        count: Number of elements of each; a complex one counts twice.
        is_scalar: All dimensions are 1.
        dumped: Numbers of the tensor that is examined.
        golden: Numbers of the tensor that it is compared with.
        largest: Largest distance of two elements.
        distances: Sum of the distances.
        squares: Sum of the squared distances.
        largest_ratio: Largest ``|dumped / golden - 1|``, 0 where golden is almost zero.
        ratios: Sum of these ratios.
        product: Sum of the products of the elements, each divided by its tensor's norm.
        divergence: Sum of ``p * log(p / q)`` over the densities.
    """

    count: int
    is_scalar: bool = False
    dumped: TensorFacts = field(default_factory=TensorFacts)
    golden: TensorFacts = field(default_factory=TensorFacts)
    largest: np.float32 = field(default_factory=lambda: np.float32(0))
    distances: float = 0.0
    squares: float = 0.0
    largest_ratio: np.float32 = field(default_factory=lambda: np.float32(0))
    ratios: float = 0.0
    product: float = 0.0
    divergence: float = 0.0


def examine(dumped: np.ndarray, golden: np.ndarray, need: ScoreNeed) -> Findings:
    """Return sums and extremes of two tensors.

    >>> need = ScoreNeed.NORMS | ScoreNeed.DIFFERENCES
    >>> findings = examine(np.array([[3, 0], [0, 4]]), np.array([[3, 0], [0, 6]]), need)
    >>> float(findings.dumped.norm), float(findings.largest), findings.squares
    (5.0, 2.0, 4.0)

    Args:
        dumped: At least one element, of any numeric type and shape.
        golden: An array of as many elements.
        need: Which numbers are needed.
    """
    pairs = _Pairs(dumped, golden)
    findings = Findings(pairs.count)
    # NaN and infinities are results here, no reason for warnings.
    with np.errstate(all="ignore"):
        for needs_of_pass, add_block in _PASSES:
            if need & needs_of_pass:  # else left out: each pass reads both tensors again
                for x, y in pairs:
                    add_block(_Block(x, y, pairs.spare), need, findings)
    return findings


class _Pairs:
    """Blocks of two tensors as float32 vectors."""

    def __init__(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        self._sides = (_vector(dumped), _vector(golden))
        self.count = len(self._sides[0])
        self._length = min(_BLOCK, self.count)
        self._cast = np.empty((2, self._length), np.float32)
        self.spare = _Spare(self._length)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        dumped, golden = self._sides
        for start in range(0, self.count, self._length):
            part = slice(start, start + self._length)
            yield self._float32(dumped[part], 0), self._float32(golden[part], 1)

    def _float32(self, block: np.ndarray, side: int) -> np.ndarray:
        if block.dtype == np.float32 and block.flags.aligned:  # in dump files they are not
            return block
        cast = self._cast[side, : len(block)]
        _cast(block, cast)
        return cast


def _vector(array: np.ndarray) -> np.ndarray:
    """Return the elements as a vector, cast unless there are many; complex numbers as pairs of real ones."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    # A cast at once for all passes costs memory, a cast in each pass costs time: large tensors save memory.
    if flat.dtype == np.float32 or len(flat) > _MOST_CAST:
        return flat
    cast = np.empty(len(flat), np.float32)
    for start in range(0, len(flat), _BLOCK):
        _cast(flat[start : start + _BLOCK], cast[start : start + _BLOCK])
    return cast


def _cast(block: np.ndarray, out: np.ndarray) -> None:
    """Cast elements to float32."""
    # Finite float16 and bfloat16 are cast by integer arithmetic, three times faster than numpy casts them.
    halves = HALVES.get(block.dtype.name)
    if halves is not None and all(map(math.isfinite, halves.bounds(block))):
        block = halves.values(block)
    np.copyto(out, block, casting="unsafe")


class _Spare:
    """Memory for intermediate results, used again for every block."""

    def __init__(self, length: int) -> None:
        self.floats = np.empty((2, length), np.float32)
        self.doubles = np.empty(length, np.float64)
        self.truths = np.empty(length, np.bool_)
        self.bits = np.empty(length, np.int32)
        self.floors = np.full(length, FLOOR)  # numpy takes the larger of two arrays faster than with a scalar


class _Block:
    """Two vectors of the same length, and memory for intermediate results."""

    def __init__(self, x: np.ndarray, y: np.ndarray, spare: _Spare) -> None:
        self.x, self.y = x, y
        self.s, self.t = spare.floats[:, : len(x)]
        self.doubles = spare.doubles[: len(x)]
        self.truths = spare.truths[: len(x)]
        self.bits = spare.bits[: len(x)]
        self.floors = spare.floors[: len(x)]


def _add_first_pass(block: _Block, need: ScoreNeed, findings: Findings) -> None:
    """Add norms, ranges, means, differences and ratios of a block."""
    for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
        if ScoreNeed.NORMS in need:
            side.squares += _total(np.multiply(values, values, out=block.s))
        if ScoreNeed.RANGES in need:
            side.low = np.minimum(side.low, values.min())
            side.high = np.maximum(side.high, values.max())
        if ScoreNeed.MEANS in need:
            # vendor: means and deviations are float64, all other algorithms float32.
            side.total += float(np.add.reduce(values, dtype=np.float64))
    if ScoreNeed.DIFFERENCES in need:
        _add_differences(block, findings)
    if ScoreNeed.RATIOS in need:
        _add_ratios(block, findings)


def _add_differences(block: _Block, findings: Findings) -> None:
    distances = np.subtract(block.x, block.y, out=block.s)
    np.abs(distances, out=distances)
    findings.largest = np.maximum(findings.largest, distances.max())
    findings.distances += _total(distances)
    findings.squares += _total(np.multiply(distances, distances, out=distances))


def _add_ratios(block: _Block, findings: Findings) -> None:
    ratios = np.divide(block.x, block.y, out=block.s)
    np.subtract(ratios, np.float32(1), out=ratios)
    np.abs(ratios, out=ratios)
    counts = np.greater(np.abs(block.y, out=block.t), np.float32(ALMOST_ZERO), out=block.truths)
    # Ratios to a golden zero count as 0. Bits that are all set or all clear clear them twenty times faster
    # than a mask of mixed truth values; a factor of 0 would turn their infinities into NaN.
    bits = np.negative(counts.view(np.int8), out=block.bits)
    np.bitwise_and(ratios.view(np.int32), bits, out=ratios.view(np.int32))
    findings.largest_ratio = np.maximum(findings.largest_ratio, ratios.max())
    findings.ratios += _total(ratios)


def _add_second_pass(block: _Block, need: ScoreNeed, findings: Findings) -> None:
    """Add the products, the densities and the deviations of a block, for which the first pass is complete."""
    if ScoreNeed.COSINE in need:
        # vendor: each element is divided by its norm before the products are added, not their sum at the end.
        units = np.divide(block.x, findings.dumped.norm, out=block.s)
        others = np.divide(block.y, findings.golden.norm, out=block.t)
        findings.product += _total(np.multiply(units, others, out=units))
    for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
        if ScoreNeed.DIVERGENCE in need:
            side.densities += _total(_raised(values, side, block.floors, block.s))
        if ScoreNeed.DEVIATIONS in need:
            distances = np.subtract(values, side.total / findings.count, out=block.doubles, dtype=np.float64)
            # not np.dot: BLAS would wake threads, which get in the way of the other processes
            side.deviations += _total(np.multiply(distances, distances, out=distances))


def _add_third_pass(block: _Block, need: ScoreNeed, findings: Findings) -> None:
    """Add ``p * log(p / q)`` of a block, for which the sums of the densities are complete."""
    del need  # this pass has one purpose
    dumped, golden = findings.dumped, findings.golden
    p = np.divide(_raised(block.x, dumped, block.floors, block.s), np.float32(dumped.densities), out=block.s)
    q = np.divide(_raised(block.y, golden, block.floors, block.t), np.float32(golden.densities), out=block.t)
    logarithms = np.log(np.divide(p, q, out=q), out=q)
    findings.divergence += _total(np.multiply(p, logarithms, out=p))


def _raised(values: np.ndarray, side: TensorFacts, floors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the elements moved to 0..1, at least ``FLOOR``; equal elements are not moved.

    >>> side = TensorFacts(low=np.float32(1), high=np.float32(3))
    >>> _raised(np.array([1, 2, 3], np.float32), side, np.full(3, FLOOR), np.empty(3, np.float32)).round(3)
    array([0. , 0.5, 1. ], dtype=float32)
    """
    extent = side.high - side.low
    if extent != 0:  # vendor: a tensor of equal elements keeps them instead of becoming all zeros
        values = np.subtract(values, side.low, out=out)
        np.divide(values, extent, out=out)
    np.maximum(values, floors, out=out)
    return out


def _total(values: np.ndarray) -> float:
    return float(np.add.reduce(values))


_PASSES: Final[tuple[tuple[ScoreNeed, Callable[[_Block, ScoreNeed, Findings], None]], ...]] = (
    (
        ScoreNeed.NORMS | ScoreNeed.DIFFERENCES | ScoreNeed.RATIOS | ScoreNeed.RANGES | ScoreNeed.MEANS,
        _add_first_pass,
    ),
    (ScoreNeed.PRODUCT | ScoreNeed.DENSITIES | ScoreNeed.SPREADS, _add_second_pass),
    (ScoreNeed.LOGARITHMS, _add_third_pass),
)
