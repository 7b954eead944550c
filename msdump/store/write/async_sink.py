"""The asynchronous sink: the next operator does not wait for large files.

Small files are written before the call returns, since handing them over would cost more; so are rows and
replaced files, which keeps their order. Large files are left to threads, unless the operators' own threads
have all cores: sessions then write what they can (``session_files``), several files at once. A failure never
stops the step: it is raised when the sink is flushed, which every step does at its end.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from msdump.errors import DumpWriteError
from msdump.plan import OnWriteError
from msdump.store.write import exits
from msdump.store.write.buffers import size_of
from msdump.store.write.files import DiskFiles
from msdump.store.write.sinks import Summary, SyncSink, path_of
from msdump.store.write.standins import StandIns
from msdump.store.write.writer_queue import Job, WriterQueue
from msdump.threads import cores, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from msdump.record import Artifact, Buffer
    from msdump.store.write.files import Files
    from msdump.store.write.sinks import Budget

QUEUE_BYTES: Final = 256 << 20
INLINE_BYTES: Final = 128 << 10
"""Files of fewer bytes cost about as much to hand over as to write."""


class AsyncSink(SyncSink):
    """Writes large files in threads; any thread may call it.

    Whatever was handed over is written also where a call was interrupted by Ctrl-C,
    where the interpreter ends and, if the sink came to life in the main thread and
    the process has no handler of its own, where SIGTERM arrives. What a forked child
    inherits is written by its parent.
    """

    holds_buffers = True

    def __init__(
        self,
        on_write_error: OnWriteError = OnWriteError.RAISE,
        budget: Budget | None = None,
        files: Callable[[], Files] = DiskFiles,
        *,
        queue_bytes: int = QUEUE_BYTES,
        writer_threads: int = 1,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        """Write to disk, or to the given files.

        Args:
            on_write_error: What a failure does beyond the log line and the count.
            budget: Most bytes of tensor files; None: no limit.
            files: Gives each thread its own way to where the files go.
            queue_bytes: Most bytes that are on their way; a file beyond them waits until there is
                room, one that is larger than all of them goes alone.
            writer_threads: Threads that write, from 1.
            inline_bytes: Files of fewer bytes are written before the call returns.
        """
        super().__init__(on_write_error, budget, files())
        self._make_files = files
        self._make_queue = partial(WriterQueue, files, queue_bytes, writer_threads)
        self._queue = self._make_queue()
        self._inline_bytes = inline_bytes
        self._unfinished: tuple[Callable[[], None], int] | None = None
        self._failures = 0
        self._first_failure: tuple[str, OSError] | None = None
        # the operators have all cores: a thread that writes beside them would take one away in turns
        self.is_open_to_sessions = writer_threads == 1 and thread_count() >= cores()
        exits.register(self)

    def write(self, artifact: Artifact) -> None:
        """Write a new file now or leave it to a thread; one that exists stays and the new one is lost."""
        size = size_of(artifact.buffers)
        with self._lock:
            self._catch_up()
            if not self._admits(artifact, size):
                return
            if size < self._inline_bytes:
                self._do(partial(self._create, artifact, size), partial(self._create_again, artifact, size))
                return
            job = self._job(artifact, size)
            if job is not None:
                self._hand_over(job)

    def replace(self, artifact: Artifact) -> None:
        """Write a file in place of an older one before the call returns."""
        with self._lock:
            self._catch_up()
            replace = partial(super().replace, artifact)
            self._do(replace, replace)

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people piece by piece before the call returns."""
        with self._lock:
            self._catch_up()
            super().stream(directory, name, pieces)

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file before the call returns, the header first where it is new."""
        with self._lock:
            self._catch_up()
            append = partial(super().append, path, rows, header)
            self._do(append, partial(self._append_again, path, rows, header, append))

    @property
    def summary(self) -> Summary:
        """What was written, skipped and lost so far; what is on its way does not count yet."""
        with self._lock:
            self._catch_up()
            done = super().summary
            queue = self._queue
            return Summary(done.files + queue.files, done.bytes + queue.bytes, done.skipped, done.lost)

    def flush(self) -> None:
        """Return when every file is on disk; DumpWriteError for all failures since the last time."""
        with self._lock:
            self.complete()
            self._raise_failures()

    def close(self) -> None:
        """Flush, end the threads and release what is held open; a later write opens it again."""
        with self._lock:
            self.complete()
            self._queue.stop(self._files)
            super().close()
            exits.deactivate(self)
            self._raise_failures()

    def complete(self) -> None:
        """Return when everything taken is on disk or counted as lost; raises nothing about the latter."""
        with self._lock:
            self._catch_up()
            self._queue.drain(self._files)
            self._catch_up()

    def forget(self) -> None:
        """Drop unwritten files in a forked child: the parent writes them."""
        self._count += self._queue.files
        self._bytes += self._queue.bytes
        self._queue = self._make_queue()
        self._unfinished = self._first_failure = None
        self._failures = 0
        self._renew_files()

    def _do(self, action: Callable[[], None], retry: Callable[[], None]) -> None:
        """Call ``action``; where an interrupt ends it before its bytes count, the next call does it again."""
        self._unfinished = retry, self._bytes
        try:
            action()
        except Exception:  # not BaseException: behind Ctrl-C the action stays unfinished
            self._unfinished = None
            raise
        self._unfinished = None

    def _hand_over(self, job: Job) -> None:
        exits.activate(self)
        take = partial(self._queue.take, job)
        self._do(take, take)
        self._queue.wait_for_room(self._files)

    def _job(self, artifact: Artifact, size: int) -> Job | None:
        budgeted = size if artifact.tensor_bytes else 0
        # a stand-in is chosen here, under the lock of the sink, not in a thread of the queue: its line of
        # mapping.csv must stand before the file
        try:
            name = self._name(artifact)
        except OSError as error:
            self._budget.give_back(budgeted)
            self._lose(path_of(artifact), error)
            return None
        return Job(artifact.directory, name, artifact.buffers, size, path_of(artifact), budgeted)

    def _catch_up(self) -> None:
        """Finish an interrupted call and count the files that the threads could not write."""
        if self._unfinished is not None:
            retry, bytes_before = self._unfinished
            self._renew_files()  # an interrupt may have left a torn row, which opening cuts off
            if bytes_before == self._bytes:
                self._do(retry, retry)
            self._unfinished = None
        while self._queue.failures:
            failure = self._queue.failures[0]
            self._budget.give_back(failure.budgeted)
            self._lose(failure.path, failure.error)
            self._queue.forget_failure()

    def _create_again(self, artifact: Artifact, size: int) -> None:
        with contextlib.suppress(OSError):
            if self._files.exists(artifact.directory, self._name(artifact)):
                self._count += 1
                self._bytes += size
                return
        self._create(artifact, size)

    def _append_again(self, path: str, rows: bytes, header: bytes, append: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            contents = self._files.read(*os.path.split(path))
            # equal rows at the end are taken for those that the interrupted call has written
            if (b"\n" + contents).endswith(b"\n" + rows):
                is_new = contents == header + rows
                self._count += is_new
                self._bytes += len(contents if is_new else rows)
                return
        append()

    def _renew_files(self) -> None:
        self._files.close()
        self._files = self._make_files()
        self._stand_ins = StandIns(self._files, self._stand_ins.count, self._stand_ins.bytes)

    def _fail(self, message: str, error: OSError) -> None:
        self._first_failure = self._first_failure or (message, error)
        self._failures += 1

    def _raise_failures(self) -> None:
        """Raise a DumpWriteError for the failures since the last time, if there were any."""
        if self._first_failure is None:
            return
        (message, error), count = self._first_failure, self._failures
        self._first_failure, self._failures = None, 0
        more = f" (the first of {count} failures)" if count > 1 else ""
        raise DumpWriteError(f"{message}{more}") from error
