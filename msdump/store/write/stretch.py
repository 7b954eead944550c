"""Bytes of a file that are copied as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.record import Buffer
from msdump.store.write.buffers import write_all

_STEP: Final = 1 << 18  # bytes that are copied at once: they stay in the processor's cache
_IN_SYSTEM: Final = getattr(os, "copy_file_range", None)  # Linux


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
        with self._open() as file:
            yield from self._pieces(file, self.size)

    def copy_to(self, target: int) -> int:
        """Write the bytes to an open file, where it stands; return their number.

        Args:
            target: The file's descriptor.

        Raises:
            OSError: They cannot be written.
            DumpReadError: There are fewer.
        """
        with self._open() as file:
            copied = self._copied_by_system(file, target)
            for piece in self._pieces(file, self.size - copied):
                write_all(target, (piece,))
        return self.size

    def _open(self) -> FileIO:
        file = reading.open_file(self.path)
        file.seek(self.offset)
        return file

    def _pieces(self, file: FileIO, remaining: int) -> Iterator[Buffer]:
        buffer = memoryview(bytearray(min(_STEP, remaining)))
        while remaining:
            count = file.readinto(buffer[:remaining])
            if not count:
                raise DumpReadError(self.path, "the file became shorter while it was read", file.tell())
            remaining -= count
            yield buffer[:count]

    def _copied_by_system(self, file: FileIO, target: int) -> int:
        """Let the system copy from file to file, without a copy in between; return how many bytes it did."""
        copied = 0
        try:
            while _IN_SYSTEM is not None and copied < self.size:
                count = _IN_SYSTEM(file.fileno(), target, self.size - copied)
                if not count:  # the end, or a file system that cannot: reading tells
                    break
                copied += count
        except OSError:  # not between these two, or a fault that writing meets again and tells
            pass
        return copied
