"""Sinks: they write complete files, and log, count and raise failures.

Every sink keeps the same promises. A file appears under its name only when it
is complete. A tensor file that exists is never destroyed. A failure is logged
once for each cause with path and reason, counted, and raised or passed over as
the plan says. The summary counts files that were written, skipped and lost.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from msdump.errors import DumpWriteError, cause_of, is_foreign
from msdump.plan import OnWriteError
from msdump.reasons import Reason
from msdump.record import Artifact, Buffer
from msdump.store.layouts import MAPPING
from msdump.store.write import exits
from msdump.store.write.buffers import size_of
from msdump.store.write.files import DUMP_MODE, DiskFiles, reason

LONGEST_NAME: Final = 255
_SUFFIXES: Final = frozenset({".npy", ".json"})
_NUMBERS: Final = 1 << 32
_MOST_MAPPINGS: Final = 8


class StandIns:
    """Stand-ins for file names that are too long, and the ``mapping.csv`` that lists the long names.

        {digits}.npy,{original name}

    One line for each file, no header (the format of MindSpore and CANN). The line stands before the file
    appears: a killed run leaves at most a line too many, never a file without its name.
    """

    def __init__(self, files: DiskFiles) -> None:
        self._files = files
        self._mappings: dict[str, dict[str, str]] = {}  # original names by stand-in, by directory
        self.count = 0  # number of ``mapping.csv`` files begun
        self.bytes = 0  # bytes of their lines

    def name(self, directory: str, original: str) -> str:
        """Return the name of a file on disk: its stand-in of at most ten digits where it has over 255 bytes.

        The same name gets the same stand-in.

        Raises:
            OSError: ``mapping.csv`` cannot be read or written.
        """
        if len(os.fsencode(original)) <= LONGEST_NAME:
            return original
        mapping = self._mappings.get(directory)
        if mapping is None:  # the mappings of the directories used last are kept
            if len(self._mappings) >= _MOST_MAPPINGS:
                del self._mappings[next(iter(self._mappings))]
            mapping = self._mappings[directory] = parse_mapping(self._files.read(directory, MAPPING))
        stand_in = self._free(directory, original, mapping)
        if stand_in not in mapping:
            line = f"{stand_in},{original}\n".encode()
            self.count += self._files.append(directory, MAPPING, line, b"")
            self.bytes += len(line)
            mapping[stand_in] = original
        return stand_in

    def _free(self, directory: str, original: str, mapping: dict[str, str]) -> str:
        suffix = Path(original).suffix
        suffix = suffix if suffix in _SUFFIXES else ""
        # a checksum, not a counter: the same name gets the same stand-in in every run
        number = zlib.crc32(original.encode())
        while True:
            stand_in = f"{number}{suffix}"
            owner = mapping.get(stand_in)
            if owner == original or (owner is None and not self._files.exists(directory, stand_in)):
                return stand_in
            number = (number + 1) % _NUMBERS


def parse_mapping(text: bytes) -> dict[str, str]:
    r"""Return original names by stand-in; a last line without line feed is torn and left out.

    >>> parse_mapping(b"17.npy,Add.Default_Add-op0.0.0.1.output.0.npy\n18.npy,Add.Def")
    {'17.npy': 'Add.Default_Add-op0.0.0.1.output.0.npy'}
    """
    lines = text.decode(errors="surrogateescape").split("\n")[:-1]
    pairs = (line.rstrip("\r").partition(",") for line in lines)
    return {stand_in: original for stand_in, comma, original in pairs if comma}


_log = logging.getLogger("msdump.store")


@dataclass(frozen=True, slots=True)
class Summary:
    """The files of a sink so far."""

    # complete files written, files of rows and ``mapping.csv`` with their first row; one that is written
    # again and again counts once
    files: int
    bytes: int  # bytes of these files and of rows
    # tensors not written on purpose, by `msdump.reasons.Reason`, which equals its text
    skipped: Mapping[str, int]
    lost: Mapping[str, int]  # files that could not be written, by cause

    def lost_all_since(self, earlier: Summary) -> bool:
        """Return whether files were lost, and none was written, since an earlier summary."""
        return self.files == earlier.files and self.lost != earlier.lost


class Sink(Protocol):
    """Takes complete files."""

    @property
    def holds_buffers(self) -> bool:
        """Whether the buffers of ``write`` must stay as they are until ``flush`` has returned.

        A caller that changes or reuses a buffer before must hand over a copy.
        """

    def write(self, artifact: Artifact) -> None:
        """Write a new file; an existing file stays unchanged, and the new one is lost.

        Raises:
            DumpWriteError: It could not be written and the plan wants to know; an asynchronous
                sink raises failures only when it is flushed or closed.
        """

    def replace(self, artifact: Artifact) -> None:
        """Write a file in place of an older one; DumpWriteError as in ``write``."""

    def keep(self, artifact: Artifact) -> None:
        """Write a file unless it exists, which is only logged; DumpWriteError as in ``write``."""

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file, the header first if its titles differ; errors as in ``write``."""

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Add a row to a csv file once it is made, which takes long, behind all rows that came before.

        Args:
            path: Absolute path of the file.
            make: Makes the row, with its line feed, in any thread; the elements must not change.
            header: Header line with its line feed.
            size: Bytes of the tensor that ``make`` holds.

        Raises:
            DumpWriteError: As in ``write``, of this row or one that came before.
        """

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people piece by piece, in place of an older one; DumpWriteError as in ``write``.

        Its bytes are taken from the budget of tensor files: it may show the elements of weights.
        """

    def skip(self, reason: Reason, count: int = 1) -> None:
        """Count tensors that are not written on purpose."""

    @property
    def summary(self) -> Summary:
        """Files written, skipped and lost so far."""

    def flush(self) -> None:
        """Return when everything taken is on disk; DumpWriteError as in ``write``."""

    def close(self) -> None:
        """Flush and close files; a later write opens them again."""


class Budget:
    """The bytes of tensor files that may still be written; one object for all sinks of a process."""

    def __init__(self, most: int = 0) -> None:
        """Allow ``most`` bytes in all, 0: any number."""
        self.most = most
        self.used = 0

    def take(self, size: int) -> bool:
        """Take bytes from the budget; False, and none taken, where they are too many."""
        if self.most and self.used + size > self.most:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Return bytes that were not written."""
        self.used -= size


class _OverLimitError(Exception):
    """A file that is written piece by piece exceeds the rest of the byte budget."""


class _ReplacedFiles:
    """Sizes of files that may be written again and again, in the directories that were written to last.

    So the summary counts a file once, with its final size.
    """

    _MOST_DIRECTORIES: Final = 8

    def __init__(self) -> None:
        self._sizes: dict[str, dict[str, int]] = {}

    def count(self, artifact: Artifact) -> tuple[int, int]:
        """Note a file that was written; return by how many files and bytes the summary grows."""
        size = size_of(artifact.buffers)
        sizes = self._sizes.pop(artifact.directory, {})
        older_size = sizes.get(artifact.name)
        if len(self._sizes) >= self._MOST_DIRECTORIES:
            del self._sizes[next(iter(self._sizes))]
        self._sizes[artifact.directory] = sizes  # put back as the last one: the first is the next to go
        sizes[artifact.name] = size
        return older_size is None, size - (older_size or 0)


class SyncSink:
    """Writes each file before the call returns; any thread may call it."""

    holds_buffers = False

    def __init__(
        self,
        on_write_error: OnWriteError = OnWriteError.RAISE,
        budget: Budget | None = None,
        files: DiskFiles | None = None,
    ) -> None:
        # Reentrant: methods call one another. SIGTERM waits until it is left.
        self._lock = exits.new_guard()
        self._raises = on_write_error is OnWriteError.RAISE
        self._budget = Budget() if budget is None else budget
        self._files: DiskFiles = DiskFiles() if files is None else files
        self._stand_ins = StandIns(self._files)
        self._replaced = _ReplacedFiles()
        self._count = 0
        self._bytes = 0
        self._skipped: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._tables: set[tuple[str, str]] = set()  # files with lost rows, and the cause

    def write(self, artifact: Artifact) -> None:
        """Write a new file; an existing file stays unchanged, and the new one is lost."""
        directory, name, buffers, tensor_bytes = artifact
        with self._lock:
            if self._budget.most and not self._admits(artifact, size_of(buffers)):
                return
            try:
                if len(name) > LONGEST_NAME or not name.isascii():
                    name = self._stand_ins.name(directory, name)
                self._bytes += self._files.create(directory, name, buffers)
            except OSError as error:
                self._budget.give_back(size_of(buffers) if tensor_bytes else 0)
                self._lose(path_of(artifact), error)
                return
            self._count += 1

    def replace(self, artifact: Artifact) -> None:
        """Write a file in place of an older one."""
        with self._lock:
            try:
                name = self._stand_ins.name(artifact.directory, artifact.name)
                self._files.replace(artifact.directory, name, artifact.buffers)
            except OSError as error:
                self._lose(path_of(artifact), error)
                return
            files, size = self._replaced.count(artifact)
            self._count += files
            self._bytes += size

    def keep(self, artifact: Artifact) -> None:
        """Write a file unless it exists, which is only logged."""
        with self._lock:
            if self._files.exists(artifact.directory, artifact.name):
                _log.warning("%s already exists and is kept", path_of(artifact))
                return
            self.write(artifact)

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file, the header first if its titles differ."""
        directory, _, name = path.rpartition("/")
        with self._lock:
            try:
                is_new = self._files.append(directory, name, rows, header)
            except OSError as error:
                lines = rows.splitlines(keepends=True)
                if len(lines) == 1 or is_foreign(error):
                    self._lose(path, error, is_table=True)
                    return
                for line in lines:  # one by one: rows that still fit are written
                    SyncSink.append(self, path, line, header)
                return
            self._count += is_new
            # a header that is repeated in the middle of a file is not counted: the sink cannot see it
            self._bytes += len(rows) + (len(header) if is_new else 0)

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Make a row and add it to a csv file."""
        del size
        self.append(path, make(), header)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people piece by piece, in place of an older one."""
        taken: list[int] = []
        path = f"{directory}/{name}"
        with self._lock:
            try:
                self._bytes += self._files.stream(directory, name, self._metered(pieces, taken), DUMP_MODE)
            except OSError as error:
                self._budget.give_back(sum(taken))
                self._lose(path, error)
            except _OverLimitError:
                self._budget.give_back(sum(taken))
                self._skip_over_limit(path, sum(taken))
            else:
                self._count += 1

    def _metered(self, pieces: Iterable[Buffer], taken: list[int]) -> Iterator[Buffer]:
        """Yield the pieces and add the size of each to ``taken``, to be given back where the file is lost."""
        for piece in pieces:
            size = size_of((piece,))
            if not self._budget.take(size):
                raise _OverLimitError
            taken.append(size)
            yield piece

    def skip(self, reason: Reason, count: int = 1) -> None:
        """Count tensors that are not written on purpose."""
        with self._lock:
            self._skipped[reason] += count

    @property
    def summary(self) -> Summary:
        """Files written, skipped and lost so far."""
        with self._lock:
            files, size = self._count + self._stand_ins.count, self._bytes + self._stand_ins.bytes
            return Summary(files, size, dict(self._skipped), dict(self._lost))

    def flush(self) -> None:
        """Do nothing: everything taken is on disk."""

    def close(self) -> None:
        """Close files; a later write opens them again."""
        with self._lock:
            self._files.close()

    def _admits(self, artifact: Artifact, size: int) -> bool:
        """Take the bytes of a file from the budget, or skip it."""
        if not artifact.tensor_bytes or self._budget.take(size):
            return True
        # the file alone is skipped: a smaller one behind it may still fit
        self._skip_over_limit(path_of(artifact), size)
        return False

    def _skip_over_limit(self, path: str, size: int) -> None:
        if Reason.OVER_LIMIT not in self._skipped:
            _log.warning(
                "%s of %d bytes is skipped: %d of max_bytes %d are used; "
                "raise max_bytes or dump less; further skipped files are only counted",
                path,
                size,
                self._budget.used,
                self._budget.most,
            )
        self._skipped[Reason.OVER_LIMIT] += 1

    def _lose(self, path: str, error: OSError, *, is_table: bool = False) -> None:
        cause = cause_of(error)  # without the path: a full disk is one cause for all files
        message = f"cannot write {path!r}: {reason(error)}"
        if cause not in self._lost:
            _log.error("%s", message)
        if not is_table or (path, cause) not in self._tables:  # one file, however many rows it lacks
            self._lost[cause] += 1
        if is_table:
            self._tables.add((path, cause))
        if self._raises:
            self._fail(message, error)

    def _fail(self, message: str, error: OSError) -> None:
        raise DumpWriteError(message) from error


def path_of(artifact: Artifact) -> str:
    """Return the path for messages, which has the original name of a file with a stand-in."""
    return f"{artifact.directory}/{artifact.name}"
