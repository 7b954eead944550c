"""Dumps of every output, or of inputs as well, synchronous, asynchronous and compiled: time, files, memory.

With one thread for operators a core is free for the writer of an asynchronous dump; with two both are busy,
and writing can only fill the gaps.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msdump.capture import Process
from msdump.graph import loader
from msdump.plan import DumpPlan, JitLevel
from msdump.record import Artifact
from msdump.session import Network
from msdump.store.write import AsyncSink, Sink, SyncSink
from scripts.bench import measure, sides, whole, work
from scripts.bench.measure import Case, Figure
from scripts.bench.networks import files

_RUNS = 3
"""Runs of a network for a figure of memory."""


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


def of_onnx(case: Case) -> Figure:
    """Dump a .mindir, with the constants that its operators read, against the same network in .onnx."""
    folders = case.folder / "mindir", case.folder / "onnx"
    paths = files.as_mindir(case.path), case.path
    networks = [sides.network(path, sides.plan(folder)) for path, folder in zip(paths, folders, strict=True)]
    return sides.beside(case, *networks, *folders)


def device_formats(case: Case) -> Figure:
    """Dump in the device's formats against a dump in the host's."""
    return _beside(case, {"trans_flag": False}, {})


def compiled(case: Case, mode: str) -> Figure:
    """Dump files of a compiled graph against the synchronous dump of O0, in a precision mode."""
    given: dict[str, Any] = {"msdump": {"precision_mode": mode}}
    return _beside(case, {"level": JitLevel.O2, **given}, given)


def _beside(case: Case, ours: dict[str, Any], theirs: dict[str, Any]) -> Figure:
    folders = case.folder / "ours", case.folder / "theirs"
    networks = [
        sides.network(case.path, sides.plan(folder, **changes))
        for folder, changes in zip(folders, (ours, theirs), strict=True)
    ]
    return sides.beside(case, *networks, *folders)


def files_a_second(case: Case) -> Figure:
    """Files that the dump of a network writes in a second; the time is that of the dumped run."""
    feeds = sides.inputs(case.path)
    network = sides.network(case.path, sides.plan(case.folder))
    network.run(feeds)
    written = len(list(case.folder.glob("rank_0/Net/0/0/*.npy")))
    rounds = measure.timed([partial(network.run, feeds)], case, tidy=sides.emptying(case.folder))
    return measure.figure(rounds, lambda seconds: written / seconds)


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


def asynchronous(case: Case) -> Figure:
    """Asynchronous against synchronous dump."""
    folders = case.folder / "async", case.folder / "sync"
    sinks: tuple[Sink, Sink] = AsyncSink(), SyncSink()
    ours, theirs = (_dumping(case.path, *each) for each in zip(folders, sinks, strict=True))
    return sides.beside(case, ours, theirs, *folders, is_alone=False)


def asynchronous_parts(case: Case) -> Figure:
    """Asynchronous dump against the slower of a run without a dump and os.write of the same bytes."""
    feeds = sides.inputs(case.path)
    collector = _Collector()
    _dumping(case.path, case.folder / "none", collector).run(feeds)
    ours = _dumping(case.path, case.folder / "async", AsyncSink())
    writing = _writing(collector.artifacts, case.folder / "written")
    rounds = measure.timed(
        [partial(ours.run, feeds), partial(sides.network(case.path).run, feeds), writing],
        case,
        tidy=sides.emptying(case.folder / "async", case.folder / "written"),
    )
    return measure.figure(rounds, lambda dump, run, write: dump / max(run, write))


def _writing(artifacts: Sequence[Artifact], folder: Path) -> Callable[[], None]:
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


def memory(case: Case) -> Figure:
    """Peak memory of dumped runs against that of the session and np.save."""
    files.with_all_values(case.path)
    ours, theirs = (work.measured(f"dumping.peak:{side}", case).value for side in ("sync", "saved"))
    return Figure.of([ours / theirs])


def asynchronous_memory(case: Case) -> Figure:
    """Peak memory in MiB of asynchronously dumped runs, less that of runs that dump nothing."""
    ours, idle = (work.measured(f"dumping.peak:{side}", case).value for side in ("async", "idle"))
    return Figure.of([ours - idle])


def memory_of_all(case: Case, side: str) -> Figure:
    """Peak memory of runs of which one or none is dumped against that of runs that are all dumped."""
    ours, theirs = (work.measured(f"dumping.peak:{each}", case).value for each in (side, "sync"))
    return Figure.of([ours / theirs])


_ITERATIONS = {"idle": sides.NEVER, "turns": "1"}


def peak(case: Case, side: str) -> Figure:
    """Peak memory in MiB of runs: of a session with saved outputs, of dumps, of one dump, or of none."""
    if side == "saved":
        session = _all_values(case)
        run = whole.saving(session, whole.inputs(session), case.folder)
    else:
        plan = sides.plan(case.folder, _ITERATIONS.get(side, "all"), waits=side != "async")
        run = partial(sides.network(case.path, plan).run, sides.inputs(case.path))
    for _ in range(_RUNS):
        run()
        sides.emptying(case.folder)()
    return Figure.of([measure.peak_mib()])


def _all_values(case: Case) -> whole.onnxruntime.InferenceSession:
    return whole.session(files.with_all_values(case.path), case.threads)
