"""``msdump convert`` of a large directory beside a copy of it: ``python -m tests.bench.bench_convert``.

Both sides are commands of their own, their start included. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from msdump.encode import dump_data, dump_enums
from msdump.encode.dump_data import DumpData, TensorInfo
from tests.bench import measure

GOALS: Final = (
    ("convert to npy / cp -r", (), 1.5),
    ("convert -f NCHW of NC1HWC0 float16 / cp -r", ("-f", "NCHW"), 2.5),
)
"""What is measured, the command's options and the most that the ratio may be."""

BYTES: Final = 1 << 30
ROUNDS: Final = 9
SHAPES: Final = ((8, 16, 56, 56, 16), (8, 4, 112, 112, 16), (8, 32, 28, 28, 16), (8, 64, 14, 14, 16))
"""Device shapes of a residual network's images."""

_PROGRAM: Final = (sys.executable, "-c", "from msdump.cli import main; main()", "convert")
_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one


def fill(directory: Path) -> None:
    """Write dump files, as many as make a gigabyte, each with an input and an output."""
    directory.mkdir()
    written = number = 0
    while written < BYTES:
        shapes = (SHAPES[number % len(SHAPES)], SHAPES[(number + 1) % len(SHAPES)])
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
        dump_enums.DATA_TYPES["FLOAT16"], dump_enums.FORMATS["NC1HWC0"], shape, (n, c1 * c0, h, w), size
    )


def figure(source: Path, options: tuple[str, ...]) -> float:
    """Return the time of a conversion divided by that of a copy."""
    target = source.with_name("target")
    ours = _running(*_PROGRAM, str(source), "-out", str(target), *options)
    theirs = _running("cp", "-r", str(source), str(target))
    tidy = partial(shutil.rmtree, target)
    return measure.ratio(ours, theirs, threads=2, rounds=ROUNDS, tidy=tidy)


def _running(*command: str) -> Callable[[], None]:
    def run() -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    return run


def main() -> int:
    """Measure every goal; return the number of those missed."""
    table = Table("measured", "bytes", "figure", "at most", "")
    missed = 0
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        source = Path(folder, "source")
        fill(source)
        for what, options, most in GOALS:
            value = figure(source, options)
            missed += value > most
            verdict = "holds" if value <= most else "MISSED"
            table.add_row(what, f"{BYTES:,}", f"{value:.3f}", f"{most:.2f}", verdict)
    Console(width=110).print(table)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
