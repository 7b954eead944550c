"""Passes over two tensors, block by block, that take the sums from which scores are computed.

The elements are cast to float32, as CANN's comparison tool defines it, and all arithmetic of which a printed
digit shows the rounding is that tool's, operation by operation: sums are float32, in the order in which numpy
adds. Means and deviations, of which three decimals are printed, are float64. The second pass needs norms and
ranges, the third the sums of the densities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.elements import total_of_products, total_of_squares
from msdump.statistics.pairs import PairKernel, PairScale, SideScale
from msdump.tools.scores.blocks import BLOCK, FLOOR, BlockPair, BlockPairs, total_of_blocks
from msdump.tools.scores.sums import Findings, FurtherSums, ScoreNeed, TensorFacts

ALMOST_ZERO: Final = float(np.finfo(np.float64).eps)
"""What counts as zero: the float64 machine epsilon."""

_OF_DOUBLES: Final = ScoreNeed.NORMS | ScoreNeed.DIFFERENCES | ScoreNeed.DEVIATIONS | ScoreNeed.PRODUCT
_OF_FIRST_PASS: Final = _OF_DOUBLES | ScoreNeed.DISTANCES | ScoreNeed.RATIOS | ScoreNeed.RANGES
_SCALED: Final = ScoreNeed.PRODUCT | ScoreNeed.DENSITIES


def examine(
    dumped: np.ndarray, golden: np.ndarray, need: ScoreNeed, further: FurtherSums | None = None
) -> Findings:
    """Return sums and extremes of two tensors.

    >>> need = ScoreNeed.NORMS | ScoreNeed.DISTANCES | ScoreNeed.DIFFERENCES
    >>> findings = examine(np.array([[3, 0], [0, 4]]), np.array([[3, 0], [0, 6]]), need)
    >>> float(findings.dumped.norm), float(findings.largest), findings.squares
    (5.0, 2.0, 4.0)

    Args:
        dumped: At least one element, of any numeric type and shape.
        golden: An array of as many elements.
        need: Which numbers are needed.
        further: Gets the blocks, too; None: nobody does.
    """
    all_blocks = BlockPairs(dumped, golden)
    findings = Findings(all_blocks.count)
    blocks = all_blocks if all_blocks.count > BLOCK else tuple(all_blocks)  # cast once
    # NaN and infinities are results here, no reason for warnings.
    with np.errstate(all="ignore"):
        if need & _OF_FIRST_PASS:
            _take_first_pass(blocks, need, findings)
        if further is not None and not further.has_pass(findings):
            further = None
        if further is not None or need & _SCALED:  # else left out: each pass reads both tensors again
            _take_second_pass(blocks, need, findings, further)
    return findings


def _take_first_pass(blocks: Iterable[BlockPair], need: ScoreNeed, findings: Findings) -> None:
    """Take all that needs nothing but the elements."""
    for block in blocks:
        if not _joined(block, findings):
            _add_first_pass(block, need, findings)
    totals = total_of_blocks(findings.single_sums, findings.count)
    findings.dumped.rounded_squares, findings.golden.rounded_squares, findings.rounded_squares = totals[:3]
    findings.distances, findings.ratios = totals[3:].tolist()


def _joined(block: BlockPair, findings: Findings) -> bool:
    """Add all sums of a block that the compiled pass takes; tell whether it does."""
    kernel = _kernel(block)
    sums = kernel.sums(block.x, block.y, ALMOST_ZERO) if kernel is not None else None
    if sums is not None:
        findings.join(sums)
    return sums is not None


def _add_first_pass(block: BlockPair, need: ScoreNeed, findings: Findings) -> None:
    """Add ranges, float64 sums, and those in float32 of a block."""
    if ScoreNeed.RANGES in need:
        for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
            side.low = np.minimum(side.low, values.min())
            side.high = np.maximum(side.high, values.max())
    if need & _OF_DOUBLES:
        for x, y, spare in block.doubles():
            findings.dumped.add(x, spare)
            findings.golden.add(y, spare)
            findings.products += total_of_products(x, y)
            findings.squares += total_of_squares(np.subtract(x, y, out=x))
    singles = np.zeros(5, np.float32)
    if ScoreNeed.NORMS in need:
        singles[:2] = [_total(np.multiply(side, side, out=block.s)) for side in (block.x, block.y)]
    if need & (ScoreNeed.DIFFERENCES | ScoreNeed.DISTANCES):
        singles[2:4] = _distances(block, findings)
    if ScoreNeed.RATIOS in need:
        singles[4] = _ratios(block, findings)
    findings.single_sums.append(singles)


def _distances(block: BlockPair, findings: Findings) -> tuple[np.float32, np.float32]:
    """Return the sums of squared distances and of distances, and find the largest."""
    distances = np.subtract(block.x, block.y, out=block.s)
    np.abs(distances, out=distances)
    largest = distances[distances.argmax()]
    findings.largest = np.maximum(findings.largest, largest)
    # float32 rounds distances: several that differ may be the same largest one
    places = np.flatnonzero(distances == largest)
    farthest = np.abs(np.subtract(block.x[places], block.y[places], dtype=np.float64)).max(initial=0)
    findings.farthest = max(findings.farthest, float(farthest))
    return _total(np.multiply(distances, distances, out=block.t)), _total(distances)


def _ratios(block: BlockPair, findings: Findings) -> np.float32:
    """Return the sum of the relative errors, and find the largest."""
    ratios = np.divide(block.x, block.y, out=block.s)
    np.subtract(ratios, np.float32(1), out=ratios)
    np.abs(ratios, out=ratios)
    counts = np.greater(np.abs(block.y, out=block.t), np.float32(ALMOST_ZERO), out=block.truths)
    # Ratios to a golden zero count as 0. Bits that are all set or all clear clear them twenty times faster
    # than a mask of mixed truth values; a factor of 0 would turn their infinities into NaN.
    bits = np.negative(counts.view(np.int8), out=block.t.view(np.int32))
    np.bitwise_and(ratios.view(np.int32), bits, out=ratios.view(np.int32))
    findings.largest_ratio = np.maximum(findings.largest_ratio, ratios.max())
    return _total(ratios)


def _take_second_pass(
    blocks: Iterable[BlockPair], need: ScoreNeed, findings: Findings, further: FurtherSums | None
) -> None:
    """Take what needs norms and ranges, and the divergence, which needs the sums of densities too."""
    scales = _scales(findings)
    sums = []
    for block in blocks:
        if further is not None:
            further.add(block.x, block.y, block.both)
        sums.append(_scaled(block, need, findings, scales))
    cosine, *densities = total_of_blocks(sums, findings.count)
    findings.cosine = float(cosine)
    if ScoreNeed.DENSITIES in need:
        totals = np.array(densities)
        parts = [_divergence(block, findings, scales, totals) for block in blocks]
        findings.divergence = float(total_of_blocks(parts, findings.count))


def _scales(findings: Findings) -> PairScale | None:
    """Return what the compiled passes divide by, None where they cannot do so."""
    scales = PairScale(_scale(findings.dumped), _scale(findings.golden), float(FLOOR))
    return scales if scales.x.extent < math.inf and scales.y.extent < math.inf else None


def _scale(side: TensorFacts) -> SideScale:
    # equal elements are not moved, see _raised
    low, extent = (side.low, side.extent) if side.extent else (0, 1)
    return SideScale(float(side.norm), float(low), float(extent))


def _kernel(block: BlockPair) -> PairKernel | None:
    return pairs.PAIRS if block.is_plain else None


def _scaled(block: BlockPair, need: ScoreNeed, findings: Findings, scales: PairScale | None) -> np.ndarray:
    """Return the sums of products of elements divided by their norms, and of the densities of each side."""
    kernel = _kernel(block)
    if kernel is not None and scales is not None:
        return kernel.scaled(block.x, block.y, scales)
    sums = np.zeros(3, np.float32)
    sides = ((findings.dumped, block.x, block.s), (findings.golden, block.y, block.t))
    if ScoreNeed.PRODUCT in need:
        # vendor: each element is divided by its norm before the products are added, not their sum at the end.
        units, others = (np.divide(values, side.norm, out=out) for side, values, out in sides)
        sums[0] = _total(np.multiply(units, others, out=units))
    if ScoreNeed.DENSITIES in need:
        sums[1:] = [_total(_raised(values, side, block.floors, out)) for side, values, out in sides]
    return sums


def _divergence(
    block: BlockPair, findings: Findings, scales: PairScale | None, totals: np.ndarray
) -> np.float32:
    """Return the sum of ``p * log(p / q)`` of a block, whose densities have these totals in all blocks."""
    kernel = _kernel(block)
    if kernel is not None and scales is not None:
        kernel.divided(block.x, block.y, scales, totals, block.both)
    else:
        sides = ((findings.dumped, block.x, block.s), (findings.golden, block.y, block.t))
        for (side, values, out), total in zip(sides, totals, strict=True):
            np.divide(_raised(values, side, block.floors, out), total, out=out)
        np.divide(block.s, block.t, out=block.t)
    logarithms = np.log(block.t, out=block.t)
    return _total(np.multiply(block.s, logarithms, out=logarithms))


def _raised(values: np.ndarray, side: TensorFacts, floors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the elements moved to 0..1, at least ``FLOOR``; equal elements are not moved.

    >>> side = TensorFacts(low=np.float32(1), high=np.float32(3))
    >>> floors = np.full(3, 1e-7, np.float32)
    >>> _raised(np.array([1, 2, 3], np.float32), side, floors, np.empty(3, np.float32)).round(3)
    array([0. , 0.5, 1. ], dtype=float32)
    """
    extent = side.extent
    if extent != 0:  # vendor: a tensor of equal elements keeps them instead of becoming all zeros
        if side.low != 0:  # activations often begin at zero
            values = np.subtract(values, side.low, out=out)
        values = np.divide(values, extent, out=out)
    np.maximum(values, floors, out=out)
    return out


def _total(values: np.ndarray) -> np.float32:
    total: np.float32 = np.add.reduce(values)
    return total
