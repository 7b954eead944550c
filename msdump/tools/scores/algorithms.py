"""The algorithms that compare two tensors: one table, with the definitions of CANN's msaccucmp.

x is the tensor that is examined, y the golden one, both cast to float32. An element
of y counts as zero from the float64 machine epsilon downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from msdump.errors import FormatError
from msdump.tools.scores.passes import ALMOST_ZERO, Findings, ScoreNeed, TensorFacts, examine

NAN: Final = "NaN"
"""What stands where there is no number."""

_LEAST_SHOWN: Final = 0.001  # means and deviations below are shown as zero


@dataclass(frozen=True, slots=True)
class Score:
    """What an algorithm says of two tensors.

    Attributes:
        text: The number as reports hold it, or "NaN".
        note: Why there is no number, or what to know about it; "" where nothing is to be said.
    """

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm.

    Attributes:
        name: Title of its column.
        definition: The formula.
        need: What has to be known of the tensors.
        score: Its result.
        takes_truths: Whether it is defined for two tensors of truth values.
    """

    name: str
    definition: str
    need: ScoreNeed
    score: Callable[[Findings], Score]
    takes_truths: bool = False


def _number(value: float | np.floating) -> Score:
    return Score(f"{np.float32(value):.6f}")


def _cosine(found: Findings) -> Score:
    if found.is_scalar:
        return Score("1.000000", "This tensor is scalar.")
    mine, golden = found.mine.norm, found.golden.norm
    if mine <= ALMOST_ZERO and golden <= ALMOST_ZERO:
        return Score("1.0")
    for side, norm in (("mine", mine), ("golden", golden)):
        if math.sqrt(norm) <= ALMOST_ZERO:
            return Score(NAN, f"CosineSimilarity: all elements of {side} are zero")
    return _number(min(found.product, 1.0))


def _euclidean(found: Findings) -> Score:
    if found.golden.norm <= ALMOST_ZERO:
        return _number(0)
    return _number(np.sqrt(np.float32(found.squares) / np.float32(found.golden.squares)))


def _divergence(found: Findings) -> Score:
    return _number(0 if abs(found.divergence) < ALMOST_ZERO else found.divergence)


def _deviation(found: Findings) -> Score:
    return Score(f"{_mean_and_deviation(found.mine, found)},{_mean_and_deviation(found.golden, found)}")


def _mean_and_deviation(side: TensorFacts, found: Findings) -> str:
    mean, deviation = side.total / found.count, math.sqrt(side.deviations / found.count)
    shown = [0.0 if abs(number) < _LEAST_SHOWN else number for number in (mean, deviation)]
    return f"({shown[0]:.3f};{shown[1]:.3f})"


def _mean(total: float, found: Findings) -> np.float32:
    return np.float32(total / found.count)


ALGORITHMS: Final = (
    Algorithm(
        "CosineSimilarity",
        "sum(x / |x| * y / |y|), at most 1; 1.0 where both are zero",
        ScoreNeed.COSINE,
        _cosine,
        takes_truths=True,
    ),
    Algorithm(
        "MaxAbsoluteError",
        "max(abs(x - y))",
        ScoreNeed.DIFFERENCES,
        lambda found: _number(found.largest),
    ),
    Algorithm(
        "AccumulatedRelativeError",
        "sum of abs(x / y - 1) where y is not zero",
        ScoreNeed.RATIOS,
        lambda found: _number(found.ratios),
    ),
    Algorithm(
        "RelativeEuclideanDistance",
        "sqrt(sum((x - y)^2) / sum(y^2)); 0 where y is zero",
        ScoreNeed.NORMS | ScoreNeed.DIFFERENCES,
        _euclidean,
        takes_truths=True,
    ),
    Algorithm(
        "KullbackLeiblerDivergence",
        "sum(p * log(p / q)) of the densities: moved to 0..1, at least 2^-23, divided by their sum",
        ScoreNeed.DIVERGENCE,
        _divergence,
    ),
    Algorithm(
        "StandardDeviation",
        "(mean of x;deviation of x),(mean of y;deviation of y)",
        ScoreNeed.DEVIATIONS,
        _deviation,
    ),
    Algorithm(
        "MeanAbsoluteError",
        "mean(abs(x - y))",
        ScoreNeed.DIFFERENCES,
        lambda found: _number(_mean(found.distances, found)),
    ),
    Algorithm(
        "RootMeanSquareError",
        "sqrt(mean((x - y)^2))",
        ScoreNeed.DIFFERENCES,
        lambda found: _number(np.sqrt(_mean(found.squares, found))),
    ),
    Algorithm(
        "MaxRelativeError",
        "max of abs(x / y - 1) where y is not zero, else 0",
        ScoreNeed.RATIOS,
        lambda found: _number(found.largest_ratio),
    ),
    Algorithm(
        "MeanRelativeError",
        "mean over all elements of abs(x / y - 1), 0 where y is zero",
        ScoreNeed.RATIOS,
        lambda found: _number(_mean(found.ratios, found)),
    ),
)
"""Every algorithm; its place is its number in ``-alg``."""

BY_NAME: Final = {algorithm.name: algorithm for algorithm in ALGORITHMS}

ALL: Final = tuple(BY_NAME)
"""The names of all algorithms."""


def compare(
    mine: np.ndarray, golden: np.ndarray, names: Sequence[str] = ALL, *, limit: int = 0
) -> tuple[Score, ...]:
    """Return what algorithms say of two tensors.

    Args:
        mine: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
        names: Algorithms by name.
        limit: Only so many elements from the first count, 0: all.

    Raises:
        FormatError: The tensors differ in their number of elements, or hold text.
    """
    _check(mine, golden)
    if (mine.dtype.kind == "c") != (golden.dtype.kind == "c"):
        mine, golden = mine.astype(np.complex64), golden.astype(np.complex64)
    is_scalar = all(size == 1 for size in mine.shape)
    if not mine.size:
        return tuple(Score(NAN, f"{name}: there are no elements") for name in names)
    if limit:
        mine, golden = mine.reshape(-1)[:limit], golden.reshape(-1)[:limit]
    chosen = [BY_NAME[name] for name in names]
    if mine.dtype == golden.dtype == np.bool_:
        chosen = [each if each.takes_truths else _refusing(each) for each in chosen]
    need = reduce(or_, (each.need for each in chosen), ScoreNeed(0))
    found = examine(mine, golden, need)
    found.is_scalar = is_scalar
    with np.errstate(all="ignore"):
        return tuple(each.score(found) for each in chosen)


def _refusing(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm that says that it is not defined for truth values."""
    refusal = Score(NAN, f"Algorithm {algorithm.name} does not support Boolean types.")
    return replace(algorithm, need=ScoreNeed(0), score=lambda _: refusal)


def _check(mine: np.ndarray, golden: np.ndarray) -> None:
    for side, array in (("mine", mine), ("golden", golden)):
        if array.dtype.kind in "OSUM":
            raise FormatError(f"{side} holds {array.dtype}; only numbers and truth values can be compared")
    if mine.size != golden.size:
        raise FormatError(
            f"mine has {mine.size} elements, shape {mine.shape}, golden {golden.size}, shape {golden.shape};"
            " only tensors of equal size can be compared"
        )
