"""A further step of ``msdump diff`` beside those of the two runs, and its peak memory beside one run's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from msdump.analysis.diff import LockstepComparison, Side, make_side, models, pair_sides
from msdump.analysis.judge import Limits
from msdump.execute import WeightCopies, values
from msdump.graph import loader
from tests.bench import measure, sides, work
from tests.bench.case import Case
from tests.bench.measure import Figure

_MINE: Final = "Ascend"
_GOLDEN: Final = "float32"


def _pair(path: Path) -> tuple[Side, Side]:
    """Return both sides of a model, its weights shared."""
    graph, copies = loader.load(path), WeightCopies()
    first, second = (make_side(graph, models.parse(name), copies, trains=False) for name in (_MINE, _GOLDEN))
    return first, second


def _comparison(mine: Side, golden: Side) -> LockstepComparison:
    """Return a comparison that has not begun."""
    limits = Limits(precision=models.precision(mine.variant, golden.variant))
    return LockstepComparison(mine, golden, pair_sides(mine, golden, is_one_model=True), limits)


def _alone(side: Side, fed: dict[str, Any]) -> None:
    """Run one side without an observer."""
    side.run(fed, None, trains=False)  # type: ignore[arg-type]  # a run without an observer


def of_runs(case: Case) -> Figure:
    """One more step of a diff against the same step of both runs: each keeps its sessions over the steps."""
    mine, golden = _pair(case.path)
    fed = values.bind_inputs(mine.graph, (), sides.inputs(case.path))
    both = partial(_both, mine, golden, fed)
    comparison = _comparison(mine, golden)
    return measure.ratio(lambda: comparison.run(fed), both, case)


def _both(mine: Side, golden: Side, fed: dict[str, Any]) -> None:
    _alone(mine, fed)
    _alone(golden, fed)


def memory(case: Case) -> Figure:
    """Peak memory of a diff against that of the larger of the two runs."""
    peaks = [
        work.measured(f"diff.{job.__name__}", case).value for job in (peak, peak_of_mine, peak_of_golden)
    ]
    return Figure.of([peaks[0] / max(peaks[1:])])


def peak(case: Case) -> Figure:
    """Peak memory in MiB of a diff of one run."""
    first, second = _pair(case.path)
    fed = values.bind_inputs(first.graph, (), sides.inputs(case.path))
    _comparison(first, second).run(fed, is_last=True)
    return Figure.of([measure.peak_mib()])


def peak_of_mine(case: Case) -> Figure:
    """Peak memory in MiB of one run of the examined variant."""
    return _peak_of(case, _MINE)


def peak_of_golden(case: Case) -> Figure:
    """Peak memory in MiB of one run of the variant that it is compared with."""
    return _peak_of(case, _GOLDEN)


def _peak_of(case: Case, variant: str) -> Figure:
    graph = loader.load(case.path)
    fed = values.bind_inputs(graph, (), sides.inputs(case.path))
    _alone(make_side(graph, models.parse(variant), WeightCopies(), trains=False), fed)
    return Figure.of([measure.peak_mib()])
