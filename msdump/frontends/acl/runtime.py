"""``acl.rt``: devices, contexts, streams and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.config.acl import AclCode, invalid
from msdump.errors import AclError
from msdump.frontends.acl import state
from msdump.frontends.acl.memory import shown
from msdump.frontends.acl.state import DEVICES, AclContext, Stream, dimensions

_HOST_MODE: Final = 1  # programs run on the host, beside the device
_KINDS: Final = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True)}
"""Whether a copy goes to and comes from the device, by its kind."""


@state.code
def set_device(device_id: int) -> None:
    """Set the device of the calling thread; code 200002 for an unknown number."""
    # the device set last is also that of threads that have set none
    acl = state.current()
    acl.device_id = acl.contexts.device_id = _device(device_id)


@state.code
def reset_device(device_id: int) -> None:
    """Reset a device: no effect here, loaded models stay."""
    _device(device_id)


@state.value_and_code(0)
def get_device() -> int:
    """Return the device of the calling thread."""
    return state.current().current_device


@state.value_and_code(0)
def get_device_count() -> int:
    """Return the number of devices of the emulated server."""
    return DEVICES


@state.value_and_code(0)
def get_run_mode() -> int:
    """Return the run mode of the program: 1, on the host."""
    return _HOST_MODE


@state.value_and_code(0)
def create_context(device_id: int) -> int:
    """Return the handle of a new context, and make it the context of the calling thread."""
    acl = state.current()
    acl.contexts.device_id = _device(device_id)
    return acl.handles.add(AclContext())


destroy_context = state.destroyer(AclContext)


@state.value_and_code(0)
def create_stream() -> int:
    """Return the handle of a new stream."""
    acl = state.current()
    return acl.handles.add(Stream(next(acl.stream_numbers)))


destroy_stream = state.destroyer(Stream)


@state.code
def synchronize_stream(stream: int) -> None:
    """Wait for a stream; return the code of the first failed call since the last synchronisation, else 0."""
    waited = state.current().stream(stream)
    failure, waited.failure = waited.failure, 0
    if failure:
        raise AclError(failure, f"a call on stream {waited.number} failed with {failure}")


@state.value_and_code(0)
def malloc(size: int, policy: int = 0) -> int:
    """Allocate memory of the device; the policy (huge pages) has no effect here.

    Codes: 100000 for an invalid number of bytes, 200000 if there is not enough memory.
    """
    del policy
    return state.current().memory.malloc(size)


@state.code
def free(dev_ptr: int) -> None:
    """Free memory of the device."""
    state.current().memory.free(dev_ptr)


@state.value_and_code(0)
def malloc_host(size: int) -> int:
    """Allocate memory of the host; codes as in ``malloc``."""
    return state.current().memory.malloc_host(size)


@state.code
def free_host(host_ptr: int) -> None:
    """Free memory of the host."""
    state.current().memory.free_host(host_ptr)


@state.code
def memcpy(dst: Any, dst_size: Any, src: Any, src_size: Any, kind: Any) -> None:
    """Copy bytes.

    Args:
        dst: Destination address.
        dst_size: Size of the destination in bytes.
        src: Source address.
        src_size: Number of bytes to copy.
        kind: 0 host to host, 1 host to device, 2 device to host, 3 device to device.

    Codes: 100000 for memory that is invalid, on the wrong side or too small.
    """
    if not isinstance(kind, int) or kind not in _KINDS:
        raise invalid(f"kind {kind!r}: must be from 0 to 3")
    memory = state.current().memory
    is_sized = isinstance(src_size, int) and isinstance(dst_size, int)
    if not is_sized or not 0 <= src_size <= dst_size:
        raise invalid(f"{src_size!r} bytes do not fit into {dst_size!r}")
    for name, address, is_device in zip(("dst", "src"), (dst, src), _KINDS[kind], strict=True):
        if memory.is_device(address) != is_device:
            side = "device" if is_device else "host"
            raise invalid(f"{name} = {shown(address)} is not memory of the {side}")
    contents = memory.view(src, src_size)
    if src_size:
        memory.view(dst, dst_size, writes=True)[:src_size] = contents


def _device(device_id: Any) -> int:
    if not isinstance(device_id, int) or not 0 <= device_id < DEVICES:
        raise AclError(AclCode.INVALID_DEVICE, f"device {device_id!r}: must be from 0 to {DEVICES - 1}")
    return device_id


_TYPES: Final[Mapping[int, np.dtype]] = {np.dtype(code).num: np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"}
"""numpy's types by their numbers (NPY_FLOAT is 11)."""


@state.value(0)
def bytes_to_ptr(bytes_data: Any) -> int:
    """Return the pointer of bytes; keep the bytes alive while the pointer is in use."""
    if not isinstance(bytes_data, (bytes, bytearray)) or not bytes_data:
        raise invalid(f"bytes_to_ptr: bytes are expected, not {type(bytes_data)}")
    return state.current().memory.lend(bytes_data)


@state.value(None)
def ptr_to_bytes(ptr: Any, size: Any) -> bytes:
    """Return a copy of the bytes at a pointer of the host, None for an invalid pointer."""
    return bytes(_host_view(ptr, size))


@state.value(0)
def numpy_to_ptr(array: Any) -> int:
    """Return the pointer of an array; keep the array alive while the pointer is in use."""
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.hasobject:
        raise invalid(f"numpy_to_ptr: an array of numbers is expected, not {array!r}")
    if not array.flags.c_contiguous:
        raise invalid("numpy_to_ptr: the array is not contiguous; copy it first")
    return state.current().memory.lend(array)


@state.value(None)
def ptr_to_numpy(ptr: Any, dims: Sequence[int], np_type: Any) -> np.ndarray:
    """Return the memory at a pointer of the host as an array, None for an invalid pointer.

    Args:
        ptr: The pointer.
        dims: Shape.
        np_type: Number of the element type, 11 for float32.
    """
    dtype = _TYPES.get(np_type) if isinstance(np_type, int) else None
    if dtype is None:
        raise invalid(f"numpy type {np_type!r}: {sorted(_TYPES)} are known")
    shape = dimensions(dims)
    # a view, not a copy: a script that writes into the array writes into the memory
    view = _host_view(ptr, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(view, dtype).reshape(shape)


def _host_view(ptr: Any, size: Any) -> memoryview:
    memory = state.current().memory
    if memory.is_device(ptr):
        message = f"{ptr:#x} is memory of the device; copy it to the host with acl.rt.memcpy"
        raise invalid(message)
    return memory.view(ptr, size)
