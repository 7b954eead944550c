"""The asynchronous sink: the next operator waits neither for large files nor for hashes.

Small files are written before the call returns, since handing them over would cost more; so are rows and
replaced files, which keeps their order. Large files, and rows with the hash of a large tensor, are left to
threads by a queue that is bounded by bytes; a caller that waits for the queue works on it, too. A failure in
the queue never stops the step: it is raised when the sink is flushed, which every step does at its end.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from msdump.errors import DumpWriteError, is_foreign
from msdump.plan import OnWriteError
from msdump.record import Artifact
from msdump.store.write import exits
from msdump.store.write.buffers import size_of
from msdump.store.write.files import DiskFiles
from msdump.store.write.sinks import Budget, Summary, SyncSink, path_of
from msdump.threads import lower_priority

THREAD_NAME: Final = "msdump-writer"
QUEUE_BYTES: Final = 256 << 20
INLINE_BYTES: Final = 128 << 10
"""Files of fewer bytes cost about as much to hand over as to write."""

_HASHED_INLINE: Final = 16 << 10
"""Tensors of fewer bytes cost about as much to hand over as to hash."""


class _Job:
    """A file on its way to the disk, or a row that is made by then."""

    def __init__(
        self,
        path: str,  # for messages
        size: int,  # bytes that it holds in memory
        work: Callable[[Callable[[], DiskFiles]], bytes],
        header: bytes | None = None,  # header line of a row's file; None for a file
        budgeted: int = 0,  # bytes to return to the budget where the file is lost
    ) -> None:
        self.path, self.size, self.header, self.budgeted = path, size, header, budgeted
        self.text = b""  # the row, once it is made
        self.is_done = False  # whether the work has succeeded or failed
        self.error: Exception | None = None  # why it failed
        self._work = work
        self._worker: dict[str, str] = {}
        self._ended = SimpleQueue[None]()  # a latch: its one item is put when the thread has done the work

    def is_taken_by(self, worker: str) -> bool:
        """Return whether "thread" or "caller", the first of them to call, is the one that does the work."""
        return self._worker.setdefault("name", worker) == worker  # one step in C: Ctrl-C cannot divide it

    def run(self, files: Callable[[], DiskFiles], *, in_thread: bool = False) -> None:
        """Do the work, with files of the calling thread; after Ctrl-C another call does it again."""
        try:
            self.text = self._work(files)
        except Exception as error:
            if is_foreign(error) and not in_thread:  # signal handlers run in the main thread alone
                raise
            self.error = error.with_traceback(None)  # a traceback would hold the tensor until the flush
            self.error.__context__ = None
        self._work = lambda _files: b""  # the function holds the tensor
        self.is_done = True
        if in_thread:
            self._ended.put(None)

    def wait(self) -> None:
        """Wait for the thread that does the work; a job that is done is not waited for again."""
        self._ended.get()


class _WriterThreads:
    """Daemon threads that write files, each through its own DiskFiles; the first jobs start them.

    The owner completes all jobs before the process ends. A ThreadPoolExecutor would hang: Ctrl-C in the midst
    of its ``submit`` leaves a semaphore locked that its threads wait for.
    """

    def __init__(self, make_files: Callable[[], DiskFiles], most: int) -> None:
        self._make_files = make_files
        self._most = most
        self._count = 0
        self._queue = SimpleQueue[_Job | None]()
        self._begun: list[threading.Thread] = []
        self._ended = SimpleQueue[None]()  # an item for each thread that has begun and ended

    def submit(self, job: _Job) -> None:
        """Hand a file to the threads; where none can start, a waiting caller writes it."""
        self._queue.put(job)
        if self._count == self._most:
            return
        self._count += 1
        try:
            threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True).start()
        except (KeyError, RuntimeError) as error:  # too many threads, or the interpreter is ending
            own = error.__context__ or error  # behind a KeyError of the library
            if is_foreign(own):
                raise own from None

    def stop(self) -> None:
        """End the threads once they are idle."""
        self._queue.put(None)
        while self._begun:
            self._begun.pop()
            self._ended.get()

    def _serve(self) -> None:
        lower_priority()
        self._begun.append(threading.current_thread())
        opened: list[DiskFiles] = []

        def files() -> DiskFiles:
            if not opened:
                opened.append(self._make_files())
            return opened[0]

        while (job := self._queue.get()) is not None:
            if job.is_taken_by("thread"):
                job.run(files, in_thread=True)
            del job  # it holds the tensor
        self._queue.put(None)  # for the next thread
        for each in opened:
            each.close()
        self._ended.put(None)


class AsyncSink(SyncSink):
    """Leaves large files, and rows of large tensors that are hashed, to threads; any thread may call it.

    Work that was handed over is done even if Ctrl-C interrupts a later call, when the
    interpreter ends, and on SIGTERM if the sink was created in the main thread and the
    process has no handler of its own. The parent of a forked child does the work that
    the child inherits.
    """

    holds_buffers = True

    def __init__(
        self,
        on_write_error: OnWriteError = OnWriteError.RAISE,
        budget: Budget | None = None,
        files: Callable[[], DiskFiles] = DiskFiles,
        *,
        queue_bytes: int = QUEUE_BYTES,
        writer_threads: int = 1,
        inline_bytes: int | None = INLINE_BYTES,
    ) -> None:
        """Write to disk, or to the given files.

        Args:
            on_write_error: Effect of a failure beyond the log line and the count.
            budget: Most bytes of tensor files; None: no limit.
            files: Gives each thread its own way to where the files go.
            queue_bytes: Most bytes that are on their way; a file beyond them waits until there is
                room, one that is larger than all of them goes alone.
            writer_threads: Threads that work on the queue; 0: rows are made before the call returns.
            inline_bytes: Files of fewer bytes are written before the call returns; None: every file is, and
                raises its own failure, and rows alone are left to threads.
        """
        super().__init__(on_write_error, budget, files())
        self._make_files = files
        self._writer_threads = writer_threads
        self._threads = _WriterThreads(files, writer_threads)
        self._jobs: deque[_Job] = deque()  # in the order of the calls, until they are counted
        self._job_bytes = 0
        self._rows = 0  # jobs that are rows: others must come behind them
        self._queue_bytes = queue_bytes
        self._inline_bytes = inline_bytes
        self._failures: list[Exception] = []
        exits.register(self)

    def write(self, artifact: Artifact) -> None:
        """Write a new file now or leave it to a thread; an existing file stays, and the new one is lost."""
        if self._inline_bytes is None or (size := size_of(artifact.buffers)) < self._inline_bytes:
            super().write(artifact)
            return
        directory, name, buffers, tensor_bytes = artifact
        begun: list[bool] = []

        def work(files: Callable[[], DiskFiles]) -> bytes:
            # again only where Ctrl-C came before the file was complete
            if not begun or not files().exists(directory, name):
                begun.append(True)
                files().create(directory, name, buffers)
            return b""

        with self._lock:
            if self._budget.most and not self._admits(artifact, size):
                return
            # a stand-in is chosen here, not in a thread: its line of mapping.csv must stand before the file
            try:
                name = self._stand_ins.name(directory, name)
            except OSError as error:
                self._budget.give_back(size if tensor_bytes else 0)
                self._lose(path_of(artifact), error)
                return
            self._put(_Job(path_of(artifact), size, work, budgeted=size if tensor_bytes else 0))

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Add whole rows to a csv file, behind the rows that are still made."""
        with self._lock:
            if self._rows:
                job = _Job(path, 0, lambda _files: rows, header)
                job.run(lambda: self._files)
                self._rows += 1
                self._jobs.append(job)
            else:
                super().append(path, rows, header)

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Add a row to a csv file once it is made, in its place among all rows."""
        with self._lock:
            if size < _HASHED_INLINE or not self._writer_threads:
                self.append(path, make(), header)
                return
            self._rows += 1
            self._put(_Job(path, size, lambda _files: make(), header))

    @property
    def summary(self) -> Summary:
        """Files written, skipped and lost so far, without the ones on their way."""
        with self._lock:
            self._count_done()
            return super().summary

    def flush(self) -> None:
        """Return when every file is on disk; raise the first failure since the last time."""
        with self._lock:
            self.complete()
            if self._inline_bytes is None:  # a program that writes files at once keeps no threads
                self._end_threads()
            self._raise_failures()

    def close(self) -> None:
        """Flush, end the threads and close files; a later write opens them again."""
        with self._lock:
            self.complete()
            self._end_threads()
            super().close()
            exits.deactivate(self)
            self._raise_failures()

    def _end_threads(self) -> None:
        self._threads.stop()
        self._threads = _WriterThreads(self._make_files, self._writer_threads)

    def complete(self) -> None:
        """Return when every file and row is on disk or counted as lost; raises no error for lost ones."""
        with self._lock:
            self._write_jobs(most_bytes=-1, most_jobs=0)

    def forget(self) -> None:
        """Drop unfinished work in a forked child: the parent does it."""
        self._jobs.clear()
        self._threads = _WriterThreads(self._make_files, self._writer_threads)
        self._job_bytes = self._rows = 0
        self._failures.clear()

    def _put(self, job: _Job) -> None:
        exits.activate(self)
        self._job_bytes += job.size
        self._jobs.append(job)
        self._threads.submit(job)
        self._write_jobs(most_bytes=self._queue_bytes, most_jobs=1)

    def _write_jobs(self, *, most_bytes: int, most_jobs: int) -> None:
        """Do work, or wait for the threads that do, until few enough bytes or jobs are on their way."""
        self._count_done()
        while len(self._jobs) > most_jobs and self._job_bytes > most_bytes:
            job = next((job for job in self._jobs if not job.is_done and job.is_taken_by("caller")), None)
            if job is not None:
                job.run(lambda: self._files)
            elif not self._jobs[0].is_done:
                self._jobs[0].wait()
            self._count_done()

    def _count_done(self) -> None:
        """Count files, and add rows to their files, oldest first, up to the first that is on its way."""
        while self._jobs and self._jobs[0].is_done:
            job = self._jobs.popleft()
            # Ctrl-C after popleft may skip the subtraction: an empty queue resets the counts
            self._job_bytes = self._job_bytes - job.size if self._jobs else 0
            self._rows = self._rows - (job.header is not None) if self._jobs else 0
            error = job.error
            try:
                if error is None and job.header is not None:
                    super().append(job.path, job.text, job.header)
                elif error is None:
                    self._count += 1
                    self._bytes += job.size
                elif job.header is not None:
                    self._failures.append(error)
                else:
                    self._budget.give_back(job.budgeted)
                    if not isinstance(error, OSError) or is_foreign(error):
                        error = OSError(errno.EIO, f"{type(error).__name__}: {error}")
                    self._lose(job.path, error)
            except DumpWriteError as failure:
                self._failures.append(failure)

    def _fail(self, message: str, error: OSError) -> None:
        if self._inline_bytes is None:
            super()._fail(message, error)
        failure = DumpWriteError(message)  # as it was logged
        failure.__cause__ = error
        self._failures.append(failure)

    def _raise_failures(self) -> None:
        """Raise the first failure since the last time, if there were any."""
        if not self._failures:
            return
        failures, self._failures = self._failures, []
        if len(failures) > 1:
            failures[0].add_note(f"the first of {len(failures)} failures")
        raise failures[0]
