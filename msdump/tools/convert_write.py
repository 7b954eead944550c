"""Writes converted files: complete under their names, or not there at all, for their owner only."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.record import Buffer
from msdump.store import files

FILE_MODE: Final = 0o600
_STEP: Final = 1 << 18  # bytes that are copied at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a file that are copied as they are.

    Attributes:
        path: The file.
        offset: Of the first byte.
        size: Number of bytes.
    """

    path: str
    offset: int
    size: int

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes piece by piece, each valid until the next."""
        buffer = memoryview(bytearray(min(_STEP, self.size)))
        left = self.size
        with reading.open_file(self.path) as file:
            file.seek(self.offset)
            while left:
                count = file.readinto(buffer[:left])
                if not count:
                    raise DumpReadError(self.path, "the file became shorter while it was read", file.tell())
                left -= count
                yield buffer[:count]


def write(directory: str, name: str, pieces: Iterable[Buffer]) -> int:
    """Write a file in place of an older one; return its bytes.

    Args:
        directory: Made where it is missing.
        name: Of the file.
        pieces: Its contents; each is written before the next is asked for.

    Raises:
        OSError: It cannot be written, or what the pieces come from cannot be read.
    """
    temporary = f"{directory}/.{os.getpid()}-{time.time_ns()}.tmp"
    written = 0
    try:
        with _open(directory, temporary) as file:
            for piece in pieces:
                files.write_all(file.fileno(), (piece,))
                written += files.size_of((piece,))
        os.replace(temporary, f"{directory}/{name}")  # noqa: PTH105 - the same
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - the same
        raise
    return written


def _open(directory: str, path: str) -> FileIO:
    """Return a new file, in a directory that is made where it is missing."""
    try:
        return open(path, "wb", buffering=0, opener=_create)
    except FileNotFoundError:
        files.make_directories(directory)
        return open(path, "wb", buffering=0, opener=_create)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
