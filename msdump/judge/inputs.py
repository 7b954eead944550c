"""Inputs of a network: arrays by name in .npz files, and random inputs that are the same for a seed."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final

import ml_dtypes
import numpy as np

from msdump import reading
from msdump.dtypes import STRING, DType
from msdump.errors import InputError
from msdump.execute import bind_inputs
from msdump.graph import Graph, ValueType
from msdump.judge.recipes import FROM_PYTHON, Recipe, recipes_of
from msdump.store.write import write_file

# RuntimeError: flags of the archive that ask for a password or a patch; the others: damaged contents.
_BROKEN: Final = (
    *(ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)


Shape = tuple[int, ...]

_NPY: Final = b"\x93NUMPY"
_POSITION: Final = re.compile(r"(?:arr_)?([0-9]{1,4})")  # arr_0: the names of numpy.savez(path, first, ...)


def read_arrays(
    path: str,
    type_of: Callable[[str], ValueType],
    remedy: str,
    check: Callable[[dict[str, np.ndarray]], object],
    sole: str = "",
) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name.

    Types that numpy lacks are read in the form that ``numpy.savez`` gives them, or in that of dump files
    (bfloat16 as float32).

    Args:
        path: The file, as ``numpy.savez(path, name=array)`` writes it.
        type_of: Gives the type that the value of a name has in the network.
        remedy: The end of a message, which says how to make a good file.
        check: Refuses arrays by their types and shapes; it gets stand-ins without memory, before any is read.
        sole: Name of the one array of an .npy file; "" where such a file is none.

    Raises:
        InputError: The file cannot be read, or ``check`` refuses it.
    """

    def check_headers(elements: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]) -> None:
        typed = {name: _typed(element, type_of(name)) for name, element in elements.items()}
        check({name: np.broadcast_to(element, shapes[name]) for name, element in typed.items()})

    arrays = load_arrays(path, remedy, check_headers, sole)
    return {name: _typed(array, type_of(name)) for name, array in arrays.items()}


def load_arrays(
    path: str,
    remedy: str,
    check: Callable[[dict[str, np.ndarray], dict[str, Shape]], object] = lambda _elements, _shapes: None,
    sole: str = "",
) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name, in the types that the file has.

    Args:
        path: As for ``read_arrays``.
        remedy: As for ``read_arrays``.
        check: Gets an element of each array's type and the shapes before any array is read.
        sole: As for ``read_arrays``.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with reading.open_file(path) as file:
            is_sole = file.read(len(_NPY)) == _NPY
            file.seek(0)
            if is_sole:
                if not sole:
                    raise InputError(f"{path}: one array without a name; {remedy}")  # noqa: TRY301 - it passes
                element, shape = _header(file, sole)
                check({sole: element}, {sole: shape})
                file.seek(0)
            # Pickled arrays run code when they are read, and the file may be untrusted.
            archive = np.load(file, allow_pickle=False)
            if not is_sole:
                check(*_headers(archive))
            return {sole: archive} if is_sole else dict(archive)
    except InputError:  # raised by ``check``
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from error
    except _BROKEN as error:
        raise InputError(f"{path}: not an .npz file of plain arrays ({error}); {remedy}") from error


def _headers(archive: np.lib.npyio.NpzFile) -> tuple[dict[str, np.ndarray], dict[str, Shape]]:
    """Return a sample element (for the type) and the shape of each array, from the headers alone."""
    assert archive.zip is not None, "it is open"
    elements, shapes = {}, {}
    for name in archive:
        inside = f"{name}.npy" if f"{name}.npy" in archive.zip.NameToInfo else name
        with archive.zip.open(inside) as member:
            elements[name], shapes[name] = _header(member, name)
    return elements, shapes


def _header(member: IO[bytes], name: str) -> tuple[np.ndarray, Shape]:
    is_short = np.lib.format.read_magic(member) == (1, 0)
    read_header = getattr(np.lib.format, f"read_array_header_{1 if is_short else 2}_0")
    shape, _, dtype = read_header(member)
    if dtype.hasobject:
        raise ValueError(
            f"{name!r} is an array of objects: convert texts with astype(str), numbers with"
            " astype(numpy.float32) or another type"
        )
    return np.zeros((), dtype), shape


def _typed(array: np.ndarray, declared: ValueType) -> np.ndarray:
    """Return an array in its declared type, which numpy may lack (bfloat16), from the form in files.

    ``numpy.savez`` writes such types as bytes without a type ("V2"), dump files hold a wider type.
    """
    dtype = declared.dtype
    if dtype is None or dtype.saved == dtype.numpy:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize:
        return array.view(dtype.numpy)
    return array.astype(dtype.numpy) if array.dtype == dtype.saved else array


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write named arrays in place of an older file, and return its path; it appears when it is complete.

    Raises:
        DumpWriteError: It cannot be written; the older one stays.
    """
    contents = io.BytesIO()
    with zipfile.ZipFile(contents, "w", allowZip64=True) as archive:
        # not numpy.savez: its keywords clash with names such as "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_file(path, (contents.getbuffer(),))
    return str(path)


_SMALL_RANGE: Final = 2  # 0 or 1: valid as token ids, masks, flags and indices
_WORDS: Final = ("iron", "moss", "amber", "slate")


def from_file(graph: Graph, path: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by the names of the network's inputs, as ``read_arrays`` does.

    The file calls inputs by their names or positions (``0`` or ``arr_0``); an .npy file holds the only one.

    Raises:
        InputError: The file cannot be read, or it cannot hold an input, a sequence or a map.
    """
    for value in graph.inputs:
        kind = value.type.kind
        if kind in FROM_PYTHON:
            raise InputError(
                f"{graph.source}: input {value.name!r} is a {kind}, which an .npz file cannot hold;"
                f" run the network from Python: {FROM_PYTHON[kind]}"
            )
    order = [value.name for value in graph.inputs]
    remedy = "--inputs takes a file of numpy.savez(path, input_name=array, ...)"

    def name_of(key: str) -> str:
        match = _POSITION.fullmatch(key)
        if match is None or key in order or key in graph.overridable:
            return key
        position = int(match[1])
        return order[position] if position < len(order) else key

    def named(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        by_name = {name_of(key): array for key, array in arrays.items()}
        if len(by_name) < len(arrays):
            raise InputError(f"{path}: {', '.join(arrays)} name an input twice, by name and by position")
        return by_name

    sole = order[0] if len(order) == 1 else ""
    check = lambda arrays: bind_inputs(graph, (), named(arrays))  # noqa: E731
    return named(read_arrays(path, lambda key: graph.type_of(name_of(key)), remedy, check, sole))


def made_up(graph: Graph, sizes: Mapping[str, int], seed: int, step: int) -> dict[str, Any]:
    """Return made-up inputs of one step: the same for the same seed and step.

    Floating point elements are normally distributed, indices are below the size of their table, masks
    are ones, positions are counted, 8-bit and smaller integers take every value, larger ones are 0 or 1.
    Optional inputs stay absent.

    Raises:
        InputError: An input declares no type or shape, or is a sequence or a map; no input has one of the
            dimensions.
    """
    return drawn(recipes_of(graph, sizes), seed, step)


def drawn(made: Iterable[Recipe], seed: int, step: int) -> dict[str, Any]:
    """Return the inputs of recipes: the same for the same seed and step."""
    # Seeded by the step too: its inputs do not depend on whether the steps before it were run.
    generator, arrays = np.random.default_rng((seed, step)), dict[str, Any]()
    for each in made:
        if each.fill is not None:
            array = np.full(each.shape, each.fill, each.type.numpy)
        elif each.counts:
            positions = np.arange(each.shape[-1]) % (each.below or max(1, each.shape[-1]))
            array = np.broadcast_to(positions, each.shape).astype(each.type.numpy)
        elif each.below is not None:
            array = np.asarray(generator.integers(0, each.below, each.shape)).astype(each.type.numpy)
        else:
            array = _elements(each.type, each.shape, generator)
        arrays[each.name] = array
    return arrays


def like(arrays: Mapping[str, Any], seed: int | tuple[int, ...]) -> dict[str, Any]:
    """Return random inputs that are like given ones: the same for the same seed.

    Zeros stay in place, as they mark padding and masks. Integers that are not all equal are replaced by
    random ones from the smallest to the largest; other elements by randomly chosen elements of the array.
    """
    generator, drawn = np.random.default_rng(seed), dict(arrays)
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OSUb":
            continue
        is_drawn = array != 0
        given = array[is_drawn]
        if array.dtype.kind in "iu" and len(np.unique(given)) > _SMALL_RANGE:
            low, high = given.min(), given.max()
            elements = generator.integers(low, high, given.size, array.dtype, endpoint=True)
        else:
            elements = given[generator.integers(0, max(1, given.size), given.size)]
        drawn[name] = array.copy()
        drawn[name][is_drawn] = elements
    return drawn


def _elements(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    if dtype is STRING:
        return generator.choice(np.array(_WORDS, dtype=object), shape)
    if dtype.name.startswith("complex"):
        parts = generator.standard_normal((*shape, 2))
        return np.asarray(parts[..., 0] + 1j * parts[..., 1]).astype(dtype.numpy)
    if "int" not in dtype.name and dtype.name != "bool":
        return np.asarray(generator.standard_normal(shape)).astype(dtype.numpy)
    # Larger integers are mostly token ids, indices and lengths, of which only 0 and 1 are surely valid.
    low, high = 0, _SMALL_RANGE
    if dtype.numpy.itemsize == 1 and dtype.name != "bool":
        limits = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package has no annotations
        low, high = int(limits.min), int(limits.max) + 1
    return np.asarray(generator.integers(low, high, shape)).astype(dtype.numpy)
