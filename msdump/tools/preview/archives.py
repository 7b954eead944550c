"""Files of named arrays (.npz): the inputs of a network, and the variables of a training."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from msdump import reading
from msdump.errors import InputError
from msdump.graph.graph import ValueType
from msdump.store.write.streams import write_stream

# RuntimeError: flags of the archive that ask for a password or a patch; the others: damaged contents.
_BROKEN: Final = (
    *(ValueError, EOFError, KeyError, RuntimeError, OverflowError, MemoryError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)


def read(path: str, type_of: Callable[[str], ValueType], remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name.

    Types that numpy lacks are read in the form that ``numpy.savez`` gives them, or in that of dump files
    (bfloat16 as float32).

    Args:
        path: The file, as ``numpy.savez(path, name=array)`` writes it.
        type_of: Gives the type that the value of a name has in the network.
        remedy: What the file should be, the end of a message.

    Raises:
        InputError: The file cannot be read.
    """
    return {name: _typed(array, type_of(name)) for name, array in arrays(path, remedy).items()}


def arrays(path: str, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name, in the types that the file has.

    Args:
        path: As for ``read``.
        remedy: As for ``read``.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with reading.open_file(path) as file:
            # Pickled arrays run code when they are read, and the file may be anybody's.
            archive = np.load(file, allow_pickle=False)
            named = None if isinstance(archive, np.ndarray) else dict(archive)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from error
    except _BROKEN as error:
        raise InputError(f"{path}: not an .npz file of plain arrays ({error}); {remedy}") from error
    if named is None:
        raise InputError(f"{path}: one array without a name; {remedy}")
    return named


def _typed(array: np.ndarray, declared: ValueType) -> np.ndarray:
    """Return an array in the type that its value has in the network where numpy has no such type.

    ``numpy.savez`` writes such types as bytes without a type ("V2"), dump files hold a wider type.
    """
    dtype = declared.dtype
    if dtype is None or dtype.saved == dtype.numpy:
        return array
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize:
        return array.view(dtype.numpy)
    return array.astype(dtype.numpy) if array.dtype == dtype.saved else array


def write(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays, in place of an older file; it appears when it is complete.

    Raises:
        DumpWriteError: It cannot be written; the older one stays.
    """
    contents = io.BytesIO()
    with zipfile.ZipFile(contents, "w", allowZip64=True) as archive:
        # not numpy.savez, whose keywords clash with names such as "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    write_stream(str(Path(path).parent), Path(path).name, (contents.getbuffer(),))
