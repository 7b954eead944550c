"""The bytes of the emulated device memory, read and written by address (the watcher of acl's dump)."""

from __future__ import annotations

from msdump.device.memory import BASE
from msdump.record import Buffer


class Contents:
    """Memory from ``BASE`` on, zero where nothing was written; it grows up to the highest address in use."""

    def __init__(self) -> None:
        """Start with no bytes."""
        self._bytes = bytearray()

    def write(self, address: int, data: Buffer) -> None:
        """Write bytes at an address."""
        view = memoryview(data)
        start = self._offset(address, view.nbytes)
        self._bytes[start : start + view.nbytes] = view

    def fill(self, address: int, size: int, value: int) -> None:
        """Write one byte ``size`` times from an address on."""
        start = self._offset(address, size)
        self._bytes[start : start + size] = bytes([value]) * size

    def read(self, address: int, size: int) -> bytes:
        """Return a copy of the bytes at an address."""
        start = self._offset(address, size)
        return bytes(self._bytes[start : start + size])

    def _offset(self, address: int, size: int) -> int:
        """Return the offset of an address in the bytes, grown so that ``size`` bytes lie behind it."""
        start = address - BASE
        # zeros: memory that nobody wrote reads as such
        missing = start + size - len(self._bytes)
        if missing > 0:
            self._bytes.extend(bytes(missing))
        return start
