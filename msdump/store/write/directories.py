"""Directories of a dump, opened or made one below the other, and the locks of programs that dump into them.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import cause_of, passing_over
from msdump.threads import new_lock

DIRECTORY_MODE: Final = 0o700  # as MindSpore and CANN make theirs: tensors may hold users' data

LOOK: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How a file that stands there is opened to be judged: through no link, and waiting for no pipe."""

_ATTEMPTS: Final = 3

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class Root:
    """The root of a dump: the directory at its path when the first file is written.

    It stays open until it is closed: so the system gives its number to no directory that takes its place.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._fd = -1

    def holds(self, path: str) -> bool:
        """Return whether a path is the root's or lies below it."""
        return path == self.path or path.startswith(f"{self.path}/")

    def open(self) -> int:
        """Return a new descriptor of the root; OSError if it was removed or replaced since the first call."""
        try:
            fd = os.open(self.path, _OPEN)
        except FileNotFoundError:
            raise OSError(errno.ESTALE, "the path of the dump was removed or moved during the run") from None
        if self._fd < 0:
            self._fd = os.dup(fd)
        elif not os.path.samestat(os.fstat(fd), os.fstat(self._fd)):
            reading.close(fd)
            raise OSError(errno.ESTALE, "another directory took the place of the dump's path during the run")
        return fd

    def close(self) -> None:
        """Close the root; the next call of ``open`` accepts any directory."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            reading.close(fd)


def open_directory(path: str, root: Root | None) -> int:
    """Return a descriptor of a directory; it and its missing parents are made, each 0700.

    Below the root, which must be there, no link is followed; without one every link is.

    Raises:
        OSError: It cannot be opened or made, the root has gone, or a link stands below it.
    """
    for _ in range(_ATTEMPTS - 1):
        # another process may remove a directory, because it is empty, between two steps
        with contextlib.suppress(FileNotFoundError):
            return _opened(path, root)
    return _opened(path, root)


def _opened(path: str, root: Root | None) -> int:
    if root is None or not root.holds(path):
        try:
            return os.open(path, _OPEN)
        except FileNotFoundError:
            make_directories(path)
            return os.open(path, _OPEN)
    fd = root.open()
    # one component at a time: O_NOFOLLOW holds for the last component of a path alone
    for name in filter(None, path[len(root.path) :].split("/")):
        try:
            inner, _ = enter(fd, name)
        finally:
            reading.close(fd)
        fd = inner
    return fd


def make_directories(path: str) -> None:
    """Create a directory and its missing parents, each 0700; OSError if one cannot be, or is a file."""
    directory = Path(path)
    for place in (*reversed(directory.parents), directory):
        if not place.is_dir():
            _make_directory(place)


def make_output(path: str) -> None:
    """Create a directory of results, 0700, below one that exists: a typo makes no chain of directories.

    Raises:
        OSError: There is no directory above, it cannot be created, or it is a file.
    """
    place = Path(os.path.abspath(path))  # noqa: PTH100 - pathlib keeps ".." components
    if not place.is_dir():
        if not place.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no directory {str(place.parent)!r}", path)
        _make_directory(place)


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(DIRECTORY_MODE)
        place.chmod(DIRECTORY_MODE)  # the umask may have taken rights of the owner
    except FileExistsError:
        if not place.is_dir():  # else another process was faster
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place)) from None


def enter(parent: int, name: str) -> tuple[int, bool]:
    """Open or make (0700) a directory in an open one; return descriptor and newness; OSError for a link."""
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
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise OSError(errno.ELOOP, f"the directory {name!r} is a symbolic link") from error
        raise


_held: Final[dict[str, tuple[int, bool]]] = {}
"""Descriptors by directory, which hold the locks, and whether no other process held the directory before."""

_holding: Final = new_lock()


@contextlib.contextmanager
def holding(directory: str, root: str) -> Iterator[bool]:
    """Lock a directory until it is released or the process ends; it is made where it is missing.

    Threads of this process, which may be ranks, do so one after the other.

    Yields:
        Whether no other process held the directory when this one began to; True, too, on file systems without
            locks. Then others wait until the block has ended. They can hold the directory, too, but see that
            they are not alone.

    Raises:
        OSError: The directory cannot be opened or made.
    """
    place = os.path.realpath(directory)
    with _holding:
        if place in _held and not _stands_at(place, _held[place][0]):
            release(place)
        if place in _held:
            yield _held[place][1]
            return
        with contextlib.closing(Root(root)) as top:
            fd = open_directory(directory, top)
        is_alone = lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_alone:
            lock(fd, fcntl.LOCK_SH)
        _held[place] = fd, is_alone
        try:
            yield is_alone
        except BaseException:
            release(place)
            raise
        lock(fd, fcntl.LOCK_SH)


def release(place: str) -> None:
    """Unlock a directory, given without links, if this process holds it."""
    with _holding:
        if place in _held:
            reading.close(_held.pop(place)[0])


def lock(fd: int, operation: int) -> bool:
    """Lock a file or a directory; return False where another process holds it."""
    try:
        fcntl.flock(fd, operation)
    except OSError as error:
        cause_of(error)
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES}
    return True


def _stands_at(path: str, fd: int) -> bool:
    with passing_over(OSError):
        return os.path.samestat(Path(path).stat(), os.fstat(fd))
    return False
