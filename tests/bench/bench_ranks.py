"""Ranks of MPI beside what they are compared with: ``python -m tests.bench.bench_ranks``.

AllReduce beside mpi4py's own, and two ranks that dump every output beside one rank. Each measurement runs
under mpirun, which this module starts with a job's name; rank 0 prints one number. Ends with 1 where a goal
is missed, and measures nothing where mpi4py is not installed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from msdump.communication.agreement import Fingerprint
from msdump.communication.collectives import Collectives
from msdump.communication.world import current
from msdump.graph.collectives.calls import Collective, CollectiveCall
from tests.bench import measure, sides

_BYTES: Final = 100_000_000
_MOST_OF_MPI: Final = 1.5
_MOST_OF_ONE: Final = 1.2
_ROUNDS: Final = 15
_STEPS: Final = 5


def of_mpi(_folder: Path) -> float:
    """AllReduce against mpi4py's own of the same buffer, both into memory that is there."""
    from mpi4py import MPI

    array = np.full(_BYTES // 4, MPI.COMM_WORLD.rank + 1, np.float32)
    out = np.empty_like(array)
    collectives, call = Collectives(current(), Fingerprint()), CollectiveCall(Collective.ALL_REDUCE)
    ours: Callable[[], Any] = partial(collectives.run, call, "AllReduce", [array], lambda _shape, _dtype: out)
    theirs: Callable[[], Any] = partial(MPI.COMM_WORLD.Allreduce, array, np.empty_like(array))
    return measure.ratio(ours, theirs, threads=2, rounds=_ROUNDS)


def dumping(folder: Path) -> float:
    """Seconds that the slowest rank takes for each GB that all of them dump."""
    from mpi4py import MPI

    path = sides.model("resnet50", 1)
    network, feeds = sides.network(path, sides.plan(folder, "all")), sides.inputs(path)
    network.run(feeds)
    written = network.summary.bytes
    MPI.COMM_WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(_STEPS):
        network.run(feeds)
    seconds = MPI.COMM_WORLD.allreduce(time.perf_counter() - start, MPI.MAX)
    return float(seconds / (written * _STEPS * MPI.COMM_WORLD.size) * 1e9)


JOBS: Final[dict[str, Callable[[Path], float]]] = {job.__name__: job for job in (of_mpi, dumping)}


def figure(job: str, ranks: int) -> float:
    """Return what a job measures as several ranks, each on a core of its own."""
    mpirun = Path(sys.executable).parent / "mpirun"
    program = str(mpirun) if mpirun.exists() else shutil.which("mpirun")
    assert program, "mpirun is not installed"
    command = [program, "--allow-run-as-root", "-n", str(ranks), sys.executable, "-m", __spec__.name, job]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*command, folder], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Measure the goals; return the number of those missed."""
    if importlib.util.find_spec("mpi4py") is None:
        Console().print("mpi4py is not installed: ranks are not measured")
        return 0
    table = Table("measured", "ranks", "ratio", "at most", "")
    missed = 0
    of_one = figure("dumping", 2) / figure("dumping", 1)
    for what, value, most in (
        ("AllReduce of 100 MB / mpi4py's own", figure("of_mpi", 2), _MOST_OF_MPI),
        ("dump of every output of resnet50, per byte / one rank", of_one, _MOST_OF_ONE),
    ):
        missed += value > most
        table.add_row(what, "2", f"{value:.3f}", f"{most:.2f}", "MISSED" if value > most else "holds")
    Console(width=110).print(table)
    return missed


def run(job: str, folder: str) -> None:
    """Run one job; rank 0 prints its number."""
    identity = current().identity
    number = JOBS[job](Path(folder))
    if identity.rank == 0:
        sys.stdout.write(f"{number:.6f}\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(*sys.argv[1:])
    else:
        sys.exit(min(main(), 1))
