"""The asynchronous dump beside what it is compared with: ``python -m tests.bench.bench_async [NETWORK]``.

With one thread for operators a core is free for the writer; with two both are busy and
writing can only fill the gaps. Each measurement runs in a process of its own, which this
module starts with a job's name; it prints one number. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from msdump.capture.process import Process
from msdump.graph import loader
from msdump.plan import DumpPlan
from msdump.record import Artifact
from msdump.session import Network
from msdump.store.write.async_sink import QUEUE_BYTES, AsyncSink
from msdump.store.write.sinks import Sink, SyncSink
from tests.bench import measure, sides

NETWORKS: Final = (("resnet50", 8), ("bert", 1))
THREADS: Final = (1, 2)
"""Of one operator; the machine is meant to have two cores."""

MOST_OF_SYNC: Final = 0.85
MOST_OF_PARTS: Final = 1.25
MOST_EXTRA_MIB: Final = (QUEUE_BYTES >> 20) + 64
_RAM: Final = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one


class _Into(Process):
    """A process whose files go into a given sink."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._into = sink

    def sink(self, plan: DumpPlan) -> Sink:
        del plan
        return self._into


class _Collector(SyncSink):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.artifacts: list[Artifact] = []

    def write(self, artifact: Artifact) -> None:
        self.artifacts.append(artifact)


def _dumping(path: Path, folder: Path, sink: Sink) -> Network:
    return Network(loader.load(path), sides.plan(folder, "all"), _Into(sink))


def of_sync(path: Path, folder: Path) -> float:
    """Asynchronous against synchronous dump of every output."""
    feeds = sides.inputs(path)
    ours = _dumping(path, folder / "async", AsyncSink())
    theirs = _dumping(path, folder / "sync", SyncSink())
    return _ratio(partial(ours.run, feeds), partial(theirs.run, feeds), folder)


def of_run(path: Path, folder: Path) -> float:
    """Asynchronous dump of every output against a run without a dump."""
    feeds = sides.inputs(path)
    ours, plain = _dumping(path, folder / "async", AsyncSink()), sides.network(path)
    return _ratio(partial(ours.run, feeds), partial(plain.run, feeds), folder)


def of_write(path: Path, folder: Path) -> float:
    """Asynchronous dump of every output against os.write of the same bytes."""
    feeds = sides.inputs(path)
    collector = _Collector()
    _dumping(path, folder / "none", collector).run(feeds)
    ours = _dumping(path, folder / "async", AsyncSink())
    return _ratio(partial(ours.run, feeds), _writing(collector.artifacts, folder / "written"), folder)


def peak(path: Path, folder: Path) -> float:
    """Peak memory in MiB of runs with an asynchronous dump of every output."""
    feeds = sides.inputs(path)
    network = _dumping(path, folder / "async", AsyncSink())
    for _ in range(3):
        network.run(feeds)
        _empty(folder)
    return measure.peak_mib()


def idle_peak(path: Path, folder: Path) -> float:
    """Peak memory in MiB of runs that the configuration does not dump; its graph files are written."""
    feeds = sides.inputs(path)
    network = sides.network(path, sides.plan(folder / "idle", sides.NEVER))
    for _ in range(3):
        network.run(feeds)
    return measure.peak_mib()


JOBS: dict[str, Callable[[Path, Path], float]] = {
    job.__name__: job for job in (of_sync, of_run, of_write, peak, idle_peak)
}


def _ratio(ours: measure.Side, theirs: measure.Side, folder: Path) -> float:
    return measure.ratio(ours, theirs, threads=2, rounds=15, tidy=partial(_empty, folder))


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


def _empty(folder: Path) -> None:
    for place in (folder / "written", *folder.glob("*/rank_0/Net/0")):
        for entry in place.iterdir() if place.is_dir() else ():
            shutil.rmtree(entry)


def figure(job: str, network: str, batch: int, threads: int) -> float:
    """Return what a job measures in a process of its own whose operators have so many threads."""
    command = [sys.executable, "-m", "tests.bench.bench_async", job, network, str(batch), str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def measured(network: str, batch: int, threads: int) -> list[tuple[str, float, float]]:
    """Return what is measured, the figure and the most it may be."""
    case = (network, batch, threads)
    parts = min(figure("of_run", *case), figure("of_write", *case))
    extra = figure("peak", *case) - figure("idle_peak", *case)
    return [
        ("async dump / sync dump", figure("of_sync", *case), MOST_OF_SYNC),
        ("async dump / the slower of run and os.write", parts, MOST_OF_PARTS),
        ("extra peak memory of the async dump, MiB", extra, MOST_EXTRA_MIB),
    ]


def report(only: str = "") -> int:
    """Measure the networks whose name contains ``only``; return the number of goals missed."""
    table = Table("measured", "network", "batch", "threads", "figure", "at most", "")
    missed = 0
    for (network, batch), threads in itertools.product(NETWORKS, THREADS):
        for what, value, most in measured(network, batch, threads) if only in network else ():
            missed += value > most
            verdict = "holds" if value <= most else "MISSED"
            table.add_row(what, network, str(batch), str(threads), f"{value:.3f}", f"{most:.2f}", verdict)
    Console(width=110).print(table)
    return missed


def main(job: str = "", network: str = "", batch: str = "", threads: str = "2") -> int:
    """Run one job and print its number, or report on all."""
    if job not in JOBS:
        return min(report(job), 1)
    os.environ["MSDUMP_THREADS"] = threads
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        number = JOBS[job](sides.model(network, int(batch)), Path(folder))
    sys.stdout.write(f"{number:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
