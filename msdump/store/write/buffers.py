"""A file's contents as a sequence of buffers (header, array): written without joining them, and counted."""

from __future__ import annotations

import errno
import os
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msdump.record import Buffer

_MOST_BUFFERS: Final[int] = os.sysconf("SC_IOV_MAX")  # of one call of writev; more are an error (EINVAL)


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    """Write buffers one after the other, however little each call of the system takes.

    Raises:
        OSError: They could not be written as a whole.
    """
    size = size_of(buffers)
    written = os.writev(fd, buffers[:_MOST_BUFFERS]) if size else 0
    # Linux writes 2 GiB at most in one call, and less where the disk is about to be full
    while written < size:
        step = os.writev(fd, _unwritten(buffers, written)[:_MOST_BUFFERS])
        if step == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        written += step


def size_of(buffers: Sequence[Buffer]) -> int:
    """Return the number of bytes that buffers hold together."""
    size = 0
    for buffer in buffers:
        # len() of a memoryview counts items of its first dimension, not bytes
        size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
    return size


def owned(buffer: Buffer) -> bytes:
    """Return the bytes of a buffer as an object that nobody changes: arrays of a run are used again."""
    return buffer if isinstance(buffer, bytes) else bytes(PickleBuffer(buffer).raw())


def _unwritten(buffers: Sequence[Buffer], written: int) -> list[memoryview]:
    """Return what is left of buffers behind their first ``written`` bytes."""
    left = []
    for buffer in buffers:
        view = PickleBuffer(buffer).raw()  # as bytes, whatever the items are
        left.append(view[written:])
        written = max(0, written - len(view))
    return [view for view in left if len(view)]
