"""``msdump compare`` and ``msaccucmp.py compare`` of two dumps beside numpy.load of their tensors.

Both sides are commands of their own, their start included; their modules are compiled before, as of an
installed package are.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from msdump.encode import DumpData, TensorInfo, dump_data, dump_message
from tests.bench import measure
from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import compiled, run

_BYTES: Final = 850_000_000
"""Of each of the two sides."""

_SHAPES: Final = ((8, 256, 56, 56), (8, 64, 112, 112), (8, 512, 28, 28), (8, 1024, 14, 14), (8, 1000))
"""Shapes of a residual network's tensors, float32."""

_START: Final = 1612439563338030
_LOADING: Final = """
import pathlib, sys, numpy
for folder in sys.argv[1:]:
    for path in sorted(pathlib.Path(folder).iterdir()):
        numpy.load(path)
"""


def npy(case: Case) -> Figure:
    """``msdump compare`` of .npy files."""
    return _msdump(case, "npy")


def dump_files(case: Case) -> Figure:
    """``msdump compare`` of dump files."""
    return _msdump(case, "bin")


def accucmp_npy(case: Case) -> Figure:
    """``msaccucmp.py compare`` of .npy files."""
    return _accucmp(case, "npy")


def accucmp_dump_files(case: Case) -> Figure:
    """``msaccucmp.py compare`` of dump files."""
    return _accucmp(case, "bin")


def _msdump(case: Case, kind: str) -> Figure:
    mine, golden = (str(case.folder / kind / side) for side in ("mine", "golden"))
    command = ("-m", "msdump", "compare", "-out", str(case.folder / "out"), mine, golden)
    return _of_loading(case, _running(case.folder, *command, expected=1))  # 1: the tensors differ


def _accucmp(case: Case, kind: str) -> Figure:
    mine, golden = (str(case.folder / kind / side) for side in ("mine", "golden"))
    command = (str(Path.cwd() / "scripts" / "msaccucmp.py"), "compare", "-out", str(case.folder / "out"))
    return _of_loading(case, _running(case.folder, *command, "-m", mine, "-g", golden))


def _of_loading(case: Case, ours: measure.Side) -> Figure:
    _fill(case.folder)
    loaded = (str(case.folder / "npy" / side) for side in ("mine", "golden"))
    return measure.ratio(ours, _running(case.folder, "-c", _LOADING, *loaded), case, is_alone=False)


def _fill(folder: Path) -> None:
    """Write the same tensors as .npy files and as dump files, and others that are near them."""
    for kind in ("npy", "bin"):
        for side in ("mine", "golden"):
            (folder / kind / side).mkdir(parents=True)
    rng = np.random.default_rng(0)
    written = number = 0
    while written < _BYTES:
        golden = rng.standard_normal(_SHAPES[number % len(_SHAPES)], np.float32)
        np.maximum(golden, 0, out=golden)
        for side, array in (("golden", golden), ("mine", golden * np.float32(1.001))):
            _write(folder, side, number, array)
        written += golden.nbytes
        number += 1


def _write(folder: Path, side: str, number: int, array: np.ndarray) -> None:
    stem = f"ReLU.Default_ReLU-op{number}.{number}.0.{_START + number}"
    np.save(folder / "npy" / side / f"{stem}.output.0.DefaultFormat.float32.npy", array)
    types, nd = dump_message.DATA_TYPES, dump_message.ND
    info = TensorInfo(types["FLOAT"], nd, array.shape, array.shape, array.nbytes)
    header = dump_data.header(DumpData(f"Default/ReLU-op{number}", _START, outputs=(info,)))
    with (folder / "bin" / side / stem).open("wb") as file:
        file.write(header)
        file.write(array.data)


def _running(folder: Path, *arguments: str, expected: int = 0) -> measure.Side:
    return partial(run, sys.executable, *arguments, environment=compiled(folder), expected=expected)
