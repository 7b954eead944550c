"""A sink whose rows with hashes are made together, by several threads.

A hash takes longer than most operators, but several at once take little longer than one (``digests``). So
tensors wait until they are many; a thread then makes their rows beside the operators that run next, or the
caller where no more may wait. All rows are written in the order in which they came. What is made is on disk
when the sink is flushed, which every step does at its end.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final

from msdump.reasons import Reason
from msdump.record import Artifact, Buffer
from msdump.statistics.digests import Message, find_md5
from msdump.store.write import exits
from msdump.store.write.sinks import Sink, Summary
from msdump.threads import beside, shares, thread_count

WAITING_BYTES: Final = 64 << 20
_MOST_ROWS: Final = 256  # that wait for one another
_WORTH_A_THREAD: Final = 1 << 20  # bytes that take several times as long to hash as to hand over


class _Row:
    """A row on its way.

    Attributes:
        path: Path of its file.
        header: Header line of the file.
        size: Bytes of the tensor that it holds until it is made.
        message: What it finds the MD5 of.
        text: The row, once it is made.
        error: What making it raised.
    """

    __slots__ = ("_make", "error", "header", "message", "path", "size", "text")

    def __init__(
        self, path: str, header: bytes, size: int, make: Callable[[], bytes], message: Message | None = None
    ) -> None:
        self.path = path
        self.header = header
        self.size = size
        self.message = message
        self.text = b""
        self.error: Exception | None = None
        self._make: Callable[[], bytes] | None = make

    @property
    def is_made(self) -> bool:
        """Whether nobody waits for it."""
        return self._make is None

    def make(self) -> None:
        """Make it unless it is made."""
        if self._make is None:
            return
        try:
            self.text = self._make()
        except Exception as error:  # noqa: BLE001 - raised when its turn comes
            self.error = error
        self._make = self.message = None  # they hold the tensor

    def joins(self, first: _Row) -> bool:
        """Tell whether it can be written together with a row before it."""
        return self._make is None and self.error is None and self.path == first.path


class _Batch:
    """Rows that are made together, by the caller or by a thread."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = rows
        self._future: Future[None] | None = None

    def begin(self) -> None:
        """Have a thread make them."""
        self._future = beside(self._make)

    def help(self) -> None:
        """Make them here unless a thread has begun to."""
        # an interrupt may come meanwhile: what is left is made again then, since it stays cancelled
        if self._future is None or self._future.cancel():
            self._make()

    def wait(self) -> None:
        """Return when a thread that has begun to make them is done."""
        if self._future is not None and not self._future.cancelled():
            self._future.result()

    @property
    def is_made(self) -> bool:
        """Whether nobody waits for them."""
        return all(row.is_made for row in self._rows)

    def _make(self) -> None:
        with contextlib.suppress(Exception):  # then each row tells by itself
            find_md5([row.message for row in self._rows if row.message is not None])
        for row in self._rows:
            row.make()


class HashingSink:
    """Takes rows that are made later, and hands everything else on at once; any thread may call it."""

    holds_buffers = True

    def __init__(self, sink: Sink, most_bytes: int = WAITING_BYTES) -> None:
        """Hold nothing yet.

        Args:
            sink: Takes files and rows.
            most_bytes: Most bytes of tensors that rows hold which are not made; one that is larger than all
                of them waits alone. Half as many are made together.
        """
        self._sink = sink
        self._most_bytes = most_bytes
        self._has_threads = thread_count() > 1
        self._lock = exits.new_guard()
        self._rows: deque[_Row] = deque()
        self._held_bytes = 0
        self._waiting: list[_Row] = []  # those of them that are in no batch yet
        self._waiting_bytes = 0
        self._batches: deque[_Batch] = deque()
        exits.register(self)

    def append_later(
        self, path: str, make: Callable[[], bytes], header: bytes, size: int, message: Message | None = None
    ) -> None:
        """Add a whole row to a csv file once it is made, behind those that came before it.

        Args:
            path: Absolute path of the file.
            make: Makes the row, with its line feed, in any thread; what it reads must stay as it is.
            header: Header line with its line feed.
            size: Bytes of the tensor that it holds.
            message: What it finds the MD5 of: that is found before, with those of other rows.

        Raises:
            DumpWriteError: As for ``append``, of this row or one that came before.
        """
        row = _Row(path, header, size, make, message)
        mine: Sequence[_Batch] = ()
        with self._lock:
            exits.activate(self)
            self._rows.append(row)
            self._waiting.append(row)
            self._waiting_bytes += size
            self._held_bytes += size
            is_full = self._held_bytes > max(size, self._most_bytes)
            are_enough = 2 * self._waiting_bytes >= self._most_bytes or len(self._waiting) >= _MOST_ROWS
            if is_full or (are_enough and not self._has_threads):
                mine = self._shared()
            elif are_enough:
                self._begin(self._taken())
        for batch in mine:
            # what a thread has begun is not waited for: it goes on beside the operators
            batch.help()
        self._write_made()

    def _taken(self) -> list[_Row]:
        """Return the rows that wait, which then belong to a batch."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting

    def _begin(self, rows: Sequence[_Row]) -> None:
        batch = _Batch(rows)
        self._batches.append(batch)
        batch.begin()

    def _shared(self) -> Sequence[_Batch]:
        """Share the rows that wait among the caller and threads; return what is not made, the oldest last."""
        mine, *others = shares(self._taken(), lambda row: row.size, _WORTH_A_THREAD)
        for rows in others:
            self._begin(rows)
        self._batches.append(_Batch(mine))
        return [*reversed(self._batches)]

    def _write_made(self) -> None:
        """Write the rows that are made, up to the first that is not."""
        with self._lock:
            while self._batches and self._batches[0].is_made:
                self._batches.popleft()
            while self._rows and self._rows[0].is_made:
                self._write_first()

    def _write_first(self) -> None:
        """Write the first row, and those behind it that are made and of the same file.

        Raises:
            Exception: What making the first one raised, or writing them.
        """
        rows = [self._rows.popleft()]
        while rows[0].error is None and self._rows and self._rows[0].joins(rows[0]):
            rows.append(self._rows.popleft())
        self._held_bytes -= sum(row.size for row in rows)
        if rows[0].error is not None:
            raise rows[0].error
        self._sink.append(rows[0].path, b"".join([row.text for row in rows]), rows[0].header)

    def _settle(self) -> None:
        """Write all rows; raise the first failure when all were tried."""
        failure: Exception | None = None
        with self._lock:
            batches = self._shared()
            for batch in batches:
                batch.help()
            for batch in batches:
                batch.wait()
            self._batches.clear()
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
                row = _Row(path, header, 0, lambda: rows)
                row.make()
                self._rows.append(row)
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
        self._batches.clear()
        self._taken()
        self._held_bytes = 0
