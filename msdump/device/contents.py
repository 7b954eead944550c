"""The bytes of the emulated device memory, for those who look at it by address."""

from __future__ import annotations

from msdump.device.memory import BASE
from msdump.record import Buffer


class Contents:
    """Memory from ``BASE`` on; it grows as it is written and is zero where it never was."""

    def __init__(self) -> None:
        """Begin with nothing written."""
        self._bytes = bytearray()

    def write(self, address: int, data: Buffer) -> None:
        """Write bytes at an address."""
        view = memoryview(data)
        start = self._reach(address, view.nbytes)
        self._bytes[start : start + view.nbytes] = view

    def fill(self, address: int, size: int, value: int) -> None:
        """Write one byte ``size`` times from an address on."""
        start = self._reach(address, size)
        self._bytes[start : start + size] = bytes([value]) * size

    def read(self, address: int, size: int) -> bytes:
        """Return a copy of the bytes at an address."""
        start = self._reach(address, size)
        return bytes(self._bytes[start : start + size])

    def _reach(self, address: int, size: int) -> int:
        start = address - BASE
        missing = start + size - len(self._bytes)
        if missing > 0:
            self._bytes.extend(bytes(missing))
        return start
