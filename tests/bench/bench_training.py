"""Steps of training beside sessions of whole graphs and PyTorch: ``python -m tests.bench.bench_training``.

A part of a row may follow, ``lenet`` or ``PyTorch``. Rows of PyTorch are left out where it is not installed.
Each measurement runs in a process of its own, which this module starts with a job's name; it prints one
number. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

from msdump.training import step_graph
from tests.bench import measure, sides

_RATE, _MOMENTUM = 0.01, 0.9
_STEPS: Final = {"lenet": 25}
"""How many steps are one measurement of a network whose step is short; 1 for the others."""

_ROUNDS: Final = {"lenet": 25}
_FEW_ROUNDS: Final = 7


@dataclass(frozen=True, slots=True)
class TrainingGoal:
    """One line of the table.

    Attributes:
        what: What is measured.
        job: What measures it.
        network: Sample network.
        batch: Its batch size.
        threads: Of one operator.
        most: The figure must not be above it.
    """

    what: str
    job: str
    network: str
    batch: int
    threads: int
    most: float


def goals() -> Iterator[TrainingGoal]:
    """Yield the goals in the order of the table."""
    for network, most in (("lenet", 1.3), ("resnet50", 1.08)):
        for threads in (1, 2):
            yield TrainingGoal("step / whole graph", "of_whole", network, 8, threads, most)
            if importlib.util.find_spec("torch"):
                yield TrainingGoal("step / PyTorch", "of_torch", network, 8, threads, 1.5)
    for network, batch in (("resnet50", 8), ("bert", 1)):
        yield TrainingGoal("making the step graph, seconds", "making", network, batch, 1, 5.0)


def of_whole(name: str, batch: int, threads: int) -> float:
    """Step against a session of the whole graph, which returns the new values and keeps none."""
    with tempfile.TemporaryDirectory() as folder:
        path = _step(name, batch, Path(folder))
        feeds = _batch(path)
        ours, theirs = sides.network(path), sides.whole(path, threads)
        return _ratio(
            name, partial(ours.train_step, *feeds.values()), partial(theirs.run, None, feeds), threads
        )


def of_torch(name: str, batch: int, threads: int) -> float:
    """Step against PyTorch's: forward, backward, momentum."""
    with tempfile.TemporaryDirectory() as folder:
        path = _step(name, batch, Path(folder))
        feeds = _batch(path)
        theirs = _torch_step(name, path, list(feeds.values()), threads)
        return _ratio(name, partial(sides.network(path).train_step, *feeds.values()), theirs, threads)


def making(name: str, batch: int, threads: int) -> float:
    """Return the seconds of this process that a step graph takes."""
    del threads
    path = sides.model(name, batch)
    start = time.process_time()
    step_graph(path, optimizer=f"momentum:{_RATE},{_MOMENTUM}")
    return time.process_time() - start


JOBS: Final[dict[str, Callable[[str, int, int], float]]] = {
    job.__name__: job for job in (of_whole, of_torch, making)
}


def _step(name: str, batch: int, folder: Path) -> Path:
    path = folder / "step.onnx"
    onnx.save(step_graph(sides.model(name, batch), optimizer=f"momentum:{_RATE},{_MOMENTUM}"), path)
    return path


def _batch(path: Path) -> dict[str, np.ndarray]:
    """Return the inputs of a step that have no value of their own."""
    feeds = sides.inputs(path)
    return {name: array for name, array in feeds.items() if name.startswith("inputs")}


def _ratio(name: str, ours: measure.Side, theirs: measure.Side, threads: int) -> float:
    steps = _STEPS.get(name, 1)
    return measure.ratio(
        partial(_repeated, ours, steps),
        partial(_repeated, theirs, steps),
        threads=threads,
        rounds=_ROUNDS.get(name, _FEW_ROUNDS),
        tidy=partial(time.sleep, 0.05),  # the threads of the side that has just run still look for work
    )


def _repeated(side: measure.Side, count: int) -> None:
    for _ in range(count):
        side()


def _torch_step(name: str, path: Path, batch: list[np.ndarray], threads: int) -> measure.Side:
    """Return a step of the same network and optimizer in PyTorch."""
    import torch
    from torch.nn import functional

    from tests.training import torch_networks

    torch.set_num_threads(threads)
    tensors: dict[str, Any] = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in onnx.load(path).graph.initializer
    }
    trained = [tensors[name.removeprefix("moments.")] for name in tensors if name.startswith("moments.")]
    optimizer = torch.optim.SGD([tensor.requires_grad_() for tensor in trained], _RATE, _MOMENTUM)
    network = partial(getattr(torch_networks, name), torch_networks.Weights(tensors), _Plain())
    x, labels = torch.from_numpy(batch[0]), torch.from_numpy(batch[1]).long()

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(network(x), labels).backward()
        optimizer.step()

    return step


class _Plain:
    """Activations that follow their own input."""

    @staticmethod
    def relu(x: Any) -> Any:
        """Return what a ReLU returns."""
        return x.relu()

    @staticmethod
    def max_pool(x: Any, size: int, **window: int) -> Any:
        """Return the largest elements of windows."""
        from torch.nn import functional

        return functional.max_pool2d(x, size, **window)


def figure(goal: TrainingGoal) -> float:
    """Return what a goal's job measures in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.bench_training", goal.job, goal.network]
    command += [str(goal.batch), str(goal.threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def report(only: str = "") -> int:
    """Measure the goals whose row contains ``only``; return the number of those missed."""
    table = Table("measured", "network", "batch", "threads", "figure", "at most", "")
    missed = 0
    for goal in goals():
        if only not in f"{goal.what} {goal.network}":
            continue
        value = figure(goal)
        missed += value > goal.most
        verdict = "holds" if value <= goal.most else "MISSED"
        row = (goal.network, str(goal.batch), str(goal.threads), f"{value:.3f}", f"{goal.most:.2f}")
        table.add_row(goal.what, *row, verdict)
    Console(width=110).print(table)
    return missed


def main(job: str = "", network: str = "", batch: str = "", threads: str = "") -> int:
    """Run one job and print its number, or report on all."""
    if job not in JOBS:
        return min(report(job), 1)
    os.environ["MSDUMP_THREADS"] = threads
    sys.stdout.write(f"{JOBS[job](network, int(batch), int(threads)):.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
