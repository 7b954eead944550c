"""The elements of dumped tensors as a host would have them: in its layout, in types that numpy has."""

from __future__ import annotations

from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.dtypes import DType
from msdump.errors import FormatError, InputError
from msdump.record import DEFAULT_FORMAT
from msdump.store.read.operator_files import OperatorRecord
from msdump.store.read.records import Record

_ON_HOST: Final = frozenset({DEFAULT_FORMAT, "NCHW", "ND", ""})
"""Formats in which a tensor lies as on the host."""

_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})


def host_array(record: Record, shape: tuple[int, ...] | None, groups: int = 1) -> np.ndarray:
    """Return the elements of a tensor in the host's layout.

    Args:
        record: The tensor.
        shape: Its shape on the host, None where that is not known.
        groups: Groups of the convolution that reads it.

    Raises:
        InputError: Its layout cannot be undone, or it holds text.
        DumpReadError: Its file cannot be read.
    """
    try:
        array = record.host
        if not isinstance(record, OperatorRecord) and record.format not in _ON_HOST:
            array = _decoded(record.format, array, shape, groups)
    except FormatError as error:
        raise InputError(f"{record.path}: {error}; give the model with --model") from error
    if array.dtype.kind in "OUS":
        raise InputError(f"{record.path}: {record} holds text, which no .npz file of plain arrays can")
    if array.dtype.isbuiltin != 1:  # a type that numpy lacks; all of them are exact in float32
        array = array.astype(np.float32)
    return (
        np.ascontiguousarray(array) if shape is None or array.size != _size(shape) else array.reshape(shape)
    )


def _decoded(layout: str, array: np.ndarray, shape: tuple[int, ...] | None, groups: int) -> np.ndarray:
    """Undo a layout of the device.

    Raises:
        FormatError: It cannot be undone.
    """
    if shape is None:
        raise FormatError(f"it lies in {layout}, and its shape on the host is not known")
    return formats.decode(layout, array, shape, groups)


def in_type(array: np.ndarray, dtype: DType | None) -> np.ndarray:
    """Return floating point elements in the type that a model takes; a device may hold them in another."""
    if dtype is None or array.dtype == dtype.numpy:
        return array
    both = {dtypes.from_numpy(array.dtype).name, dtype.name}
    return array.astype(dtype.numpy) if both <= _FLOATS and dtype.numpy.isbuiltin == 1 else array


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
