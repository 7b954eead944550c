"""One open directory, and files made in it: complete under their names, or not there at all.

A new file is written without a name, and linked under its name when it is complete (Linux). A file that
replaces another one, and every file where the file system cannot link nameless files, has a temporary name
that is renamed. Its writer holds a lock on a temporary file, which the system drops when the process ends,
however it ends: the next writer in the directory removes temporary files without a lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import cause_of, passing_over
from msdump.record import Buffer
from msdump.store.write import rows
from msdump.store.write.buffers import MOST_BUFFERS, size_of, write_all
from msdump.store.write.directories import LOOK, Root, enter, lock, open_directory
from msdump.store.write.rows import RowFile

# Reserving the blocks of a large file makes ext4 a fifth faster, and tmpfs a tenth slower: only file systems
# on a device do it, and of these only such with nameless files. The others would make the C library
# write every block twice.
_RESERVED: Final = 1 << 18

_NAMELESS: Final[int] = getattr(os, "O_TMPFILE", 0)
_WRITE: Final = os.O_RDWR | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe that was put there must not wait for a writer
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PROOF_MODE: Final = 0o600
_TEMPORARY: Final = re.compile(r"\.msdump-[0-9-]+\.tmp")
_NUMBERS: Final = itertools.count()

Write = Callable[[int], object]
"""Writes the contents of a file to its descriptor."""


class OpenDirectory:
    """An open directory; whether its files are nameless at first is found out when it is opened."""

    __slots__ = ("_fd", "_is_clear", "_is_nameless", "_narrows_modes", "_reserves")

    def __init__(self, path: str, root: Root | None = None) -> None:
        """Open a directory, which is made where it is missing; OSError if it cannot be opened or made."""
        self._fd = open_directory(path, root)
        self._look()

    def inside(self, name: str) -> OpenDirectory:
        """Open a directory in this one, no link, made where it is missing; OSError if it cannot be."""
        inner = object.__new__(OpenDirectory)
        inner._fd, is_new = enter(self._fd, name)
        if is_new:  # a new directory has the file system and access lists of its parent
            inner._narrows_modes, inner._reserves = self._narrows_modes, self._reserves
            inner._is_clear, inner._is_nameless = True, self._is_nameless
        else:
            inner._look()
        return inner

    def _look(self) -> None:
        """Find out the abilities of its file system, with an empty file that is named and removed again."""
        self._reserves = os.major(os.fstat(self._fd).st_dev) != 0  # major 0: memory, network, overlay
        self._is_clear = self._is_nameless = self._narrows_modes = False
        with passing_over(OSError):
            fd = os.open(".", _WRITE | _NAMELESS, _PROOF_MODE, dir_fd=self._fd) if _NAMELESS else -1
            if fd < 0:
                return
            try:
                # a umask or an access list that takes the owner's rights: set each file's mode
                self._narrows_modes = os.fstat(fd).st_mode & 0o777 != _PROOF_MODE
                self._release(self._link_temporarily(fd), fd)
                self._is_nameless = True
            finally:
                reading.close(fd)

    def close(self) -> None:
        """Close the directory."""
        reading.close(self._fd)

    def is_linked(self) -> bool:
        """Return whether the directory still exists, possibly under another path."""
        return os.fstat(self._fd).st_nlink > 0

    def stands_at(self, path: str) -> bool:
        """Return whether the directory is still at a path: neither removed nor moved away."""
        with passing_over(OSError):
            return os.path.samestat(os.lstat(path), os.fstat(self._fd))
        return False

    def create(self, name: str, buffers: Sequence[Buffer], mode: int) -> int:
        """Make a new file; return its bytes; OSError, such as FileExistsError where the name is taken."""
        size = size_of(buffers)
        if not self._is_nameless:
            self._check_free(name)
            self._rename(name, partial(write_all, buffers=buffers), mode)
            return size
        fd = os.open(".", _WRITE | _NAMELESS, mode, dir_fd=self._fd)
        try:
            if self._narrows_modes:
                os.fchmod(fd, mode)
            if self._reserves and size >= _RESERVED:
                # a disk without that much room is found out before a byte is written
                os.posix_fallocate(fd, 0, size)
            # most files are written by one call of the system
            written = os.writev(fd, buffers[:MOST_BUFFERS]) if size else 0
            if written < size:
                write_all(fd, buffers, written)
            # as ``_name`` and ``reading.close``, without a call for each file
            os.close(os.dup(fd))
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._fd, follow_symlinks=True)
        finally:
            try:
                os.close(fd)
            except OSError as error:
                cause_of(error)
        return size

    def replace(self, name: str, write: Write, mode: int) -> None:
        """Make a file, in place of an older one of the name.

        Its time is exact: a file system's own may be late by milliseconds, and readers compare it with the
        timestamps of tensors, to find out which program wrote them.

        Raises:
            OSError: It cannot be written; the older one stays.
        """

        def write_now(fd: int) -> None:
            write(fd)
            now = time.time_ns()
            os.utime(fd, ns=(now, now))

        self._rename(name, write_now, mode)

    def begin_rows(self, name: str, data: bytes, mode: int) -> RowFile:
        """Make a new file of rows, with the first of them; FileExistsError where the name is taken."""
        self._check_free(name)
        if not self._is_nameless:
            return rows.begin(self._fd, name, data, mode)
        fd = os.open(".", _WRITE | _NAMELESS | os.O_APPEND, mode, dir_fd=self._fd)
        try:
            os.fchmod(fd, mode)
            write_all(fd, (data,))
            self._name(fd, name)
        except BaseException:
            reading.close(fd)
            raise
        return RowFile(fd)

    def open_rows(self, name: str, mode: int) -> RowFile:
        """Open a file of rows; OSError where it is missing, no regular file, or has other names too."""
        return rows.reopen(self._fd, name, mode)

    def prove(self, data: bytes) -> None:
        """Write a file and remove it again; OSError if either fails."""
        self._clear()
        fd, name = self._temporary(_PROOF_MODE)
        try:
            write_all(fd, (data,))
        finally:
            self._release(name, fd)
            reading.close(fd)

    def _check_free(self, name: str) -> None:
        """Raise FileExistsError if a name is taken."""
        if os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)

    def _name(self, fd: int, name: str) -> None:
        """Give a complete nameless file a name; FileExistsError where it is taken."""
        # closing a duplicate: some file systems store bytes, and fail, only then
        os.close(os.dup(fd))
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._fd, follow_symlinks=True)

    def _rename(self, name: str, write: Write, mode: int) -> None:
        """Write a file without a name, or under a temporary one, and rename it when it is complete."""
        self._clear()
        temporary = ""
        if self._is_nameless:
            fd = os.open(".", _WRITE | _NAMELESS, mode, dir_fd=self._fd)
        else:
            fd, temporary = self._temporary(mode)
        try:
            os.fchmod(fd, mode)
            write(fd)
            os.close(os.dup(fd))  # as in ``_name``
            temporary = temporary or self._link_temporarily(fd)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode):
                    reading.check_regular(status, name)  # a pipe or a device is never replaced
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self._release(temporary, fd)
            raise
        finally:
            reading.close(fd)

    def _temporary(self, mode: int) -> tuple[int, str]:
        """Make an empty file under a free temporary name; return its locked descriptor and the name."""
        for number in _NUMBERS:
            name = f".msdump-{os.getpid()}-{number}.tmp"
            try:
                fd = os.open(name, _NEW, mode, dir_fd=self._fd)
            except FileExistsError:
                continue
            except BaseException:  # an interrupt may come after the name
                self._remove_if_left(name)
                raise
            # between open and lock another process may have taken the file for a left one and removed it
            if lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB) and self._names(name, fd):
                return fd, name
            reading.close(fd)
        raise AssertionError("numbers have no end")

    def _link_temporarily(self, fd: int) -> str:
        """Lock a nameless file and give it a free temporary name; return the name."""
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        while True:
            name = f".msdump-{os.getpid()}-{next(_NUMBERS)}.tmp"
            try:
                self._name(fd, name)
            except FileExistsError:
                continue
            except BaseException:  # an interrupt may come after the name
                self._release(name, fd)
                raise
            return name

    def _clear(self) -> None:
        """Remove the incomplete files that killed runs left in the directory, once."""
        if not self._is_clear:
            with os.scandir(self._fd) as entries:
                for name in [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
                    self._remove_if_left(name)
            self._is_clear = True

    def _remove_if_left(self, name: str) -> None:
        """Remove a file that no living process holds; it stays if it cannot be opened or locked."""
        with passing_over(OSError):
            fd = os.open(name, LOOK, dir_fd=self._fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._release(name, fd)
            finally:
                reading.close(fd)

    def _release(self, name: str, fd: int) -> None:
        """Remove a name if it still stands for the open file."""
        if name and self._names(name, fd):
            os.unlink(name, dir_fd=self._fd)

    def _names(self, name: str, fd: int) -> bool:
        """Return whether a name is the only name of the open file, a regular one."""
        opened = os.fstat(fd)
        try:
            named = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(opened.st_mode) and opened.st_nlink == 1 and os.path.samestat(opened, named)


_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/(?:self|thread-self|\d+))/fd/(\d+)")
_STANDARD: Final = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}


def open_stream(path: str) -> int | None:
    """Open a path that leads to a pipe or a character device, or names a descriptor; None for others."""
    if (named := _DESCRIPTOR.fullmatch(_STANDARD.get(path, path))) is not None:
        return os.dup(int(named[1]))
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return None
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return None
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
