"""Load and first run of a model, msdump's and onnxruntime's, each in processes of its own."""

from __future__ import annotations

import time

from scripts.bench import measure, work
from scripts.bench.measure import Case, Figure

_ROUNDS = 5


def seconds(case: Case) -> Figure:
    """Time of msdump's load and first run against onnxruntime's; the modules are imported before."""
    ratios = [_seconds("ours", case) / _seconds("theirs", case) for _ in range(_ROUNDS + 1)]
    return Figure.of(ratios[1:])  # the first round reads the model from the disk


def of_onnx(case: Case) -> Figure:
    """Time of load and first run of a .mindir against the same network in .onnx."""
    from scripts.bench import sides
    from scripts.bench.networks import files

    feeds, path = sides.inputs(case.path), files.as_mindir(case.path)
    return measure.ratio(
        lambda: sides.network(path).run(feeds), lambda: sides.network(case.path).run(feeds), case
    )


def memory(case: Case) -> Figure:
    """Peak memory of msdump's load and first run against onnxruntime's, modules included."""
    return Figure.of([_peak("ours", case) / _peak("theirs", case)])


def _seconds(side: str, case: Case) -> float:
    return work.measured(f"loading.{side}", case).seconds[0]


def _peak(side: str, case: Case) -> float:
    return work.measured(f"loading.{side}", case).value


def ours(case: Case) -> Figure:
    """Load and run with msdump; the figure is the peak memory in MiB."""
    from msdump.execute import program  # noqa: F401 - onnxruntime is loaded before the clock starts
    from scripts.bench import sides

    path = case.path
    feeds = sides.inputs(path)
    start = time.perf_counter()
    sides.network(path).run(feeds)
    return Figure.of([measure.peak_mib()], (time.perf_counter() - start,))


def theirs(case: Case) -> Figure:
    """Load and run with onnxruntime; the figure is the peak memory in MiB."""
    from scripts.bench import whole

    path = case.path
    start = time.perf_counter()
    session = whole.session(path, case.threads)
    session.run(None, whole.inputs(session))
    return Figure.of([measure.peak_mib()], (time.perf_counter() - start,))
