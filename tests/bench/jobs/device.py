"""What the emulated device costs: rounding, memory formats, the dump files of a compiled graph."""

from __future__ import annotations

from functools import partial

import numpy as np

from msdump.device import formats, precision
from msdump.execute import compilation
from msdump.graph.kernel import FLOAT16
from msdump.plan import JitLevel
from tests.bench import measure, sides
from tests.bench.case import Case
from tests.bench.measure import Figure


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


def compiled_float32(case: Case) -> Figure:
    """Dump files of a compiled graph against the synchronous dump of O0, every output of both."""
    return _compiled(case, "must_keep_origin_dtype")


def compiled_float16(case: Case) -> Figure:
    """The same where the device computes in float16."""
    return _compiled(case, "allow_fp32_to_fp16")


def _compiled(case: Case, mode: str) -> Figure:
    folders = {level: case.folder / level for level in (JitLevel.O2, JitLevel.O0)}
    ours, theirs = (
        sides.network(case.path, sides.plan(folder, level=level, msdump={"precision_mode": mode}))
        for level, folder in folders.items()
    )
    return sides.beside(case, ours, theirs, *folders.values())
