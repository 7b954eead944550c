"""One measurement, in a process of its own: ``python -m tests.bench.jobs JOB NETWORK BATCH THREADS``.

Prints one number: a ratio of times, or one side's MiB or seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from msdump.device import formats, precision
from msdump.execute import accelerate
from msdump.graph.kernel.emulation import FLOAT16
from tests.bench import measure, sides

_RAM = Path("/dev/shm")  # noqa: S108 - spares the comparison a disk's noise, where there is one


_ALL_BUT_HASHES = [
    *("max", "min", "avg", "count", "negative zero count", "positive zero count", "nan count"),
    *("negative inf count", "positive inf count", "zero count", "l2norm"),
]


def run_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Run without a dump against the whole-graph session."""
    del folder
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    ours, theirs = sides.network(path), sides.whole(path, threads)
    return measure.ratio(
        partial(ours.run, feeds), partial(theirs.run, None, feeds), threads=threads, rounds=_rounds(batch)
    )


def idle_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Run with a configuration that matches nothing in this iteration against a run without one."""
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    idle, plain = sides.network(path, sides.plan(folder, sides.NEVER)), sides.network(path)
    return measure.ratio(
        partial(idle.run, feeds), partial(plain.run, feeds), threads=threads, rounds=_rounds(batch)
    )


def dump_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Dump every output against a session with all values as outputs and np.save of each."""
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    ours = sides.network(path, sides.plan(folder / "ours", "all"))
    theirs = sides.whole(sides.with_all_values(path, folder), threads)
    written = (folder / "ours" / "rank_0" / "Net" / "0", folder / "theirs")
    return measure.ratio(
        partial(ours.run, feeds),
        sides.saving(theirs, feeds, written[1]),
        threads=threads,
        rounds=_rounds(batch),
        tidy=partial(_empty, written),
    )


def statistic_default_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Dump the default three statistics of every output against a run without a dump."""
    return _statistic_ratio(name, batch, threads, folder, ["max", "min", "l2norm"])


def statistic_all_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Dump all statistics but the hashes of every output against a run without a dump."""
    return _statistic_ratio(name, batch, threads, folder, _ALL_BUT_HASHES)


def _statistic_ratio(name: str, batch: int, threads: int, folder: Path, categories: list[str]) -> float:
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    plan = sides.plan(folder / "ours", "all", saved_data="statistic", statistic_category=categories)
    ours, theirs = sides.network(path, plan), sides.network(path)
    return measure.ratio(
        partial(ours.run, feeds), partial(theirs.run, feeds), threads=threads, rounds=_rounds(batch)
    )


def rounding_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Round a float32 tensor to float16 against a copy of it."""
    del name, batch, folder
    array = np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32)
    accelerate.install()
    return measure.ratio(
        partial(precision.cast, array, FLOAT16), array.copy, threads=threads, rounds=_rounds(1)
    )


def format_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Lay a float16 tensor out as NC1HWC0 against a copy of it."""
    del name, batch, folder
    array = np.random.default_rng(0).standard_normal((8, 256, 56, 56)).astype(np.float16)
    accelerate.install()
    return measure.ratio(
        partial(formats.encode, "NC1HWC0", array), array.copy, threads=threads, rounds=_rounds(1)
    )


def dump_peak(name: str, batch: int, threads: int, folder: Path) -> float:
    """Peak memory in MiB of two dumped runs."""
    del threads
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    network = sides.network(path, sides.plan(folder / "ours", "all"))
    for _ in range(2):
        network.run(feeds)
        _empty((folder / "ours" / "rank_0" / "Net" / "0",))
    return measure.peak_mib()


def saved_peak(name: str, batch: int, threads: int, folder: Path) -> float:
    """Peak memory in MiB of two runs with all values as outputs and np.save of each."""
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    changed = folder / f"all_{path.name}"
    # Loading the model to change it must not count: another process does it.
    if os.fork() == 0:
        sides.with_all_values(path, folder)
        os._exit(0)
    os.wait()
    run = sides.saving(sides.whole(changed, threads), feeds, folder / "theirs")
    for _ in range(2):
        run()
        _empty((folder / "theirs",))
    return measure.peak_mib()


def load_ratio(name: str, batch: int, threads: int, folder: Path) -> float:
    """Ratio of the times of load and first run, msdump's against onnxruntime's; sides take turns."""
    del folder
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    return measure.ratio(
        lambda: sides.network(path).run(feeds),
        lambda: sides.whole(path, threads).run(None, feeds),
        threads=0,
        rounds=5,
    )


def load_peak(name: str, batch: int, threads: int, folder: Path) -> float:
    """Peak memory in MiB of loading and running once, msdump."""
    del threads, folder
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    sides.network(path).run(feeds)
    return measure.peak_mib()


def whole_peak(name: str, batch: int, threads: int, folder: Path) -> float:
    """Peak memory in MiB of loading and running once, onnxruntime's whole graph."""
    del folder
    path = sides.model(name, batch)
    feeds = sides.inputs(path)
    sides.whole(path, threads).run(None, feeds)
    return measure.peak_mib()


JOBS: dict[str, Callable[[str, int, int, Path], float]] = {
    job.__name__: job
    for job in (
        run_ratio, idle_ratio, dump_ratio, dump_peak, saved_peak, load_ratio, load_peak, whole_peak,
        statistic_default_ratio, statistic_all_ratio, rounding_ratio, format_ratio,
    )
}  # fmt: skip


def _rounds(batch: int) -> int:
    return 31 if batch == 1 else 9


def _empty(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        for entry in folder.iterdir() if folder.is_dir() else ():
            shutil.rmtree(entry)


def main(job: str, name: str, batch: str, threads: str) -> None:
    """Run one job and print its number."""
    os.environ["MSDUMP_THREADS"] = threads
    with tempfile.TemporaryDirectory(dir=_RAM if _RAM.is_dir() else None) as folder:
        start = time.perf_counter()
        number = JOBS[job](name, int(batch), int(threads), Path(folder))
        sys.stderr.write(f"{job} {name} b{batch} t{threads}: {time.perf_counter() - start:.0f} s\n")
    sys.stdout.write(f"{number:.4f}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
