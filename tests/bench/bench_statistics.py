"""Ratios of the statistics pass: ``python -m tests.bench.bench_statistics`` prints them all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.statistics.passes import measure
from msdump.statistics.totals import StatisticNeed
from tests.bench.measure import ratio

COUNT: Final = 10_000_000
ROUNDS: Final = 21
ALL: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
DEFAULT: Final = StatisticNeed(extremes=True, squares=True)


def pass_ratio() -> float:
    """All statistics but the hashes of 1e7 float32 against one numpy ``max`` of them; at most 6."""
    array = _normal(np.float32)
    return ratio(_measured(array, ALL), array.max, threads=2, rounds=ROUNDS)


def default_ratio() -> float:
    """The default three statistics of 1e7 float32 against one numpy ``max`` of them."""
    array = _normal(np.float32)
    return ratio(_measured(array, DEFAULT), array.max, threads=2, rounds=ROUNDS)


def copy_ratio() -> float:
    """The default three statistics of 1e7 float32 against a copy of them."""
    array = _normal(np.float32)
    target = np.empty_like(array)
    return ratio(_measured(array, DEFAULT), partial(np.copyto, target, array), threads=2, rounds=ROUNDS)


def half_ratio(dtype: type = np.float16) -> float:
    """All statistics but the hashes of 1e7 float16 against the same of float32; at most 1.5."""
    return ratio(
        _measured(_normal(dtype), ALL), _measured(_normal(np.float32), ALL), threads=2, rounds=ROUNDS
    )


def bfloat16_ratio() -> float:
    """The same of bfloat16 against float32."""
    return half_ratio(ml_dtypes.bfloat16)


JOBS: Final = (pass_ratio, default_ratio, copy_ratio, half_ratio, bfloat16_ratio)


def _normal(dtype: type) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(COUNT, dtype=np.float32).astype(dtype)


def _measured(array: np.ndarray, need: StatisticNeed) -> Callable[[], object]:
    return partial(measure, array, dtypes.from_numpy(array.dtype), need)


if __name__ == "__main__":
    for job in JOBS:
        sys.stdout.write(f"{job.__name__:16} {job():.2f}\n")
