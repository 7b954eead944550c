"""Statistics as the emulated device computes them: in float32, or in the tensor's own type.

A device adds a vector by folding it: its second half onto its first, until one
element is left. Each step is rounded to the type that is added in, so that sums
in float16 overflow to inf, and sums of integers wrap.
"""

from __future__ import annotations

import math

import numpy as np

from msdump.capture.statistics.passes import StatisticNeed, measure
from msdump.encode.statistic_csv import Cell
from msdump.record import TensorRecord

_EXTREMES = StatisticNeed(extremes=True)


def largest(record: TensorRecord, adds_in: np.dtype) -> Cell:
    """Return the largest element; NaN where one is NaN."""
    del adds_in
    return _as_cell(measure(record.array, record.dtype, _EXTREMES).high, record)


def smallest(record: TensorRecord, adds_in: np.dtype) -> Cell:
    """Return the smallest element; NaN where one is NaN."""
    del adds_in
    return _as_cell(measure(record.array, record.dtype, _EXTREMES).low, record)


def mean(record: TensorRecord, adds_in: np.dtype) -> Cell:
    """Return the folded sum divided by the number of elements, rounded to the type of the sum."""
    quotient = _fold(_flat(record, adds_in)) / record.array.size
    if adds_in.kind in "iu":
        return float(math.trunc(quotient))
    return _rounded(quotient, adds_in)


def norm(record: TensorRecord, adds_in: np.dtype) -> Cell:
    """Return the square root of the folded sum of squares."""
    terms = _flat(record, adds_in)
    with np.errstate(all="ignore"):
        np.multiply(terms, terms, out=terms)
    return _rounded(math.sqrt(_fold(terms)), adds_in)


def _as_cell(extreme: float, record: TensorRecord) -> Cell:
    return bool(extreme) if record.dtype.name == "bool" else extreme


def _flat(record: TensorRecord, adds_in: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return record.array.reshape(-1).astype(adds_in)


def _fold(terms: np.ndarray) -> float:
    """Return the sum of a vector, which is destroyed."""
    left = len(terms)
    with np.errstate(all="ignore"):
        while left > 1:
            half = (left + 1) // 2
            np.add(terms[: left - half], terms[half:left], out=terms[: left - half])
            left = half
    return float(terms[0])


def _rounded(value: float, dtype: np.dtype) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype))
