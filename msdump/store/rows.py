"""Files that grow by whole rows: csv files that are 0400 whenever nobody opens them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_TAIL: Final = 1 << 16


class RowFile:
    """An open file to which rows are added, each group by one call of the system.

    What a killed run left of a row is cut off when the file is opened.
    """

    __slots__ = ("_fd",)

    def __init__(self, path: str, mode: int) -> None:
        """Open or create a file; its mode becomes ``mode`` while it stays open for writing.

        Raises:
            OSError: It cannot be opened for writing.
        """
        self._fd = _open(path, mode)
        try:
            os.fchmod(self._fd, mode)
            _cut_torn_row(self._fd)
        except BaseException:
            self.close()
            raise

    def is_linked(self) -> bool:
        """Tell whether the file still has a name, that is, was not deleted."""
        return os.fstat(self._fd).st_nlink > 0

    def append(self, rows: bytes, header: bytes) -> bool:
        """Add rows, each with its line feed; the header before them where the file is empty.

        Returns:
            Whether the file was empty.

        Raises:
            OSError: The rows could not be written as a whole; none of them is in the file.
        """
        size = os.fstat(self._fd).st_size
        data = memoryview(rows if size else header + rows)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            os.ftruncate(self._fd, size)
            raise
        return size == 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _open(path: str, mode: int) -> int:
    try:
        return os.open(path, _APPEND, mode)
    except PermissionError:
        Path(path).chmod(mode | 0o200)
        return os.open(path, _APPEND, mode)


def _cut_torn_row(fd: int) -> None:
    size = os.fstat(fd).st_size
    end = size
    at = -1
    while end and at < 0:
        start = max(0, end - _TAIL)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        end = start + at + 1
    if end < size:
        os.ftruncate(fd, end)
