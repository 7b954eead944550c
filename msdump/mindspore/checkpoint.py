"""MindSpore's checkpoint files (.ckpt): a protobuf message of named tensors."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

import numpy as np

from msdump import dtypes, reading
from msdump.errors import FormatError, InputError
from msdump.mindspore.tensor import Parameter
from msdump.wire import LENGTH, VARINT, WireError, fields, read_varint, tag_of

_VALUE: Final = tag_of(1, LENGTH)  # Checkpoint.value
_NAME, _TENSOR, _MAP = (tag_of(number, LENGTH) for number in (1, 2, 3))  # of Checkpoint.Value
_DIMENSION, _DIMENSIONS = tag_of(1, VARINT), tag_of(1, LENGTH)  # of TensorProto
_TYPE, _CONTENT = tag_of(2, LENGTH), tag_of(3, LENGTH)


def load_checkpoint(ckpt_file_name: str | os.PathLike[str]) -> dict[str, Parameter]:
    """Return the parameters of a checkpoint file by name.

    A tensor above 512 MiB lies in the file in several parts, one behind the other.

    Raises:
        InputError: No checkpoint file, or with parameters that are no tensors.
    """
    path = os.fspath(ckpt_file_name)
    try:
        data = reading.map_file(Path(path))
        parts: dict[str, list[tuple[tuple[int, ...], str, memoryview]]] = {}
        for tag, _, _, start, end in fields(data, 0, len(data)):
            if tag == _VALUE:
                name, tensor = _value(path, data, start, end)
                parts.setdefault(name, []).append(tensor)
    except OSError as error:
        raise InputError(f"load_checkpoint: {path}: cannot be read: {error.strerror}") from error
    except (WireError, UnicodeDecodeError) as error:
        raise InputError(f"load_checkpoint: {path}: no checkpoint file of MindSpore, or cut off") from error
    if not parts:
        raise InputError(f"load_checkpoint: {path}: the file has no parameters")
    return {name: Parameter(_joined(path, name, pieces), name) for name, pieces in parts.items()}


def _value(
    path: str, data: memoryview, start: int, end: int
) -> tuple[str, tuple[tuple[int, ...], str, memoryview]]:
    name, found = "", None
    for tag, _, _, begin, stop in fields(data, start, end):
        if tag == _NAME:
            name = bytes(data[begin:stop]).decode()
        elif tag == _TENSOR:
            found = _tensor(data, begin, stop)
        elif tag == _MAP:
            raise InputError(
                f"load_checkpoint: {path}: {name!r} is a MapParameter, which has no counterpart here"
            )
    if found is None:
        raise InputError(f"load_checkpoint: {path}: {name!r} has no tensor")
    return name, found


def _tensor(data: memoryview, start: int, end: int) -> tuple[tuple[int, ...], str, memoryview]:
    shape: list[int] = []
    kind, content = "", data[:0]
    for tag, number, _, begin, stop in fields(data, start, end):
        if tag == _DIMENSION:
            shape.append(number)
        elif tag == _DIMENSIONS:
            while begin < stop:
                size, begin = read_varint(data, begin, stop)  # noqa: PLW2901 - walks on
                shape.append(size)
        elif tag == _TYPE:
            kind = bytes(data[begin:stop]).decode()
        elif tag == _CONTENT:
            content = data[begin:stop]
    return tuple(shape), kind, content


def _joined(path: str, name: str, pieces: list[tuple[tuple[int, ...], str, memoryview]]) -> np.ndarray:
    shape, kind, _ = pieces[0]
    try:
        dtype = dtypes.from_name(kind)
    except FormatError as error:
        raise InputError(
            f"load_checkpoint: {path}: {name!r} has the element type {kind!r}: {error}"
        ) from error
    raw = np.concatenate([np.frombuffer(content, np.uint8) for _, _, content in pieces])
    shape = () if shape == (0,) and len(raw) else shape  # vendor: a scalar is written with the shape (0,)
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise InputError(
            f"load_checkpoint: {path}: {name!r} of {kind}{list(shape)} has {len(raw)} bytes; is the file"
            " cut off?"
        )
    return raw.view(dtype.numpy).reshape(shape)
