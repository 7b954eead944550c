"""The asynchronous sink: the next operator does not wait for large files.

Small files are written before the call returns, since handing them over would cost more; so are rows and
replaced files, which keeps their order. Large files are left to threads by a queue that is bounded by bytes;
a caller that waits for the queue writes files, too. A failure never stops the step: it is raised when the
sink is flushed, which every step does at its end.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from msdump.errors import DumpWriteError, is_foreign
from msdump.plan import OnWriteError
from msdump.store.write import exits
from msdump.store.write.buffers import size_of
from msdump.store.write.files import DiskFiles
from msdump.store.write.sinks import Summary, SyncSink, path_of
from msdump.threads import lower_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msdump.record import Artifact, Buffer
    from msdump.store.write.sinks import Budget


THREAD_NAME: Final = "msdump-writer"
QUEUE_BYTES: Final = 256 << 20
INLINE_BYTES: Final = 128 << 10
"""Files of fewer bytes cost about as much to hand over as to write."""


class _Job:
    """A file on its way to the disk.

    Attributes:
        size: Bytes of the file.
        path: Path for messages.
        budgeted: Bytes to return to the budget where the file is lost.
        is_done: Whether the file was written or lost.
        error: Cause of the loss.
    """

    def __init__(self, artifact: Artifact, name: str, size: int) -> None:
        self.size = size
        self.path = path_of(artifact)
        self.budgeted = size if artifact.tensor_bytes else 0
        self.is_done = False
        self.error: OSError | None = None
        self._directory, self._name = artifact.directory, name
        self._buffers: Sequence[Buffer] = artifact.buffers
        self._is_begun = False
        self._writer: dict[str, str] = {}
        self._ended = SimpleQueue[None]()  # a latch: its one item is put when the thread has written the file

    def is_taken_by(self, writer: str) -> bool:
        """Return whether "thread" or "caller", the first of them to call, is the one that writes the file."""
        return self._writer.setdefault("name", writer) == writer  # one step in C: Ctrl-C cannot divide it

    def write(self, files: DiskFiles) -> None:
        """Write the file, unless an earlier call completed it before Ctrl-C ended the call."""
        try:
            if not self._is_begun or not files.exists(self._directory, self._name):
                self._is_begun = True
                files.create(self._directory, self._name, self._buffers)
        except OSError as error:
            if is_foreign(error):
                raise
            self.error = error.with_traceback(None)  # a traceback would hold the tensor until the flush
            self.error.__context__ = None
        self._buffers = ()
        self.is_done = True

    def write_in_thread(self, make_files: Callable[[], DiskFiles]) -> None:
        """Write the file in a thread of the queue, which keeps no exception to itself."""
        try:
            self.write(make_files())
        except Exception as error:  # noqa: BLE001 - whatever it is, the file must count as lost
            self.error = OSError(errno.EIO, f"{type(error).__name__}: {error}")
            self._buffers = ()
            self.is_done = True
        self._ended.put(None)

    def wait(self) -> None:
        """Wait for the thread that writes the file; a job that is done is not waited for again."""
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
        while (job := self._queue.get()) is not None:
            if job.is_taken_by("thread"):
                job.write_in_thread(lambda: self._files(opened))
            del job  # it holds the tensor
        self._queue.put(None)  # for the next thread
        for files in opened:
            files.close()
        self._ended.put(None)

    def _files(self, opened: list[DiskFiles]) -> DiskFiles:
        """Return the files of a thread, made for its first job."""
        if not opened:
            opened.append(self._make_files())
        return opened[0]


class AsyncSink(SyncSink):
    """Writes large files in threads; any thread may call it.

    Files that were handed over are written even if Ctrl-C interrupts a later call, when the
    interpreter ends, and on SIGTERM if the sink was created in the main thread and the
    process has no handler of its own. The parent of a forked child writes the files that
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
        self._writer_threads = writer_threads
        self._threads = _WriterThreads(files, writer_threads)
        self._jobs: deque[_Job] = deque()  # in the order of the calls, until they are counted
        self._job_bytes = 0
        self._queue_bytes = queue_bytes
        self._inline_bytes = inline_bytes
        self._failures: list[tuple[str, OSError]] = []
        exits.register(self)

    def write(self, artifact: Artifact) -> None:
        """Write a new file now or leave it to a thread; an existing file stays, and the new one is lost."""
        size = size_of(artifact.buffers)
        if size < self._inline_bytes:
            super().write(artifact)
            return
        with self._lock:
            if self._budget.most and not self._admits(artifact, size):
                return
            # a stand-in is chosen here, not in a thread: its line of mapping.csv must stand before the file
            try:
                job = _Job(artifact, self._stand_ins.name(artifact.directory, artifact.name), size)
            except OSError as error:
                self._budget.give_back(size if artifact.tensor_bytes else 0)
                self._lose(path_of(artifact), error)
                return
            exits.activate(self)
            self._job_bytes += size
            self._jobs.append(job)
            self._threads.submit(job)
            self._write_jobs(most_bytes=self._queue_bytes, most_jobs=1)

    @property
    def summary(self) -> Summary:
        """Files written, skipped and lost so far, without the ones on their way."""
        with self._lock:
            self._count_done()
            return super().summary

    def flush(self) -> None:
        """Return when every file is on disk; DumpWriteError for all failures since the last time."""
        with self._lock:
            self.complete()
            self._raise_failures()

    def close(self) -> None:
        """Flush, end the threads and close files; a later write opens them again."""
        with self._lock:
            self.complete()
            self._threads.stop()
            self._threads = _WriterThreads(self._make_files, self._writer_threads)
            super().close()
            exits.deactivate(self)
            self._raise_failures()

    def complete(self) -> None:
        """Return when every file is on disk or counted as lost; raises no error for lost files."""
        with self._lock:
            self._write_jobs(most_bytes=-1, most_jobs=0)

    def forget(self) -> None:
        """Drop unwritten files in a forked child: the parent writes them."""
        self._jobs.clear()
        self._threads = _WriterThreads(self._make_files, self._writer_threads)
        self._job_bytes = 0
        self._failures.clear()

    def _write_jobs(self, *, most_bytes: int, most_jobs: int) -> None:
        """Write files, or wait for the threads that do, until few enough bytes or jobs are on their way."""
        self._count_done()
        while len(self._jobs) > most_jobs and self._job_bytes > most_bytes:
            job = next((job for job in self._jobs if not job.is_done and job.is_taken_by("caller")), None)
            if job is not None:
                job.write(self._files)
            elif not self._jobs[0].is_done:
                self._jobs[0].wait()
            self._count_done()

    def _count_done(self) -> None:
        """Count the files that were written or lost, oldest first, up to the first that is on its way."""
        while self._jobs and self._jobs[0].is_done:
            job = self._jobs.popleft()
            # Ctrl-C after popleft may skip the subtraction: an empty queue resets the count
            self._job_bytes = self._job_bytes - job.size if self._jobs else 0
            if job.error is None:
                self._count += 1
                self._bytes += job.size
            else:
                self._budget.give_back(job.budgeted)
                self._lose(job.path, job.error)

    def _fail(self, message: str, error: OSError) -> None:
        self._failures.append((message, error))

    def _raise_failures(self) -> None:
        """Raise a DumpWriteError for the failures since the last time, if there were any."""
        if not self._failures:
            return
        failures, self._failures = self._failures, []
        message, error = failures[0]
        failure = DumpWriteError(message)  # as it was logged
        if len(failures) > 1:
            failure.add_note(f"the first of {len(failures)} failures")
        raise failure from error
