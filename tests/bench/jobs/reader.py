"""``msdump.open_dump`` of 100,000 files up to the first tensor, in seconds of the processor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np

from msdump.encode import npy
from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import run

_FILES: Final = 100_000
_ITERATIONS: Final = 20
_RUNS: Final = 5

_START: Final = 1612439563338030
_SLOTS: Final = (("input", 0), ("input", 1), ("input", 2), ("output", 0))
_OPENING: Final = """
import sys, time, numpy, msdump
before = time.process_time()
first = next(iter(msdump.open_dump(sys.argv[1]).records))
assert first.array.size
print(time.process_time() - before)
"""


def _fill(root: Path) -> None:
    """Write the files of a network with 1,250 operators, iteration by iteration."""
    data = b"".join(npy.encode(np.ones((2, 2), np.float32)))
    time = _START
    for iteration in range(_ITERATIONS):
        folder = root / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        for number in range(_FILES // _ITERATIONS):
            time += 1
            io, slot = _SLOTS[number % len(_SLOTS)]
            operator = f"Conv2D.Default_layer{number // 4}-Conv2d_Conv2D-op{number // 4}"
            (folder / f"{operator}.0.0.{time}.{io}.{slot}.DefaultFormat.float32.npy").write_bytes(data)


def opening(case: Case) -> Figure:
    """Open a dump and read its first record, each time in a fresh process; imports of numpy do not count."""
    _fill(case.folder)
    runs = (run(sys.executable, "-c", _OPENING, str(case.folder)) for _ in range(_RUNS))
    return Figure.of([float(each.printed) for each in runs])
