"""Files on their way to disk: a queue that is bounded by bytes, and the threads that empty it.

A thread that waits for the queue writes files too. It can be interrupted at any
moment (Ctrl-C, signal handlers), the threads of the queue cannot. Whatever must
change together is therefore changed by plain stores: only calls, loops and the
start of a function let an interrupt in.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msdump.threads import lower_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msdump.record import Buffer
    from msdump.store.write.files import Files

THREAD_NAME: Final = "msdump-writer"


@dataclass(slots=True, eq=False)
class Job:
    """One file to be written, and its place in the queue.

    Attributes:
        directory: Absolute directory.
        name: File name.
        buffers: The contents, dropped once they are written.
        size: Bytes of the contents.
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
    """A file that could not be written.

    Attributes:
        path: The path that messages name.
        budgeted: Bytes to return to the budget.
        error: Why.
    """

    path: str
    budgeted: int
    error: OSError


class WriterQueue:
    """Writes new files in threads, which start when the first files come.

    The threads are daemons: whoever owns a queue drains it before the process ends.

    Attributes:
        files: Complete files so far.
        bytes: Their bytes.
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
        self._work = threading.Condition(self._lock)
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
            self._work.notify()

    def wait_for_room(self, files: Files) -> None:
        """Return when no more than the bytes of the queue, or one file, are on their way.

        Args:
            files: The caller's own way to the disk, for the files that it writes while it waits.
        """
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
            self._work.notify_all()
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
        except RuntimeError:  # too many threads, or the interpreter is ending: who waits will write
            self._threads.remove(thread)

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
        with self._lock:
            while (job := self._begun.next) is None:
                if crew is not self._crew:
                    return None
                self._work.wait()
            self._begun = job
            return job

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
    except OSError as error:  # it waits for the next flush: a traceback would hold the tensor until then
        error.__context__ = None
        return error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - a thread that ended would leave its file unnoticed
        return OSError(f"{type(error).__name__}: {error}")
    return None
