"""The asynchronous sink: the next operator does not wait for large files.

Small files are written before the call returns, since handing them over would cost more; so are rows and
replaced files, which keeps their order. Large files are left to threads by a queue that is bounded by bytes.
A failure never stops the step: it is raised when the sink is flushed, which every step does at its end.

A thread that waits for the queue writes files too. It can be interrupted at any
moment (Ctrl-C, signal handlers), the threads of the queue cannot. Whatever must
change together is therefore changed by plain stores: only calls, loops and the
start of a function let an interrupt in.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from msdump.errors import DumpWriteError, is_foreign, passing_over
from msdump.plan import OnWriteError
from msdump.store.write import exits
from msdump.store.write.buffers import size_of
from msdump.store.write.files import DiskFiles
from msdump.store.write.sinks import StandIns, Summary, SyncSink, path_of
from msdump.threads import lower_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from msdump.record import Artifact, Buffer
    from msdump.store.write.files import Files
    from msdump.store.write.sinks import Budget


THREAD_NAME: Final = "msdump-writer"


@dataclass(slots=True, eq=False)
class Job:
    """One file to be written, and its place in the queue.

    Attributes:
        buffers: The contents, dropped once they are written.
        path: The path that messages name.
        budgeted: Bytes to return to the budget where the file is lost.
        number: Place in the queue from 1, 0 until the job is taken.
        total: Bytes taken so far, this file's included.
        next: The job behind it.
    """

    directory: str = ""
    name: str = ""
    buffers: Sequence[Buffer] = field(default=(), repr=False)
    size: int = 0
    path: str = ""
    budgeted: int = 0
    number: int = 0
    total: int = 0
    next: Job | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A file that could not be written."""

    path: str
    budgeted: int
    error: OSError


class WriterQueue:
    """Writes new files in threads, which start when the first files come.

    The threads are daemons: whoever owns a queue drains it before the process ends.

    Attributes:
        files: Complete files so far.
        failures: Files that could not be written, oldest first.
    """

    def __init__(self, make_files: Callable[[], Files], most_bytes: int, most_threads: int) -> None:
        """Start no thread yet.

        Args:
            make_files: Gives each thread a way of its own to the disk.
            most_bytes: Bytes that may be on their way; one larger file goes alone.
            most_threads: Threads that write, from 1.
        """
        self.files = 0
        self.bytes = 0
        self.failures: tuple[WriteFailure, ...] = ()
        self._make_files = make_files
        self._most_bytes = most_bytes
        self._most_threads = most_threads
        self._threads: list[threading.Thread] = []
        self._crew = object()  # threads of an older crew end
        # Reentrant: a program's own signal handler may look at the queue. The handler of
        # ``exits`` never runs above a frame that holds it: that frame holds the guard of the sink, too.
        self._lock = threading.RLock()
        # ``notify`` of a condition swallows a handler's RuntimeError; an item too many wakes a thread in vain
        self._work = SimpleQueue[None]()
        self._bells: tuple[threading.Lock, ...] = ()  # one to be released for each thread that waits
        self._last = self._begun = Job()
        self._in_hand: Job | None = None
        self._done_jobs = 0
        self._done_bytes = 0

    def take(self, job: Job) -> None:
        """Add a job to the queue at once, however full it is; a job that is in the queue stays in its place.

        The buffers must stay as they are until the file is written.
        """
        with self._lock:
            if job.number:
                return
            self._link(job)
            if len(self._threads) < self._most_threads:
                self._start_thread()
            self._work.put(None)

    def wait_for_room(self, files: Files) -> None:
        """Return when no more than the bytes of the queue, or one file, are on their way."""
        while self._helps(self._is_over_full, files):
            pass

    def drain(self, files: Files) -> None:
        """Return when everything taken is on disk or a failure; ``files`` as in ``wait_for_room``."""
        while self._helps(self._is_busy, files):
            pass

    def stop(self, files: Files) -> None:
        """Drain and end the threads; a later job starts them again."""
        self.drain(files)
        with self._lock:
            threads, self._threads = self._threads, []
            self._crew = object()
            self._work.put(None)
        for thread in threads:
            if thread.is_alive():  # not where an interrupt came before its start
                thread.join()

    def forget_failure(self) -> None:
        """Remove the oldest failure, which the caller has counted."""
        with self._lock:
            self.failures = self.failures[1:]

    def _is_over_full(self) -> bool:
        waiting = self._last.total - self._done_bytes
        return waiting > self._most_bytes and self._last.number - self._done_jobs > 1

    def _is_busy(self) -> bool:
        return self._last.number > self._done_jobs

    def _link(self, job: Job) -> None:
        last = self._last
        job.total = last.total + job.size
        # No call separates the next three lines: no interrupt comes between them.
        job.number = last.number + 1
        last.next = job
        self._last = job

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, args=(self._crew,), name=THREAD_NAME, daemon=True)
        self._threads.append(thread)
        try:
            thread.start()
        except (KeyError, RuntimeError) as error:
            own = error.__context__ or error  # behind a KeyError of the library, where the thread has started
            if is_foreign(own):
                raise own from None
            self._threads.remove(thread)  # too many, or the interpreter is ending: who waits will write

    def _helps(self, must_wait: Callable[[], bool], files: Files) -> bool:
        """Write the next file in the calling thread, or wait for the threads where there is none.

        Returns:
            False where ``must_wait`` says that there is nothing more to wait for.
        """
        bell = threading.Lock()
        bell.acquire()
        with self._lock:
            if not must_wait():
                return False
            is_retry, job = self._in_hand is not None, self._in_hand or self._begun.next
            if job is None:
                self._bells += (bell,)
            elif not is_retry:
                self._begun = self._in_hand = job
        if job is None:
            bell.acquire()
        elif is_retry and files.exists(job.directory, job.name):
            self._finish(job, None)  # it was complete when the interrupt came
        else:
            self._finish(job, _write(files, job))
        return True

    def _serve(self, crew: object) -> None:
        lower_priority()
        files = self._make_files()
        try:
            while self._serve_one(files, crew):
                pass
        finally:
            files.close()

    def _serve_one(self, files: Files, crew: object) -> bool:
        job = self._begin(crew)
        if job is None:
            return False
        error = _write(files, job)
        job.buffers = ()
        self._finish(job, error)
        return True

    def _begin(self, crew: object) -> Job | None:
        while True:
            with self._lock:
                if (job := self._begun.next) is not None:
                    self._begun = job
                    return job
                if crew is not self._crew:
                    self._work.put(None)  # for the next one
                    return None
            self._work.get()

    def _finish(self, job: Job, error: OSError | None) -> None:
        failure = () if error is None else (WriteFailure(job.path, job.budgeted, error),)
        is_written = error is None
        with self._lock:
            # No call in the next eight lines: no interrupt comes between them.
            self.failures += failure
            self.files += is_written
            self.bytes += job.size * is_written
            self._done_jobs += 1
            self._done_bytes += job.size
            self._in_hand = None if self._in_hand is job else self._in_hand
            job.buffers = ()
            bells, self._bells = self._bells, ()
            for bell in bells:
                bell.release()


def _write(files: Files, job: Job) -> OSError | None:
    """Write a file and return why that failed; the error keeps no frame, and so no buffer, alive."""
    try:
        files.create(job.directory, job.name, job.buffers)
    except Exception as error:
        # no handler runs in a thread of the queue, and one that ended would leave its file unnoticed
        if is_foreign(error) and threading.current_thread().name != THREAD_NAME:
            raise
        if is_foreign(error) or not isinstance(error, OSError):
            return OSError(errno.EIO, f"{type(error).__name__}: {error}")
        error.__context__ = None  # it waits for the next flush: a traceback would hold the tensor until then
        return error.with_traceback(None)
    return None


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
            on_write_error: Effect of a failure beyond the log line and the count.
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
        exits.register(self)

    def write(self, artifact: Artifact) -> None:
        """Write a new file now or leave it to a thread; one that exists stays and the new one is lost."""
        size = size_of(artifact.buffers)
        with self._lock:
            self._catch_up()
            if self._budget.most and not self._admits(artifact, size):
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
        """Files written, skipped and lost so far, without the ones on their way."""
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
        """Flush, end the threads and close files; a later write opens them again."""
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
        except Exception as error:
            if not is_foreign(error):  # behind Ctrl-C and the like the action stays unfinished
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
        with passing_over(OSError):
            if self._files.exists(artifact.directory, self._name(artifact)):
                self._count += 1
                self._bytes += size
                return
        self._create(artifact, size)

    def _append_again(self, path: str, rows: bytes, header: bytes, append: Callable[[], None]) -> None:
        with passing_over(OSError):
            contents = self._files.read(*os.path.split(path))
            # equal rows at the end are taken for the ones of the interrupted call
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
        told = DumpWriteError(message)  # as it was logged
        if count > 1:
            told.add_note(f"the first of {count} failures")
        raise told from error
