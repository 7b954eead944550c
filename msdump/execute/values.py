"""Between numpy and the runtime's values: tensors of every type, sequences, optionals.

An absent optional is None on both sides: the runtime crashes when it is asked
for the type of an optional without a value, or when one is fed.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Final

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import InputError
from msdump.execute.runtime import OrtValue, runtime
from msdump.graph import glue
from msdump.graph.onenode import type_proto, type_text

_CPU: Final = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)
_NATIVE_TYPES: Final = frozenset(row.numpy for row in dtypes.DTYPES if row.numpy.isbuiltin == 1)
_NUMPY_TYPES: Final = {type_text(row): row for row in dtypes.DTYPES if row.numpy in _NATIVE_TYPES}
_OTHER_TYPES: Final = {type_text(row): row for row in dtypes.DTYPES if row.numpy not in _NATIVE_TYPES}
_STRING: Final = type_text(dtypes.STRING)


def from_array(array: np.ndarray) -> OrtValue:
    """Return a value over an array; the caller keeps a native array alive while the value lives.

    Raises:
        FormatError: The dtype has no ONNX counterpart.
    """
    array = contiguous(array)
    row = dtypes.from_numpy(array.dtype)
    if array.dtype.kind == "c":
        return array  # the runtime has no complex tensors; ONNX's reference computes on them
    if row is dtypes.STRING:
        return runtime().session(glue.strings(array)).run_with_ort_values({}, ["y"], None)[0]
    if array.dtype in _NATIVE_TYPES:
        return native.OrtValue.ortvalue_from_numpy(array, _CPU)
    return _copied(_packed(array, row), array.shape, row)


def owned(array: np.ndarray) -> OrtValue:
    """Return a value that holds a copy of an array."""
    array = contiguous(array)
    row = dtypes.from_numpy(array.dtype)
    if row is dtypes.STRING or array.dtype.kind == "c":
        return from_array(array)
    return _copied(_packed(array, row), array.shape, row)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array in C order and native byte order, copied only where it must be."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.array(array, order="C")


def _copied(data: np.ndarray, shape: tuple[int, ...], row: DType) -> OrtValue:
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), row.onnx)
    ctypes.memmove(value.data_ptr(), data.ctypes.data, data.nbytes)
    return value._ortvalue  # noqa: SLF001 - the wrapper has no other door to the native value


def _packed(array: np.ndarray, row: DType) -> np.ndarray:
    """Return the bytes of an array; types below a byte are packed, lowest bits first."""
    if row.per_byte == 1:
        return np.atleast_1d(array).view(np.uint8)
    bits = 8 // row.per_byte
    codes: np.ndarray = array.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % row.per_byte, np.uint8)])
    lanes = codes.reshape(-1, row.per_byte) << (np.arange(row.per_byte, dtype=np.uint8) * bits)
    packed: np.ndarray = np.bitwise_or.reduce(lanes, axis=1).astype(np.uint8)
    return packed


def kind_of(value: OrtValue) -> str:
    """Return the runtime's type text of a value, ``tensor(float)``."""
    if isinstance(value, np.ndarray):
        return type_text(dtypes.from_numpy(value.dtype))
    text: str = value.data_type()
    return text


def to_array(value: OrtValue) -> np.ndarray:
    """Return a tensor value as an array.

    Types that numpy has are views that keep the value's memory alive; strings
    and the others are copies (of their ml_dtypes type).
    """
    kind = value.data_type()
    if kind in _NUMPY_TYPES or kind == _STRING:
        array: np.ndarray = value.numpy()
        return array
    return _raw_copy(value, _OTHER_TYPES[kind])


def _raw_copy(value: OrtValue, row: DType) -> np.ndarray:
    shape = tuple(value.shape())
    count = math.prod(shape)
    size = -(-count // row.per_byte) * (row.numpy.itemsize if row.per_byte == 1 else 1)
    data = (
        np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8) if size else np.zeros(0, np.uint8)
    )
    if row.per_byte > 1:
        data = _unpacked(data, row)[:count]
    array: np.ndarray = data.view(row.numpy).reshape(shape)
    return array


def _unpacked(data: np.ndarray, row: DType) -> np.ndarray:
    bits = 8 // row.per_byte
    lanes = data[:, None] >> (np.arange(row.per_byte, dtype=np.uint8) * bits)
    codes: np.ndarray = (lanes & ((1 << bits) - 1)).reshape(-1)
    return codes


def from_python(value: Any, element: DType | None = None) -> OrtValue | None:
    """Return the value of an array, a list of arrays (sequence), or None (absent optional).

    Args:
        value: What the user or the reference gives.
        element: Element type of an empty list.

    Raises:
        InputError: A list of tensors of several dtypes.
    """
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return _from_list([np.asarray(item) for item in value], element or dtypes.DTYPES[0])
    return from_array(np.asarray(value))


def _from_list(items: list[np.ndarray], element: DType) -> OrtValue:
    if not items:
        return runtime().session(glue.empty_sequence(element)).run_with_ort_values({}, ["y"], None)[0]
    kinds = {dtypes.from_numpy(item.dtype) for item in items}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.name for kind in kinds))
        raise InputError(f"a sequence holds tensors of one dtype, got {names}")
    session = runtime().session(glue.sequence(type_text(kinds.pop()), len(items)))
    feeds = {f"x{position}": from_array(item) for position, item in enumerate(items)}
    return session.run_with_ort_values(feeds, ["y"], None)[0]


def to_python(value: OrtValue | None) -> Any:
    """Return an array, a list of arrays, or None."""
    if not isinstance(value, native.OrtValue):
        return value  # None, or what the reference computed in a type the runtime lacks
    if not value.has_value():
        return None
    if value.is_tensor():
        return to_array(value)
    return _unwrapped(value)


def _unwrapped(value: OrtValue) -> Any:
    kind = value.data_type()
    proto = type_proto(kind)
    if proto.HasField("optional_type"):
        session = runtime().session(glue.element(kind))
        return to_python(session.run_with_ort_values({"x": value}, ["y"], None)[0])
    count = runtime().session(glue.sequence_length(kind)).run_with_ort_values({"x": value}, ["y"], None)[0]
    session = runtime().session(glue.sequence_at(kind))
    return [
        to_python(
            session.run_with_ort_values({"x": value, "i": from_array(np.array(position))}, ["y"], None)[0]
        )
        for position in range(int(count.numpy()))
    ]
