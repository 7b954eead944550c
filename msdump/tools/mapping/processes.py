"""Workers that are processes of this machine."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from msdump.errors import ToolError
from msdump.tools.mapping.units import LOG
from msdump.tools.mapping.workers import Workers
from msdump.tools.return_codes import ReturnCode


class ProcessWorkers(Workers):
    """A pool of processes, which is replaced where one of them dies."""

    is_child = True

    def __init__(self, count: int) -> None:
        """Start a pool.

        Args:
            count: Number of processes.
        """
        super().__init__(_pool(count), count)

    def is_death(self, error: BaseException) -> bool:
        """Tell whether an error means that a process died."""
        return isinstance(error, BrokenProcessPool)

    def replace(self) -> None:
        """Start a new pool."""
        self.close()
        self.executor = _pool(self.count)

    def explain(self, error: BaseException, unit: str) -> BaseException:
        """Return the error of a unit of which processes die, mostly by the kernel when memory ran out."""
        if not self.is_death(error):
            return error
        fault = f"a process was killed while it worked, again and again on {unit}, perhaps for want of memory"
        return ToolError(ReturnCode.UNKNOWN, f"{fault}; try --jobs 1")


def _pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, initializer=_begin)


def _begin() -> None:
    """Let a new process print no message: they are told where its results are taken."""
    LOG.handlers.clear()
