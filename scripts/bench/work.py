"""One job in a process of its own: ``python -m scripts.bench.work JOB NETWORK BATCH THREADS SECONDS FOLDER``.

A job is ``module.function`` of ``scripts/bench/jobs``, or ``module.function:argument``: it takes a case and
returns a figure. The process prints the figure as JSON, or why it cannot be measured here.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.bench.measure import Case, Figure, UnavailableError

RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one

Job = Callable[[Case], Figure]


class JobError(Exception):
    """A job failed: its text is the last line that its process wrote."""


def find(job: str) -> Job:
    """Return the function that ``module.function`` names, with its argument."""
    name, _, argument = job.partition(":")
    module, _, function = name.partition(".")
    found: Callable[..., Figure] = getattr(importlib.import_module(f"scripts.bench.jobs.{module}"), function)
    return (lambda case: found(case, argument)) if argument else found


def measured(
    job: str, case: Case, *, directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> Figure:
    """Return the figure of a job in a process of its own.

    Args:
        job: ``module.function``, with its argument.
        case: Its case; the job gets a folder of its own, which is removed afterwards.
        directory: Where the process runs, and where it finds msdump; None: here.
        environment: Its environment; None: this one.

    Raises:
        UnavailableError: It needs something that is not there.
        JobError: It failed.
    """
    given = (case.network or "-", str(case.batch), str(case.threads), str(case.seconds))
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="msdump-bench-") as folder:
        command = (sys.executable, "-m", "scripts.bench.work", job, *given, folder)
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=directory, env=environment, check=False
        )
    if done.returncode:
        raise JobError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    document = json.loads(done.stdout.splitlines()[-1])
    if "unavailable" in document:
        raise UnavailableError(document["unavailable"])
    return Figure(**{**document, "seconds": tuple(document["seconds"])})


def scratch() -> Path | None:
    """Return the folder in memory, None where the machine has none: then the temporary folder is meant."""
    return RAM if RAM.is_dir() else None


def end_on_signals() -> None:
    """Let a signal that ends the process end its children and remove its folders, too."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def main(job: str, network: str, batch: str, threads: str, seconds: str, folder: str) -> None:
    """Run one job and print its figure."""
    end_on_signals()
    os.environ["MSDUMP_THREADS"] = threads
    name = "" if network == "-" else network
    case = Case(name, int(batch), int(threads), Path(folder), float(seconds))
    try:
        document = dataclasses.asdict(find(job)(case))
    except UnavailableError as error:
        document = {"unavailable": str(error)}
    sys.stdout.write(f"{json.dumps(document)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
