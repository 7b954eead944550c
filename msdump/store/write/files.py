"""Files on disk that appear complete or not at all, in directories that only their owner can enter."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from msdump import reading
from msdump.errors import DumpWriteError, cause_of, is_foreign
from msdump.record import Buffer
from msdump.store.clock import later_names
from msdump.store.write.buffers import FileRange, size_of, write_all
from msdump.store.write.directories import Root, make_output
from msdump.store.write.place import OpenDirectory, open_stream
from msdump.store.write.rows import RowFile
from msdump.tracing import Trace

_log = logging.getLogger("msdump.store")

FILE_MODE: Final = 0o400
DUMP_MODE: Final = 0o600
"""Permissions of files that CANN itself writes (GE's graphs); all others have ``FILE_MODE``."""

REMEDIES: Final = {
    errno.ENOSPC: "free space, dump less or choose another path",
    errno.EDQUOT: "free space within your quota, dump less or choose another path",
    errno.EACCES: "give the user write permission or choose another path",
    errno.EPERM: "give the user write permission or choose another path",
    errno.EROFS: "choose a path on a writable file system",
    errno.ENOENT: "choose another path",
    errno.ESTALE: "put the first directory back, or run again",
    errno.ENOTDIR: "remove the file at the place of the directory, or choose another path",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ELOOP: "remove the link, or choose another path; msdump follows no links below the path of a dump",
    errno.EMLINK: "remove the file, or choose another path",
    errno.EINVAL: "remove the file, or choose another path",
    errno.EISDIR: "remove the directory, or choose another path",
    errno.EEXIST: "two runs write into the same directory; give each its own path",
}
"""What to do about a failure, by error number."""

_TRIES: Final = 5
_MOST_DIRECTORIES: Final = 32  # open at once; each is a file descriptor, as each row file is
_MOST_ROW_FILES: Final = 8


class DiskFiles:
    """Files on disk: 0400 once complete, in directories that are made 0700 where they are missing.

    New files and files of rows may have another mode, files that replace others have not.
    Directories stay open between calls, so that a file costs no walk through
    its path. One thread at a time may use an object.
    """

    def __init__(self, mode: int = FILE_MODE, root: Root | None = None) -> None:
        """Set the mode of new files and files of rows, and a root below which no directory is a link."""
        self._mode = mode
        self._root = root
        self._places: dict[str, OpenDirectory] = {}
        # parent of the directory opened last, which directories of further steps share
        self._holder: tuple[str, OpenDirectory] | None = None
        self._row_files: dict[tuple[str, str], RowFile] = {}

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> int:
        """Make a new file; return its bytes.

        Raises:
            OSError: It cannot be written; FileExistsError where its name is taken, and so are all later
                times in the place of the one in the name.
        """
        try:
            return (self._places.get(directory) or self._open(directory)).create(name, buffers, self._mode)
        except OSError as error:
            if is_foreign(error) or directory not in self._places:
                raise
            # the directory may have been removed and made again since it was opened (a user's rm -r between
            # two steps): checking beforehand would cost every file a call of the system
            is_gone = not self._places[directory].is_linked()
            if not is_gone and not isinstance(error, FileExistsError):
                raise
            place = self._standing(directory)
            for each in (*(name,) * is_gone, *later_names(name)):
                with contextlib.suppress(FileExistsError):
                    return place.create(each, buffers, self._mode)
            raise

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a file, in place of an older one of the name."""
        write = partial(write_all, buffers=buffers)
        self._standing(directory).replace(name, write, FILE_MODE)

    def stream(
        self, directory: str, name: str, pieces: Iterable[Buffer | FileRange], mode: int = FILE_MODE
    ) -> int:
        """Make a file as ``replace`` does from pieces, each written before the next; return its bytes.

        Outside of a dump a pipe, a terminal or another character device of the name is written to.
        """
        size = 0

        def write(fd: int) -> None:
            nonlocal size
            for piece in pieces:
                size += piece.copy_to(fd) if isinstance(piece, FileRange) else write_all(fd, (piece,))

        fd = open_stream(f"{directory}/{name}") if self._root is None else None
        if fd is None:
            self._standing(directory).replace(name, write, mode)
            return size
        try:
            write(fd)
        finally:
            reading.close(fd)
        return size

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, after the header if the file is new or its last rows have other titles.

        Returns:
            Whether it was empty or new.

        Raises:
            OSError: They cannot be written as a whole, or a link, something that is no file, or a file
                with another name stands there. None of them is in the file, which is not left empty.
        """
        key = (directory, name)
        file = self._row_files.get(key)
        if file is not None and (was_empty := file.append(rows, header)) is not None:
            return was_empty
        self._drop_rows(key)
        if len(self._row_files) >= _MOST_ROW_FILES:
            self._drop_rows(next(iter(self._row_files)))
        for _ in range(_TRIES):  # another process may make or remove it in between
            place = self._standing(directory)
            with contextlib.suppress(FileExistsError):
                self._row_files[key] = place.begin_rows(name, header + rows, self._mode)
                return True
            try:
                file = place.open_rows(name, self._mode)
            except FileNotFoundError:
                continue
            was_empty = file.append(rows, header)
            if was_empty is not None:
                self._row_files[key] = file
                return was_empty
            file.close()
        raise OSError(errno.EBUSY, "the file was created and removed several times", name)

    def exists(self, directory: str, name: str) -> bool:
        """Return whether a name is taken."""
        return reading.is_taken(f"{directory}/{name}")

    def read(self, directory: str, name: str) -> bytes:
        """Return the contents of a file, b"" if there is no file."""
        try:
            return reading.read_bytes(f"{directory}/{name}")
        except FileNotFoundError:
            return b""

    def close(self) -> None:
        """Close directories and row files; later calls open them again."""
        while self._row_files:
            self._drop_rows(next(iter(self._row_files)))
        while self._places:
            self._places.popitem()[1].close()
        self._drop_holder()
        if self._root is not None:
            self._root.close()

    def _standing(self, path: str) -> OpenDirectory:
        """Return an open directory, opened again if it was removed."""
        place = self._places.get(path)
        if place is not None and place.is_linked():
            return place
        if place is not None:
            self._places.pop(path).close()
        return self._open(path)

    def _open(self, path: str) -> OpenDirectory:
        # an asynchronous sink opens as many for each of its threads
        if len(self._places) >= _MOST_DIRECTORIES:
            self._places.pop(next(iter(self._places))).close()
        above, _, name = path.rpartition("/")
        if self._root is None or not self._root.holds(above):
            place = OpenDirectory(path, self._root)
        else:
            if self._holder is None or self._holder[0] != above or not self._holder[1].stands_at(above):
                self._drop_holder()
                self._holder = above, OpenDirectory(above, self._root)
            try:
                place = self._holder[1].inside(name)
            except FileNotFoundError:  # another process has removed the holder, as it was empty
                place = OpenDirectory(path, self._root)
        self._places[path] = place
        return place

    def _drop_holder(self) -> None:
        holder, self._holder = self._holder, None  # an interrupt after the close must not close it again
        if holder is not None:
            holder[1].close()

    def _drop_rows(self, key: tuple[str, str]) -> None:
        stale = self._row_files.pop(key, None)
        if stale is not None:
            try:
                stale.close()
            except OSError as error:
                _log.error(
                    "%s: the file could not be closed: %s; rows may be missing",
                    "/".join(key),
                    cause_of(error),
                )


class TracedFiles(DiskFiles):
    """Files on disk, each with a span in a trace."""

    def __init__(self, mode: int, root: Root, *, trace: Trace) -> None:
        """Open nothing yet; ``trace`` gets the spans."""
        super().__init__(mode, root)
        self._trace = trace

    def create(self, directory: str, name: str, buffers: Sequence[Buffer]) -> int:
        """Make a new file; return its bytes."""
        with self._trace.span("write", name, directory=directory, bytes=size_of(buffers)):
            return super().create(directory, name, buffers)

    def replace(self, directory: str, name: str, buffers: Sequence[Buffer]) -> None:
        """Make a file, in place of an older one of the name."""
        with self._trace.span("write", name, directory=directory, bytes=size_of(buffers)):
            super().replace(directory, name, buffers)

    def stream(
        self, directory: str, name: str, pieces: Iterable[Buffer | FileRange], mode: int = FILE_MODE
    ) -> int:
        """Make a file as ``replace`` does from pieces, each written before the next; return its bytes."""
        with self._trace.span("write", name, directory=directory):
            return super().stream(directory, name, pieces, mode)

    def append(self, directory: str, name: str, rows: bytes, header: bytes) -> bool:
        """Add whole rows to a file, the header first if titles differ; return whether the file was new."""
        with self._trace.span("write", name, directory=directory, bytes=len(rows)):
            return super().append(directory, name, rows, header)


_BLOCK: Final = bytes(4096)  # an empty file would fit on a full disk


def reason(error: OSError) -> str:
    """Return why something cannot be written, and the remedy."""
    text = cause_of(error)
    remedy = REMEDIES.get(error.errno or 0)
    return f"{text}; {remedy}" if remedy else text


def probe(path: str) -> None:
    """Create the root of a dump and write a file in it, which is removed again.

    So a path that cannot be written is an error before anything runs. Missing directories are created 0700.

    Raises:
        DumpWriteError: The directory cannot be created or written; says which part of the path
            is at fault, and the remedy.
    """
    try:
        place = OpenDirectory(path)
        try:
            place.prove(_BLOCK)
        finally:
            place.close()
    except OSError as error:
        raise DumpWriteError(f"dump path {path!r} {_fault(path, error)}") from error


def _fault(path: str, error: OSError) -> str:
    """Return which part of a path is at fault and why, for the message."""
    nearest = Path(path)
    if nearest.is_dir():
        return f"cannot be written: {reason(error)}"
    while not reading.is_taken(nearest):
        nearest = nearest.parent
    finding = "is the last directory that exists" if nearest.is_dir() else "is not a directory"
    return f"cannot be created ({str(nearest)!r} {finding}): {reason(error)}"


WriteStream: TypeAlias = Callable[[str, str, Iterable[Buffer]], object]
"""Writes a file piece by piece: directory, name and contents."""


def write_file(path: str | Path, pieces: Iterable[Buffer], mode: int = DUMP_MODE) -> int:
    """Write a file as ``write_stream`` does, its directory made below an existing one at most.

    Raises:
        DumpWriteError: It cannot be written, or there is no directory above; the older one stays.
    """
    file = Path(path)
    try:
        make_output(str(file.parent))
    except OSError as error:
        raise DumpWriteError(f"cannot write {str(file)!r}: {reason(error)}") from error
    return write_stream(str(file.parent), file.name, pieces, mode)


def write_stream(directory: str, name: str, pieces: Iterable[Buffer], mode: int = DUMP_MODE) -> int:
    """Write a file, in place of an older one of the name; it appears when it is complete.

    For text (graphs, protobuf texts) too large to hold in memory at once. ``mode`` has its permissions.

    Returns:
        Its bytes.

    Raises:
        DumpWriteError: It cannot be written; the older one stays.
    """
    path = Path(directory, name)
    files = DiskFiles()
    try:
        return files.stream(str(path.parent.absolute()), path.name, pieces, mode)
    except OSError as error:
        raise DumpWriteError(f"cannot write {str(path)!r}: {reason(error)}") from error
    finally:
        files.close()
