"""Names for files that are not complete yet, which a killed run cannot leave for good.

A directory has a few such names. Who uses one holds a lock on the file, which
ends with its process; the next one that needs a name removes the files that
nobody holds. What a living process writes is locked and stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import time
from typing import Final

_MOST: Final = 64
_GAP: Final = 4  # free names behind which no file is looked for
_NUMBERS: Final = itertools.count()  # threads may ask for a name in the same nanosecond
_LOOK: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def clear(directory: int) -> None:
    """Remove what killed runs left in a directory."""
    free = 0
    for number in range(_MOST):
        free = 0 if os.access(_name(number), os.F_OK, dir_fd=directory, follow_symlinks=False) else free + 1
        if free == _GAP:
            return
        _remove_if_left(directory, _name(number))


def create(directory: int, mode: int) -> tuple[int, str]:
    """Make an empty file under a free name; return its locked descriptor and the name.

    Raises:
        OSError: It cannot be made.
    """
    for name in map(_name, range(_MOST)):
        fd = _create(directory, name, mode)
        if fd is not None:
            return fd, name
        _remove_if_left(directory, name)
    name = f".msdump-{os.getpid()}-{time.time_ns()}-{next(_NUMBERS)}.tmp"
    return os.open(name, _NEW, mode, dir_fd=directory), name


def link(directory: int, fd: int) -> str:
    """Give a nameless file a free name, locked; return the name.

    Raises:
        OSError: The file system gives it none.
    """
    with contextlib.suppress(OSError):  # without locks nobody removes what another one holds
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in map(_name, range(_MOST)):
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory, follow_symlinks=True)
        except FileExistsError:
            continue
        except BaseException:  # an interrupt may come after the name
            release(directory, name, fd)
            raise
        return name
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), _name(_MOST - 1))


def release(directory: int, name: str, fd: int) -> None:
    """Remove a name if it still stands for the open file."""
    if _is(directory, name, fd):
        os.unlink(name, dir_fd=directory)


def _name(number: int) -> str:
    return f".msdump-{number}.tmp"


def _create(directory: int, name: str, mode: int) -> int | None:
    """Make a file that this process holds; None where the name is taken."""
    try:
        fd = os.open(name, _NEW, mode, dir_fd=directory)
    except FileExistsError:
        return None
    except BaseException:  # an interrupt may come after the name
        _remove_if_left(directory, name)
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_mine = _is(directory, name, fd)
    except BlockingIOError:  # another process takes the new file for one that was left
        is_mine = False
    except OSError:  # without locks nobody removes what another one holds
        is_mine = True
    if is_mine:
        return fd
    os.close(fd)
    return None


def _remove_if_left(directory: int, name: str) -> None:
    """Remove a file that no living process holds."""
    try:
        fd = os.open(name, _LOOK, dir_fd=directory)
    except OSError:  # it is gone, or it is no file that msdump made
        return
    try:
        # A file that is held, a file system without locks, a directory of another user's: it stays.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            release(directory, name, fd)
    finally:
        os.close(fd)


def _is(directory: int, name: str, fd: int) -> bool:
    """Tell whether a name stands for the open file, which is a regular one without another name."""
    held = os.fstat(fd)
    try:
        named = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(held.st_mode) and held.st_nlink == 1 and os.path.samestat(held, named)
