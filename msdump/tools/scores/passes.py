"""Passes over two tensors, block by block, that take the sums from which scores are computed.

The elements are cast to float32, as CANN's comparison tool defines it. Of tensors of one block all
arithmetic is that tool's, operation by operation, so that each digit is. So are the ratios of longer ones,
whose sum prints all digits that float32 has. Other sums of those are float64 where that is as fast, and two
passes suffice, the second of which needs the ranges: of cosine similarities and divergences the last printed
digit may be another one than that tool's, whose float32 sums are off by as much.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.elements import total, total_of_products, total_of_squares
from msdump.tools.scores.blocks import BLOCK, FLOOR, BlockPair, BlockPairs, total_of_blocks
from msdump.tools.scores.sums import Findings, FurtherSums, ScoreNeed, TensorFacts

ALMOST_ZERO: Final = float(np.finfo(np.float64).eps)
"""What counts as zero: the float64 machine epsilon."""

_OF_DOUBLES: Final = ScoreNeed.NORMS | ScoreNeed.DIFFERENCES | ScoreNeed.DEVIATIONS | ScoreNeed.PRODUCT
_OF_FIRST_PASS: Final = _OF_DOUBLES | ScoreNeed.DISTANCES | ScoreNeed.RATIOS | ScoreNeed.RANGES


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
    is_long = all_blocks.count > BLOCK
    blocks = all_blocks if is_long else tuple(all_blocks)  # cast once
    # NaN and infinities are results here, no reason for warnings.
    with np.errstate(all="ignore"):
        if need & _OF_FIRST_PASS:
            for block in blocks:
                if not (is_long and _joined(block, findings)):
                    _add_first_pass(block, need, findings)
        _round_sums(findings)
        if not is_long:
            for block in blocks:
                _add_as_vendor(block, need, findings)
        if further is not None and not further.has_pass(findings):
            further = None
        has_densities = is_long and ScoreNeed.DENSITIES in need
        if further is not None or has_densities:  # else left out: each pass reads both tensors again
            for block in blocks:
                _add_second_pass(block, findings, further, has_densities=has_densities)
        if has_densities:
            findings.divergence = _divergence(findings)
    return findings


def _joined(block: BlockPair, findings: Findings) -> bool:
    """Add all sums of a block that the compiled pass takes; tell whether it does."""
    kernel = pairs.PAIRS
    sums = kernel.sums(block.x, block.y, ALMOST_ZERO) if kernel is not None and block.is_plain else None
    if sums is not None:
        findings.join(sums)
    return sums is not None


def _add_first_pass(block: BlockPair, need: ScoreNeed, findings: Findings) -> None:
    """Add ranges, distances, ratios and all float64 sums of a block."""
    if ScoreNeed.RANGES in need:
        for side, values in ((findings.dumped, block.x), (findings.golden, block.y)):
            side.low = np.minimum(side.low, values.min())
            side.high = np.maximum(side.high, values.max())
    if ScoreNeed.DISTANCES in need:
        _add_distances(block, findings)
    if ScoreNeed.RATIOS in need:
        _add_ratios(block, findings)
    if need & _OF_DOUBLES:
        for x, y, spare in block.doubles():
            findings.dumped.add(x, spare)
            findings.golden.add(y, spare)
            findings.products += total_of_products(x, y)
            findings.squares += total_of_squares(np.subtract(x, y, out=x))


def _add_distances(block: BlockPair, findings: Findings) -> None:
    distances = np.subtract(block.x, block.y, out=block.s)
    np.abs(distances, out=distances)
    largest = distances[distances.argmax()]
    findings.largest = np.maximum(findings.largest, largest)
    # float32 rounds distances: several that differ may be the same largest one
    places = np.flatnonzero(distances == largest)
    farthest = np.abs(np.subtract(block.x[places], block.y[places], dtype=np.float64)).max(initial=0)
    findings.farthest = max(findings.farthest, float(farthest))
    findings.distances += _total(distances)


def _add_ratios(block: BlockPair, findings: Findings) -> None:
    ratios = np.divide(block.x, block.y, out=block.s)
    np.subtract(ratios, np.float32(1), out=ratios)
    np.abs(ratios, out=ratios)
    counts = np.greater(np.abs(block.y, out=block.t), np.float32(ALMOST_ZERO), out=block.truths)
    # Ratios to a golden zero count as 0. Bits that are all set or all clear clear them twenty times faster
    # than a mask of mixed truth values; a factor of 0 would turn their infinities into NaN.
    bits = np.negative(counts.view(np.int8), out=block.t.view(np.int32))
    np.bitwise_and(ratios.view(np.int32), bits, out=ratios.view(np.int32))
    findings.largest_ratio = np.maximum(findings.largest_ratio, ratios.max())
    findings.block_ratios.append(_total(ratios))


def _add_as_vendor(block: BlockPair, need: ScoreNeed, findings: Findings) -> None:
    """Take the sums of a short tensor whose digits depend on rounding as the vendor's tool takes them."""
    sides = ((findings.dumped, block.x, block.s), (findings.golden, block.y, block.t))
    if ScoreNeed.NORMS in need:
        for side, values, out in sides:
            side.rounded_squares = np.add.reduce(np.multiply(values, values, out=out))
    if ScoreNeed.DIFFERENCES in need:
        distances = np.subtract(block.x, block.y, out=block.s)
        findings.rounded_squares = np.add.reduce(np.multiply(distances, distances, out=distances))
    if ScoreNeed.PRODUCT in need:
        # vendor: each element is divided by its norm before the products are added, not their sum at the end.
        units, others = (np.divide(values, side.norm, out=out) for side, values, out in sides)
        findings.cosine = _total(np.multiply(units, others, out=units))
    if ScoreNeed.DENSITIES in need:
        for side, values, out in sides:
            raised = _raised(values, side, block.floors, out)
            np.divide(raised, np.add.reduce(raised), out=out)
        p, logarithms = block.s, np.divide(block.s, block.t, out=block.t)
        np.log(logarithms, out=logarithms)
        findings.divergence = _total(np.multiply(p, logarithms, out=p))


def _round_sums(findings: Findings) -> None:
    """Take what the vendor's tool has as float32: from the float64 sums, and the ratios in its order."""
    if findings.block_ratios:
        findings.ratios = float(total_of_blocks(findings.block_ratios, findings.count))
    for side in (findings.dumped, findings.golden, findings):
        side.rounded_squares = np.float32(side.squares)
    findings.cosine = np.float64(findings.products) / (
        np.float64(findings.dumped.norm) * np.float64(findings.golden.norm)
    )


def _add_second_pass(
    block: BlockPair, findings: Findings, further: FurtherSums | None, *, has_densities: bool
) -> None:
    """Add what needs the ranges of both tensors."""
    if has_densities:
        p, q, logarithms = _compiled_densities(block, findings) or _densities(block, findings)
        findings.dumped.densities += p
        findings.golden.densities += q
        findings.logarithms += logarithms
    if further is not None:
        further.add(block.x, block.y, block.both)


def _compiled_densities(block: BlockPair, findings: Findings) -> tuple[float, float, float] | None:
    """Return the sums of ``_densities`` by the compiled pass, None where it does not take the block."""
    kernel = pairs.PAIRS
    if kernel is None or not block.is_plain:
        return None
    sides = [(float(side.low), float(side.high - side.low)) for side in (findings.dumped, findings.golden)]
    if not all(0 < extent < math.inf for _, extent in sides):
        return None
    return kernel.densities(block.x, block.y, (*sides[0], *sides[1]), float(FLOOR))


def _densities(block: BlockPair, findings: Findings) -> tuple[float, float, float]:
    """Return the sums of p, of q and of ``p * log(p / q)`` over elements that were raised."""
    p = _raised(block.x, findings.dumped, block.floors, block.s)
    q = _raised(block.y, findings.golden, block.floors, block.t)
    total_p, total_q = total(p), total(q)
    logarithms = np.log(np.divide(p, q, out=q), out=q)
    return total_p, total_q, total_of_products(p, logarithms)


def _divergence(findings: Findings) -> float:
    """Return ``sum(p * log(p / q))`` from the sum before p and q were divided by their own sums."""
    # float64 of float32: the sums are rounded as the vendor's, what follows is not
    dumped, golden = (np.float64(np.float32(side.densities)) for side in (findings.dumped, findings.golden))
    return float((findings.logarithms + findings.dumped.densities * np.log(golden / dumped)) / dumped)


def _raised(values: np.ndarray, side: TensorFacts, floors: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return the elements moved to 0..1, at least ``FLOOR``; equal elements are not moved.

    >>> side = TensorFacts(low=np.float32(1), high=np.float32(3))
    >>> floors = np.full(3, 1e-7, np.float32)
    >>> _raised(np.array([1, 2, 3], np.float32), side, floors, np.empty(3, np.float32)).round(3)
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
