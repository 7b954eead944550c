"""The one door through which files are read: regular files only, and bounded where one is read as a whole.

A name may be that of a pipe without a writer, or of a device without an
end. A file is therefore opened without waiting and judged by its descriptor, so that
nothing can take its place between the look and the reading. A link to a regular file
is followed.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from io import FileIO
from typing import Final

from msdump.errors import is_foreign, passing_over

LARGEST: Final = 1 << 30
"""Bytes of the largest file that is read into memory as a whole, unless the caller allows another number."""

# without O_NONBLOCK, opening a pipe waits for a writer
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_STEP: Final = 1 << 16  # least bytes of one read, for files of unknown size
_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularError(OSError):
    """A path is that of a pipe, a socket or a device instead of a regular file."""


def close(descriptor: int) -> None:
    """Close a descriptor; ignore an OSError, which affects neither bytes read nor bytes written before."""
    try:
        os.close(descriptor)
    except OSError as error:  # no ``with``: each file of a dump comes here
        if is_foreign(error):
            raise


class _File(FileIO):
    def close(self) -> None:
        """Close the file, as ``close`` does."""
        with passing_over(OSError):
            super().close()


def is_taken(path: str | os.PathLike[str]) -> bool:
    """Return whether a path exists, if only as a dangling link.

    ``os.path.lexists`` swallows exceptions of a signal handler.
    """
    return os.access(path, os.F_OK, follow_symlinks=False)


def open_file(
    path: str | os.PathLike[str], *, directory: int | None = None, follow_links: bool = True
) -> FileIO:
    """Open a regular file for reading, without a buffer.

    Args:
        path: The file; where it is relative, below ``directory``.
        directory: Descriptor of an open directory, None for the working directory.
        follow_links: Whether a link in place of the file is followed.

    Raises:
        OSError: There is none, it cannot be read, or something else stands there.
    """
    fd = _open(path, _OPEN if follow_links else _OPEN | os.O_NOFOLLOW, directory)
    try:
        check_regular(os.fstat(fd), path)
        return _File(fd)
    # also Ctrl-C: the descriptor would stay open
    except BaseException:
        close(fd)
        raise


class OpenDescriptor:
    """A regular file that is open in a ``with`` block, which gets its descriptor and its size in bytes.

    Fewer calls of the system than a file object makes.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> tuple[int, int]:
        """Open the file; OSError as for ``open_file``."""
        self._fd = fd = _open(self._path, _OPEN, None)
        try:
            status = os.fstat(fd)
            check_regular(status, self._path)
        except BaseException:
            close(fd)
            raise
        return fd, status.st_size

    def __exit__(self, *_raised: object) -> None:
        """Close the file."""
        close(self._fd)


def _open(path: str | os.PathLike[str], flags: int, directory: int | None) -> int:
    try:
        return os.open(path, flags, dir_fd=directory)
    except ValueError as error:  # a zero byte, or text that is no file name in this locale
        raise OSError(errno.EINVAL, f"no file can have this name ({error})", os.fspath(path)) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # the system's error for sockets
            raise _not_regular(stat.S_IFSOCK, path) from error
        raise


def read_bytes(path: str | os.PathLike[str], most: int = LARGEST) -> bytes:
    """Return the contents of a regular file; OSError as for ``open_file``, or beyond ``most`` bytes."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Files of /proc have size 0 and contents; one byte more shows whether there is an end.
        data = bytearray()
        while size <= most and len(data) <= most and (piece := file.read(max(_STEP, min(size, most) + 1))):
            data += piece
    if max(size, len(data)) > most:
        reason = f"its {max(size, len(data))} bytes exceed the maximum of {most}"
        raise OSError(errno.EFBIG, reason, os.fspath(path))
    return bytes(data)


def map_file(path: str | os.PathLike[str]) -> memoryview:
    """Return the bytes of a regular file, mapped, read-only; OSError as for ``open_file``."""
    with open_file(path) as file:
        # an empty file cannot be mapped
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def walk(top: str, on_error: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the folders below and including one, as ``os.walk`` does, however deep they lie.

    ``os.walk`` calls itself for each level, before Python 3.12, and fails on a thousand of them.
    ``on_error`` is called for a folder that cannot be listed.

    Yields:
        The path of a folder, the names of the folders in it, of which the caller may remove some that are
            not to be walked through, and the names of its files; both sorted. Links to folders are not
            followed.
    """
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted((entry.name, is_directory(entry), entry.is_symlink()) for entry in entries)
        except OSError as error:
            on_error(error)
            continue
        links = {name for name, _, is_link in listed if is_link}
        folders = [name for name, is_folder, _ in listed if is_folder]
        yield folder, folders, [name for name, is_folder, _ in listed if not is_folder]
        waiting += [os.path.join(folder, name) for name in reversed(folders) if name not in links]  # noqa: PTH118


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory; a link to an unreachable target is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def check_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    """Raise unless an open file with a status is a regular one; the error names the path.

    Raises:
        OSError: It is a directory (IsADirectoryError) or something else (NotRegularError).
    """
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind != stat.S_IFREG:
        raise _not_regular(kind, path)


def _not_regular(kind: int, path: str | os.PathLike[str]) -> NotRegularError:
    return NotRegularError(
        errno.EINVAL, f"not a regular file but {_KINDS.get(kind, 'nothing to read')}", os.fspath(path)
    )
