"""``msdump compare`` and ``msaccucmp.py compare`` of two dumps beside numpy.load of their tensors.

``python -m tests.bench.bench_compare``. Both sides are commands of their own, their start
included; their modules are compiled before, as those of an installed package are. Ends with 1
where a goal is missed.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from msdump.encode import dump_data, dump_enums
from msdump.encode.dump_data import DumpData, TensorInfo
from tests.bench import measure

MOST: Final = 3.5
BYTES: Final = 850_000_000
"""Of each of the two sides."""

ROUNDS: Final = 5
SHAPES: Final = ((8, 256, 56, 56), (8, 64, 112, 112), (8, 512, 28, 28), (8, 1024, 14, 14), (8, 1000))
"""Shapes of a residual network's tensors, float32."""

_START: Final = 1612439563338030
_ROOT: Final = Path(__file__).resolve().parents[2]
_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one
_LOADING: Final = """
import pathlib, sys, numpy
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).iterdir()):
        numpy.load(path)
"""


def fill(folder: Path) -> None:
    """Write the same tensors as .npy files and as dump files, and others that are near them."""
    for kind in ("npy", "bin"):
        for side in ("mine", "golden"):
            (folder / kind / side).mkdir(parents=True)
    rng = np.random.default_rng(0)
    written = number = 0
    while written < BYTES:
        golden = rng.standard_normal(SHAPES[number % len(SHAPES)], np.float32)
        np.maximum(golden, 0, out=golden)
        for side, array in (("golden", golden), ("mine", golden * np.float32(1.001))):
            _write(folder, side, number, array)
        written += golden.nbytes
        number += 1


def _write(folder: Path, side: str, number: int, array: np.ndarray) -> None:
    stem = f"ReLU.Default_ReLU-op{number}.{number}.0.{_START + number}"
    np.save(folder / "npy" / side / f"{stem}.output.0.DefaultFormat.float32.npy", array)
    types, nd = dump_enums.DATA_TYPES, dump_enums.ND
    info = TensorInfo(types["FLOAT"], nd, array.shape, array.shape, array.nbytes)
    header = dump_data.header(DumpData(f"Default/ReLU-op{number}", _START, outputs=(info,)))
    with (folder / "bin" / side / stem).open("wb") as file:
        file.write(header)
        file.write(array.data)


def figure(folder: Path, program: str, kind: str) -> float:
    """Return the time of a comparison divided by that of loading both sides."""
    mine, golden = (str(folder / kind / side) for side in ("mine", "golden"))
    options = ("-out", str(folder / "out"))
    if program == "msdump":
        # 1: the tensors differ
        ours = _running(folder, "-m", "msdump", "compare", *options, mine, golden, expected=1)
    else:
        script = str(_ROOT / "scripts" / "msaccucmp.py")
        ours = _running(folder, script, "compare", *options, "-m", mine, "-g", golden)
    theirs = _running(folder, "-c", _LOADING, *(str(folder / "npy" / side) for side in ("mine", "golden")))
    return measure.ratio(ours, theirs, threads=2, rounds=ROUNDS)


def _running(folder: Path, *arguments: str, expected: int = 0) -> Callable[[], None]:
    def run() -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        done = subprocess.run([sys.executable, *arguments], env=_environment(folder), check=False, **quiet)
        if done.returncode != expected:
            raise RuntimeError(f"{arguments}: exit code {done.returncode} instead of {expected}")

    return run


def _environment(folder: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def main() -> int:
    """Measure both programs with both kinds of files; return the number of goals missed."""
    table = Table("measured", "bytes", "figure", "at most", "")
    missed = 0
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        fill(Path(folder))
        kinds = (("npy", ".npy files"), ("bin", "dump files"))
        for program, (kind, what) in itertools.product(("msdump", "msaccucmp.py"), kinds):
            value = figure(Path(folder), program, kind)
            missed += value > MOST
            verdict = "holds" if value <= MOST else "MISSED"
            told = f"{program} compare of {what} / numpy.load of both"
            table.add_row(told, f"{2 * BYTES:,}", f"{value:.3f}", f"{MOST:.2f}", verdict)
    Console(width=110).print(table)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
