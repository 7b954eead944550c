"""Synchronous dumps of every output, or of inputs as well: time, files and memory."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.bench import measure, sides, whole, work
from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.networks import files

_RUNS = 2
"""How often a network runs whose memory is looked at."""


def of_saved(case: Case) -> Figure:
    """Dump against a session with all values as outputs and np.save of each."""
    return _of_saved(case)


def with_inputs(case: Case) -> Figure:
    """Dump of inputs, weights among them, and outputs against that session and np.save of the same."""
    return _of_saved(case, *files.read_and_made(case.path), input_output=0)


def _of_saved(case: Case, *saved: Any, **changes: Any) -> Figure:
    feeds = sides.inputs(case.path)
    ours = sides.network(case.path, sides.plan(case.folder / "ours", **changes))
    theirs = whole.saving(_all_values(case), feeds, case.folder / "theirs", *saved)
    tidy = sides.emptying(case.folder / "ours", case.folder / "theirs")
    return measure.ratio(partial(ours.run, feeds), theirs, case, tidy=tidy)


def device_formats(case: Case) -> Figure:
    """Dump in the device's formats against a dump in the host's."""
    device, host = case.folder / "device", case.folder / "host"
    ours = sides.network(case.path, sides.plan(device, trans_flag=False))
    return sides.beside(case, ours, sides.network(case.path, sides.plan(host)), device, host)


def files_a_second(case: Case) -> Figure:
    """Files that the dump of a network writes in a second; the time is that of the dumped run."""
    feeds = sides.inputs(case.path)
    network = sides.network(case.path, sides.plan(case.folder))
    network.run(feeds)
    written = len(list(case.folder.glob("rank_0/Net/0/0/*.npy")))
    rounds = measure.timed([partial(network.run, feeds)], case, tidy=sides.emptying(case.folder))
    return measure.figure(rounds, lambda seconds: written / seconds)


def peak(case: Case) -> Figure:
    """Peak memory of dumped runs against that of the session and np.save."""
    files.with_all_values(case.path)
    ours, theirs = (work.measured(f"dumping.{job.__name__}", case).value for job in (peak_ours, peak_theirs))
    return Figure.of([ours / theirs])


def peak_ours(case: Case) -> Figure:
    """Peak memory in MiB of dumped runs."""
    feeds = sides.inputs(case.path)
    network = sides.network(case.path, sides.plan(case.folder))
    for _ in range(_RUNS):
        network.run(feeds)
        sides.emptying(case.folder)()
    return Figure.of([measure.peak_mib()])


def peak_theirs(case: Case) -> Figure:
    """Peak memory in MiB of runs of a session with all values as outputs and np.save of each."""
    session = _all_values(case)
    run = whole.saving(session, whole.inputs(session), case.folder)
    for _ in range(_RUNS):
        run()
        sides.emptying(case.folder)()
    return Figure.of([measure.peak_mib()])


def _all_values(case: Case) -> whole.onnxruntime.InferenceSession:
    return whole.session(files.with_all_values(case.path), case.threads)
