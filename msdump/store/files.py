"""Files that appear complete or not at all, in directories that only their owner can enter.

A new file is written without a name and linked under its name when it is
complete (Linux), so that a run killed at any moment leaves nothing behind. A file
that replaces another is linked under a dot-name of its own name and renamed: a run
killed between the two leaves the dot-name, complete, which the next one uses up.
Where the file system has no nameless files, a dot-name in the same directory and a
rename do the same, and a killed run may leave the dot-name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import time
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Final, Protocol

from msdump import reading
from msdump.store.rows import RowFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msdump.record import Buffer

FILE_MODE: Final = 0o400
DUMP_MODE: Final = 0o600
"""What CANN gives the files that it writes itself; everything else is ``FILE_MODE``."""

DIRECTORY_MODE: Final = 0o700

_TRIES: Final = 5
_LONGEST_NAME: Final = 255
_MOST_DIRECTORIES: Final = 32
_MOST_ROW_FILES: Final = 8
# Reserving the blocks of a large file makes ext4 a fifth faster. Only file systems with nameless
# files are asked: the others would make the C library write every block twice.
_RESERVED: Final = 1 << 18
_MOST_BUFFERS: Final[int] = os.sysconf("SC_IOV_MAX")

_NAMELESS: Final[int] = getattr(os, "O_TMPFILE", 0)
_HAS_FD_LINKS: Final = Path("/proc/self/fd").is_dir()
_NUMBERS: Final = itertools.count()  # threads may ask for a temporary name in the same nanosecond
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_CLOEXEC


class Files(Protocol):
    """Where a sink puts its files; every method raises OSError where it fails."""

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a new file; FileExistsError where the name is taken."""

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a file, in place of an older one of the name."""

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, the header before them where it is empty or new; tell whether it was."""

    def exists(self, directory: str, name: str) -> bool:
        """Tell whether a name is taken."""

    def read(self, directory: str, name: str) -> bytes:
        """Return the contents of a file, nothing where there is none."""

    def close(self) -> None:
        """Release what is held open; later calls open it again."""


class DiskFiles:
    """Files on disk: 0400 once complete, in directories that are made 0700 where they are missing.

    New files and files of rows may have another mode, files that replace others have not.
    Directories stay open between calls, so that a file costs no walk through
    its path. One thread at a time may use an object.
    """

    def __init__(self, mode: int = FILE_MODE) -> None:
        """Open nothing yet.

        Args:
            mode: Permissions of new files and of files of rows.
        """
        self._mode = mode
        self._directories: dict[str, _Directory] = {}
        self._row_files: dict[tuple[str, str], RowFile] = {}

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a new file; FileExistsError where the name is taken."""
        place = self._directories.get(directory) or self._open(directory)
        try:
            place.create(name, buffers)
        except OSError:
            if place.is_linked():
                raise
            self._forget(directory)
            self._open(directory).create(name, buffers)

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a file, in place of an older one of the name."""
        place = self._directories.get(directory) or self._open(directory)
        try:
            place.replace(name, buffers)
        except OSError:
            if place.is_linked():
                raise
            self._forget(directory)
            self._open(directory).replace(name, buffers)

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, the header before them where it is empty or new; tell whether it was."""
        file = self._row_files.get((directory, name))
        if file is None or not file.is_linked():
            file = self._open_rows(directory, name)
        return file.append(rows, header)

    def exists(self, directory: str, name: str) -> bool:
        """Tell whether a name is taken."""
        return os.path.lexists(f"{directory}/{name}")

    def read(self, directory: str, name: str) -> bytes:
        """Return the contents of a file, nothing where there is none."""
        try:
            return reading.read_bytes(f"{directory}/{name}")
        except FileNotFoundError:
            return b""

    def close(self) -> None:
        """Close directories and row files; later calls open them again."""
        while self._row_files:
            self._row_files.popitem()[1].close()
        while self._directories:
            self._directories.popitem()[1].close()

    def _open(self, path: str) -> _Directory:
        if len(self._directories) >= _MOST_DIRECTORIES:
            self._forget(next(iter(self._directories)))
        place = self._directories[path] = _Directory(path, self._mode)
        return place

    def _forget(self, path: str) -> None:
        self._directories.pop(path).close()

    def _open_rows(self, directory: str, name: str) -> RowFile:
        make_directories(directory)
        stale = self._row_files.pop((directory, name), None)
        if stale is None and len(self._row_files) >= _MOST_ROW_FILES:
            stale = self._row_files.pop(next(iter(self._row_files)))
        if stale is not None:
            stale.close()
        file = self._row_files[directory, name] = RowFile(f"{directory}/{name}", self._mode)
        return file


class _Directory:
    """One open directory and the way to make files in it."""

    __slots__ = ("_fd", "_has_linked", "_mode", "_narrows_modes", "create", "replace")

    create: Callable[[str, Sequence[Buffer]], None]
    replace: Callable[[str, Sequence[Buffer]], None]

    def __init__(self, path: str, mode: int) -> None:
        self._fd = _open_directory(path)
        self._mode = mode
        self._narrows_modes = False
        self._has_linked = False
        self._use(nameless=bool(_NAMELESS) and _HAS_FD_LINKS and self._try_nameless())

    def _use(self, *, nameless: bool) -> None:
        self.create = self._create_nameless if nameless else self._create_renamed
        self.replace = self._replace_nameless if nameless else self._replace_renamed

    def close(self) -> None:
        os.close(self._fd)

    def is_linked(self) -> bool:
        """Tell whether the directory still stands somewhere, that is, was not removed."""
        return os.fstat(self._fd).st_nlink > 0

    def _replace_nameless(self, name: str, buffers: Sequence[Buffer]) -> None:
        shadow = _shadow(name)
        for _ in range(_TRIES):
            try:
                self._create_nameless(shadow, buffers, FILE_MODE)
                os.rename(shadow, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except FileNotFoundError:  # another process took the dot-name away, or the directory is gone
                continue
            except FileExistsError:  # a killed run left it, or another process replaces the same file
                self._remove(shadow)
            except BaseException:
                self._remove(shadow)
                raise
            else:
                return
        self._replace_renamed(name, buffers)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def _replace_renamed(self, name: str, buffers: Sequence[Buffer], mode: int = FILE_MODE) -> None:
        temporary = _temporary()
        try:
            self._write(temporary, buffers, mode)
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self._remove(temporary)  # an interrupt may come before or after its life
            raise

    def _write(self, name: str, buffers: Sequence[Buffer], mode: int) -> None:
        fd = os.open(name, _WRITE | os.O_CREAT | os.O_EXCL, mode, dir_fd=self._fd)
        try:
            os.fchmod(fd, mode)
            write_all(fd, buffers)
        finally:
            os.close(fd)

    def _try_nameless(self) -> bool:
        """Tell whether the file system has nameless files; the first one that is linked tells the rest."""
        try:
            fd = os.open(".", _WRITE | _NAMELESS, FILE_MODE | self._mode, dir_fd=self._fd)
        except OSError:
            return False
        try:
            # A umask or an access list that takes the owner's rights: set each file's mode.
            self._narrows_modes = os.fstat(fd).st_mode & 0o777 != FILE_MODE | self._mode
        finally:
            os.close(fd)
        return True

    def _create_nameless(self, name: str, buffers: Sequence[Buffer], mode: int | None = None) -> None:
        mode = self._mode if mode is None else mode
        fd = os.open(".", _WRITE | _NAMELESS, mode, dir_fd=self._fd)
        try:
            if self._narrows_modes:
                os.fchmod(fd, mode)
            size = size_of(buffers)
            if size >= _RESERVED:
                os.posix_fallocate(fd, 0, size)
            write_all(fd, buffers)
            self._link(fd, name, buffers, mode)
        finally:
            os.close(fd)

    def _link(self, fd: int, name: str, buffers: Sequence[Buffer], mode: int) -> None:
        """Give a nameless file its name; where the file system knows no way, use names from now on."""
        try:
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=self._fd, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError:
            if self._has_linked:
                raise
            self._use(nameless=False)
            self._create_renamed(name, buffers, mode)
        self._has_linked = True

    def _create_renamed(self, name: str, buffers: Sequence[Buffer], mode: int | None = None) -> None:
        if os.access(name, os.F_OK, dir_fd=self._fd, follow_symlinks=False):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._replace_renamed(name, buffers, self._mode if mode is None else mode)


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


def write_all(fd: int, buffers: Sequence[Buffer]) -> None:
    """Write buffers one after the other, however little each call of the system takes.

    Raises:
        OSError: They could not be written as a whole.
    """
    size = size_of(buffers)
    written = os.writev(fd, buffers[:_MOST_BUFFERS]) if size else 0
    while written < size:
        step = os.writev(fd, _rest(buffers, written)[:_MOST_BUFFERS])
        if step == 0:
            raise OSError(errno.EIO, "the file system takes no more bytes")
        written += step


def size_of(buffers: Sequence[Buffer]) -> int:
    """Return the bytes of buffers in all."""
    size = 0
    for buffer in buffers:
        size += buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
    return size


def _rest(buffers: Sequence[Buffer], written: int) -> list[memoryview]:
    rest = []
    for buffer in buffers:
        view = PickleBuffer(buffer).raw()
        rest.append(view[written:])
        written = max(0, written - len(view))
    return [view for view in rest if len(view)]


def _shadow(name: str) -> str:
    """Return the dot-name of a file that is replaced: the same in every run, so that it is used up."""
    shadow = f".{name}.tmp"
    if len(os.fsencode(shadow)) <= _LONGEST_NAME:
        return shadow
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()}.tmp"


def _temporary() -> str:
    return f".{os.getpid()}-{time.time_ns()}-{next(_NUMBERS)}.tmp"


def _open_directory(path: str) -> int:
    try:
        return os.open(path, _READ | os.O_DIRECTORY)
    except FileNotFoundError:
        make_directories(path)
        return os.open(path, _READ | os.O_DIRECTORY)
