"""Inputs of a network for runs without a program: from an .npz file, or random from a seed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from msdump.dtypes import STRING, DType
from msdump.errors import InputError, name_hint
from msdump.graph.graph import Graph, Value
from msdump.tools.preview import archives
from msdump.tools.preview.labels import class_counts

_SMALL_RANGE: Final = 2  # 0 or 1: valid as token ids, masks, flags and indices
_MOST_DIMENSIONS: Final = 64
_RANDOM_BYTES: Final = 8  # of an element when it is drawn: float64 or int64, whatever its type
_WORDS: Final = ("iron", "moss", "amber", "slate")


def from_file(graph: Graph, path: str) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by the names of the network's inputs.

    Types that numpy lacks are read in the form that ``numpy.savez`` gives them, or
    in that of dump files (bfloat16 as float32).

    Args:
        graph: The network.
        path: The file, as ``numpy.savez(path, input_name=array)`` writes it.

    Raises:
        InputError: The file cannot be read, or the network takes what no .npz file can hold.
    """
    for value in graph.inputs:
        if value.type.kind == "sequence":
            raise InputError(
                f"{graph.source}: input {value.name!r} is a sequence, which an .npz file cannot hold;"
                " run the network from Python: msdump.load(model)([array, ...])"
            )
    remedy = "--inputs takes a file of numpy.savez(path, input_name=array, ...)"
    return archives.read(path, graph.type_of, remedy)


def made_up(graph: Graph, sizes: Mapping[str, int], seed: int, step: int) -> dict[str, Any]:
    """Return random inputs of one step: the same for the same seed and step.

    Floating point elements are normally distributed, 8-bit and smaller integers
    take every value, larger ones are 0 or 1, optional inputs stay absent. The labels
    of a training step are class indices where its loss tells the number of classes.

    Args:
        graph: The network.
        sizes: Sizes of dynamic dimensions by name; the others are 1.
        seed: Any whole number from 0.
        step: Number of the step.

    Raises:
        InputError: An input declares no type or shape, or is a sequence; no input has one of the
            dimensions.
    """
    check_sizes(graph, sizes)
    # Seeded by the step too: its inputs do not depend on whether the steps before it were run.
    generator = np.random.default_rng((seed, step))
    counts = class_counts(graph) if graph.bindings else {}
    return {
        value.name: _random_value(graph, value, sizes, generator, counts.get(value.name))
        for value in graph.inputs
        if value.type.kind != "optional"
    }


def check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of dynamic dimensions that no input has.

    Raises:
        InputError: No input has one of the dimensions; the message names those that there are.
    """
    names = dict.fromkeys(
        size for value in graph.inputs for size in value.type.shape or () if isinstance(size, str)
    )
    for name in sizes:
        if name in names:
            continue
        available = f"they are {', '.join(names)}" if names else "there are none"
        hint = name_hint(name, names)
        raise InputError(f"{graph.source}: the inputs have no dynamic dimension {name!r}; {available}{hint}")


def _random_value(
    graph: Graph, value: Value, sizes: Mapping[str, int], generator: np.random.Generator, classes: int | None
) -> Any:
    declared = value.type
    if declared.kind != "tensor" or declared.dtype is None or declared.shape is None:
        fault = (
            f"is a {declared.kind}" if declared.kind not in {"", "tensor"} else "declares no type and shape"
        )
        raise InputError(
            f"{graph.source}: input {value.name!r} {fault} and cannot be made up;"
            " give it with --inputs, or run the network from Python"
        )
    shape = tuple(_size(size, sizes) for size in declared.shape)
    _check_shape(graph, value, shape)
    if classes is not None and "int" in declared.dtype.name:
        return np.asarray(generator.integers(0, classes, shape)).astype(declared.dtype.numpy)
    return _elements(declared.dtype, shape, generator)


def _check_shape(graph: Graph, value: Value, shape: tuple[int, ...]) -> None:
    fault = f"{graph.source}: input {value.name!r} of shape {shape!s:.80} cannot be made up"
    if len(shape) > _MOST_DIMENSIONS:
        raise InputError(f"{fault}: {len(shape)} dimensions, numpy has at most {_MOST_DIMENSIONS}")
    if min(shape, default=0) < 0:
        raise InputError(f"{fault}: sizes begin at 0")
    needed = math.prod(shape) * _RANDOM_BYTES
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Refused here, because Linux grants the memory and kills the process once it is used.
    if needed > available:
        raise InputError(
            f"{fault}: that takes {needed:,} bytes, the machine has {available:,}; give --inputs"
        )


def _size(size: int | str | None, sizes: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    return 1 if size is None else sizes.get(size, 1)


def _elements(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if dtype is STRING:
        return generator.choice(np.array(_WORDS, dtype=object), shape)
    if dtype.name.startswith("complex"):
        parts = generator.standard_normal((*shape, 2))
        return np.asarray(parts[..., 0] + 1j * parts[..., 1]).astype(dtype.numpy)
    if "int" in dtype.name or dtype.name == "bool":
        low, high = _range(dtype)
        return np.asarray(generator.integers(low, high, shape)).astype(dtype.numpy)
    return np.asarray(generator.standard_normal(shape)).astype(dtype.numpy)


def _range(dtype: DType) -> tuple[int, int]:
    """Return the smallest integer to draw, and the one behind the largest."""
    # Larger integers are mostly token ids, indices and lengths, of which only 0 and 1 are surely valid.
    if dtype.numpy.itemsize > 1 or dtype.name == "bool":
        return 0, _SMALL_RANGE
    limits = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package has no annotations
    return int(limits.min), int(limits.max) + 1
