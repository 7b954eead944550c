"""Statistics of every output beside a run, and the pass over one tensor beside one read of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.session import Network
from msdump.statistics import StatisticNeed
from msdump.statistics import measure as measured
from tests.bench import measure, sides, whole
from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.networks import files

_COUNT: Final = 10_000_000
_HASHING_THREADS: Final = 2
_NEED: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_DEFAULT: Final = ("max", "min", "l2norm")
_BUT_HASHES: Final = (
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "l2norm"),
)


def default(case: Case) -> Figure:
    """Dump the default three statistics of every output against a run without a dump."""
    return _of_run(case, _DEFAULT)


def but_hashes(case: Case) -> Figure:
    """Dump all statistics but the hashes of every output against a run without a dump."""
    return _of_run(case, _BUT_HASHES)


def _of_run(case: Case, categories: Sequence[str]) -> Figure:
    return sides.beside(case, _dumping(case, categories), sides.network(case.path))


def _dumping(case: Case, categories: Sequence[str]) -> Network:
    plan = sides.plan(case.folder, saved_data="statistic", statistic_category=list(categories))
    return sides.network(case.path, plan)


def hashes(case: Case) -> Figure:
    """Cost of MD5 of every output in a run, against hashlib.md5 of the same bytes on two threads."""
    feeds = sides.inputs(case.path)
    session = whole.session(files.with_all_values(case.path), case.threads)
    arrays = sorted(session.run(None, feeds), key=lambda array: -array.nbytes)
    del session
    ours, plain = _dumping(case, ("md5",)), sides.network(case.path)
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        rounds = measure.timed(
            [partial(ours.run, feeds), partial(plain.run, feeds), partial(_hash, pool, arrays)], case
        )
    return measure.figure(rounds, lambda dump, run, hashing: (dump - run) / hashing)


def _hash(pool: ThreadPoolExecutor, arrays: Sequence[np.ndarray]) -> None:
    for _ in pool.map(
        hashlib.md5, (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays)
    ):
        pass


def pass_float32(case: Case) -> Figure:
    """All statistics but the hashes of 1e7 float32 against one numpy ``max`` of them."""
    array = _normal(np.float32)
    return measure.ratio(_measuring(array), array.max, case, is_alone=False)


def pass_float16(case: Case) -> Figure:
    """The same of 1e7 float16 against numpy's ``max`` of 1e7 float32."""
    return _of_half(case, np.float16)


def pass_bfloat16(case: Case) -> Figure:
    """The same of 1e7 bfloat16 against numpy's ``max`` of 1e7 float32."""
    return _of_half(case, ml_dtypes.bfloat16)


def _of_half(case: Case, dtype: type) -> Figure:
    return measure.ratio(_measuring(_normal(dtype)), _normal(np.float32).max, case, is_alone=False)


def _normal(dtype: type) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(_COUNT, dtype=np.float32).astype(dtype)


def _measuring(array: np.ndarray) -> Callable[[], object]:
    return partial(measured, array, dtypes.from_numpy(array.dtype), _NEED)
