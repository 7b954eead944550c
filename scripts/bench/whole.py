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

SIZES: Final = {
    "batch_size": 1,
    "sequence_length": 1,
    "past_sequence_length": 64,
    "total_sequence_length": 65,
}
"""Sizes of free dimensions: one token behind 64 others."""


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


def random_inputs(types: Mapping[str, tuple[type, Sequence[int | str]]]) -> dict[str, np.ndarray]:
    """Return seeded arrays of the given element types and shapes, by name; masks hide nothing."""
    rng = np.random.default_rng(0)
    return {name: _random(rng, name, np.dtype(dtype), shape) for name, (dtype, shape) in types.items()}


def _random(rng: np.random.Generator, name: str, dtype: np.dtype, shape: Sequence[int | str]) -> np.ndarray:
    sizes = [SIZES[size] if isinstance(size, str) else size for size in shape]
    if name.endswith("mask"):
        return np.ones(sizes, dtype)
    if dtype.kind == "f":
        return rng.standard_normal(sizes).astype(dtype)
    return rng.integers(0, 2, sizes).astype(dtype)


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
