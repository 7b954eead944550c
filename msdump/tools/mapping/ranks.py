"""Workers that are ranks of MPI: ``mpirun -n 16 python -m mpi4py.futures -m msdump compare ...``."""

from __future__ import annotations

import sys
from typing import Any

from msdump.tools.mapping.workers import Workers


def is_started() -> bool:
    """Tell whether ``mpi4py.futures`` started this program in one of several ranks."""
    core: Any = sys.modules.get("mpi4py.futures._core")
    return getattr(core, "SharedPool", None) is not None


class MpiWorkers(Workers):
    """The ranks but the one that this program runs in; where one of them dies, MPI ends all."""

    def __init__(self) -> None:
        """Take the ranks."""
        from mpi4py.futures import MPIPoolExecutor

        executor = MPIPoolExecutor()
        super().__init__(executor, executor.num_workers)
