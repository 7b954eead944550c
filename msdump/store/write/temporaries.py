"""Names for files that are not complete yet, which a killed run cannot leave for good.

A directory has a few such names. The process that writes a file holds a lock on it, which the system drops
when the process ends, however it ends; the next process that needs a name removes the files without
a lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from msdump import reading
from msdump.errors import is_foreign, passing_over
from msdump.store.write.directories import LOOK

_AT_EMPTY_PATH: Final = 0x1000
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()

Link = Callable[[int, bytes, int, bytes, int], int]
"""The C library's ``linkat``."""


def _c_library_link() -> Link | None:
    """Return ``linkat``, None where the C library has none."""
    try:
        function = ctypes.CDLL(None, use_errno=True).linkat
    except (AttributeError, OSError, TypeError):  # not Linux
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
    function.restype = ctypes.c_int
    return function


class Linker:
    """Gives nameless files their names: by their descriptors until that fails, and then by paths in /proc.

    The way from a descriptor takes less than half the time of that by /proc, which walks through two more
    directories for each file. Linux up to 6.9 has it for privileged users alone.
    """

    __slots__ = ("_link",)

    def __init__(self, link: Link | None) -> None:
        """Start with the function that links by descriptor; None: link by path."""
        self._link = link

    def give_name(self, directory: int, name: str, fd: int) -> None:
        """Give a nameless open file a name in an open directory.

        Raises:
            OSError: The file system gives it none; FileExistsError where the name is taken.
        """
        link = self._link
        if link is not None:
            if not link(fd, b"", directory, name.encode(_ENCODING, _ERRORS), _AT_EMPTY_PATH):
                return
            if (number := ctypes.get_errno()) == errno.EEXIST:
                raise FileExistsError(number, os.strerror(number), name)
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory, follow_symlinks=True)
        self._link = None


LINKER: Final = Linker(_c_library_link())
"""The process's way to name files."""


_MOST: Final = 64
_GAP: Final = 4  # so many free names in a row end the search: names are taken from the lowest on
_NUMBERS: Final = itertools.count()  # threads may ask for a name in the same nanosecond
# O_NONBLOCK: opening a pipe that was put there must not wait for a writer
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def clear(directory: int) -> None:
    """Remove the incomplete files that killed runs left in a directory."""
    free = 0
    for number in range(_MOST):
        free = (
            0
            if os.access(_temporary_name(number), os.F_OK, dir_fd=directory, follow_symlinks=False)
            else free + 1
        )
        if free == _GAP:
            return
        _remove_if_left(directory, _temporary_name(number))


def create(directory: int, mode: int) -> tuple[int, str]:
    """Make an empty file under a free name; return its locked descriptor and the name.

    Raises:
        OSError: It cannot be made.
    """
    for number in range(_MOST):
        name = _temporary_name(number)
        fd = _create(directory, name, mode)
        if fd is not None:
            return fd, name
        _remove_if_left(directory, name)
    # more writers than names: such a file is left for good by a killed run, which is rare enough
    name = f".msdump-{os.getpid()}-{time.time_ns()}-{next(_NUMBERS)}.tmp"
    return os.open(name, _NEW, mode, dir_fd=directory), name


def link(directory: int, fd: int) -> str:
    """Give a nameless file a free name, locked; return the name.

    Raises:
        OSError: The file system gives it none.
    """
    with passing_over(OSError):  # without locks no process removes another one's file
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for number in range(_MOST):
        name = _temporary_name(number)
        try:
            LINKER.give_name(directory, name, fd)
        except FileExistsError:
            continue
        except BaseException:  # an interrupt may come after the name
            release(directory, name, fd)
            raise
        return name
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), _temporary_name(_MOST - 1))


def release(directory: int, name: str, fd: int) -> None:
    """Remove a name if it still stands for the open file."""
    if _names_file(directory, name, fd):
        os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def released_on_failure(directory: int, name: str, fd: int) -> Iterator[None]:
    """Remove a name if it still stands for the open file when the block fails."""
    try:
        yield
    except BaseException:
        release(directory, name, fd)
        raise


def _temporary_name(number: int) -> str:
    return f".msdump-{number}.tmp"


def _create(directory: int, name: str, mode: int) -> int | None:
    """Make a file and lock it; None where the name is taken or another process was faster with the lock."""
    try:
        fd = os.open(name, _NEW, mode, dir_fd=directory)
    except FileExistsError:
        return None
    except BaseException:  # an interrupt may come after the name
        _remove_if_left(directory, name)
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # between open and lock another process may have taken the file for a left one and removed it
        is_usable = _names_file(directory, name, fd)
    except BlockingIOError:  # another process is about to remove it
        is_usable = False
    except OSError as error:
        if is_foreign(error):
            raise
        is_usable = True  # without locks no process removes another one's file
    if is_usable:
        return fd
    reading.close(fd)
    return None


def _remove_if_left(directory: int, name: str) -> None:
    """Remove a file that no living process holds."""
    try:
        fd = os.open(name, LOOK, dir_fd=directory)
    except OSError as error:
        if is_foreign(error):
            raise
        return  # it is gone, or it is no file that msdump made
    try:
        # the file stays if it cannot be locked: in use, no locks in the file system, another user's directory
        with passing_over(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            release(directory, name, fd)
    finally:
        reading.close(fd)


def _names_file(directory: int, name: str, fd: int) -> bool:
    """Return whether a name is the only name of the open file, a regular one."""
    opened = os.fstat(fd)
    try:
        named = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(opened.st_mode) and opened.st_nlink == 1 and os.path.samestat(opened, named)
