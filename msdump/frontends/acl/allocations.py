"""Memory behind pyACL's pointers: blocks of the emulated device and of the host."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any, Final

from msdump.config.acl.codes import AclCode
from msdump.device.memory import DeviceMemory
from msdump.errors import AclError
from msdump.frontends.acl.host import HostMemory
from msdump.threads import new_lock

_MOST: Final = 1 << 48  # addresses of user space have 48 bits at most


class Memory:
    """Allocates memory of device and host, and finds it again by pointer.

    Addresses of the device are no addresses of this process: only ``view`` leads to their bytes.
    Any thread may use it.
    """

    def __init__(self) -> None:
        """Start with an empty device."""
        self._lock = new_lock()
        self.host = HostMemory()
        self._device = DeviceMemory()
        self._blocks: dict[int, bytearray] = {}
        self._addresses: list[int] = []
        self._host_blocks: dict[int, bytearray] = {}

    def malloc(self, size: Any) -> int:
        """Reserve zeroed memory of the device; return its address.

        Raises:
            AclError: No number of bytes from 1.
        """
        _check_size(size)
        data = bytearray(size)
        with self._lock:
            address = self._device.allocate(id(data), size).address
            self._blocks[address] = data
            insort(self._addresses, address)
        return address

    def free(self, address: Any) -> None:
        """Give memory of the device back.

        Raises:
            AclError: ``malloc`` gave no such address.
        """
        with self._lock:
            if not isinstance(address, int) or address not in self._blocks:
                raise AclError(AclCode.INVALID_PARAM, f"{shown(address)} is no address that malloc gave")
            self._device.release(id(self._blocks.pop(address)))
            self._addresses.remove(address)

    def malloc_host(self, size: Any) -> int:
        """Reserve zeroed memory of the host; AclError as in ``malloc``."""
        _check_size(size)
        data = bytearray(size)
        address = self.host.lend(data)
        self._host_blocks[address] = data
        return address

    def free_host(self, address: Any) -> None:
        """Give memory of the host back.

        Raises:
            AclError: ``malloc_host`` gave no such address.
        """
        if not isinstance(address, int) or self._host_blocks.pop(address, None) is None:
            raise AclError(AclCode.INVALID_PARAM, f"{shown(address)} is no address that malloc_host gave")
        self.host.take_back(address)

    def is_device(self, address: Any) -> bool:
        """Tell whether an address lies in memory of the device."""
        return isinstance(address, int) and self._block(address) is not None

    def view(self, address: Any, size: Any, *, writes: bool = False) -> memoryview:
        """Return bytes of device or host.

        Args:
            address: Of the first byte.
            size: Number of bytes.
            writes: Whether they will be changed.

        Raises:
            AclError: There is no such memory, or not that much of it.
        """
        if not isinstance(address, int) or not isinstance(size, int) or size < 0 or not 0 < address < _MOST:
            raise AclError(AclCode.INVALID_PARAM, f"{shown(address)} with {size!r} bytes is no memory")
        start = self._block(address)
        if start is not None:
            return self._device_view(start, address - start, size)
        view = self.host.view(address, size, writes=writes) if size else memoryview(b"")
        if view is None:
            missing = "writable memory" if writes else "memory"
            raise AclError(AclCode.INVALID_PARAM, f"{shown(address)}: there are no {size} bytes of {missing}")
        return view

    def _block(self, address: int) -> int | None:
        """Return where the block of the device begins that holds an address."""
        index = bisect_right(self._addresses, address) - 1
        if index < 0:
            return None
        start = self._addresses[index]
        return start if address < start + len(self._blocks[start]) else None

    def _device_view(self, start: int, offset: int, size: int) -> memoryview:
        data = self._blocks[start]
        if offset + size > len(data):
            raise AclError(
                AclCode.INVALID_PARAM,
                f"{shown(start + offset)}: {size} bytes were asked for, {len(data) - offset} are there",
            )
        return memoryview(data)[offset : offset + size]


def _check_size(size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < _MOST:
        raise AclError(AclCode.INVALID_PARAM, f"{size!r} is no number of bytes from 1")


def shown(address: Any) -> str:
    """Return what messages call an address."""
    return hex(address) if isinstance(address, int) else repr(address)
