"""Files that are read: large ones mapped into memory, small ones copied."""

from __future__ import annotations

import mmap
import os
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.threads import Living

_MAPPED: Final = 1 << 20  # below, reading costs less than a map
_MOST_MAPS: Final = 512  # each map holds a file descriptor; most systems allow 1024

_MAPS: Final = Living[mmap.mmap]()


def load(path: str) -> memoryview:
    """Return the bytes of a file, read-only; those of a large one as long as they are used.

    Raises:
        DumpReadError: It cannot be read.
    """
    try:
        with reading.OpenDescriptor(path) as (fd, size):
            # a map keeps a descriptor of its own, until the last view of it ends
            if size < _MAPPED or len(_MAPS) >= _MOST_MAPS:
                return memoryview(_whole(fd, size))
            mapped = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error
    _MAPS.add(mapped)
    return memoryview(mapped)


def _whole(fd: int, size: int) -> bytes:
    """Return the bytes of an open file: one more than its size is asked for, which tells whether it grows."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while pieces[-1]:
        pieces.append(os.read(fd, size + 1))
    return b"".join(pieces)


def beginning(path: str, size: int) -> memoryview:
    """Return the first bytes of a file, fewer than asked for where it has no more.

    Raises:
        DumpReadError: It cannot be read.
    """
    try:
        with reading.OpenDescriptor(path) as (fd, _):
            return memoryview(os.read(fd, size))
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> DumpReadError:
    """Return the error that says why a file cannot be read."""
    return DumpReadError(path, error.strerror or str(error))
