"""Reading and writing the device memory behind data buffers."""

from __future__ import annotations

import numpy as np

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError
from msdump.frontends.acl.objects import DataBuffer
from msdump.frontends.acl.state import AclState


def device_view(acl: AclState, handle: int, *, writes: bool = False) -> memoryview:
    """Return the device memory of a data buffer.

    Args:
        acl: The process.
        handle: Of the data buffer.
        writes: Whether it will be changed; a buffer without memory is reserved then.

    Raises:
        AclError: There is no such memory, or it is the host's.
    """
    buffer = acl.handles.get(handle, DataBuffer)
    if writes and not buffer.address:  # its size is known when the output is
        return memoryview(b"")
    if buffer.address and not acl.memory.is_device(buffer.address):
        raise AclError(
            AclCode.INVALID_PARAM,
            f"{buffer.address:#x} is no memory of the device; copy the tensor there with acl.rt.memcpy",
        )
    return acl.memory.view(buffer.address, buffer.size, writes=writes)


def write_result(acl: AclState, handle: int, array: np.ndarray) -> None:
    """Copy an output into its data buffer; one without memory gets it now.

    Raises:
        AclError: 100018: the buffer is too small.
    """
    buffer = acl.handles.get(handle, DataBuffer)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not buffer.address and data.size:
        buffer.address, buffer.size = acl.memory.malloc(data.size), data.size
    if data.size > buffer.size:
        raise AclError(
            AclCode.MODEL_OUTPUT_NOT_MATCH,
            f"an output of {data.size} bytes does not fit into a buffer of {buffer.size}",
        )
    if data.size:
        acl.memory.view(buffer.address, data.size, writes=True)[:] = data.data
