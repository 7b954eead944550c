"""Bytes in pieces: written one after the other, and counted."""

from __future__ import annotations

import errno
import os
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msdump.record import Buffer

_MOST_BUFFERS: Final[int] = os.sysconf("SC_IOV_MAX")


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    """Write buffers one after the other, however little each call of the system takes.

    Raises:
        OSError: They could not be written as a whole.
    """
    size = size_of(buffers)
    written = os.writev(fd, buffers[:_MOST_BUFFERS]) if size else 0
    while written < size:
        step = os.writev(fd, _rest(buffers, written)[:_MOST_BUFFERS])
        if step == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        written += step


def size_of(buffers: Sequence[Buffer]) -> int:
    """Return the bytes of buffers in all."""
    size = 0
    for buffer in buffers:
        size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
    return size


def _rest(buffers: Sequence[Buffer], written: int) -> list[memoryview]:
    rest = []
    for buffer in buffers:
        view = PickleBuffer(buffer).raw()
        rest.append(view[written:])
        written = max(0, written - len(view))
    return [view for view in rest if len(view)]
