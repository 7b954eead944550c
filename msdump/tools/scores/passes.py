"""What the algorithms of a comparison need of two tensors, found out block by block.

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

from msdump.capture.statistics.elements import HALVES

_BLOCK: Final = 1 << 16  # elements; a few float32 blocks fit into a core's cache
_MOST_CAST: Final = 1 << 24  # elements; larger tensors of other types are cast once for each pass

ALMOST_ZERO: Final = float(np.finfo(np.float64).eps)
"""What counts as zero: the float64 machine epsilon."""

FLOOR: Final = np.finfo(np.float32).eps
"""Least density of a Kullback-Leibler divergence."""


class ScoreNeed(enum.Flag):
    """What is to be found out; each member holds what it is computed from."""

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
    """What is known of one tensor.

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
        """Square root of the sum of the squares."""
        return np.float32(math.sqrt(np.float32(self.squares)))


@dataclass(slots=True)
class Findings:
    """What is known of a pair of tensors; what was not asked for has no meaning.

    Attributes:
        count: Number of elements of each; a complex one counts twice.
        is_scalar: All dimensions are 1.
        mine: The tensor that is examined.
        golden: The one that it is compared with.
        largest: Largest distance of two elements.
        distances: Sum of the distances.
        squares: Sum of the squared distances.
        largest_ratio: Largest ``|mine / golden - 1|``, 0 where golden is almost zero.
        ratios: Sum of these.
        product: Sum of the products of the elements, each divided by its tensor's norm.
        divergence: Sum of ``p * log(p / q)`` over the densities.
    """

    count: int
    is_scalar: bool = False
    mine: TensorFacts = field(default_factory=TensorFacts)
    golden: TensorFacts = field(default_factory=TensorFacts)
    largest: np.float32 = field(default_factory=lambda: np.float32(0))
    distances: float = 0.0
    squares: float = 0.0
    largest_ratio: np.float32 = field(default_factory=lambda: np.float32(0))
    ratios: float = 0.0
    product: float = 0.0
    divergence: float = 0.0


def examine(mine: np.ndarray, golden: np.ndarray, need: ScoreNeed) -> Findings:
    """Return what is needed of two tensors.

    Args:
        mine: At least one element, of any numeric type and shape.
        golden: As many elements.
        need: What to find out.
    """
    pairs = _Pairs(mine, golden)
    findings = Findings(pairs.count)
    with np.errstate(all="ignore"):
        for concerns, add in _PASSES:
            if need & concerns:
                for x, y in pairs:
                    add(_Block(x, y, pairs.spare), need, findings)
    return findings


class _Pairs:
    """Blocks of two tensors as float32 vectors."""

    def __init__(self, mine: np.ndarray, golden: np.ndarray) -> None:
        self._sides = (_vector(mine), _vector(golden))
        self.count = len(self._sides[0])
        self._length = min(_BLOCK, self.count)
        self._cast = np.empty((2, self._length), np.float32)
        self.spare = _Spare(self._length)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        mine, golden = self._sides
        for start in range(0, self.count, self._length):
            part = slice(start, start + self._length)
            yield self._float32(mine[part], 0), self._float32(golden[part], 1)

    def _float32(self, block: np.ndarray, side: int) -> np.ndarray:
        if block.dtype == np.float32 and block.flags.aligned:  # in dump files they are not
            return block
        cast = self._cast[side, : len(block)]
        _cast(block, cast)
        return cast


def _vector(array: np.ndarray) -> np.ndarray:
    """Return the elements in a row; complex numbers as twice as many real ones."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    if flat.dtype == np.float32 or len(flat) > _MOST_CAST:
        return flat
    cast = np.empty(len(flat), np.float32)
    for start in range(0, len(flat), _BLOCK):
        _cast(flat[start : start + _BLOCK], cast[start : start + _BLOCK])
    return cast


def _cast(block: np.ndarray, out: np.ndarray) -> None:
    """Cast elements to float32; finite halves three times faster than numpy does."""
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
    """Two vectors of the same length, and memory for what is made of them."""

    def __init__(self, x: np.ndarray, y: np.ndarray, spare: _Spare) -> None:
        self.x, self.y = x, y
        self.s, self.t = spare.floats[:, : len(x)]
        self.doubles = spare.doubles[: len(x)]
        self.truths = spare.truths[: len(x)]
        self.bits = spare.bits[: len(x)]
        self.floors = spare.floors[: len(x)]


def _first(block: _Block, need: ScoreNeed, found: Findings) -> None:
    for side, values in ((found.mine, block.x), (found.golden, block.y)):
        if ScoreNeed.NORMS in need:
            side.squares += _total(np.multiply(values, values, out=block.s))
        if ScoreNeed.RANGES in need:
            side.low = np.minimum(side.low, values.min())
            side.high = np.maximum(side.high, values.max())
        if ScoreNeed.MEANS in need:
            side.total += float(np.add.reduce(values, dtype=np.float64))
    if ScoreNeed.DIFFERENCES in need:
        _add_differences(block, found)
    if ScoreNeed.RATIOS in need:
        _add_ratios(block, found)


def _add_differences(block: _Block, found: Findings) -> None:
    distances = np.subtract(block.x, block.y, out=block.s)
    np.abs(distances, out=distances)
    found.largest = np.maximum(found.largest, distances.max())
    found.distances += _total(distances)
    found.squares += _total(np.multiply(distances, distances, out=distances))


def _add_ratios(block: _Block, found: Findings) -> None:
    ratios = np.divide(block.x, block.y, out=block.s)
    np.subtract(ratios, np.float32(1), out=ratios)
    np.abs(ratios, out=ratios)
    counts = np.greater(np.abs(block.y, out=block.t), np.float32(ALMOST_ZERO), out=block.truths)
    # Bits that are all set or all clear choose twenty times faster than a mask of mixed truth values.
    bits = np.negative(counts.view(np.int8), out=block.bits)
    np.bitwise_and(ratios.view(np.int32), bits, out=ratios.view(np.int32))
    found.largest_ratio = np.maximum(found.largest_ratio, ratios.max())
    found.ratios += _total(ratios)


def _second(block: _Block, need: ScoreNeed, found: Findings) -> None:
    if ScoreNeed.COSINE in need:
        units = np.divide(block.x, found.mine.norm, out=block.s)
        others = np.divide(block.y, found.golden.norm, out=block.t)
        found.product += _total(np.multiply(units, others, out=units))
    for side, values in ((found.mine, block.x), (found.golden, block.y)):
        if ScoreNeed.DIVERGENCE in need:
            side.densities += _total(_raised(values, side, block.floors, block.s))
        if ScoreNeed.DEVIATIONS in need:
            distances = np.subtract(values, side.total / found.count, out=block.doubles, dtype=np.float64)
            # not np.dot: BLAS would wake threads, which get in the way of the other processes
            side.deviations += _total(np.multiply(distances, distances, out=distances))


def _third(block: _Block, need: ScoreNeed, found: Findings) -> None:
    del need  # the only purpose of this pass
    mine, golden = found.mine, found.golden
    p = np.divide(_raised(block.x, mine, block.floors, block.s), np.float32(mine.densities), out=block.s)
    q = np.divide(_raised(block.y, golden, block.floors, block.t), np.float32(golden.densities), out=block.t)
    logarithms = np.log(np.divide(p, q, out=q), out=q)
    found.divergence += _total(np.multiply(p, logarithms, out=p))


def _raised(values: np.ndarray, side: TensorFacts, floors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the elements moved to 0..1, at least ``FLOOR``; equal elements are not moved."""
    extent = side.high - side.low
    if extent != 0:
        values = np.subtract(values, side.low, out=out)
        np.divide(values, extent, out=out)
    np.maximum(values, floors, out=out)
    return out


def _total(values: np.ndarray) -> float:
    return float(np.add.reduce(values))


_PASSES: Final[tuple[tuple[ScoreNeed, Callable[[_Block, ScoreNeed, Findings], None]], ...]] = (
    (ScoreNeed.NORMS | ScoreNeed.DIFFERENCES | ScoreNeed.RATIOS | ScoreNeed.RANGES | ScoreNeed.MEANS, _first),
    (ScoreNeed.PRODUCT | ScoreNeed.DENSITIES | ScoreNeed.SPREADS, _second),
    (ScoreNeed.LOGARITHMS, _third),
)
