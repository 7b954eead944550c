"""The two sides of every comparison: msdump, and onnxruntime as a user would call it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from msdump.config import mindspore as config
from msdump.graph import loader
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.session import Network
from sample_nets.build import build

NEVER = "1000000"  # an iteration that no benchmark reaches


def model(name: str, batch: int) -> Path:
    """Return the file of a sample network, built once."""
    return build(name, batch=batch)


def inputs(path: Path) -> dict[str, np.ndarray]:
    """Return seeded inputs of a model."""
    rng = np.random.default_rng(0)
    graph = loader.load(path)
    return {value.name: _random(rng, value.type.dtype.numpy, value.type.shape) for value in graph.inputs}


def _random(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def whole(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Return a whole-graph session without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options)


def with_all_values(path: Path, folder: Path) -> Path:
    """Return a copy of a model that has every node's outputs as graph outputs."""
    changed = folder / f"all_{path.name}"
    proto = onnx.load(path)
    taken = {value.name for value in proto.graph.output}
    names = [name for node in proto.graph.node for name in node.output if name and name not in taken]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    onnx.save(proto, changed)
    return changed


def plan(folder: Path, iteration: str, *, msdump: dict[str, Any] | None = None, **changes: Any) -> DumpPlan:
    """Return the plan of a synchronous Ascend O0 dump of every output.

    Args:
        folder: Where it goes.
        iteration: Which steps.
        msdump: Values of ``msdump``.
        changes: Other values of ``common_dump_settings``.
    """
    settings: dict[str, Any] = {
        "common_dump_settings": {
            "op_debug_mode": 0,
            "dump_mode": 0,
            "path": str(folder),
            "net_name": "Net",
            "iteration": iteration,
            "saved_data": "tensor",
            "input_output": 2,
            "kernels": [],
            "support_device": [0],
            **changes,
        },
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
        # as the session it is compared with
        "msdump": {"precision_mode": "must_keep_origin_dtype", **(msdump or {})},
    }
    context = Context(DeviceTarget.ASCEND, JitLevel.O0)
    return config.parse(json.dumps(settings).encode(), str(folder / "data_dump.json"), context)


def network(path: Path, dump: DumpPlan | None = None) -> Network:
    """Return a network of msdump."""
    return Network(loader.load(path), dump)


def saving(
    session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray], folder: Path
) -> Callable[[], None]:
    """Return a function that runs a session and saves every output, into a new folder each time."""
    rounds = itertools.count()
    names = [output.name for output in session.get_outputs()]

    def run() -> None:
        target = folder / str(next(rounds))
        target.mkdir(parents=True)
        for position, array in enumerate(session.run(names, feeds)):
            np.save(target / f"{position}.npy", array)

    return run
