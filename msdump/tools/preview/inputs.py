"""Inputs of a network for runs without a program: from an .npz file, or random from a seed."""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

from msdump import reading
from msdump.dtypes import STRING, DType
from msdump.errors import InputError, name_hint
from msdump.graph.graph import Graph, Value, ValueType

_SMALL_RANGE: Final = 2  # 0 or 1: valid as token ids, masks, flags and indices
_MOST_DIMENSIONS: Final = 64
_RANDOM_BYTES: Final = 8  # of an element when it is drawn: float64 or int64, whatever its type
# RuntimeError: flags of the archive that ask for a password or a patch; the others: damaged contents.
_BROKEN: Final = (
    *(ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
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
    return {name: _typed(array, graph.type_of(name)) for name, array in _read(path).items()}


def _read(path: str) -> dict[str, np.ndarray]:
    remedy = "--inputs takes a file of numpy.savez(path, input_name=array, ...)"
    try:
        with reading.open_file(path) as file:
            # Pickled arrays run code when they are read, and the file may be anybody's.
            archive = np.load(file, allow_pickle=False)
            arrays = None if isinstance(archive, np.ndarray) else dict(archive)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from error
    except _BROKEN as error:
        raise InputError(f"{path}: not an .npz file of plain arrays ({error}); {remedy}") from error
    if arrays is None:
        raise InputError(f"{path}: one array without a name; {remedy}")
    return arrays


def _typed(array: np.ndarray, declared: ValueType) -> np.ndarray:
    """Return an array in the type that its input declares where numpy has no such type.

    ``numpy.savez`` writes such types as bytes without a type ("V2"), dump files hold a wider type.
    """
    dtype = declared.dtype
    if dtype is None or dtype.saved == dtype.numpy:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize:
        return array.view(dtype.numpy)
    return array.astype(dtype.numpy) if array.dtype == dtype.saved else array


def made_up(graph: Graph, sizes: Mapping[str, int], seed: int, step: int) -> dict[str, Any]:
    """Return random inputs of one step: the same for the same seed and step.

    Floating point elements are normally distributed, 8-bit and smaller integers
    take every value, larger ones are 0 or 1, optional inputs stay absent.

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
    return {
        value.name: _random_value(graph, value, sizes, generator)
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
    graph: Graph, value: Value, sizes: Mapping[str, int], generator: np.random.Generator
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
