"""Files that grow by whole rows: csv files that are 0400 between two openings.

A file that stands there is opened without following a link, and judged by its
descriptor: anything but a regular file with one name belongs to another owner
and is neither written nor given another mode.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from msdump import reading
from msdump.reading import check_regular
from msdump.store.write.directories import LOOK

# O_APPEND: rows of two processes in one file follow each other, none overwrites another
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TAIL: Final = 1 << 16  # bytes from the end that are read at once in search of a line feed


class RowFile:
    """An open file to which rows are added, each group by one call of the system."""

    __slots__ = ("_end", "_fd", "_titles")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = 0
        self._titles = b""  # the last titles before _end

    def append(self, rows: bytes, header: bytes) -> bool | None:
        """Add rows, each with its line feed, after the header if the last rows have other titles or are none.

        A run with other statistics, before this one or at the same time, leaves rows with other titles.

        Returns:
            Whether the file was empty; None, and nothing is written, where it was deleted.

        Raises:
            OSError: The rows could not be written as a whole; none of them is in the file.
        """
        status = os.fstat(self._fd)  # each time: another process may have added rows
        if not status.st_nlink:
            return None
        size = status.st_size
        if header and size != self._end:  # it was just opened, or another process wrote
            start = self._end if self._end < size else 0
            self._titles = last_titles(os.pread(self._fd, size - start, start), header) or self._titles
        data = rows if (header == self._titles or not header) else header + rows
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError:
            os.ftruncate(self._fd, size)
            raise
        if header:
            self._end, self._titles = size + written, header
        return size == 0

    def close(self) -> None:
        """Close the file; OSError where the file system takes rows only then, and fails."""
        os.close(self._fd)


def last_titles(data: bytes, header: bytes) -> bytes:
    r"""Return the last line of titles in whole rows, b"" where there is none.

    >>> last_titles(b"A,B\n1,2\nA,C\n3,4\n", b"A,B\n")
    b'A,C\n'

    Any line with the first cell of the header is one.
    """
    cell, comma, _ = header.partition(b",")
    first_cell = cell + comma
    # the line feed put in front makes the first line one that follows a line feed, at the same offset
    start = (b"\n" + data).rfind(b"\n" + first_cell)
    return data[start : data.find(b"\n", start) + 1] if start >= 0 else b""


def begin(directory: int, name: str, data: bytes, mode: int) -> RowFile:
    """Make a file with its first rows, or nothing; OSError, such as FileExistsError for a taken name."""
    fd = os.open(name, _APPEND | os.O_CREAT | os.O_EXCL, mode, dir_fd=directory)
    try:
        os.fchmod(fd, mode)
        file = RowFile(fd)
        file.append(data, b"")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        reading.close(fd)
        raise
    return file


def reopen(directory: int, name: str, mode: int) -> RowFile:
    """Open a file of rows, without a half row at its end, in a mode; OSError if it is missing or unfit."""
    fd = _open(directory, name, mode)
    try:
        _check(fd, name)
        os.fchmod(fd, mode)
        size = os.fstat(fd).st_size
        end = size
        line_feed = -1
        while end and line_feed < 0:
            start = max(0, end - _TAIL)
            line_feed = os.pread(fd, end - start, start).rfind(b"\n")
            end = start + line_feed + 1
        if end < size:
            os.ftruncate(fd, end)
    except BaseException:
        reading.close(fd)
        raise
    return RowFile(fd)


def _open(directory: int, name: str, mode: int) -> int:
    try:
        return _open_as(_APPEND, directory, name)
    except PermissionError:
        # by its descriptor, once it is known to be a plain file: chmod of a name could hit another file
        fd = _open_as(LOOK, directory, name)
        try:
            _check(fd, name)
            os.fchmod(fd, mode | stat.S_IWUSR)
        finally:
            reading.close(fd)
        return _open_as(_APPEND, directory, name)


def _open_as(flags: int, directory: int, name: str) -> int:
    try:
        return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "the file is a symbolic link", name) from error
        raise


def _check(fd: int, name: str) -> None:
    status = os.fstat(fd)
    check_regular(status, name)
    if status.st_nlink > 1:
        raise OSError(errno.EMLINK, f"the file has {status.st_nlink} names (hard links)", name)
