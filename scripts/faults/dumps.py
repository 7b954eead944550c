"""Dumps of networks in every mode, in this process, and the values that a network computes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import msdump
from msdump.execute import Program, bind_inputs
from msdump.execute.values import from_python
from msdump.graph import Graph, loader
from msdump.observer import Interest, Observer
from msdump.session import Network
from scripts.faults.networks import Net
from tests.world import O2, compiled_config, config, opened

MODEL = "net.onnx"
"""Name of a model's file."""

O0 = {"device_target": "Ascend", "jit_level": "O0"}
O1 = {"device_target": "Ascend", "jit_level": "O1"}


@dataclass(frozen=True)
class Mode:
    """How a network runs and dumps.

    Attributes:
        name: For messages.
        context: Of ``msdump.set_context``.
        changes: Keys of the configuration.
        computes: Type in which its matrix products compute.
    """

    name: str
    context: dict[str, Any] = field(hash=False)
    changes: dict[str, Any] = field(default_factory=dict, hash=False)
    computes: str = "float16"

    @property
    def is_compiled(self) -> bool:
        """Whether the graph is compiled as a whole."""
        return self.context.get("jit_level") == "O2"

    def configuration(self, root: Path) -> dict[str, Any]:
        """Return a configuration that dumps everything below a root."""
        if self.is_compiled:
            return compiled_config(root, fuses=True, **self.changes)
        return config(root, **self.changes)


CPU = Mode("CPU", {"device_target": "CPU"}, computes="float32")
MODES = (
    CPU,
    Mode("O0 sync", O0, {"trans_flag": True}),
    Mode("O0 async", O0, {"enable": False}),
    Mode("O1", O1, {"trans_flag": True}),
    Mode("O2 npy", O2, {"file_format": "npy"}),
    Mode("O2 bin", O2),
)
"""The five ways to dump, O2's in both formats."""

LOCKSTEP = (CPU, Mode("O0", O0), CPU, Mode("O1", O1), CPU, Mode("O2", {**O0, "jit_level": "O2"}))
"""How the examined model runs in trials of ``msdump diff``; golden is float32."""

PRECISIONS = (
    Mode("O0 bfloat16", O0, {"precision_mode": "allow_fp32_to_bf16"}, "bfloat16"),
    Mode("O0 force_fp16", O0, {"precision_mode": "force_fp16"}),
    Mode("O0 float32", O0, {"precision_mode": "must_keep_origin_dtype"}, "float32"),
)
"""Other types in which the device computes."""


@dataclass(frozen=True)
class Dumped:
    """A dump: its root, the file of its model, and the graph that ran, fused and cast as in its mode."""

    path: Path
    model: Path
    graph: Graph

    @cached_property
    def source(self) -> Graph:
        """The graph of the model, as nothing has compiled it."""
        return loader.load(self.model).step


def kernel_outputs(net: Net, mode: Mode) -> dict[str, frozenset[str]]:
    """Return the values that a dump of a sound network shows for each node: the outputs of its kernel."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)):
        network = _load(net.model, mode, Path(folder))
        graph = network.training.graph if net.trains else network.graph
    written: dict[str, set[str]] = {}
    for inner in graph.walk():
        for node in inner.nodes:
            for part in node.members:
                written.setdefault(part.name, set()).update(name for name in node.declared_outputs if name)
    return {name: frozenset(values) for name, values in written.items()}


def dump(
    net: Net,
    model: onnx.ModelProto,
    mode: Mode,
    folder: Path,
    *,
    runs: Sequence[Mapping[str, np.ndarray]] = (),
    before: Sequence[Net] = (),
) -> Dumped:
    """Run a model and dump all of it below a folder.

    Args:
        net: The network of the model.
        model: The model.
        mode: Mode of the run and the dump.
        folder: Folder of the files.
        runs: Inputs, run by run; none: once the network's.
        before: Networks that the process has loaded before, so that numbers of graphs are others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with opened(folder):
        for number, other in enumerate(before):
            earlier = folder / f"before_{number}"
            earlier.mkdir()
            _load(other.model, mode, earlier)
        network = _load(model, mode, folder)
        if net.trains:
            network.train_step(**net.feeds)
            graph = network.training.graph
        else:
            for feeds in runs or (net.feeds,):
                network.run(dict(feeds))
            graph = network.graph
    return Dumped(folder / "dump", folder / MODEL, graph)


def _load(model: onnx.ModelProto, mode: Mode, folder: Path) -> Network:
    """Return a network that dumps below a folder, with its model and configuration there."""
    onnx.save(model, folder / MODEL)
    (folder / "data_dump.json").write_text(json.dumps(mode.configuration(folder / "dump")))
    return msdump.load(folder / MODEL, config=str(folder / "data_dump.json"), context=mode.context)


@dataclass
class _Collector(Observer):
    """Keeps every output of every operator, pass by pass, with the dtype that it had."""

    graph: Graph
    values: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def __post_init__(self):
        self.interest = Interest((True,) * len(self.graph.nodes), outputs=True)

    def ran(self, batch, found=None):
        for position, _, outputs, _ in batch:
            for name, array in zip(self.graph.nodes[position].declared_outputs, outputs, strict=False):
                if name and array is not None:
                    self.values.setdefault(name, []).append(np.array(array))

    def looks_into(self, body):
        """Look into every body."""
        return True

    def enter(self, body):
        return _Collector(body, self.values)


def values(net: Net, model: onnx.ModelProto) -> dict[str, list[np.ndarray]]:
    """Return the results of a model's operators on the CPU, by the names of values, pass by pass."""
    graph = loader.load(model).step
    return _collected(Program(graph), graph, net)


def device_values(net: Net, model: onnx.ModelProto, mode: Mode) -> dict[str, list[np.ndarray]]:
    """Return the results of a model's kernels in a mode, fused and rounded, pass by pass."""
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)):
        network = _load(model, mode, Path(folder))
        network = network.training if net.trains else network
        return _collected(network._program, network.graph, net)


def _collected(program: Program, graph: Graph, net: Net) -> dict[str, list[np.ndarray]]:
    collector = _Collector(graph)
    bound = bind_inputs(graph, (), net.feeds)
    program.run({name: from_python(item) for name, item in bound.items()}, collector)
    return collector.values
