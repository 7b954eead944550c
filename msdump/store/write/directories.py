"""Directories of a dump, opened or made one below the other, and the lock on a rank's.

The root of a dump is whatever its path leads to. Below it no directory may be a
link: whoever may write into one directory of the tree could plant one there and
have the files of the next run go elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import cause_of

DIRECTORY_MODE: Final = 0o700  # as MindSpore and CANN make theirs: tensors may hold users' data

LOOK: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How a file that stands there is opened to be judged: through no link, and waiting for no pipe."""

_ATTEMPTS: Final = 3

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


def open_directory(path: str, root: str = "") -> int:
    """Return a descriptor of a directory; it and its missing parents are made, each 0700.

    Args:
        path: The directory.
        root: The directory below which no link is followed, which must be there; "" where every link is.

    Raises:
        OSError: It cannot be opened or made, the root has gone, or a link stands below it.
    """
    for _ in range(_ATTEMPTS - 1):
        # another process may remove a directory, because it is empty, between two steps
        with contextlib.suppress(FileNotFoundError):
            return _opened(path, root)
    return _opened(path, root)


def _opened(path: str, root: str) -> int:
    root = root.rstrip("/")
    if not root or not path.startswith(f"{root}/"):
        return _open_or_make(path)
    fd = os.open(root, _OPEN)
    # one component at a time: O_NOFOLLOW holds for the last component of a path alone
    for name in filter(None, path[len(root) :].split("/")):
        try:
            inner, _ = enter(fd, name)
        finally:
            reading.close(fd)
        fd = inner
    return fd


def make_directories(path: str) -> None:
    """Create a directory and its missing parents, each 0700; existing ones keep their mode.

    Raises:
        OSError: One of them cannot be created, or is a file.
    """
    directory = Path(path)
    for place in (*reversed(directory.parents), directory):
        if not place.is_dir():
            _make_directory(place)


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(DIRECTORY_MODE)
        place.chmod(DIRECTORY_MODE)  # the umask may have taken rights of the owner
    except FileExistsError:
        if not place.is_dir():  # else another process was faster
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place)) from None


def _open_or_make(path: str) -> int:
    try:
        return os.open(path, _OPEN)
    except FileNotFoundError:
        make_directories(path)
        return os.open(path, _OPEN)


def enter(parent: int, name: str) -> tuple[int, bool]:
    """Open a directory inside an open one, made 0700 if missing; return a descriptor and whether it is new.

    Raises:
        OSError: It cannot be opened or made, or is a link.
    """
    try:
        return _open_below(parent, name), False
    except FileNotFoundError:
        is_new = False
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(name, DIRECTORY_MODE, dir_fd=parent)
            # The umask may have taken rights of the owner; without them nothing can be opened.
            os.chmod(name, DIRECTORY_MODE, dir_fd=parent)
            is_new = True
        return _open_below(parent, name), is_new


def _open_below(parent: int, name: str) -> int:
    try:
        return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(parent, name):
            raise OSError(errno.ELOOP, f"the directory {name!r} is a symbolic link") from error
        raise


def _is_link(parent: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


_held: Final[dict[str, int]] = {}  # descriptors by directory; they hold the locks until the process ends


def lock_rank(directory: str, root: str) -> bool:
    """Lock a rank's directory until the process ends; it is made where it is missing, below the dump's root.

    Returns:
        False where another process has locked it; True, too, on file systems without locks.

    Raises:
        OSError: The directory cannot be opened or made.
    """
    place = os.path.realpath(directory)
    if place in _held:
        return True
    fd = open_directory(directory, root)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        reading.close(fd)
        cause_of(error)
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES}
    _held[place] = fd
    return True
