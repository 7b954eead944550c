"""One open directory, and files made in it: complete under their names, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msdump import reading
from msdump.errors import is_foreign, passing_over
from msdump.store.write import rows, temporaries
from msdump.store.write.buffers import size_of, write_all
from msdump.store.write.directories import Root, enter, open_directory
from msdump.store.write.rows import RowFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msdump.record import Buffer

# Reserving the blocks of a large file makes ext4 a fifth faster, and tmpfs a tenth slower: only file systems
# on a device do it, and of these only such with nameless files. The others would make the C library
# write every block twice.
_RESERVED: Final = 1 << 18

_NAMELESS: Final[int] = getattr(os, "O_TMPFILE", 0)
_HAS_FD_LINKS: Final = Path("/proc/self/fd").is_dir()
_WRITE: Final = os.O_RDWR | os.O_CLOEXEC
_PROOF_MODE: Final = 0o600
_STEP: Final = 1 << 20

Write = Callable[[int], None]
"""Writes the contents of a file to its descriptor."""


class OpenDirectory:
    """An open directory.

    A new file is written without a name and linked under its name when it is complete
    (Linux). One that replaces another is then linked under a temporary name and renamed.
    Where the file system has no nameless files, a temporary name and a rename do the same.
    """

    __slots__ = ("_fd", "_has_linked", "_is_clear", "_is_nameless", "_narrows_modes", "_reserves")

    def __init__(self, path: str, root: Root | None = None) -> None:
        """Open a directory, which is made where it is missing.

        Raises:
            OSError: It cannot be opened or made.
        """
        self._fd = open_directory(path, root)
        self._look()

    def inside(self, name: str) -> OpenDirectory:
        """Open a directory in this one, through no link; it is made where it is missing.

        Raises:
            OSError: It cannot be opened or made.
        """
        inner = object.__new__(OpenDirectory)
        inner._fd, is_new = enter(self._fd, name)
        if is_new:  # a new directory has the file system and access lists of its parent
            inner._narrows_modes, inner._reserves = self._narrows_modes, self._reserves
            inner._has_linked, inner._is_clear = self._has_linked, True
            inner._is_nameless = self._is_nameless
        else:
            inner._look()
        return inner

    def _look(self) -> None:
        """Find out the abilities of its file system."""
        self._narrows_modes = False
        self._reserves = os.major(os.fstat(self._fd).st_dev) != 0  # major 0: memory, network, overlay
        self._has_linked = False
        self._is_clear = False
        self._is_nameless = bool(_NAMELESS) and _HAS_FD_LINKS and self._try_nameless()

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

    def has(self, name: str) -> bool:
        """Return whether a name is taken."""
        return os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False)

    def create(self, name: str, buffers: Sequence[Buffer], mode: int) -> None:
        """Make a new file; FileExistsError where the name is taken, OSError where it cannot be written."""
        if not self._is_nameless:
            self._create_renamed(name, partial(write_all, buffers=buffers), mode)
            return
        fd = os.open(".", _WRITE | _NAMELESS, mode, dir_fd=self._fd)
        try:
            if self._narrows_modes:
                os.fchmod(fd, mode)
            if self._reserves and (size := size_of(buffers)) >= _RESERVED:
                # a disk without that much room is found out before a byte is written
                os.posix_fallocate(fd, 0, size)
            write_all(fd, buffers)
            os.close(os.dup(fd))  # see ``_settle``
            try:
                temporaries.LINKER.give_name(self._fd, name, fd)
                self._has_linked = True
            except OSError as error:
                self._give_up_links(error)
                self._create_renamed(name, partial(_copy, fd), mode)
        finally:
            reading.close(fd)

    def replace(self, name: str, write: Write, mode: int) -> None:
        """Make a file, in place of an older one of the name; its time is exact.

        Raises:
            OSError: It cannot be written; the older one stays.
        """
        write = partial(_write_now, write)
        if not self._is_nameless:
            self._replace_renamed(name, write, mode)
            return
        fd = self._open_nameless(mode)
        try:
            write(fd)
            _settle(fd)
            self._put(fd, name, mode)
        finally:
            reading.close(fd)

    def begin_rows(self, name: str, data: bytes, mode: int) -> RowFile:
        """Make a new file of rows, with the first of them; FileExistsError where the name is taken."""
        if self.has(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        if not self._is_nameless:
            return rows.begin(self._fd, name, data, mode)
        fd = self._open_nameless(mode, os.O_APPEND)
        try:
            write_all(fd, (data,))
            _settle(fd)
            is_linked = self._link(fd, name)
        except BaseException:
            reading.close(fd)
            raise
        if is_linked:
            return RowFile(fd)
        reading.close(fd)
        return rows.begin(self._fd, name, data, mode)

    def open_rows(self, name: str, mode: int) -> RowFile:
        """Open a file of rows; OSError where it is missing, no regular file, or has other names too."""
        return rows.reopen(self._fd, name, mode)

    def prove(self, data: bytes) -> None:
        """Write a file and remove it again; OSError if either fails."""
        self._clear()
        fd, name = temporaries.create(self._fd, _PROOF_MODE)
        try:
            write_all(fd, (data,))
        finally:
            temporaries.release(self._fd, name, fd)
            reading.close(fd)

    def _clear(self) -> None:
        if not self._is_clear:
            temporaries.clear(self._fd)
            self._is_clear = True

    def _create_renamed(self, name: str, write: Write, mode: int) -> None:
        if self.has(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._replace_renamed(name, write, mode)

    def _replace_renamed(self, name: str, write: Write, mode: int) -> None:
        self._clear()
        fd, temporary = temporaries.create(self._fd, mode)
        try:
            with temporaries.released_on_failure(self._fd, temporary, fd):
                os.fchmod(fd, mode)
                write(fd)
                _settle(fd)
                self._rename(temporary, name)
        finally:
            reading.close(fd)

    def _put(self, fd: int, name: str, mode: int) -> None:
        """Give a complete nameless file its name, in place of an older file of that name."""
        try:
            if not self._link(fd, name):
                self._replace_renamed(name, partial(_copy, fd), mode)
        except FileExistsError:
            # a link never replaces a name, a rename does: readers see the old file or the new one
            self._clear()
            temporary = temporaries.link(self._fd, fd)
            with temporaries.released_on_failure(self._fd, temporary, fd):
                self._rename(temporary, name)

    def _rename(self, temporary: str, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                reading.check_regular(status, name)  # a pipe or a device is never replaced
        os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _try_nameless(self) -> bool:
        """Return whether the file system has nameless files; the first link shows if it can name them."""
        try:
            fd = os.open(".", _WRITE | _NAMELESS, _PROOF_MODE, dir_fd=self._fd)
        except OSError as error:
            if is_foreign(error):
                raise
            return False
        try:
            # A umask or an access list that takes the owner's rights: set each file's mode.
            self._narrows_modes = os.fstat(fd).st_mode & 0o777 != _PROOF_MODE
        finally:
            reading.close(fd)
        return True

    def _open_nameless(self, mode: int, more_flags: int = 0) -> int:
        fd = os.open(".", _WRITE | _NAMELESS | more_flags, mode, dir_fd=self._fd)
        if self._narrows_modes:
            os.fchmod(fd, mode)
        return fd

    def _link(self, fd: int, name: str) -> bool:
        """Give a nameless file its name; return False if the file system cannot do so for any file."""
        try:
            temporaries.LINKER.give_name(self._fd, name, fd)
        except OSError as error:
            self._give_up_links(error)
            return False
        self._has_linked = True
        return True

    def _give_up_links(self, error: OSError) -> None:
        """Use temporary names from now on; raise a failed link's error where the file system has links."""
        if isinstance(error, FileExistsError) or self._has_linked or is_foreign(error):
            raise error
        self._is_nameless = False


def _settle(fd: int) -> None:
    """Close a duplicate of a file: some file systems store bytes only then. The file has no name yet."""
    os.close(os.dup(fd))


def _write_now(write: Write, fd: int) -> None:
    """Write contents and set the file's time: a file system's own time may be late by milliseconds.

    Readers compare it with the timestamps of tensors, to tell which program wrote them.
    """
    write(fd)
    now = time.time_ns()
    os.utime(fd, ns=(now, now))


def _copy(source: int, target: int) -> None:
    offset = 0
    while piece := os.pread(source, _STEP, offset):
        write_all(target, (piece,))
        offset += len(piece)


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
