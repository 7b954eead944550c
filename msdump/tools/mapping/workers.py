"""An executor that is open, and what differs between executors."""

from __future__ import annotations

from concurrent.futures import Executor

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode


class Workers:
    """The workers of an executor; what stands here holds for those that somebody else looks after.

    Attributes:
        executor: Takes the units.
        count: How many of them are worked on at the same time.
        is_child: Whether workers are children of this process, which have its versions and its files.
    """

    is_child = False

    def __init__(self, executor: Executor, count: int) -> None:
        """Take an executor."""
        self.executor = executor
        self.count = count

    def check(self) -> None:
        """Raise ToolError where no worker is left that could finish a unit, for which this process waits."""

    def is_death(self, error: BaseException) -> bool:  # noqa: ARG002 - for classes below
        """Tell whether an error means that a worker died, so that units run again after ``replace``."""
        return False

    def replace(self) -> None:
        """Put a new executor in the place of one whose worker died."""

    def explain(self, error: BaseException, unit: str) -> BaseException:  # noqa: ARG002 - as before
        """Return the error that is raised for a unit that failed outside of its own work."""
        if isinstance(error, (ImportError, AttributeError)):
            fault = f"a worker cannot load msdump: {error}; install the same version there"
            return ToolError(ReturnCode.UNSUPPORTED, fault)
        return error

    def close(self) -> None:
        """Give the executor back: an error or Ctrl-C must not wait for units that nobody wants any more."""
        self.executor.shutdown(cancel_futures=True)
