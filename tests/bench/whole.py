"""onnxruntime's side of a comparison, as a user would call it; msdump is not even imported."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnxruntime

_DTYPES: Final = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def session(path: Path, threads: int, *, is_optimised: bool = False) -> onnxruntime.InferenceSession:
    """Return a session of the whole graph, without optimisations by default."""
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options)


def inputs(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Return seeded inputs of a session's model."""
    return random_inputs({value.name: (_DTYPES[value.type], value.shape) for value in session.get_inputs()})


def random_inputs(types: Mapping[str, tuple[type, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    """Return seeded arrays of the given element types and shapes, by name."""
    rng = np.random.default_rng(0)
    return {name: _random(rng, np.dtype(dtype), shape) for name, (dtype, shape) in types.items()}


def _random(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def saving(
    session: onnxruntime.InferenceSession,
    feeds: Mapping[str, np.ndarray],
    folder: Path,
    saved: Sequence[str] = (),
    weights: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Callable[[], None]:
    """Return a function that runs a session and saves tensors, into a new folder each time.

    Args:
        session: Gives all values of a network.
        feeds: Its feeds.
        folder: Holds the folders.
        saved: The names of the tensors, in the order of files; none: every output once.
        weights: The ones among them that are neither fed nor given.
    """
    rounds = itertools.count()
    names = [output.name for output in session.get_outputs()]

    def run() -> None:
        target = folder / str(next(rounds))
        target.mkdir(parents=True)
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
        values = {**weights, **feeds, **outputs} if saved else outputs
        for position, name in enumerate(saved or names):
            np.save(target / f"{position}.npy", values[name])

    return run
