"""The asynchronous sink: files that wait, how many, and their way to the disk."""

import contextlib
import random
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from msdump.errors import DumpWriteError
from msdump.plan import OnWriteError
from msdump.record import Artifact
from msdump.store.write import AsyncSink, DiskFiles, async_sink

LARGE = 200_000


@dataclass
class Gate:
    """Files on disk that cannot be written before the gate opens."""

    opened: threading.Event = field(default_factory=threading.Event)  # set to let files through
    # released for each file that comes to the gate
    knocked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    threads: list[threading.Thread] = field(default_factory=list)  # the threads that they come in

    def files(self):
        """Return files behind the gate."""
        return _GatedFiles(self)

    def wait(self):
        """Wait until one more file has come to the gate."""
        assert self.knocked.acquire(timeout=60)


class _GatedFiles(DiskFiles):
    def __init__(self, gate):
        super().__init__()
        self._gate = gate

    def create(self, directory, name, buffers):
        self._gate.threads.append(threading.current_thread())
        self._gate.knocked.release()
        self._gate.opened.wait()
        super().create(directory, name, buffers)


@pytest.fixture
def gate():
    """Give a closed gate, which opens at the end of the test whatever happens."""
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def make():
    """Return a function that makes sinks, which are closed at the end of the test."""
    sinks = []

    def make(*arguments, **options):
        sinks.append(AsyncSink(*arguments, **options))
        return sinks[-1]

    yield make
    for sink in sinks:
        with contextlib.suppress(DumpWriteError):
            sink.close()


def tensor(folder, name, size=LARGE):
    """Return a tensor file of some bytes."""
    return Artifact(str(folder), name, (b"head", memoryview(bytes(size))), size)


def sizes(folder):
    """Return the sizes of the files in a directory by name."""
    return {path.name: path.stat().st_size for path in Path(folder).iterdir()}


def living():
    """Return the writer threads that live."""
    return {t for t in threading.enumerate() if t.name.startswith(async_sink.THREAD_NAME) and t.is_alive()}


@pytest.fixture
def writers():
    """Return a function that gives the living writer threads, but for the ones that other tests left."""
    others = living()
    return lambda: living() - others


class TestHandingOver:
    """When a call returns."""

    def test_large_files_do_not_hold_up_the_caller(self, make, gate, tmp_path):
        """Large files are taken at once and all of them are complete when the sink is flushed."""
        sink = make(files=gate.files)

        for number in range(5):
            sink.write(tensor(tmp_path, f"{number}.npy"))
        before = sizes(tmp_path), sink.summary.files
        gate.opened.set()
        sink.flush()

        assert ({}, 0) == before
        assert {f"{number}.npy": LARGE + 4 for number in range(5)} == sizes(tmp_path)
        assert (sink.summary.files, sink.summary.bytes) == (5, 5 * (LARGE + 4))

    def test_small_files_are_complete_at_once(self, writers, make, tmp_path):
        """A file below the threshold is on disk when the call returns, in no other thread."""
        sink = make(inline_bytes=100)

        sink.write(tensor(tmp_path, "a.npy", 95))

        assert {"a.npy": 99} == sizes(tmp_path)
        assert set() == writers()

    def test_buffers_are_released_once_written(self, make, tmp_path):
        """No memory of a tensor is kept after the flush, neither of a complete nor of a lost file."""
        sink = make(OnWriteError.WARN)
        alive = []

        for name in ("a.npy", "b.npy", "a.npy"):
            array = np.zeros(LARGE)
            alive.append(weakref.ref(array))
            sink.write(Artifact(str(tmp_path), name, (memoryview(array),), LARGE))
            del array
        sink.flush()

        assert sink.summary.lost == {"File exists": 1}
        assert [None, None, None] == [reference() for reference in alive]


class TestBound:
    """How much may wait."""

    def test_a_full_queue_holds_up_the_caller(self, make, gate, tmp_path):
        """Beyond its bytes a queue keeps the caller, who writes files himself until there is room."""
        sink = make(files=gate.files, queue_bytes=3 * (LARGE + 4))
        for number in range(3):
            sink.write(tensor(tmp_path, f"{number}.npy"))
        gate.wait()

        caller = threading.Thread(target=sink.write, args=(tensor(tmp_path, "3.npy"),))
        caller.start()
        gate.wait()

        assert [caller] == [
            thread for thread in gate.threads if not thread.name.startswith(async_sink.THREAD_NAME)
        ]
        assert caller.is_alive()
        gate.opened.set()
        caller.join()
        sink.flush()
        assert 4 == len(sizes(tmp_path))

    def test_peak_memory(self, tmp_path):
        """A run that captures faster than it writes needs no more than the queue and 64 MiB."""
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True
        )

        extra_mib = float(done.stdout)
        assert extra_mib <= 32 + 64


MEMORY = """
import os, resource, sys
from msdump.record import Artifact
from msdump.store.write.async_sink import AsyncSink
from msdump.store.write.files import DiskFiles

class Slow(DiskFiles):
    def create(self, directory, name, buffers):
        for _ in range(4):
            super().create(directory, name, buffers)
            os.unlink(f"{directory}/{name}")

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

sink = AsyncSink(files=Slow, queue_bytes=32 << 20)
before = peak()
for number in range(100):
    sink.write(Artifact(sys.argv[1], f"{number}.npy", (b"x" * (4 << 20),), 4 << 20))
sink.close()
print(peak() - before)
"""


class TestFailures:
    """Reports of failures."""

    def test_failures_are_told_by_the_flush(self, make, tmp_path, caplog):
        """Writing goes on after failures; the flush names the first and counts them, once."""
        sink = make(inline_bytes=1000)
        for number in range(2):
            sink.write(tensor(tmp_path, f"{number}.npy"))
        sink.flush()

        for name in ("0.npy", "1.npy", "2.npy"):
            sink.write(tensor(tmp_path, name))
        sink.write(tensor(tmp_path, "0.npy", 10))
        with pytest.raises(DumpWriteError, match=r"0\.npy': File exists; ") as caught:
            sink.flush()
        sink.flush()

        assert [str(caught.value)] == caplog.messages  # so that the command line says it once
        assert ["the first of 3 failures"] == caught.value.__notes__
        assert sink.summary.lost == {"File exists": 3}
        assert sink.summary.files == len(sizes(tmp_path)) == 3


class TestThreads:
    """Callers and writers in several threads."""

    @pytest.mark.parametrize("writer_threads", [1, 4])
    def test_many_callers(self, make, tmp_path, writer_threads):
        """Several threads share a sink: every file and every row of each is there, in its order."""
        sink = make(queue_bytes=4 * LARGE, writer_threads=writer_threads, inline_bytes=1000)

        def call(caller):
            for number in range(30):
                sink.write(tensor(tmp_path / "t", f"{caller}-{number}.npy", LARGE if number % 2 else 10))
                sink.append(f"{tmp_path}/s.csv", f"{caller},{number}\n".encode())

        callers = [threading.Thread(target=call, args=(caller,)) for caller in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        sink.flush()

        rows = [tuple(map(int, row.split(","))) for row in (tmp_path / "s.csv").read_text().splitlines()]
        assert 120 == len(sizes(tmp_path / "t")) == sink.summary.files - 1
        for caller in range(4):
            assert list(range(30)) == [number for by, number in rows if by == caller]

    def test_threads_end_with_the_sink(self, writers, make, tmp_path):
        """Closing ends the writers, and a later write starts them again."""
        sink = make(writer_threads=3)
        has_writers = []

        for part in ("a", "b"):
            for number in range(5):
                sink.write(tensor(tmp_path / part, f"{number}.npy"))
            has_writers.append(bool(writers()))
            sink.close()
            has_writers.append(bool(writers()))

        assert [True, False, True, False] == has_writers
        assert 10 == sink.summary.files

    def test_without_any_thread(self, make, tmp_path, monkeypatch):
        """Where no thread can be started, the caller writes everything himself when he waits."""
        sink = make(queue_bytes=3 * LARGE)
        refuse = Mock(side_effect=RuntimeError("can't start new thread"))
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for number in range(10):
            sink.write(tensor(tmp_path, f"{number}.npy"))
        sink.flush()

        assert 10 == sink.summary.files == len(sizes(tmp_path))

    def test_a_forked_child_leaves_the_queue_alone(self, make, gate, tmp_path, as_user):
        """A child neither waits for nor writes its parent's files, and writes its own."""
        (tmp_path / "child").mkdir()
        for path in (tmp_path, *tmp_path.parents):
            path.chmod(path.stat().st_mode | 0o755)
        (tmp_path / "child").chmod(0o777)
        sink = make(files=gate.files)
        for number in range(3):
            sink.write(tensor(tmp_path, f"{number}.npy"))
        gate.wait()

        found = as_user(_use_in_child, sink, gate, tmp_path / "child")
        gate.opened.set()
        sink.flush()

        assert "(1, {}, ['own.npy'])" == found
        assert {"0.npy", "1.npy", "2.npy", "child"} == set(sizes(tmp_path))
        assert (3, {}) == (sink.summary.files, sink.summary.lost)


def _use_in_child(sink, gate, folder):
    signal.alarm(20)  # a child that waits for its parent's threads would wait for ever
    sink.flush()
    gate.opened.set()
    sink.write(tensor(folder, "own.npy"))
    sink.close()
    return sink.summary.files, sink.summary.lost, list(sizes(folder))


def _once(error, call, *, before):
    """Return a call that raises an error the first time, before or after it has done its work."""
    pending = [error]

    def interrupted(*arguments, **options):
        if pending and before:
            raise pending.pop()
        result = call(*arguments, **options)
        if pending:
            raise pending.pop()
        return result

    return interrupted


CALLS = [("threads", "start", "write"), ("sink", "_write_jobs", "write"), ("files", "create", "flush")]


class TestInterrupts:
    """Ctrl-C in the middle of a call."""

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize(("owner", "name", "method"), CALLS, ids=[call[1] for call in CALLS])
    def test_a_later_close_completes_everything(
        self, make, tmp_path, monkeypatch, gate, owner, name, method, moment
    ):
        """Large files handed over when Ctrl-C came are written once by the close, and counted once."""
        sink = make(files=gate.files if method == "flush" else DiskFiles, inline_bytes=1000)
        owners = {"threads": threading.Thread, "sink": sink, "files": sink._files}
        if method == "flush":
            for name_before in (
                "b.npy",
                "c.npy",
            ):  # the thread waits at the gate with one, the caller has one
                sink.write(tensor(tmp_path, name_before))
            gate.wait()
            gate.opened.set()

        with monkeypatch.context() as patch:
            call = getattr(owners[owner], name)
            patch.setattr(owners[owner], name, _once(KeyboardInterrupt(), call, before=moment == "before"))
            with contextlib.suppress(KeyboardInterrupt):
                sink.flush() if method == "flush" else sink.write(tensor(tmp_path, "a.npy"))
        sink.close()

        expected = ("b.npy", "c.npy") if method == "flush" else ("a.npy",)
        assert dict.fromkeys(expected, LARGE + 4) == sizes(tmp_path)
        assert (len(expected), {}) == (sink.summary.files, sink.summary.lost)

    def test_random_interrupts(self, make, tmp_path):
        """After Ctrl-C at random moments every file that was taken before is there once."""
        moments = random.Random(4711)  # noqa: S311 - no secret
        sink = make(queue_bytes=3 * LARGE, writer_threads=2, inline_bytes=20_000)
        taken, rows = set(), []

        for number in range(400):
            kind = moments.choice(["file", "file", "rows", "flush"])
            size = moments.choice([100, 5000, 30_000, LARGE])
            if _is_interrupted(moments.uniform(1e-5, 4e-4), sink, kind, tmp_path, number, size):
                continue
            if kind == "file":
                taken.add(f"{number}.npy")
            if kind == "rows":
                rows.append(number)
        sink.close()

        found = [path.name for path in tmp_path.iterdir()]
        written = [int(row) for row in (tmp_path / "s.csv").read_text().splitlines()[1:]]
        assert taken <= set(found)
        assert set(rows) <= set(written)
        assert all(before < after for before, after in pairwise(written))
        assert {} == sink.summary.lost


def _is_interrupted(delay, sink, kind, folder, number, size):
    armed = [True]

    def interrupt(*_):
        if armed[0]:
            raise KeyboardInterrupt

    calls = {
        "file": lambda: sink.write(tensor(folder, f"{number}.npy", size)),
        "rows": lambda: sink.append(f"{folder}/s.csv", f"{number}\n".encode(), b"title\n"),
        "flush": sink.flush,
    }
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        calls[kind]()
        armed[0] = False
    except KeyboardInterrupt:
        return True
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False
