"""Processes that end, or are terminated, while files wait: nothing that was handed over is lost."""

import signal
import subprocess
import sys
import threading

import pytest

from msdump.record import Artifact
from msdump.store.write import AsyncSink, exits

SIZE = 300_000

ENDING = """
import signal, sys, threading
from msdump.record import Artifact
from msdump.store.write.async_sink import AsyncSink
from msdump.store.write.files import DiskFiles

opened = threading.Event()
threading._register_atexit(opened.set)  # before the interpreter waits for the threads of pools

class Late(DiskFiles):
    def create(self, directory, name, buffers):
        opened.wait()
        super().create(directory, name, buffers)

sink = AsyncSink(files=Late)
for number in range(10):
    sink.write(Artifact(sys.argv[1], f"{number}.npy", (bytes(300_000),), 300_000))
sink.append(f"{sys.argv[1]}/s.csv", b"row\\n")
exec(sys.argv[2])
"""

INTERRUPTED_FLUSH = """
main = threading.get_ident()
threading.Timer(0, signal.pthread_kill, (main, signal.SIGINT)).start()
sink.flush()
"""

ENDINGS = {
    "end of the script": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise ValueError", 1),
    "Ctrl-C": ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT),
    "Ctrl-C in a flush": (INTERRUPTED_FLUSH, -signal.SIGINT),
    "exit in another thread": ("threading.Thread(target=sys.exit).start()", 0),
}


@pytest.mark.parametrize(("ending", "code"), ENDINGS.values(), ids=ENDINGS)
def test_an_interpreter_that_ends_writes_everything(tmp_path, ending, code):
    """However the interpreter ends, files that could not be written before are complete afterwards."""
    done = subprocess.run([sys.executable, "-c", ENDING, str(tmp_path), ending], check=False)

    assert code == done.returncode
    assert {SIZE} == {path.stat().st_size for path in tmp_path.glob("*.npy")}
    assert {f"{number}.npy" for number in range(10)} | {"s.csv"} == {path.name for path in tmp_path.iterdir()}


# Waits are short and many: a signal that comes just before one is heard behind it.
TERMINATED = """
import os, select, signal, sys, threading, time
from msdump.record import Artifact
from msdump.store.write.async_sink import AsyncSink
from msdump.store.write.files import DiskFiles
from msdump.store.write.async_sink import _WriterThreads

class Held(DiskFiles):
    def _hold(self):
        if threading.current_thread() is threading.main_thread():
            os.write(1, b"main\\n")
        while not select.select([0], [], [], 0.01)[0]:  # until the parent closes the pipe
            pass

    def create(self, directory, name, buffers):
        self._hold()
        super().create(directory, name, buffers)

    def append(self, directory, name, rows, header):
        self._hold()
        return super().append(directory, name, rows, header)

root, moment = sys.argv[1:]
limits = {"room": {"queue_bytes": 700_000}}.get(moment, {})
sink = AsyncSink(files=Held, inline_bytes=1000, **limits)

def write(number, size=300_000):
    sink.write(Artifact(root, f"{number}.npy", (bytes(size),), size))

for number in range(2):
    write(number)
if moment == "computing":
    os.write(1, b"main\\n")
    for _ in range(6000):
        time.sleep(0.01)
if moment == "flush":
    sink.flush()
if moment == "room":
    write(2)
if moment == "inline":
    write(2, 100)
if moment == "rows":
    sink.append(f"{root}/s.csv", b"row\\n", b"title\\n")
if moment == "handing over":
    submit = _WriterThreads.submit

    def submit_slowly(threads, job):
        submit(threads, job)
        os.write(1, b"main\\n")
        while signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # until the signal is heard
            time.sleep(0.01)

    _WriterThreads.submit = submit_slowly
    write(2)
"""

MOMENTS = {
    "computing": {},
    "flush": {},
    "room": {"2.npy": SIZE},
    "inline": {"2.npy": 100},
    "rows": {"s.csv": 10},
    "handing over": {"2.npy": SIZE},
}


@pytest.mark.parametrize(("moment", "more"), MOMENTS.items(), ids=MOMENTS)
def test_sigterm_writes_everything(tmp_path, moment, more):
    """SIGTERM in any moment completes waiting files and then ends the process as it always does."""
    command = [sys.executable, "-c", TERMINATED, str(tmp_path), moment]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"main\n"
        before = list(tmp_path.iterdir())
        child.send_signal(signal.SIGTERM)
        child.stdin.close()
        try:
            child.wait(60)
        finally:
            child.kill()  # one that hangs would outlive the test, which waits for it

    expected = {"0.npy": SIZE, "1.npy": SIZE} | more
    assert [] == before
    assert expected == {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert child.returncode == -signal.SIGTERM


def test_a_second_sigterm_ends_at_once(tmp_path):
    """Who cannot wait sends SIGTERM again."""
    command = [sys.executable, "-c", TERMINATED, str(tmp_path), "computing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        for _ in range(2):
            assert child.stdout.readline() == b"main\n"
            child.send_signal(signal.SIGTERM)
        child.wait()

    assert child.returncode == -signal.SIGTERM
    assert [] == list(tmp_path.iterdir())


def write_large(sink, folder):
    """Hand a file over to the threads of a sink."""
    sink.write(Artifact(str(folder), "a.npy", (bytes(SIZE),), SIZE))


@pytest.fixture
def default_handler(monkeypatch):
    """Set SIGTERM to its default action for the time of the test, in which others have nothing to write."""
    monkeypatch.setattr(exits, "_active", {})
    monkeypatch.setattr(exits, "_last", [])
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("default_handler")
def test_the_handler_is_there_only_while_it_is_needed(tmp_path):
    """SIGTERM is handled from the first asynchronous sink on until the last that wrote is closed."""
    sinks = [AsyncSink(), AsyncSink()]
    seen = [signal.getsignal(signal.SIGTERM)]

    for sink, part in zip(sinks, "ab", strict=True):
        write_large(sink, tmp_path / part)
        seen.append(signal.getsignal(signal.SIGTERM))
    for sink in sinks:
        sink.close()
        seen.append(signal.getsignal(signal.SIGTERM))

    ours = exits._terminate
    assert [ours, ours, ours, ours, signal.SIG_DFL] == seen


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize("own", [lambda *_: None, signal.SIG_IGN], ids=["handled", "ignored"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_program_keeps_its_own_handler(tmp_path, own, moment):
    """A handler that the program has set, before or after the first file, stays."""
    sink = AsyncSink()

    if moment == "before":
        signal.signal(signal.SIGTERM, own)
    write_large(sink, tmp_path)
    if moment == "after":
        signal.signal(signal.SIGTERM, own)
    during = signal.getsignal(signal.SIGTERM)
    sink.close()

    assert (own, own) == (during, signal.getsignal(signal.SIGTERM))


@pytest.mark.usefixtures("default_handler")
def test_a_thread_sets_no_handler(tmp_path):
    """A sink of another thread works without a handler, which only the main thread may set."""
    sinks = []

    def make():
        sinks.append(AsyncSink())
        write_large(sinks[0], tmp_path)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    during = signal.getsignal(signal.SIGTERM)
    sinks[0].close()

    assert during == signal.SIG_DFL
    assert (tmp_path / "a.npy").stat().st_size == SIZE
