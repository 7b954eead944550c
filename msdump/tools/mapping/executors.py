"""The executors that work can be given to, in one table."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from msdump.errors import ToolError
from msdump.threads import cores
from msdump.tools.mapping import cluster, ranks
from msdump.tools.mapping.workers import Workers
from msdump.tools.return_codes import ReturnCode


class ExecutorKind(enum.Enum):
    """Where work is done."""

    PROCESSES = enum.auto()
    """In processes of this machine."""
    DASK = enum.auto()
    """By the workers of a Dask scheduler."""
    MPI = enum.auto()
    """By the ranks that ``mpirun python -m mpi4py.futures`` started."""


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """Who does the work of a command.

    Attributes:
        jobs: Number of processes, 0: one for each core.
        scheduler: Address of a Dask scheduler, "": none.
    """

    jobs: int = 0
    scheduler: str = ""

    @property
    def kind(self) -> ExecutorKind:
        """Where work is done."""
        if self.scheduler:
            return ExecutorKind.DASK
        return ExecutorKind.MPI if ranks.is_started() else ExecutorKind.PROCESSES

    @property
    def processes(self) -> int:
        """Number of processes of this machine, if it is they that work."""
        return self.jobs or cores()

    def check(self) -> None:
        """Refuse what contradicts.

        Raises:
            ToolError: Names the options.
        """
        kinds = {"--jobs": self.jobs, "--scheduler": self.scheduler, "mpi4py.futures": ranks.is_started()}
        given = [name for name, is_given in kinds.items() if is_given]
        if len(given) > 1:
            raise ToolError(ReturnCode.PARAMETER, f"{' and '.join(given)} exclude each other")


def _processes(choice: ExecutorChoice) -> Workers:
    from msdump.tools.mapping.processes import ProcessWorkers  # not above: little work needs no processes

    return ProcessWorkers(choice.processes)


EXECUTORS: Final[Mapping[ExecutorKind, Callable[[ExecutorChoice], Workers]]] = MappingProxyType(
    {
        ExecutorKind.PROCESSES: _processes,
        ExecutorKind.DASK: lambda choice: cluster.DaskWorkers(choice.scheduler),
        ExecutorKind.MPI: lambda _: ranks.MpiWorkers(),
    }
)
