"""Sums over two tensors from which the algorithms compute their scores, taken block by block.

The elements are cast to float32 and the arithmetic is float32, as CANN's comparison
tool defines it; the sums of blocks are added in float64. Three passes suffice: the
second needs norms and ranges, the third the sums of the densities.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from msdump.statistics.elements import HALVES, total, total_of_squares

BLOCK: Final = 1 << 16
"""Elements that are looked at together; a few float32 blocks fit into a core's cache."""

_PART: Final = 1 << 15  # elements of a block that are cast to float64 together
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
    DEVIATIONS = enum.auto()
    PRODUCT = enum.auto()
    DENSITIES = enum.auto()
    LOGARITHMS = enum.auto()
    COSINE = NORMS | PRODUCT
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
        counted: Number of elements whose total and deviations were added.
    """

    squares: float = 0.0
    low: np.float32 = field(default_factory=lambda: np.float32(math.inf))
    high: np.float32 = field(default_factory=lambda: np.float32(-math.inf))
    total: float = 0.0
    densities: float = 0.0
    deviations: float = 0.0
    counted: int = 0

    def add_deviations(self, values: np.ndarray, spare: np.ndarray) -> None:
        """Add total and deviations of float64 elements.

        Args:
            values: The elements.
            spare: Memory for as many.
        """
        total_of_part, count = total(values), len(values)
        mean = total_of_part / count
        distances = np.subtract(values, mean, out=spare)
        self.deviations += total_of_squares(distances)
        if self.counted:  # the means of the parts differ: Chan, Golub, LeVeque, "Updating Formulae", 1979
            shift = mean - self.total / self.counted
            self.deviations += shift * shift * self.counted * count / (self.counted + count)
        self.total += total_of_part
        self.counted += count

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


class FurtherSums(Protocol):
    """Sums over the same blocks that somebody else takes, while these are in the core's cache."""

    def add_doubles(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        """Add elements in the first pass, as float64; the arrays may be overwritten."""

    def has_second_pass(self, findings: Findings) -> bool:
        """Tell whether elements are needed a second time, now that the sums of the first pass are known."""

    def add_singles(self, dumped: np.ndarray, golden: np.ndarray, spare: np.ndarray) -> None:
        """Add elements in the second pass, as float32.

        Args:
            dumped: Elements of the tensor that is examined.
            golden: Those of the other one.
            spare: Memory for twice as many elements.
        """


def examine(
    dumped: np.ndarray, golden: np.ndarray, need: ScoreNeed, further: FurtherSums | None = None
) -> Findings:
    """Return sums and extremes of two tensors.

    >>> need = ScoreNeed.NORMS | ScoreNeed.DIFFERENCES
    >>> findings = examine(np.array([[3, 0], [0, 4]]), np.array([[3, 0], [0, 6]]), need)
    >>> float(findings.dumped.norm), float(findings.largest), findings.squares
    (5.0, 2.0, 4.0)

    Args:
        dumped: At least one element, of any numeric type and shape.
        golden: An array of as many elements.
        need: Which numbers are needed.
        further: Gets the blocks, too; None: nobody does.
    """
    pairs = _Pairs(dumped, golden)
    findings = Findings(pairs.count)
    # NaN and infinities are results here, no reason for warnings.
    with np.errstate(all="ignore"):
        if further is not None or need & _OF_FIRST_PASS:
            for block in pairs:
                _add_first_pass(block, need, findings, further)
        if further is not None and not further.has_second_pass(findings):
            further = None
        if further is not None or need & _OF_SECOND_PASS:  # else left out: each pass reads both tensors again
            for block in pairs:
                _add_second_pass(block, need, findings, further)
        if ScoreNeed.LOGARITHMS in need:
            for block in pairs:
                _add_third_pass(block, findings)
    return findings


class _Pairs:
    """Blocks of two tensors as float32 vectors."""

    def __init__(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        self._sides = (_vector(dumped), _vector(golden))
        self.count = len(self._sides[0])
        self._length = min(BLOCK, self.count)
        self._cast = np.empty((2, self._length), np.float32)
        self._spare = _Spare(self._length)

    def __iter__(self) -> Iterator[_Block]:
        dumped, golden = self._sides
        for start in range(0, self.count, self._length):
            part = slice(start, start + self._length)
            yield _Block(self._float32(dumped[part], 0), self._float32(golden[part], 1), self._spare)

    def _float32(self, block: np.ndarray, side: int) -> np.ndarray:
        if block.dtype == np.float32 and block.flags.aligned:
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
    is_ready = flat.dtype == np.float32 and flat.flags.aligned  # in dump files they are not
    if is_ready or len(flat) > _MOST_CAST:
        return flat
    cast = np.empty(len(flat), np.float32)
    for start in range(0, len(flat), BLOCK):
        _cast(flat[start : start + BLOCK], cast[start : start + BLOCK])
    return cast


def _cast(block: np.ndarray, out: np.ndarray) -> None:
    """Cast elements to float32."""
    if block.dtype == out.dtype and block.flags.c_contiguous:  # not aligned: bytes are copied faster
        out.view(np.uint8)[:] = block.view(np.uint8)
        return
    # Finite float16 and bfloat16 are cast by integer arithmetic, three times faster than numpy casts them.
    halves = HALVES.get(block.dtype.name)
    if halves is not None and all(map(math.isfinite, halves.bounds(block))):
        block = halves.values(block)
    np.copyto(out, block, casting="unsafe")


class _Spare:
    """Memory for intermediate results, used again for every block."""

    def __init__(self, length: int) -> None:
        self.floats = np.empty((2, length), np.float32)
        self.doubles = np.empty((3, min(length, _PART)))
        self.truths = np.empty(length, np.bool_)
        self.floors = np.full(length, FLOOR)  # numpy takes the larger of two arrays faster than with a scalar


class _Block:
    """Two vectors of the same length, and memory for intermediate results."""

    def __init__(self, x: np.ndarray, y: np.ndarray, spare: _Spare) -> None:
        self.x, self.y = x, y
        self.both = spare.floats[:, : len(x)]
        self.s, self.t = self.both
        self.truths = spare.truths[: len(x)]
        self.floors = spare.floors[: len(x)]
        self._doubles = spare.doubles

    def doubles(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield parts of the two vectors as float64, and memory for as many elements."""
        for start in range(0, len(self.x), _PART):
            x, y = (side[start : start + _PART] for side in (self.x, self.y))
            doubles = self._doubles[:, : len(x)]
            np.copyto(doubles[0], x)
            np.copyto(doubles[1], y)
            yield doubles[0], doubles[1], doubles[2]


def _add_first_pass(block: _Block, need: ScoreNeed, findings: Findings, further: FurtherSums | None) -> None:
    """Add norms, ranges, deviations, differences and ratios of a block."""
    for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
        if ScoreNeed.NORMS in need:
            side.squares += _total(np.multiply(values, values, out=block.s))
        if ScoreNeed.RANGES in need:
            side.low = np.minimum(side.low, values.min())
            side.high = np.maximum(side.high, values.max())
    if ScoreNeed.DIFFERENCES in need:
        _add_differences(block, findings)
    if ScoreNeed.RATIOS in need:
        _add_ratios(block, findings)
    if further is None and ScoreNeed.DEVIATIONS not in need:
        return
    for x, y, spare in block.doubles():
        if ScoreNeed.DEVIATIONS in need:
            # vendor: means and deviations are float64, all other algorithms float32.
            findings.dumped.add_deviations(x, spare)
            findings.golden.add_deviations(y, spare)
        if further is not None:
            further.add_doubles(x, y)


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
    bits = np.negative(counts.view(np.int8), out=block.t.view(np.int32))
    np.bitwise_and(ratios.view(np.int32), bits, out=ratios.view(np.int32))
    findings.largest_ratio = np.maximum(findings.largest_ratio, ratios.max())
    findings.ratios += _total(ratios)


def _add_second_pass(block: _Block, need: ScoreNeed, findings: Findings, further: FurtherSums | None) -> None:
    """Add the products and the densities of a block, for which the first pass is complete."""
    if ScoreNeed.COSINE in need:
        # vendor: each element is divided by its norm before the products are added, not their sum at the end.
        units = np.divide(block.x, findings.dumped.norm, out=block.s)
        others = np.divide(block.y, findings.golden.norm, out=block.t)
        findings.product += _total(np.multiply(units, others, out=units))
    for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
        if ScoreNeed.DIVERGENCE in need:
            side.densities += _total(_raised(values, side, block.floors, block.s))
    if further is not None:
        further.add_singles(block.x, block.y, block.both)


def _add_third_pass(block: _Block, findings: Findings) -> None:
    """Add ``p * log(p / q)`` of a block, for which the sums of the densities are complete."""
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
        if side.low != 0:  # activations often begin at zero
            values = np.subtract(values, side.low, out=out)
        values = np.divide(values, extent, out=out)
    np.maximum(values, floors, out=out)
    return out


def _total(values: np.ndarray) -> float:
    return float(np.add.reduce(values))


_OF_FIRST_PASS: Final = (
    ScoreNeed.NORMS | ScoreNeed.DIFFERENCES | ScoreNeed.RATIOS | ScoreNeed.RANGES | ScoreNeed.DEVIATIONS
)
_OF_SECOND_PASS: Final = ScoreNeed.PRODUCT | ScoreNeed.DENSITIES
