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
from msdump.config.acl import AclCode
from msdump.device import DeviceMemory
from msdump.errors import AclError
from msdump.threads import new_lock

_MAPS: Final = "/proc/self/maps"


@dataclass(frozen=True, slots=True)
class _LentMemory:
    """Memory of an object whose pointer a script has asked for.

    Attributes:
        start: Address of its first byte.
        size: Bytes.
        owner: The object.
        is_writable: Whether the object may change.
    """

    start: int
    size: int
    owner: object
    is_writable: bool


class HostMemory:
    """Finds memory of the host by pointer.

    Objects whose pointer was asked for are kept as long as the script keeps them, and the last
    of them in any case. Any other address counts as memory where the process has it mapped.
    """

    def __init__(self) -> None:
        """Start without objects."""
        self._lent: dict[int, _LentMemory] = {}

    def lend(self, owner: bytes | bytearray | np.ndarray) -> int:
        """Return the pointer of an object's memory."""
        start, lent = _lent_memory(owner)
        self._sweep()  # before, so that at most one object of the script outlives its last reference
        self._lent[id(lent.owner)] = lent
        return start

    def take_back(self, start: int) -> bool:
        """Forget the memory that begins at an address; tell whether there was such."""
        keys = [key for key, lent in list(self._lent.items()) if lent.start == start]
        for key in keys:
            self._lent.pop(key, None)
        return bool(keys)

    def view(self, start: int, size: int, *, writes: bool) -> memoryview | None:
        """Return memory of the host, None where it is not there, or not writable though it must be."""
        for lent in list(self._lent.values()):
            if lent.start <= start < lent.start + lent.size:
                return _inside(lent, start - lent.start, size, writes=writes)
        return _view_at(start, size) if _is_mapped(start, size, writes=writes) else None

    def _sweep(self) -> None:
        """Drop the objects that nobody else keeps, by their number of references."""
        for key in list(self._lent):  # another thread may forget some meanwhile
            lent = self._lent.get(key)
            if lent is not None and _references(lent) <= _OWN_REFERENCES:
                self._lent.pop(key, None)


def _references(lent: _LentMemory) -> int:
    return sys.getrefcount(lent.owner)  # counts the argument too: only comparing with _OWN_REFERENCES tells


_OWN_REFERENCES: Final = _references(_LentMemory(0, 0, object(), is_writable=False))


def _lent_memory(owner: bytes | bytearray | np.ndarray) -> tuple[int, _LentMemory]:
    """Return the address of an object's memory, and that memory: of a view that of the whole array."""
    if not isinstance(owner, np.ndarray):
        start = np.frombuffer(owner, np.uint8).ctypes.data
        return start, _LentMemory(start, len(owner), owner, isinstance(owner, bytearray))
    holder = owner
    # of a view the base holds the memory: a script may keep the base alone
    while isinstance(holder.base, np.ndarray):
        holder = holder.base
    whole = holder if holder.flags.c_contiguous else owner
    lent = _LentMemory(whole.ctypes.data, whole.nbytes, holder, owner.flags.writeable)
    return owner.ctypes.data, lent


def _inside(lent: _LentMemory, offset: int, size: int, *, writes: bool) -> memoryview | None:
    """Return part of an object's memory, which stays as long as the view."""
    if offset + size > lent.size or (writes and not lent.is_writable):
        return None
    owner = lent.owner
    if isinstance(owner, np.ndarray):
        owner = (
            owner.reshape(-1).view(np.uint8).data
            if owner.flags.c_contiguous
            else _view_at(lent.start, lent.size)
        )
    return memoryview(owner)[offset : offset + size]  # type: ignore[arg-type]  # bytes, or a view


def _view_at(start: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(start)).cast("B")


def _is_mapped(start: int, size: int, *, writes: bool) -> bool:
    """Tell whether the process has every byte of a range, readable and, if asked for, writable."""
    checked, end = start, start + size  # every byte before ``checked`` is mapped
    if not 0 < start < end:
        return False
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
    """Return an address for messages."""
    return hex(address) if isinstance(address, int) else repr(address)
