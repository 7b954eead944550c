"""Dump files of a compiled graph beside the dump of O0: ``python -m tests.bench.bench_o2 [NETWORK]``.

Each measurement runs in a process of its own, which this module starts with a job's
name; it prints one number. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from msdump.capture.process import Process
from msdump.config import mindspore as config
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.session import Network
from tests.bench import measure, sides

NETWORKS: Final = (("resnet50", 8),)
MOST_OF_SYNC: Final = 1.1
PRECISIONS: Final = ("must_keep_origin_dtype", "allow_fp32_to_fp16")
_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one
_ROUNDS: Final = 9


def plan(folder: Path, level: JitLevel, precision: str) -> DumpPlan:
    """Return the plan of a dump of every output: of .npy files under O0, of dump files under O2."""
    common: dict[str, Any] = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(folder),
        "net_name": "Net",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 2,
        "kernels": [],
        "support_device": [0],
    }
    settings = {"common_dump_settings": common, "msdump": {"precision_mode": precision}}
    if level is JitLevel.O0:
        settings["e2e_dump_settings"] = {"enable": True, "trans_flag": True}
    context = Context(DeviceTarget.ASCEND, level)
    return config.parse(json.dumps(settings).encode(), str(folder / "data_dump.json"), context)


def of_sync(path: Path, folder: Path, precision: str) -> float:
    """Dump files of a compiled graph against the synchronous dump of O0, every output of both."""
    feeds = sides.inputs(path)
    ours, theirs = (
        Network(loader.load(path), plan(folder / level, level, precision), Process())
        for level in (JitLevel.O2, JitLevel.O0)
    )
    tidy = partial(_empty, folder)
    return measure.ratio(
        partial(ours.run, feeds), partial(theirs.run, feeds), threads=2, rounds=_ROUNDS, tidy=tidy
    )


JOBS: dict[str, Callable[[Path, Path, str], float]] = {of_sync.__name__: of_sync}


def _empty(folder: Path) -> None:
    for place in (*folder.glob("O2/[0-9]*"), *folder.glob("O0/rank_0/Net/0/*")):
        shutil.rmtree(place)


def figure(job: str, network: str, batch: int, precision: str) -> float:
    """Return what a job measures in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.bench_o2", job, network, str(batch), precision]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def report(only: str = "") -> int:
    """Measure the networks whose name contains ``only``; return the number of goals missed."""
    table = Table("measured", "network", "batch", "precision", "figure", "at most", "")
    missed = 0
    for network, batch in NETWORKS:
        for precision in PRECISIONS if only in network else ():
            value = figure("of_sync", network, batch, precision)
            missed += value > MOST_OF_SYNC
            verdict = "holds" if value <= MOST_OF_SYNC else "MISSED"
            row = (network, str(batch), precision, f"{value:.3f}", f"{MOST_OF_SYNC:.2f}", verdict)
            table.add_row("O2 bin dump / O0 sync npy dump", *row)
    Console(width=130).print(table)
    return missed


def main(job: str = "", network: str = "", batch: str = "", precision: str = "") -> int:
    """Run one job and print its number, or report on all."""
    if job not in JOBS:
        return min(report(job), 1)
    os.environ["MSDUMP_THREADS"] = "2"
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        number = JOBS[job](sides.model(network, int(batch)), Path(folder), precision)
    sys.stdout.write(f"{number:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
