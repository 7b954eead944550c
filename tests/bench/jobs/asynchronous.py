"""The asynchronous dump of every output beside what it is compared with.

With one thread for operators a core is free for the writer; with two both are busy and writing can only fill
the gaps.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msdump.capture import Process
from msdump.graph import loader
from msdump.plan import DumpPlan
from msdump.record import Artifact
from msdump.session import Network
from msdump.store.write import AsyncSink, Sink, SyncSink
from tests.bench import measure, sides, work
from tests.bench.case import Case
from tests.bench.measure import Figure

_RUNS = 3
"""How often a network runs whose memory is looked at."""


class _Into(Process):
    """A process with a given sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._into = sink

    def sink(self, plan: DumpPlan) -> Sink:
        del plan
        return self._into


class _Collector(SyncSink):
    """Keeps its artifacts."""

    is_open_to_sessions = False

    def __init__(self) -> None:
        super().__init__()
        self.artifacts: list[Artifact] = []

    def write(self, artifact: Artifact) -> None:
        self.artifacts.append(artifact)


def _dumping(path: Path, folder: Path, sink: Sink) -> Network:
    plan = sides.plan(folder, waits=not isinstance(sink, AsyncSink))
    return Network(loader.load(path), plan, _Into(sink))


def of_sync(case: Case) -> Figure:
    """Asynchronous against synchronous dump."""
    folders = case.folder / "async", case.folder / "sync"
    ours, theirs = (
        _dumping(case.path, folder, sink)
        for folder, sink in zip(folders, (AsyncSink(), SyncSink()), strict=True)
    )
    return sides.beside(case, ours, theirs, *folders, is_alone=False)


def of_parts(case: Case) -> Figure:
    """Asynchronous dump against the slower of a run without a dump and os.write of the same bytes."""
    feeds = sides.inputs(case.path)
    collector = _Collector()
    _dumping(case.path, case.folder / "none", collector).run(feeds)
    ours = _dumping(case.path, case.folder / "async", AsyncSink())
    rounds = measure.timed(
        [
            partial(ours.run, feeds),
            partial(sides.network(case.path).run, feeds),
            _writing(collector.artifacts, case.folder / "written"),
        ],
        case,
        tidy=sides.emptying(case.folder / "async", case.folder / "written"),
    )
    return measure.figure(rounds, lambda dump, run, write: dump / max(run, write))


def _writing(artifacts: list[Artifact], folder: Path) -> Callable[[], None]:
    rounds = itertools.count()

    def run() -> None:
        target = folder / str(next(rounds))
        target.mkdir(parents=True)
        for number, artifact in enumerate(artifacts):
            fd = os.open(target / str(number), os.O_WRONLY | os.O_CREAT)
            for buffer in artifact.buffers:
                os.write(fd, buffer)
            os.close(fd)

    return run


def extra_memory(case: Case) -> Figure:
    """Peak memory in MiB of dumped runs, less that of runs that dump nothing."""
    ours, idle = (work.measured(f"asynchronous.{job.__name__}", case).value for job in (peak, idle_peak))
    return Figure.of([ours - idle])


def peak(case: Case) -> Figure:
    """Peak memory in MiB of dumped runs."""
    return _peak(_dumping(case.path, case.folder, AsyncSink()), case)


def idle_peak(case: Case) -> Figure:
    """Peak memory in MiB of runs that the configuration does not dump; its graph files are written."""
    return _peak(sides.network(case.path, sides.plan(case.folder, sides.NEVER)), case)


def _peak(network: Network, case: Case) -> Figure:
    feeds = sides.inputs(case.path)
    for _ in range(_RUNS):
        network.run(feeds)
        sides.emptying(case.folder)()
    return Figure.of([measure.peak_mib()])
