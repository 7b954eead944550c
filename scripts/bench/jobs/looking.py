"""Statistics and watch rules on every output beside a run; passes over one tensor beside one read of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.device import formats, precision
from msdump.execute import compilation
from msdump.graph.kernel import FLOAT16
from msdump.session import Network
from msdump.statistics import StatisticNeed
from msdump.statistics import measure as measured
from scripts.bench import measure, sides, whole
from scripts.bench.measure import Case, Figure
from scripts.bench.networks import files

_COUNT: Final = 10_000_000
_HASHING_THREADS: Final = 2
_NEED: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_DEFAULT: Final = ("max", "min", "l2norm")
_CATEGORIES: Final = {
    "default": _DEFAULT,
    "all but hashes": (
        *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
        *("negative inf count", "positive inf count", "zero count", "l2norm"),
    ),
}
_RULES: Final = (
    {"condition": "tensor_overflow"},
    {"condition": "tensor_too_large", "max_gt": 1e30},
    {"condition": "tensor_all_zero"},
)


def statistics(case: Case, which: str) -> Figure:
    """Dump statistics of every output against a run without a dump."""
    return sides.beside(case, _measured(case, _CATEGORIES[which]), sides.network(case.path))


def rules(case: Case, beside: str) -> Figure:
    """Check rules on every output, of which none hits, against a run or a dump of their statistics."""
    ours = sides.network(case.path, sides.plan(case.folder / "rules", msdump={"watch": _RULES}))
    theirs = sides.network(case.path) if beside == "run" else _measured(case, _DEFAULT)
    return sides.beside(case, ours, theirs)


def _measured(case: Case, categories: Sequence[str]) -> Network:
    plan = sides.plan(case.folder / "rows", saved_data="statistic", statistic_category=list(categories))
    return sides.network(case.path, plan)


def hashes(case: Case) -> Figure:
    """Cost of MD5 of every output in a run, against hashlib.md5 of the same bytes on two threads."""
    feeds = sides.inputs(case.path)
    session = whole.session(files.with_all_values(case.path), case.threads)
    arrays = sorted(session.run(None, feeds), key=lambda array: -array.nbytes)
    del session
    networks = _measured(case, ("md5",)), sides.network(case.path)
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        runs = [partial(network.run, feeds) for network in networks]
        rounds = measure.timed([*runs, partial(_hash, pool, arrays)], case)
    return measure.figure(rounds, lambda dump, run, hashing: (dump - run) / hashing)


def _hash(pool: ThreadPoolExecutor, arrays: Sequence[np.ndarray]) -> None:
    octets = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays)
    for _ in pool.map(hashlib.md5, octets):
        pass


def elements(case: Case, dtype: str) -> Figure:
    """All statistics but the hashes of 1e7 elements against one numpy ``max`` of 1e7 float32."""
    floats = np.random.default_rng(0).standard_normal(_COUNT, dtype=np.float32)
    array = floats.astype(getattr(ml_dtypes, dtype, dtype))
    ours = partial(measured, array, dtypes.from_numpy(array.dtype), _NEED)
    return measure.ratio(ours, floats.max, case, is_alone=False)


def rounding(case: Case) -> Figure:
    """Round a float32 tensor to float16 against a copy of it."""
    array = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    compilation.accelerate_device()
    return measure.ratio(partial(precision.cast, array, FLOAT16), array.copy, case)


def layout(case: Case) -> Figure:
    """Lay a float16 tensor out as NC1HWC0 against a copy of it."""
    array = np.random.default_rng(0).standard_normal((8, 256, 56, 56)).astype(np.float16)
    compilation.accelerate_device()
    return measure.ratio(partial(formats.encode, "NC1HWC0", array), array.copy, case)
