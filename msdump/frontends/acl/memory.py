"""Memory behind pyACL's pointers: blocks of the emulated device, and memory of the host.

A script may pass any integer for an address. Where pyACL would crash, an access here is refused: memory of
the host is accessed only where the process has it mapped.
"""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import reading
from msdump.config.acl import invalid
from msdump.device import DeviceMemory
from msdump.threads import new_lock

_MAPS: Final = "/proc/self/maps"
_MOST: Final = 1 << 48  # addresses of user space have 48 bits at most


@dataclass(frozen=True, slots=True)
class _LentMemory:
    """Memory of a script's contiguous object to which the script has requested a pointer."""

    start: int
    size: int
    owner: bytes | bytearray | np.ndarray
    is_writable: bool

    def view(self, start: int, size: int, *, writes: bool) -> memoryview | None:
        """Return a part as a view that keeps the object alive; None beyond its end, or if it is read-only."""
        offset = start - self.start
        if offset + size > self.size or (writes and not self.is_writable):
            return None
        owner = self.owner
        flat = owner.reshape(-1).view(np.uint8).data if isinstance(owner, np.ndarray) else memoryview(owner)
        return flat[offset : offset + size]

    @property
    def references(self) -> int:
        """Reference count of the object, some of this call included: only differences have a meaning."""
        return sys.getrefcount(self.owner)


_OWN_REFERENCES: Final = _LentMemory(0, 0, bytearray(), is_writable=False).references


class Memory:
    """Allocates memory of device and host, and resolves pointers to bytes.

    Addresses of the device are no addresses of this process: only ``view`` leads to their bytes. Objects with
    a pointer are kept as long as the script keeps them, the latest one until the next is added. Any other
    address counts as memory of the host if the process has it mapped. Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._device = DeviceMemory()
        self._blocks: dict[int, bytearray] = {}
        self._addresses: list[int] = []
        self._host_blocks: dict[int, bytearray] = {}
        self._lent: dict[int, _LentMemory] = {}

    def malloc(self, size: Any) -> int:
        """Reserve zeroed memory of the device; return its address."""
        _check_size(size)
        data = bytearray(size)
        with self._lock:
            address = self._device.allocate(id(data), size).address
            self._blocks[address] = data
            insort(self._addresses, address)
        return address

    def free(self, address: Any) -> None:
        """Give memory of the device back."""
        with self._lock:
            if not isinstance(address, int) or address not in self._blocks:
                raise invalid(f"{shown(address)} is not an address returned by malloc")
            self._device.release(id(self._blocks.pop(address)))
            self._addresses.remove(address)

    def malloc_host(self, size: Any) -> int:
        """Reserve zeroed memory of the host; return its address."""
        _check_size(size)
        data = bytearray(size)
        address = self.lend(data)
        self._host_blocks[address] = data
        return address

    def free_host(self, address: Any) -> None:
        """Give memory of the host back."""
        block = self._host_blocks.pop(address, None) if isinstance(address, int) else None
        if block is None:
            raise invalid(f"{shown(address)} is not an address returned by malloc_host")
        self._lent.pop(id(block), None)

    def lend(self, owner: bytes | bytearray | np.ndarray) -> int:
        """Return a pointer to the memory of an object; an array must be contiguous."""
        if isinstance(owner, np.ndarray):
            start, whole = owner.ctypes.data, owner
            while isinstance(whole.base, np.ndarray) and whole.base.flags.c_contiguous:
                whole = whole.base
            lent = _LentMemory(whole.ctypes.data, whole.nbytes, whole, owner.flags.writeable)
        else:
            start = np.frombuffer(owner, np.uint8).ctypes.data
            lent = _LentMemory(start, len(owner), owner, isinstance(owner, bytearray))
        # drop objects that the script has dropped, before the new one is added: at most one is kept too long
        for key, item in list(self._lent.items()):  # list(): other threads may remove items
            if item.references <= _OWN_REFERENCES:
                self._lent.pop(key, None)
        self._lent[id(lent.owner)] = lent
        return start

    def is_device(self, address: Any) -> bool:
        """Return whether an address lies in memory of the device."""
        return isinstance(address, int) and self._block(address) is not None

    def view(self, address: Any, size: Any, *, writes: bool = False) -> memoryview:
        """Return bytes of device or host; AclError where there is no such memory, or not that much of it."""
        if not isinstance(address, int) or not isinstance(size, int) or size < 0 or not 0 < address < _MOST:
            raise invalid(f"{shown(address)} with {size!r} bytes is not memory")
        start = self._block(address)
        if start is not None:
            data, offset = self._blocks[start], address - start
            if offset + size > len(data):
                raise invalid(f"{shown(address)}: {size} bytes are needed, {len(data) - offset} are left")
            return memoryview(data)[offset : offset + size]
        view = self._host_view(address, size, writes=writes) if size else memoryview(b"")
        if view is None:
            missing = "writable memory" if writes else "memory"
            raise invalid(f"{shown(address)}: there are no {size} bytes of {missing}")
        return view

    def _block(self, address: int) -> int | None:
        """Return the start of the device memory block that contains an address, None if no block does."""
        index = bisect_right(self._addresses, address) - 1
        if index < 0:
            return None
        start = self._addresses[index]
        return start if address < start + len(self._blocks[start]) else None

    def _host_view(self, start: int, size: int, *, writes: bool) -> memoryview | None:
        for lent in list(self._lent.values()):
            if lent.start <= start < lent.start + lent.size:
                return lent.view(start, size, writes=writes)
        if not _is_mapped(start, size, writes=writes):
            return None
        return memoryview((ctypes.c_char * size).from_address(start)).cast("B")


def _is_mapped(start: int, size: int, *, writes: bool) -> bool:
    """Return whether the process has every byte of a range, readable and, if it will be written, writable."""
    checked, end = start, start + size  # every byte before ``checked`` is mapped
    try:
        lines = reading.read_bytes(_MAPS).decode("ascii", errors="replace").splitlines()
    except OSError:
        return False
    for line in lines:  # in the order of addresses: a range may go over several neighbouring maps
        span, access = line.split(maxsplit=2)[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= checked < high and access[0] == "r" and (access[1] == "w" or not writes):
            checked = high
            if checked >= end:
                return True
    return False


def _check_size(size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < _MOST:
        raise invalid(f"{size!r}: must be a number of bytes from 1")


def shown(address: Any) -> str:
    """Return an address for messages."""
    return hex(address) if isinstance(address, int) else repr(address)
