"""``acl.util``: conversion between pointers and Python's bytes and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.arguments import dimensions

_TYPES: Final[Mapping[int, np.dtype]] = {np.dtype(code).num: np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"}
"""numpy's types by their numbers (NPY_FLOAT is 11)."""


@answers.value(0)
def bytes_to_ptr(bytes_data: Any) -> int:
    """Return the pointer of bytes; the script must keep them as long as it uses it."""
    if not isinstance(bytes_data, (bytes, bytearray)) or not bytes_data:
        raise AclError(AclCode.INVALID_PARAM, f"bytes_to_ptr: bytes are expected, not {type(bytes_data)}")
    return state.current().memory.host.lend(bytes_data)


@answers.value(None)
def ptr_to_bytes(ptr: Any, size: Any) -> bytes:
    """Return a copy of the bytes at a pointer of the host, None where there are none."""
    return bytes(_host_view(ptr, size))


@answers.value(0)
def numpy_to_ptr(array: Any) -> int:
    """Return the pointer of an array; the script must keep the array as long as it uses it."""
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.hasobject:
        raise AclError(AclCode.INVALID_PARAM, f"numpy_to_ptr: an array of numbers is expected, not {array!r}")
    if not array.flags.c_contiguous:
        raise AclError(AclCode.INVALID_PARAM, "numpy_to_ptr: the array is not contiguous; copy it first")
    return state.current().memory.host.lend(array)


@answers.value(None)
def ptr_to_numpy(ptr: Any, dims: Sequence[int], np_type: Any) -> np.ndarray:
    """Return the memory at a pointer of the host as an array, None where there is none.

    Args:
        ptr: The pointer.
        dims: Shape.
        np_type: Number of the element type, 11 for float32.
    """
    dtype = _TYPES.get(np_type) if isinstance(np_type, int) else None
    if dtype is None:
        raise AclError(AclCode.INVALID_PARAM, f"numpy type {np_type!r}: {sorted(_TYPES)} are known")
    shape = dimensions(dims)
    # a view, not a copy: a script that writes into the array writes into the memory
    view = _host_view(ptr, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(view, dtype).reshape(shape)


def _host_view(ptr: Any, size: Any) -> memoryview:
    memory = state.current().memory
    if memory.is_device(ptr):
        message = f"{ptr:#x} is memory of the device; copy it to the host with acl.rt.memcpy"
        raise AclError(AclCode.INVALID_PARAM, message)
    return memory.view(ptr, size)
