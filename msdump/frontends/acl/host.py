"""Memory of the host behind raw pointers, accessed only where the process is known to have it.

A script may pass any integer for an address. Where pyACL would crash, an access here is refused.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import reading

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
        start, size, is_writable, holder = _extent(owner)
        self._sweep()  # before, so that at most one object of the script outlives its last reference
        self._lent[id(holder)] = _LentMemory(*_bounds(holder, start, size), holder, is_writable)
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


def _extent(owner: bytes | bytearray | np.ndarray) -> tuple[int, int, bool, Any]:
    """Return address and size of an object's memory, whether it is writable, and the object that holds it."""
    # of a view the base holds the memory: a script may keep the base alone
    if isinstance(owner, np.ndarray):
        holder = owner
        while isinstance(holder.base, np.ndarray):
            holder = holder.base
        return owner.ctypes.data, owner.nbytes, owner.flags.writeable, holder
    array = np.frombuffer(owner, np.uint8)
    return array.ctypes.data, len(owner), isinstance(owner, bytearray), owner


def _bounds(holder: Any, start: int, size: int) -> tuple[int, int]:
    """Return address and size of the holder's memory: for a view, those of the whole array."""
    if isinstance(holder, np.ndarray) and holder.flags.c_contiguous:
        return holder.ctypes.data, holder.nbytes
    return start, size


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
