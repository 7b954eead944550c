"""``acl.rt``: devices, contexts, streams and memory."""

from __future__ import annotations

from typing import Any, Final

from msdump.config.acl.codes import AclCode
from msdump.errors import AclError
from msdump.frontends.acl import answers, state
from msdump.frontends.acl.allocations import shown
from msdump.frontends.acl.objects import AclContext, Stream
from msdump.frontends.acl.state import DEVICES, AclState

_HOST_MODE: Final = 1  # programs run on the host, beside the device
_KINDS: Final = {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True)}
"""Whether a copy goes to and comes from the device, by its kind."""


@answers.code
def set_device(device_id: int) -> None:
    """Make a device the current one of the calling thread; 200002 for a number that no device has."""
    # the device set last is also that of threads that have set none
    acl = state.current()
    acl.device_id = acl.contexts.device_id = _device(device_id)


@answers.code
def reset_device(device_id: int) -> None:
    """Reset a device, which does nothing here: models that are loaded on it stay."""
    _device(device_id)


@answers.value_and_code(0)
def get_device() -> int:
    """Return the device that the calling thread works on."""
    return state.current().current_device


@answers.value_and_code(0)
def get_device_count() -> int:
    """Return how many devices the emulated server has."""
    return DEVICES


@answers.value_and_code(0)
def get_run_mode() -> int:
    """Return where programs run: 1, on the host."""
    return _HOST_MODE


@answers.value_and_code(0)
def create_context(device_id: int) -> int:
    """Return the handle of a new context, in which the calling thread works from now on."""
    acl = state.current()
    acl.contexts.device_id = _device(device_id)
    return acl.handles.add(AclContext(device_id))


@answers.code
def set_context(context: int) -> None:
    """Let the calling thread work in a context."""
    acl = state.current()
    acl.contexts.device_id = acl.handles.get(context, AclContext).device_id


@answers.code
def destroy_context(context: int) -> None:
    """Destroy a context."""
    state.current().handles.remove(context, AclContext)


@answers.value_and_code(0)
def create_stream() -> int:
    """Return the handle of a new stream."""
    acl = state.current()
    return acl.handles.add(Stream(next(acl.stream_numbers)))


@answers.code
def destroy_stream(stream: int) -> None:
    """Destroy a stream."""
    state.current().handles.remove(stream, Stream)


@answers.code
def synchronize_stream(stream: int) -> None:
    """Wait for a stream; return the code of the first call that failed on it since the last time, else 0."""
    _synchronize(state.current().stream(stream))


@answers.value_and_code(0)
def malloc(size: int, policy: int = 0) -> int:
    """Reserve memory of the device; the policy (huge pages or not) makes no difference here.

    Codes: 100000 for no number of bytes, 200000 where there is not so much memory.
    """
    del policy
    return state.current().memory.malloc(size)


@answers.code
def free(dev_ptr: int) -> None:
    """Give memory of the device back."""
    state.current().memory.free(dev_ptr)


@answers.value_and_code(0)
def malloc_host(size: int) -> int:
    """Reserve memory of the host; codes as for ``malloc``."""
    return state.current().memory.malloc_host(size)


@answers.code
def free_host(host_ptr: int) -> None:
    """Give memory of the host back."""
    state.current().memory.free_host(host_ptr)


@answers.code
def memcpy(dst: Any, dst_size: Any, src: Any, src_size: Any, kind: Any) -> None:
    """Copy bytes.

    Args:
        dst: Address to copy to.
        dst_size: Bytes of room there.
        src: Address to copy from.
        src_size: Number of bytes to copy.
        kind: 0 host to host, 1 host to device, 2 device to host, 3 device to device.

    Codes: 100000 for memory that is not there, on the other side, or too small.
    """
    _copy(state.current(), (dst, dst_size), (src, src_size), kind)


@answers.code
def memcpy_async(  # noqa: PLR0917 - pyACL's signature
    dst: Any, dst_size: Any, src: Any, src_size: Any, kind: Any, stream: Any
) -> None:
    """Copy bytes on a stream; ``synchronize_stream`` tells whether it failed."""
    acl = state.current()
    answers.on_stream(acl.stream(stream), lambda: _copy(acl, (dst, dst_size), (src, src_size), kind))


@answers.code
def memset(ptr: Any, max_size: Any, value: int, size: Any) -> None:
    """Set bytes to a value."""
    if not isinstance(size, int) or not isinstance(max_size, int) or not 0 <= size <= max_size:
        raise AclError(AclCode.INVALID_PARAM, f"{size!r} bytes do not fit into {max_size!r}")
    if not isinstance(value, int):
        raise AclError(AclCode.INVALID_PARAM, f"value {value!r}: a number is expected")
    view = state.current().memory.view(ptr, size, writes=True)
    if size:
        view[:] = bytes([value & 0xFF]) * size


def _copy(acl: AclState, target: tuple[Any, Any], source: tuple[Any, Any], kind: Any) -> None:
    """Copy bytes between two (address, size); see ``memcpy``."""
    (dst, dst_size), (src, src_size) = target, source
    if not isinstance(kind, int) or kind not in _KINDS:
        raise AclError(AclCode.INVALID_PARAM, f"kind {kind!r}: 0 to 3 are allowed")
    is_sized = isinstance(src_size, int) and isinstance(dst_size, int)
    if not is_sized or not 0 <= src_size <= dst_size:
        raise AclError(AclCode.INVALID_PARAM, f"{src_size!r} bytes do not fit into {dst_size!r}")
    for name, address, is_device in zip(("dst", "src"), (dst, src), _KINDS[kind], strict=True):
        if acl.memory.is_device(address) != is_device:
            side = "device" if is_device else "host"
            raise AclError(AclCode.INVALID_PARAM, f"{name} = {shown(address)} is no memory of the {side}")
    contents = acl.memory.view(src, src_size)
    if src_size:
        acl.memory.view(dst, dst_size, writes=True)[:src_size] = contents


def _synchronize(stream: Stream) -> None:
    failure, stream.failure = stream.failure, 0
    if failure:
        raise AclError(failure, f"a call on stream {stream.number} failed with {failure}")


def _device(device_id: Any) -> int:
    if not isinstance(device_id, int) or not 0 <= device_id < DEVICES:
        raise AclError(AclCode.INVALID_DEVICE, f"device {device_id!r}: there are 0 to {DEVICES - 1}")
    return device_id
