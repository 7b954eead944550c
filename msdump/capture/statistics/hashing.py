"""A sink whose rows with hashes are made by several threads.

A hash takes longer than most operators, and one thread. So a thread makes the row of a large tensor beside
the operators that run next. Small tensors would disturb the operators, whose threads wait for each other,
more than they gain: they wait until they are many, then threads and the caller make their rows together.
All rows are written in the order in which they came. What is made is on disk when the sink is flushed, which
every step does at its end.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from msdump.reasons import Reason
from msdump.record import Artifact, Buffer
from msdump.store.write import exits
from msdump.store.write.sinks import Sink, Summary
from msdump.threads import beside, new_lock, thread_count

WAITING_BYTES: Final = 64 << 20
_AT_ONCE: Final = 32 << 10  # bytes that take about as long to hash as to hand over
_LARGE: Final = 4 << 20  # bytes that keep a thread busy for some milliseconds


class _Row:
    """A row on its way.

    Attributes:
        path: Path of its file.
        header: Header line of the file.
        size: Bytes of the tensor that it holds until it is made.
    """

    __slots__ = ("_error", "_future", "_make", "_text", "header", "path", "size")

    def __init__(self, path: str, header: bytes, size: int, make: Callable[[], bytes] | bytes) -> None:
        self.path = path
        self.header = header
        self.size = size
        self._text: bytes | None = make if isinstance(make, bytes) else None
        self._make: Callable[[], bytes] | None = None if isinstance(make, bytes) else make
        self._error: Exception | None = None
        self._future: Future[bytes] | None = None

    def begin(self) -> None:
        """Have a thread make it unless one was asked to, or it is made."""
        if self.waits:
            assert self._make is not None
            self._future = beside(self._make)

    @property
    def waits(self) -> bool:
        """Whether it is not made, and no thread was asked to."""
        return self._make is not None and self._future is None

    @property
    def is_made(self) -> bool:
        """Whether nobody waits for it."""
        future = self._future
        if self._make is None:
            return True
        return future is not None and future.done() and not future.cancelled()

    def help(self) -> None:
        """Make it here unless a thread has begun to."""
        make, future = self._make, self._future
        # an interrupt may come while it is made: it is made again then, since it stays cancelled
        if make is not None and (future is None or future.cancel()):
            try:
                self._text = make()
            except Exception as error:  # noqa: BLE001 - raised when its turn comes
                self._error = error
            self._make = None

    def text(self) -> bytes:
        """Return the row, made here or waited for.

        Raises:
            Exception: What making it raised.
        """
        self.help()
        if self._error is not None:
            raise self._error
        if self._text is None:
            assert self._future is not None
            self._text = self._future.result()
            self._make = self._future = None  # they hold the tensor
        return self._text


class HashingSink:
    """Takes rows that are made later, and hands everything else on at once; any thread may call it."""

    holds_buffers = True

    def __init__(self, sink: Sink, most_bytes: int = WAITING_BYTES) -> None:
        """Hold nothing yet.

        Args:
            sink: Takes files and rows.
            most_bytes: Most bytes of tensors that rows hold which wait for a thread; one that is larger
                than all of them waits alone.
        """
        self._sink = sink
        self._most_bytes = most_bytes
        self._has_threads = thread_count() > 1
        self._lock = new_lock()
        self._rows: deque[_Row] = deque()
        self._waiting_bytes = 0
        exits.register(self)

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Add a whole row to a csv file once it is made, behind those that came before it.

        Args:
            path: Absolute path of the file.
            make: Makes the row, with its line feed, in any thread; what it reads must stay as it is.
            header: Header line with its line feed.
            size: Bytes of the tensor that it holds.

        Raises:
            DumpWriteError: As for ``append``, of this row or one that came before.
        """
        row = _Row(path, header, size, make)
        with self._lock:
            exits.activate(self)
            has_room = self._has_room(size)
            if has_room and (size < _AT_ONCE or not self._has_threads):
                row.size = 0
            self._waiting_bytes += row.size
            self._rows.append(row)
            waiting = [] if has_room else [each for each in self._rows if each.waits]
        if waiting:
            # what a thread has begun is not waited for: it goes on beside the operators
            _make(waiting)
        elif not row.size:
            row.help()
        elif size >= _LARGE:
            row.begin()
        self._write_made()

    def _has_room(self, size: int) -> bool:
        return not self._waiting_bytes or self._waiting_bytes + size <= self._most_bytes

    def _write_made(self) -> None:
        """Write the rows that are made, up to the first that is not."""
        with self._lock:
            while self._rows and self._rows[0].is_made:
                self._write_first()

    def _write_first(self) -> None:
        row = self._rows[0]
        try:
            text = row.text()
        except Exception:
            self._drop_first(row)
            raise
        self._drop_first(row)
        self._sink.append(row.path, text, row.header)

    def _drop_first(self, row: _Row) -> None:
        self._rows.popleft()
        self._waiting_bytes -= row.size

    def _settle(self) -> None:
        """Write all rows; raise the first failure when all were tried."""
        failure: Exception | None = None
        with self._lock:
            _make(self._rows)
            while self._rows:
                try:
                    self._write_first()
                except Exception as error:  # noqa: BLE001 - raised below
                    failure = failure or error
        if failure is not None:
            raise failure

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file, behind those that are still made."""
        with self._lock:
            if self._rows:
                self._rows.append(_Row(path, header, 0, rows))
                self._write_made()
            else:
                self._sink.append(path, rows, header)

    def write(self, artifact: Artifact) -> None:
        """Write a new file."""
        self._sink.write(artifact)

    def replace(self, artifact: Artifact) -> None:
        """Write a file in place of an older one."""
        self._sink.replace(artifact)

    def keep(self, artifact: Artifact) -> None:
        """Write a file unless it exists."""
        self._sink.keep(artifact)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people piece by piece."""
        self._sink.stream(directory, name, pieces)

    def skip(self, reason: Reason, count: int = 1) -> None:
        """Count tensors that are not written on purpose."""
        self._sink.skip(reason, count)

    @property
    def summary(self) -> Summary:
        """What was written, skipped and lost so far; rows on their way do not count yet."""
        return self._sink.summary

    def flush(self) -> None:
        """Return when every row and file is on disk; DumpWriteError as the sink behind tells."""
        try:
            self._settle()
        finally:
            self._sink.flush()

    def complete(self) -> None:
        """Write all rows, and raise nothing about what is lost, which is logged."""
        with contextlib.suppress(Exception):
            self._settle()
        exits.deactivate(self)

    def close(self) -> None:
        """Flush and close the sink behind."""
        try:
            self._settle()
        finally:
            exits.deactivate(self)
            self._sink.close()

    def forget(self) -> None:
        """Drop the rows on their way in a forked child: the parent writes them."""
        self._rows.clear()
        self._waiting_bytes = 0


def _make(rows: Sequence[_Row]) -> None:
    """Make rows, here and in threads; return when each is made or a thread has begun to."""
    for row in rows:
        row.begin()
    for row in reversed(rows):  # threads take the oldest first
        row.help()
