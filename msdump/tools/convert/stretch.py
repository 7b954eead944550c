"""Bytes of a file that are copied as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.record import Buffer

_STEP: Final = 1 << 18  # bytes that are copied at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a file that are copied as they are.

    Attributes:
        path: The file.
        offset: Place of the first byte.
        size: Number of bytes.
    """

    path: str
    offset: int
    size: int

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes piece by piece, each valid until the next."""
        buffer = memoryview(bytearray(min(_STEP, self.size)))
        remaining = self.size
        with reading.open_file(self.path) as file:
            file.seek(self.offset)
            while remaining:
                count = file.readinto(buffer[:remaining])
                if not count:
                    raise DumpReadError(self.path, "the file became shorter while it was read", file.tell())
                remaining -= count
                yield buffer[:count]
