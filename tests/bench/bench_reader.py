"""``msdump.open_dump`` of 100,000 files up to the first tensor, in seconds of the processor.

``python -m tests.bench.bench_reader``. Ends with 1 where the goal is missed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from msdump.encode import npy

MOST: Final = 0.5
FILES: Final = 100_000
ITERATIONS: Final = 20

_START: Final = 1612439563338030
_SLOTS: Final = (("input", 0), ("input", 1), ("input", 2), ("output", 0))
_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the reader a disk's noise, where there is one
_OPENING: Final = """
import sys, time, numpy, msdump
before = time.process_time()
first = next(iter(msdump.open_dump(sys.argv[1]).records))
assert first.array.size
print(time.process_time() - before)
"""


def fill(root: Path) -> None:
    """Write the files of a network with 1,250 operators, iteration by iteration."""
    data = b"".join(npy.encode(np.ones((2, 2), np.float32)))
    time = _START
    for iteration in range(ITERATIONS):
        folder = root / f"rank_0/Net/0/{iteration}"
        folder.mkdir(parents=True)
        for number in range(FILES // ITERATIONS):
            time += 1
            io, slot = _SLOTS[number % len(_SLOTS)]
            operator = f"Conv2D.Default_layer{number // 4}-Conv2d_Conv2D-op{number // 4}"
            (folder / f"{operator}.0.0.{time}.{io}.{slot}.DefaultFormat.float32.npy").write_bytes(data)


def figure(root: Path) -> float:
    """Return the least time of five programs, each with a fresh process; imports of numpy do not count."""
    command = [sys.executable, "-c", _OPENING, str(root)]
    runs = (subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True) for _ in range(5))
    return min(float(run.stdout) for run in runs)


def main() -> int:
    """Measure; return the number of goals missed."""
    table = Table("measured", "files", "seconds", "at most", "")
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        fill(Path(folder))
        value = figure(Path(folder))
    verdict = "holds" if value <= MOST else "MISSED"
    table.add_row("open_dump, first record, CPU", f"{FILES:,}", f"{value:.3f}", f"{MOST:.2f}", verdict)
    Console(width=110).print(table)
    return int(value > MOST)


if __name__ == "__main__":
    sys.exit(main())
