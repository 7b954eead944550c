"""``msdump compare --model`` beside the same comparison without it and one run of the network.

``python -m tests.bench.bench_rerun [NETWORK]``. Golden is a dump of the network, mine one with noise
on a weight: every operator runs again in float32, suspects in float64. Re-execution and the run of the
network both begin with loading the model. Ends with 1 where the goal is missed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

from msdump.tools.compare.pairing import dump_folders
from msdump.tools.compare.verdict.comparison import DumpComparison
from msdump.tools.compare.verdict.reruns import Rerunning
from msdump.tools.diff import variants
from msdump.tools.judge.findings import Report
from msdump.tools.judge.limits import Limits
from msdump.tools.rerun.arithmetic import Arithmetic
from tests.bench import measure, sides

NETWORKS: Final = ("mobilenetv2", "bert")
MOST: Final = 1.3
ROUNDS: Final = 5
NOISE: Final = 0.02

_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one


def noisy(path: Path, folder: Path) -> Path:
    """Return a copy of a model with noise on the weight of four axes or two in its middle."""
    proto = onnx.load(path)
    weights = [each for each in proto.graph.initializer if len(each.dims) in {2, 4}]
    weight = weights[len(weights) // 2]
    array = numpy_helper.to_array(weight)
    noise = np.random.default_rng(0).standard_normal(array.shape).astype(array.dtype)
    weight.CopyFrom(numpy_helper.from_array(array * (1 + np.float32(NOISE) * noise), weight.name))
    changed = folder / f"noisy_{path.name}"
    onnx.save(proto, changed)
    return changed


def dump(path: Path, folder: Path) -> str:
    """Run a model and dump all inputs and outputs of its operators; return where they lie."""
    sides.network(path, sides.plan(folder, "0", input_output=0)).run(sides.inputs(path))
    return str(folder)


def compare(mine: str, golden: str, model: Path | None = None) -> Report:
    """Compare two dumps; with a model, run the operators again."""
    comparison = DumpComparison(mine, golden, Limits())
    for pair in dump_folders.pair(mine, golden).pairs:
        for _ in comparison.measure(comparison.add(pair)):
            pass
    if model is not None:
        rerunning = Rerunning(str(model), Arithmetic.of(variants.parse("float32").context))
        comparison.explain = rerunning.explain
        for folders in comparison.runs():
            rerunning.run(folders)
    return comparison.report()


def figure(name: str, folder: Path) -> float:
    """Return the time of a comparison with re-execution as a share of that without and of a run."""
    path = sides.model(name, 1)
    fed = sides.inputs(path)
    mine, golden = dump(noisy(path, folder), folder / "mine"), dump(path, folder / "golden")
    report = compare(mine, golden, path)
    if not any(finding.own for finding in report.findings):
        raise RuntimeError(f"{name}: no operator ran again")

    def without() -> None:
        compare(mine, golden)
        sides.network(path).run(fed)

    return measure.ratio(lambda: compare(mine, golden, path), without, threads=2, rounds=ROUNDS)


def main(only: str = "") -> int:
    """Measure the networks whose name contains ``only``; return the number of goals missed."""
    table = Table("measured", "network", "figure", "at most", "")
    missed = 0
    for name in NETWORKS:
        if only not in name:
            continue
        with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
            value = figure(name, Path(folder))
        missed += value > MOST
        verdict = "holds" if value <= MOST else "MISSED"
        table.add_row("compare --model / compare + run", name, f"{value:.3f}", f"{MOST:.2f}", verdict)
    Console(width=110).print(table)
    return missed


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
