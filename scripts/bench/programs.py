"""Programs that are measured from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MSDUMP: Final = (sys.executable, "-m", "msdump")


@dataclass(frozen=True, slots=True)
class Ran:
    """Output and cost of a program.

    Attributes:
        printed: Its output.
        seconds: From its start to its end.
        cpu: Seconds of the processor, of its own processes as well.
        mib: Peak memory of its largest process.
    """

    printed: str
    seconds: float
    cpu: float
    mib: float


def run(
    *command: str,
    environment: Mapping[str, str] | None = None,
    expected: int = 0,
    folder: Path | None = None,
) -> Ran:
    """Run a program to its end, in a folder or here.

    Raises:
        RuntimeError: It ends with another code than expected.
    """
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    if process.returncode != expected:
        raise RuntimeError(f"{command}: exit code {process.returncode} instead of {expected}: {printed}")
    return Ran(printed, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compiled(folder: Path) -> dict[str, str]:
    """Return an environment in which Python keeps compiled modules, as of installed packages."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
