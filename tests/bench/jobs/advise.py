"""``msdump diff --advise`` as a program of its own, its start included."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

from tests.bench.case import Case
from tests.bench.measure import Figure

_BOUND: Final = "1e-3"
"""Of the outputs' error, which is 1.7e-3 where all operators compute in float16."""

_PROGRAM: Final = (sys.executable, "-c", "from msdump.cli import main; main()", "diff")


def seconds(case: Case) -> Figure:
    """Time of the command."""
    return Figure.of([_run(case)[0]])


def gigabytes(case: Case) -> Figure:
    """Its peak memory."""
    return Figure.of([_run(case)[1] / 1e9])


def _run(case: Case) -> tuple[float, float]:
    """Return seconds and peak memory in bytes."""
    command = (*_PROGRAM, str(case.path), "--mine", "Ascend:force_fp16", "--advise", _BOUND)
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not any(line.startswith("keep ") for line in printed.splitlines()):
        raise RuntimeError(f"exit code {process.returncode}: {printed}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024.0
