"""``msdump diff --advise`` on a BERT of public base size, 128 tokens: ``python -m tests.bench.bench_advise``.

The command runs as a program of its own, its start included; beside the time on the clock stands that of the
processors, which other programs of the machine disturb less. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from sample_nets.build import build

SECONDS: Final = 60.0
GIGABYTES: Final = 2.0
BOUND: Final = "1e-3"
"""Of the outputs' error, which is 1.7e-3 where all operators compute in float16."""

_PROGRAM: Final = (sys.executable, "-c", "from msdump.cli import main; main()", "diff")


def run(model: Path) -> tuple[float, float, float, str]:
    """Return seconds, seconds of the processors, peak memory in bytes, and what was printed."""
    command = (*_PROGRAM, str(model), "--mine", "Ascend:force_fp16", "--advise", BOUND)
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    assert process.returncode == 0, printed
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0, printed


def main() -> int:
    """Measure both goals; return the number of those missed."""
    table = Table("measured", "figure", "at most", "")
    with tempfile.TemporaryDirectory() as folder:
        seconds, busy, peak, printed = run(build("bert", folder))
    missed = 0
    for what, value, most in (
        ("seconds", seconds, SECONDS),
        ("peak memory, GB", peak / 1e9, GIGABYTES),
    ):
        missed += value > most
        table.add_row(what, f"{value:.2f}", f"{most:g}", "holds" if value <= most else "MISSED")
    table.add_row("seconds of processors", f"{busy:.2f}", "", "")
    console = Console(width=110)
    console.print(table)
    console.print(next(line for line in printed.splitlines() if line.startswith("keep ")))
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
