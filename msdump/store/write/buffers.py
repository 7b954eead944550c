"""Contents of a file: buffers written without joining them, and bytes copied from other files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pickle import PickleBuffer
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError, passing_over
from msdump.record import Buffer

MOST_BUFFERS: Final[int] = os.sysconf("SC_IOV_MAX")  # per call of writev; more are an error (EINVAL)


def write_all(fd: int, buffers: Sequence[Buffer], written: int = 0) -> int:
    """Write buffers behind their first ``written`` bytes, however little each call of the system takes.

    Returns:
        The size of the buffers.

    Raises:
        OSError: They could not be written as a whole.
    """
    size = size_of(buffers)
    # Linux writes 2 GiB at most in one call, and less where the disk is about to be full
    while written < size:
        step = os.writev(fd, (_unwritten(buffers, written) if written else buffers)[:MOST_BUFFERS])
        if step == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        written += step
    return size


def size_of(buffers: Sequence[Buffer]) -> int:
    """Return the number of bytes that buffers hold together."""
    size = 0
    for buffer in buffers:
        # len() of a memoryview counts items of its first dimension, not bytes
        size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
    return size


def owned(buffer: Buffer) -> bytes:
    """Return the bytes of a buffer, copied unless they are immutable: a run uses its arrays again."""
    return buffer if isinstance(buffer, bytes) else bytes(PickleBuffer(buffer).raw())


def _unwritten(buffers: Sequence[Buffer], written: int) -> list[memoryview]:
    """Return the rest of buffers behind their first ``written`` bytes."""
    left = []
    for buffer in buffers:
        view = PickleBuffer(buffer).raw()  # as bytes, whatever the items are
        left.append(view[written:])
        written = max(0, written - len(view))
    return [view for view in left if len(view)]


_STEP: Final = 1 << 18  # bytes that are copied at once: they stay in the processor's cache
_IN_SYSTEM: Final = getattr(os, "copy_file_range", None)  # Linux


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a file's bytes that is copied unchanged."""

    path: str
    offset: int
    size: int

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the bytes piece by piece, each valid until the next."""
        with self._open() as file:
            yield from self._pieces(file, self.size)

    def copy_to(self, target: int) -> int:
        """Write the bytes to an open file; return their number; DumpReadError if there are fewer."""
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
        # on any error the caller goes on by reading and writing, which raises an error that persists
        with passing_over(OSError):
            while _IN_SYSTEM is not None and copied < self.size:
                count = _IN_SYSTEM(file.fileno(), target, self.size - copied)
                if not count:  # end of the file, or no support by the file system: reading shows which
                    break
                copied += count
        return copied
