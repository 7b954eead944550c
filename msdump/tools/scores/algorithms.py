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
from msdump.tools.scores.passes import ALMOST_ZERO, examine
from msdump.tools.scores.sums import Findings, FurtherSums, ScoreNeed, TensorFacts

NAN: Final = "NaN"
"""What stands where there is no number."""

_LEAST_SHOWN: Final = 0.001  # means and deviations below are shown as zero


@dataclass(frozen=True, slots=True)
class Score:
    """The result of one algorithm for two tensors.

    Attributes:
        text: The number as reports hold it, or "NaN".
        note: The reason why there is no number, or a remark on it; "" for none.
    """

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm, a row of ``ALGORITHMS``.

    Attributes:
        name: Title of its column.
        definition: The formula, with x for the tensor that is examined and y for the golden one.
        need: Which sums over the elements the formula takes.
        score: Computes the result from them.
        takes_truths: Whether it is defined for two tensors of truth values.
    """

    name: str
    definition: str
    need: ScoreNeed
    score: Callable[[Findings], Score]
    takes_truths: bool = False


def _number(value: float | np.floating) -> Score:
    # vendor: results are float32 before they are printed, which shows in the sixth decimal of large ones.
    return Score(f"{np.float32(value):.6f}")


def _cosine(findings: Findings) -> Score:
    if findings.is_scalar:
        return Score("1.000000", "This tensor is scalar.")
    dumped, golden = findings.dumped.norm, findings.golden.norm
    if dumped <= ALMOST_ZERO and golden <= ALMOST_ZERO:
        return Score("1.0")  # vendor: one decimal here, six in all other cases
    for side, norm in (("mine", dumped), ("golden", golden)):
        # Not the norm as above but its root: one side alone counts as zero below epsilon squared.
        if math.sqrt(norm) <= ALMOST_ZERO:
            return Score(NAN, f"CosineSimilarity: all elements of {side} are zero")
    # The float32 products of equal vectors may add up to slightly more than 1.
    return _number(min(findings.cosine, 1.0))


def _euclidean(findings: Findings) -> Score:
    if findings.golden.norm <= ALMOST_ZERO:
        return _number(0)
    return _number(np.sqrt(findings.rounded_squares / findings.golden.rounded_squares))


def _divergence(findings: Findings) -> Score:
    # vendor: no other sign is mended, so a divergence just below zero prints as -0.000000.
    return _number(0 if abs(findings.divergence) < ALMOST_ZERO else findings.divergence)


def _deviation(findings: Findings) -> Score:
    return Score(
        f"{_mean_and_deviation(findings.dumped, findings)},{_mean_and_deviation(findings.golden, findings)}"
    )


def _mean_and_deviation(side: TensorFacts, findings: Findings) -> str:
    mean, deviation = side.total / findings.count, math.sqrt(side.deviations / findings.count)
    # vendor: three decimals; numbers below a thousandth print as 0.000, without a sign.
    shown = [0.0 if abs(number) < _LEAST_SHOWN else number for number in (mean, deviation)]
    return f"({shown[0]:.3f};{shown[1]:.3f})"


def _mean(total: float, findings: Findings) -> np.float32:
    return np.float32(total / findings.count)


# The order is the vendor's: users choose algorithms by these numbers (-alg 0,3), and columns follow it.
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
        ScoreNeed.DISTANCES,
        lambda findings: _number(findings.largest),
    ),
    Algorithm(
        "AccumulatedRelativeError",
        "sum of abs(x / y - 1) where y is not zero",
        ScoreNeed.RATIOS,
        lambda findings: _number(findings.ratios),
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
        ScoreNeed.DISTANCES,
        lambda findings: _number(_mean(findings.distances, findings)),
    ),
    Algorithm(
        "RootMeanSquareError",
        "sqrt(mean((x - y)^2))",
        ScoreNeed.DIFFERENCES,
        lambda findings: _number(np.sqrt(_mean(float(findings.rounded_squares), findings))),
    ),
    Algorithm(
        "MaxRelativeError",
        "max of abs(x / y - 1) where y is not zero, else 0",
        ScoreNeed.RATIOS,
        lambda findings: _number(findings.largest_ratio),
    ),
    Algorithm(
        "MeanRelativeError",
        "mean over all elements of abs(x / y - 1), 0 where y is zero",
        ScoreNeed.RATIOS,
        lambda findings: _number(_mean(findings.ratios, findings)),
    ),
)
"""Every algorithm; its place is its number in ``-alg``."""

BY_NAME: Final = {algorithm.name: algorithm for algorithm in ALGORITHMS}

ALL: Final = tuple(BY_NAME)
"""The names of all algorithms."""


def compare(
    dumped: np.ndarray,
    golden: np.ndarray,
    names: Sequence[str] = ALL,
    *,
    limit: int = 0,
    further: FurtherSums | None = None,
) -> tuple[Score, ...]:
    """Return the scores of algorithms for two tensors, in the order of the names.

    >>> x, y = np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]])
    >>> for name, score in zip(ALL, compare(x, y)):
    ...     print(f"{name:26}{score.text}")
    CosineSimilarity          0.993999
    MaxAbsoluteError          1.000000
    AccumulatedRelativeError  0.200000
    RelativeEuclideanDistance 0.160128
    KullbackLeiblerDivergence 0.010310
    StandardDeviation         (2.500;1.118),(2.750;1.479)
    MeanAbsoluteError         0.250000
    RootMeanSquareError       0.500000
    MaxRelativeError          0.200000
    MeanRelativeError         0.050000

    Args:
        dumped: The tensor that is examined; any numeric or truth type.
        golden: The tensor that it is compared with; as many elements, in the same order.
        names: Algorithms by name.
        limit: Only so many elements from the first count, 0: all.
        further: Gets the blocks of the tensors, too; None: nobody does.

    Raises:
        FormatError: The tensors differ in their number of elements, or hold text.
    """
    _check(dumped, golden)
    if (dumped.dtype.kind == "c") != (golden.dtype.kind == "c"):
        # Of complex numbers real and imaginary parts are compared, so both need the two.
        dumped, golden = dumped.astype(np.complex64), golden.astype(np.complex64)
    # vendor: a scalar is told by the shape before -max cuts elements off.
    is_scalar = all(size == 1 for size in dumped.shape)
    if not dumped.size:
        return tuple(Score(NAN, f"{name}: there are no elements") for name in names)
    if limit:
        dumped, golden = dumped.reshape(-1)[:limit], golden.reshape(-1)[:limit]
    chosen = [BY_NAME[name] for name in names]
    if dumped.dtype == golden.dtype == np.bool_:
        chosen = [each if each.takes_truths else _refusing(each) for each in chosen]
    need = reduce(or_, (each.need for each in chosen), ScoreNeed(0))
    findings = examine(dumped, golden, need, further)
    findings.is_scalar = is_scalar
    with np.errstate(all="ignore"):
        return tuple(each.score(findings) for each in chosen)


def _refusing(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with a score that only notes that it is not defined for truth values."""
    refusal = Score(NAN, f"Algorithm {algorithm.name} does not support Boolean types.")
    return replace(algorithm, need=ScoreNeed(0), score=lambda _: refusal)


def _check(dumped: np.ndarray, golden: np.ndarray) -> None:
    for side, array in (("mine", dumped), ("golden", golden)):
        if array.dtype.kind in "OSUM":
            raise FormatError(f"{side} holds {array.dtype}; only numbers and truth values can be compared")
    if dumped.size != golden.size:
        raise FormatError(
            f"mine has {dumped.size} elements, shape {dumped.shape},"
            f" golden {golden.size}, shape {golden.shape}; only tensors of equal size can be compared"
        )
