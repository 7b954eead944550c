"""Workers of a Dask scheduler."""

from __future__ import annotations

import importlib
import logging
import re
import time
from concurrent.futures import CancelledError
from typing import Any, Final

from msdump.errors import NotAvailableError, ToolError
from msdump.tools.mapping.workers import Workers
from msdump.tools.return_codes import ReturnCode

_ADDRESS: Final = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:[0-9]{1,5}")

CONNECTING: Final = 10
"""Seconds until a scheduler that does not answer is one that is not there."""

WAITING: Final = 60
"""Seconds that a scheduler may be without a worker: one that starts, or died and is started again."""

_ASKING: Final = 2  # seconds between two looks at who is there


def library() -> Any:
    """Return the module distributed.

    Raises:
        NotAvailableError: It is not installed.
    """
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError as error:
        if error.name != "distributed":
            raise
        remedy = "install it, or msdump with its extra: pip install 'msdump[cluster]'"
        raise NotAvailableError(f"--scheduler: distributed is not installed; {remedy}") from error


class DaskWorkers(Workers):
    """The workers of a scheduler, which starts a unit again where a worker died."""

    def __init__(self, address: str) -> None:
        """Connect to the scheduler.

        Args:
            address: Its address, ``tcp://node7:8786``.

        Raises:
            NotAvailableError: Dask is not installed.
            ToolError: There is no scheduler, or it has no worker.
        """
        distributed = library()
        if not _ADDRESS.fullmatch(address):  # Dask's client raises an error, too, and then hangs for 20 s
            fault = f"--scheduler {address}: no address of a Dask scheduler; tcp://node7:8786 is one"
            raise ToolError(ReturnCode.PARAMETER, fault)
        for name in ("distributed", "distributed.client"):  # what they log is said here in one line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._address = address
        try:
            self._client = distributed.Client(address, timeout=CONNECTING, set_as_default=False)
        except (OSError, ValueError) as error:
            fault = f"--scheduler {address}: no Dask scheduler answers: {error}"
            raise ToolError(ReturnCode.PARAMETER, fault) from error
        try:
            self._client.wait_for_workers(1, timeout=WAITING)
        except TimeoutError as error:
            self._client.close()
            raise ToolError(ReturnCode.PARAMETER, self._alone(WAITING)) from error
        threads: int = sum(self._client.ncores().values())
        super().__init__(self._client.get_executor(pure=False), max(1, threads))
        self._seen = time.monotonic()
        self._asked = self._seen

    def check(self) -> None:
        """Look now and then who is there; ToolError where the scheduler or all workers have gone for good."""
        now = time.monotonic()
        if now - self._asked < _ASKING:
            return
        self._asked = now
        if self._client.status != "running":
            raise ToolError(ReturnCode.UNKNOWN, self._gone())
        try:
            workers = self._client.ncores()
        except OSError as error:
            raise ToolError(ReturnCode.UNKNOWN, self._gone()) from error
        if workers:
            self._seen = now
        elif now - self._seen > WAITING:
            raise ToolError(ReturnCode.UNKNOWN, self._alone(WAITING))

    def explain(self, error: BaseException, unit: str) -> BaseException:
        """Return the error of a unit that workers died of, or that could not be loaded there."""
        if type(error).__name__ == "KilledWorker":
            reason = str(error).partition(". ")[0]
            hint = "perhaps for want of memory; distributed.scheduler.allowed-failures of Dask is the limit"
            return ToolError(ReturnCode.UNKNOWN, f"Dask gave up {unit}: {reason}; {hint}")
        if isinstance(error, CancelledError):
            return ToolError(ReturnCode.UNKNOWN, self._gone())
        return super().explain(error, unit)

    def close(self) -> None:
        """Leave the scheduler; what is still running there is cancelled."""
        self.executor.shutdown(wait=False)
        self._client.close()

    def _alone(self, seconds: float) -> str:
        return f"--scheduler {self._address}: it has had no worker for {seconds:g} s; start dask worker"

    def _gone(self) -> str:
        return f"--scheduler {self._address}: the scheduler has gone, or dropped the work"
