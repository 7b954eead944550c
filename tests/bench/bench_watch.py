"""Watch rules beside what they are compared with: ``python -m tests.bench.bench_watch [NETWORK]``.

Every output of every operator is looked at; nothing hits, so that nothing is written. Ends with 1 where a
goal is missed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from msdump.capture.process import Process
from msdump.graph import loader
from msdump.session import Network
from tests.bench import measure, sides

NETWORKS: Final = (("resnet50", 8), ("bert", 1), ("mobilenetv2", 1))
THREADS: Final = 2

RULES: Final = (
    {"condition": "tensor_overflow"},
    {"condition": "tensor_too_large", "max_gt": 1e30},
    {"condition": "tensor_all_zero"},
)
MOST_OF_RUN: Final = 1.2
MOST_OF_STATISTICS: Final = 1.1


def _network(path: Path, folder: Path, msdump: dict[str, Any] | None = None, **changes: Any) -> Network:
    plan = sides.plan(folder, "all", msdump=msdump, **changes)
    return Network(loader.load(path), plan, Process())


def of_run(path: Path, folder: Path, rounds: int) -> float:
    """Rules on every output against a run without a dump."""
    feeds = sides.inputs(path)
    ours, theirs = _network(path, folder / "rules", {"watch": RULES}), sides.network(path)
    return measure.ratio(partial(ours.run, feeds), partial(theirs.run, feeds), threads=THREADS, rounds=rounds)


def of_statistics(path: Path, folder: Path, rounds: int) -> float:
    """Rules on every output against a dump of their default statistics."""
    feeds = sides.inputs(path)
    ours = _network(path, folder / "rules", {"watch": RULES})
    theirs = _network(
        path,
        folder / "statistics",
        saved_data="statistic",
        statistic_category=["max", "min", "l2norm"],
    )
    return measure.ratio(partial(ours.run, feeds), partial(theirs.run, feeds), threads=THREADS, rounds=rounds)


GOALS: Final[tuple[tuple[str, Callable[[Path, Path, int], float], float], ...]] = (
    ("watch rules / run", of_run, MOST_OF_RUN),
    ("watch rules / default statistics", of_statistics, MOST_OF_STATISTICS),
)


def main(only: str = "", rounds: int = 21) -> int:
    """Measure the networks whose names contain ``only``; return the number of goals missed."""
    os.environ["MSDUMP_THREADS"] = str(THREADS)
    table = Table("measured", "network", "batch", "ratio", "at most", "")
    missed = 0
    for name, batch in NETWORKS:
        if only not in name:
            continue
        path = sides.model(name, batch)
        for what, job, most in GOALS:
            with tempfile.TemporaryDirectory() as folder:
                ratio = job(path, Path(folder), rounds)
            missed += ratio > most
            verdict = "ok" if ratio <= most else "missed"
            table.add_row(what, name, str(batch), f"{ratio:.3f}", str(most), verdict)
    Console(width=110).print(table)
    return missed


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:2])))
