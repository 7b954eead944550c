"""Steps of training beside sessions of whole graphs and PyTorch; the time in which step graphs are made."""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from msdump.training import step_graph
from scripts.bench import measure, sides, whole
from scripts.bench.measure import Case, Figure, UnavailableError

_RATE, _MOMENTUM = 0.01, 0.9


def of_whole(case: Case) -> Figure:
    """Step against a session of the whole graph, which returns the new values and keeps none."""
    path = _step(case)
    feeds = _batch(path)
    ours, theirs = sides.network(path), whole.session(path, case.threads)
    return measure.ratio(partial(ours.train_step, *feeds.values()), partial(theirs.run, None, feeds), case)


def of_torch(case: Case) -> Figure:
    """Step against PyTorch's: forward, backward, momentum."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("PyTorch is not installed")
    path = _step(case)
    feeds = _batch(path)
    theirs = _torch_step(case.network, path, list(feeds.values()), case.threads)
    ours = partial(sides.network(path).train_step, *feeds.values())
    return measure.ratio(ours, theirs, case, is_alone=False)


def making(case: Case) -> Figure:
    """Seconds of this process that a step graph takes."""
    path = case.path
    start = time.process_time()
    step_graph(path, optimizer=f"momentum:{_RATE},{_MOMENTUM}")
    return Figure.of([time.process_time() - start])


def _step(case: Case) -> Path:
    path = case.folder / "step.onnx"
    onnx.save(step_graph(case.path, optimizer=f"momentum:{_RATE},{_MOMENTUM}"), path)
    return path


def _batch(path: Path) -> dict[str, np.ndarray]:
    """Return the inputs of a step that have no value of their own."""
    feeds = sides.inputs(path)
    return {name: array for name, array in feeds.items() if name.startswith("inputs")}


def _torch_step(name: str, path: Path, batch: list[np.ndarray], threads: int) -> measure.Side:
    """Return a step of the same network and optimizer in PyTorch."""
    import torch
    from torch.nn import functional

    from scripts.bench import torch_networks

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
        """Return a ReLU's output."""
        return x.relu()

    @staticmethod
    def max_pool(x: Any, size: int, **window: int) -> Any:
        """Return the largest elements of windows."""
        from torch.nn import functional

        return functional.max_pool2d(x, size, **window)
