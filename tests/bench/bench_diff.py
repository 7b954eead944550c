"""``msdump diff`` of two variants beside the two runs alone, and its peak memory beside that of one run.

``python -m tests.bench.bench_diff [NETWORK]``. Times are ratios of runs in turns; memory is measured in
processes of their own. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from msdump.execute import feeds
from msdump.execute.weights import WeightCopies
from msdump.graph import loader
from msdump.tools.diff import variants
from msdump.tools.diff.comparison import LockstepComparison
from msdump.tools.diff.pairing import pair_variants
from msdump.tools.diff.sides import Side, make_side
from msdump.tools.judge.limits import Limits
from tests.bench import measure, sides

NETWORKS: Final = (("resnet50", 1), ("resnet50", 8), ("bert", 1))
MINE, GOLDEN = "Ascend", "float32"
MOST_TIME: Final = 1.35
MOST_MEMORY: Final = 1.6
"""Of the larger of the two runs."""

JOBS: Final = ("diff", "mine", "golden")


def pair(path: Path) -> tuple[Side, Side]:
    """Return both sides of a model, its weights shared."""
    graph, copies = loader.load(path), WeightCopies()
    first, second = (make_side(graph, variants.parse(name), copies, trains=False) for name in (MINE, GOLDEN))
    return first, second


def comparison(mine: Side, golden: Side) -> LockstepComparison:
    """Return a comparison that has not begun."""
    limits = Limits(precision=variants.precision(mine.variant, golden.variant))
    return LockstepComparison(mine, golden, pair_variants(mine.graph, golden.graph), limits)


def alone(side: Side, fed: dict[str, Any]) -> None:
    """Run one side, seen by nobody."""
    side.run(fed, None, trains=False)  # type: ignore[arg-type]  # a run without an observer


def time_ratio(path: Path) -> float:
    """Return the time of a diff as a share of that of both runs, both warm."""
    mine, golden = pair(path)
    fed = feeds.bind(mine.graph, (), sides.inputs(path))
    both = partial(_both, mine, golden, fed)
    return measure.ratio(lambda: comparison(mine, golden).run(fed), both, threads=2, rounds=9)


def _both(mine: Side, golden: Side, fed: dict[str, Any]) -> None:
    alone(mine, fed)
    alone(golden, fed)


def peak(job: str, path: Path) -> float:
    """Return the peak memory in MiB of a diff, or of one run."""
    graph = loader.load(path)
    fed = feeds.bind(graph, (), sides.inputs(path))
    if job == "diff":
        comparison(*pair(path)).run(fed)
    else:
        variant = variants.parse(MINE if job == "mine" else GOLDEN)
        alone(make_side(graph, variant, WeightCopies(), trains=False), fed)
    return measure.peak_mib()


def memory(path: Path) -> float:
    """Return the peak memory of a diff as a share of that of the larger run."""
    peaks = {}
    for job in JOBS:
        command = [sys.executable, "-m", "tests.bench.bench_diff", job, str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        peaks[job] = float(done.stdout)
    return peaks["diff"] / max(peaks["mine"], peaks["golden"])


def report(only: str = "") -> int:
    """Measure the networks whose name contains ``only``; return the number of goals missed."""
    table = Table("measured", "network", "batch", "figure", "at most", "")
    missed = 0
    for network, batch in NETWORKS:
        if only not in network:
            continue
        path = sides.model(network, batch)
        for what, value, most in (
            ("diff / both runs", time_ratio(path), MOST_TIME),
            ("peak memory / one run's", memory(path), MOST_MEMORY),
        ):
            missed += value > most
            verdict = "holds" if value <= most else "MISSED"
            table.add_row(what, network, str(batch), f"{value:.3f}", f"{most:.2f}", verdict)
    Console(width=110).print(table)
    return missed


def main(job: str = "", path: str = "") -> int:
    """Run one job and print its number, or report on all networks."""
    if job not in JOBS:
        return min(report(job), 1)
    sys.stdout.write(f"{peak(job, Path(path)):.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
