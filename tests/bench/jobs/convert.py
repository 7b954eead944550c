"""``msdump convert`` of a large directory beside a copy of it; both are commands, their start included."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from msdump.encode import DumpData, TensorInfo, dump_data, dump_message
from tests.bench import measure
from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import MSDUMP, compiled, run

_BYTES: Final = 500_000_000
_SHAPES: Final = ((8, 16, 56, 56, 16), (8, 4, 112, 112, 16), (8, 32, 28, 28, 16), (8, 64, 14, 14, 16))
"""Device shapes of a residual network's images."""


def to_npy(case: Case) -> Figure:
    """Every tensor of the dump files as it is."""
    return _of_copy(case)


def to_nchw(case: Case) -> Figure:
    """Every tensor brought from NC1HWC0 to NCHW."""
    return _of_copy(case, "-f", "NCHW")


def _of_copy(case: Case, *options: str) -> Figure:
    source, target = case.folder / "source", case.folder / "target"
    _fill(source)
    environment = compiled(case.folder)
    ours = partial(
        run, *MSDUMP, "convert", str(source), "-out", str(target), *options, environment=environment
    )
    theirs = partial(run, "cp", "-r", str(source), str(target))
    return measure.ratio(ours, theirs, case, tidy=partial(shutil.rmtree, target), is_alone=False)


def _fill(directory: Path) -> None:
    """Write dump files, each with an input and an output."""
    directory.mkdir()
    written = number = 0
    while written < _BYTES:
        shapes = (_SHAPES[number % len(_SHAPES)], _SHAPES[(number + 1) % len(_SHAPES)])
        source, result = (_info(shape) for shape in shapes)
        header = dump_data.header(DumpData(f"Default/Conv2D-op{number}", number, (source,), (result,)))
        data = np.random.default_rng(number).integers(0, 1 << 15, (source.size + result.size) // 2, "u2")
        path = directory / f"Conv2D.Default_Conv2D-op{number}.{number}.0.{1612439563338030 + number}"
        path.write_bytes(header + data.tobytes())
        written += path.stat().st_size
        number += 1


def _info(shape: tuple[int, ...]) -> TensorInfo:
    n, c1, h, w, c0 = shape
    size = 2 * int(np.prod(shape))
    return TensorInfo(
        dump_message.DATA_TYPES["FLOAT16"], dump_message.FORMATS["NC1HWC0"], shape, (n, c1 * c0, h, w), size
    )
