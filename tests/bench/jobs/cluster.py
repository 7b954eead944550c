"""``msdump compare`` of eight ranks: two processes beside one, two Dask workers beside two processes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from msdump.analysis.align import pair_folders
from msdump.analysis.compare import DumpComparison
from msdump.analysis.judge import Limits
from msdump.executors import ExecutorChoice
from tests.bench import measure, rank_tree
from tests.bench.case import Case
from tests.bench.measure import Figure, UnavailableError
from tests.bench.programs import MSDUMP, compiled, run

_RANKS: Final = 8
_OPERATORS: Final = 24
_SHAPE: Final = (8, 64, 56, 56)
"""6.4 MB: 2.5 GB of inputs and outputs on each side."""


def processes(case: Case) -> Figure:
    """``--jobs 2`` beside ``--jobs 1``, commands of their own, their start included."""
    _fill(case.folder)
    return measure.ratio(_command(case.folder, 2), _command(case.folder, 1), case, is_alone=False)


def dask(case: Case) -> Figure:
    """A LocalCluster of two workers beside two processes; the start of the cluster does not count."""
    try:
        from distributed import LocalCluster
    except ModuleNotFoundError as error:
        raise UnavailableError("distributed is not installed: pip install 'msdump[cluster]'") from error
    _fill(case.folder)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        ours = partial(_compare, case.folder, ExecutorChoice(scheduler=cluster.scheduler_address))
        return measure.ratio(ours, partial(_compare, case.folder, ExecutorChoice(2)), case, is_alone=False)


def _fill(folder: Path) -> None:
    for side, scale in (("mine", 1.0), ("golden", 1.01)):
        rank_tree.grow(folder / side, _RANKS, operators=_OPERATORS, shape=_SHAPE, scale=scale, is_linked=True)


def _command(folder: Path, jobs: int) -> measure.Side:
    sides = (str(folder / side / "dump") for side in ("mine", "golden"))
    arguments = ("compare", *sides, "-out", str(folder / "out"), "-j", str(jobs))

    # 1: the tensors differ
    return partial(run, *MSDUMP, *arguments, environment=compiled(folder), expected=1)


def _compare(folder: Path, executor: ExecutorChoice) -> None:
    mine, golden = (os.fspath(folder / side / "dump") for side in ("mine", "golden"))
    comparison = DumpComparison(mine, golden, Limits(), executor=executor)
    comparison.measure(map(comparison.add, pair_folders(mine, golden).pairs))
    if comparison.report().agrees:
        raise RuntimeError("the tensors should differ")
