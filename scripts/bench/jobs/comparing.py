"""Comparisons in this process: of dumps with re-execution, of ranks with Dask, of two variants."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from msdump.execute import WeightCopies, values
from msdump.executors import ExecutorChoice
from msdump.graph import loader
from msdump.judge.compare import DumpComparison, Rerunning
from msdump.judge.diff import LockstepComparison, Side, make_side, models, pair_sides
from msdump.judge.pair import pair_folders
from msdump.judge.rerun import Arithmetic
from msdump.judge.torch import check_export
from msdump.judge.verdict import Limits, Report
from scripts.bench import measure, rank_tree, sides, work
from scripts.bench.measure import Case, Figure, UnavailableError

_NOISE: Final = 0.02
_VARIANTS: Final = ("Ascend", "float32")


def rerun(case: Case) -> Figure:
    """A comparison with re-execution against one without it and a run of the network.

    Golden is a dump of the network, mine one with noise on a weight: every operator runs again in float32,
    suspects in float64. Re-execution and the run of the network both begin with loading the model.
    """
    path, fed = case.path, sides.inputs(case.path)
    mine = _dump(_noisy(path, case.folder), case.folder / "mine")
    golden = _dump(path, case.folder / "golden")
    if not any(finding.own for finding in _compare(mine, golden, path).findings):
        raise RuntimeError(f"{case.network}: no operator ran again")

    def without() -> None:
        _compare(mine, golden)
        sides.network(path).run(fed)

    return measure.ratio(lambda: _compare(mine, golden, path), without, case, is_alone=False)


def of_module(case: Case) -> Figure:
    """``diff --golden torch:`` of BERT base against its two exports, PyTorch's run and a run of the file."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("PyTorch is not installed")
    import torch

    torch.set_num_threads(case.threads)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
    args, path = (torch.zeros(1, 128, 768),), case.folder / "module.onnx"

    def exported(**options: Any) -> Any:
        return torch.onnx.export(module, args, dynamo=True, verbose=False, **options)

    exported().save(str(path))

    def apart() -> None:
        exported()
        exported(optimize=False)
        module(*args)
        sides.network(path).run(sides.inputs(path))

    def ours() -> None:
        exported()
        check_export(module, args, path)

    return measure.ratio(ours, apart, case, is_alone=False)


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
    """Run a model and dump all inputs and outputs of its operators; return their folder."""
    sides.network(path, sides.plan(folder, "0", input_output=0)).run(sides.inputs(path))
    return str(folder)


def _compare(
    mine: str, golden: str, model: Path | None = None, executor: ExecutorChoice | None = None
) -> Report:
    """Compare two dumps; with a model, run the operators again."""
    comparison = DumpComparison(mine, golden, Limits(), executor=executor or ExecutorChoice())
    comparison.measure(map(comparison.add, pair_folders(mine, golden).pairs))
    if model is not None:
        context = models.parse("float32").context
        rerunning = Rerunning(str(model), Arithmetic.of(context), context)
        comparison.explain = rerunning.explain
        for folders in comparison.runs():
            rerunning.run(folders)
    return comparison.report()


def dask(case: Case) -> Figure:
    """Eight ranks by a LocalCluster of two workers beside two processes, its start left out."""
    try:
        from distributed import LocalCluster
    except ModuleNotFoundError as error:
        raise UnavailableError("distributed is not installed: pip install 'msdump[cluster]'") from error
    mine, golden = map(str, rank_tree.pair(case.folder))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        executors = ExecutorChoice(scheduler=cluster.scheduler_address), ExecutorChoice(2)
        ours, theirs = (partial(_compare, mine, golden, executor=each) for each in executors)
        if ours().agrees:
            raise RuntimeError("the tensors should differ")
        return measure.ratio(ours, theirs, case, is_alone=False)


def diff(case: Case) -> Figure:
    """One more step of a diff against the same step of both runs: each keeps its sessions over the steps."""
    mine, golden = _pair(case.path)
    fed = values.bind_inputs(mine.graph, (), sides.inputs(case.path))
    comparison = _lockstep(mine, golden)
    return measure.ratio(
        lambda: comparison.run(fed), lambda: [_alone(each, fed) for each in (mine, golden)], case
    )


def diff_memory(case: Case) -> Figure:
    """Peak memory of a diff against that of the larger of the two runs."""
    diff, *runs = (
        work.measured(f"comparing.diff_peak:{which}", case).value for which in ("both", *_VARIANTS)
    )
    return Figure.of([diff / max(runs)])


def diff_peak(case: Case, which: str) -> Figure:
    """Peak memory in MiB of a diff of one run, or of one run of a variant."""
    if which == "both":
        mine, golden = _pair(case.path)
        fed = values.bind_inputs(mine.graph, (), sides.inputs(case.path))
        _lockstep(mine, golden).run(fed, is_last=True)
    else:
        graph = loader.load(case.path)
        fed = values.bind_inputs(graph, (), sides.inputs(case.path))
        _alone(make_side(graph, models.parse(which), WeightCopies(), trains=False), fed)
    return Figure.of([measure.peak_mib()])


def _pair(path: Path) -> tuple[Side, Side]:
    """Return both sides of a model, its weights shared."""
    graph, copies = loader.load(path), WeightCopies()
    mine, golden = (make_side(graph, models.parse(name), copies, trains=False) for name in _VARIANTS)
    return mine, golden


def _lockstep(mine: Side, golden: Side) -> LockstepComparison:
    """Return a comparison that has not begun."""
    limits = Limits(precision=models.precision(mine.variant, golden.variant))
    return LockstepComparison(mine, golden, pair_sides(mine, golden, is_one_model=True), limits)


def _alone(side: Side, fed: dict[str, Any]) -> None:
    """Run one side without an observer."""
    side.run(fed, None, trains=False)  # a run without an observer
