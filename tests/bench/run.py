"""``make bench``: every speed and memory goal, measured beside what it is compared with.

Each measurement runs in a process of its own; the sides of a ratio take turns
and the median of the rounds' ratios counts. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

NETWORKS: Final = (("resnet50", 1), ("resnet50", 8), ("bert", 1), ("mobilenetv2", 1))


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of the table.

    Attributes:
        what: What is measured.
        network: Sample network.
        batch: Its batch size.
        threads: 1: CPU time of one thread, 2: wall time of two.
        most: The ratio must not be above it.
        jobs: One job that gives a ratio, or two whose figures are divided.
    """

    what: str
    network: str
    batch: int
    threads: int
    most: float
    jobs: tuple[str, ...]


def goals() -> Iterator[Goal]:
    """Yield the goals in the order of the table."""
    for network, batch in NETWORKS:
        run_most = 1.35 if network == "mobilenetv2" else 1.08
        dump_most = 1.1 if (network, batch) == ("resnet50", 8) else 1.0
        for threads in (1, 2):
            yield Goal("run / whole graph", network, batch, threads, run_most, ("run_ratio",))
            yield Goal("idle configuration / none", network, batch, threads, 1.02, ("idle_ratio",))
            yield Goal("dump / all outputs + np.save", network, batch, threads, dump_most, ("dump_ratio",))
    yield Goal("peak memory of the dump", "resnet50", 8, 2, 0.5, ("dump_peak", "saved_peak"))
    yield Goal("load and first run, time", "bert", 1, 2, 1.5, ("load_ratio",))
    for network, batch in (("resnet50", 8), ("bert", 1)):
        yield Goal("default statistics / run", network, batch, 2, 1.3, ("statistic_default_ratio",))
        yield Goal("statistics but hashes / run", network, batch, 2, 1.8, ("statistic_all_ratio",))
    yield Goal("float32 to float16 / copy", "-", 1, 2, 1.5, ("rounding_ratio",))
    yield Goal("NCHW to NC1HWC0 / copy", "-", 1, 2, 1.3, ("format_ratio",))
    yield Goal("load and first run, peak memory", "bert", 1, 2, 1.5, ("load_peak", "whole_peak"))


def figure(job: str, goal: Goal) -> float:
    """Return what a job measures."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.jobs",
        job,
        goal.network,
        str(goal.batch),
        str(goal.threads),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main(only: str = "") -> int:
    """Measure the goals whose text contains ``only``; return the number of those missed."""
    table = Table("measured", "network", "batch", "threads", "ratio", "at most", "")
    missed = 0
    for goal in goals():
        if only not in f"{goal.what} {goal.network} {goal.batch}":
            continue
        figures = [figure(job, goal) for job in goal.jobs]
        value = figures[0] / figures[1] if len(figures) > 1 else figures[0]
        holds = value <= goal.most
        missed += not holds
        table.add_row(
            goal.what,
            goal.network,
            str(goal.batch),
            str(goal.threads),
            f"{value:.3f}",
            f"{goal.most:.2f}",
            "holds" if holds else "MISSED",
        )
    Console(width=110).print(table)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
