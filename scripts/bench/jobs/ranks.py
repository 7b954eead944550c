"""Ranks of MPI: AllReduce beside mpi4py's own, ranks that dump beside one.

Each measurement runs under mpirun, which the job starts with the name of its part; rank 0 prints one number.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.communication import Collectives, Fingerprint, current
from msdump.graph import Collective, CollectiveCall
from scripts.bench import measure, sides
from scripts.bench.measure import Case, Figure, UnavailableError

_BYTES: Final = 100_000_000
_ROUNDS: Final = 15
_STEPS: Final = 3


def all_reduce(case: Case) -> Figure:
    """AllReduce of 100 MB by two ranks against mpi4py's own."""
    return Figure.of([_under_mpirun(_all_reduce, case, ranks=2)])


def dumping(case: Case) -> Figure:
    """Dump of two ranks against that of one, by bytes."""
    return Figure.of([_under_mpirun(_dumping, case, ranks=2) / _under_mpirun(_dumping, case, ranks=1)])


def _under_mpirun(part: Callable[..., float], case: Case, *, ranks: int) -> float:
    if importlib.util.find_spec("mpi4py") is None:
        raise UnavailableError("mpi4py is not installed")
    mpirun = Path(sys.executable).parent / "mpirun"
    program = str(mpirun) if mpirun.exists() else shutil.which("mpirun")
    if program is None:
        raise UnavailableError("mpirun is not installed")
    command = [program, "--allow-run-as-root", "-n", str(ranks), sys.executable, "-m", __name__]
    model = str(case.path) if case.network else "-"
    given = (part.__name__, model, str(case.within(f"{part.__name__}{ranks}").folder))
    done = subprocess.run([*command, *given], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def _all_reduce(model: Path, folder: Path) -> float:
    """Return the ratio of both, each into memory that is there."""
    from mpi4py import MPI

    del model, folder
    array = np.full(_BYTES // 4, MPI.COMM_WORLD.rank + 1, np.float32)
    out = np.empty_like(array)
    collectives, call = Collectives(current(), Fingerprint()), CollectiveCall(Collective.ALL_REDUCE)
    ours: Callable[[], Any] = partial(collectives.run, call, "AllReduce", [array], lambda _shape, _dtype: out)
    theirs: Callable[[], Any] = partial(MPI.COMM_WORLD.Allreduce, array, np.empty_like(array))
    return measure.figure(measure.together((ours, theirs), _ROUNDS), lambda ours, theirs: ours / theirs).value


def _dumping(model: Path, folder: Path) -> float:
    """Return the seconds that the slowest rank takes for each GB that all of them dump."""
    from mpi4py import MPI

    network, feeds = sides.network(model, sides.plan(folder)), sides.inputs(model)
    network.run(feeds)
    summary = network.summary
    assert summary is not None
    MPI.COMM_WORLD.Barrier()
    start = time.perf_counter()
    for _ in range(_STEPS):
        network.run(feeds)
    seconds = MPI.COMM_WORLD.allreduce(time.perf_counter() - start, MPI.MAX)
    return float(seconds / (summary.bytes * _STEPS * MPI.COMM_WORLD.size) * 1e9)


def _main(part: str, model: str, folder: str) -> None:
    """Run one part as a rank; rank 0 prints its number."""
    identity = current().identity
    number = {"_all_reduce": _all_reduce, "_dumping": _dumping}[part](Path(model), Path(folder))
    if identity.rank == 0:
        sys.stdout.write(f"{number:.6f}\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
