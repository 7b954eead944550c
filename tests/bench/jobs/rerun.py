"""``msdump compare --model`` beside the same comparison without it and one run of the network.

Golden is a dump of the network, mine one with noise
on a weight: every operator runs again in float32, suspects in float64. Re-execution and the run of the
network both begin with loading the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from msdump.analysis.align import pair_folders
from msdump.analysis.compare import DumpComparison, Rerunning
from msdump.analysis.diff import models
from msdump.analysis.judge import Limits, Report
from msdump.analysis.rerun import Arithmetic
from tests.bench import measure, sides
from tests.bench.case import Case
from tests.bench.measure import Figure

_NOISE: Final = 0.02


def of_compare(case: Case) -> Figure:
    """A comparison with re-execution against one without it and a run."""
    path, fed = case.path, sides.inputs(case.path)
    mine = _dump(_noisy(path, case.folder), case.folder / "mine")
    golden = _dump(path, case.folder / "golden")
    report = _compare(mine, golden, path)
    if not any(finding.own for finding in report.findings):
        raise RuntimeError(f"{case.network}: no operator ran again")

    def without() -> None:
        _compare(mine, golden)
        sides.network(path).run(fed)

    return measure.ratio(lambda: _compare(mine, golden, path), without, case, is_alone=False)


def _noisy(path: Path, folder: Path) -> Path:
    """Return a copy of a model with noise on the weight of four axes or two in its middle."""
    proto = onnx.load(path)
    weights = [each for each in proto.graph.initializer if len(each.dims) in {2, 4}]
    weight = weights[len(weights) // 2]
    array = numpy_helper.to_array(weight)
    noise = np.random.default_rng(0).standard_normal(array.shape).astype(array.dtype)
    weight.CopyFrom(numpy_helper.from_array(array * (1 + np.float32(_NOISE) * noise), weight.name))
    changed = folder / f"noisy_{path.name}"
    onnx.save(proto, changed)
    return changed


def _dump(path: Path, folder: Path) -> str:
    """Run a model and dump all inputs and outputs of its operators; return where they lie."""
    sides.network(path, sides.plan(folder, "0", input_output=0)).run(sides.inputs(path))
    return str(folder)


def _compare(mine: str, golden: str, model: Path | None = None) -> Report:
    """Compare two dumps; with a model, run the operators again."""
    comparison = DumpComparison(mine, golden, Limits())
    comparison.measure(map(comparison.add, pair_folders(mine, golden).pairs))
    if model is not None:
        rerunning = Rerunning(str(model), Arithmetic.of(models.parse("float32").context))
        comparison.explain = rerunning.explain
        for folders in comparison.runs():
            rerunning.run(folders)
    return comparison.report()
