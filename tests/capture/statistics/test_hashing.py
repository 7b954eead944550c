"""Rows with hashes: made in threads, written in order, never lost."""

import csv
import hashlib
import os
import signal
import subprocess
import textwrap
import threading
import weakref
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from msdump import env
from msdump.capture import Process
from msdump.errors import DumpWriteError
from msdump.graph import loader
from msdump.plan import OnWriteError
from msdump.record import Artifact
from msdump.session import Network
from msdump.store.write import AsyncSink
from sample_nets.build import build
from scripts.bench import sides

LARGE = 4 << 20
HEADER = b"A,B\n"


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch):
    monkeypatch.setenv(env.THREADS, "2")


AT_ONCE = {"inline_bytes": None}


@pytest.fixture(params=[AT_ONCE, {}], ids=["sync", "async"])
def sink(request):
    """Return a sink that takes rows with hashes, of a dump that writes at once and of one that does not."""
    sink = AsyncSink(queue_bytes=3 * LARGE, **request.param)
    yield sink
    sink.close()


class Gate:
    """A row that is made when the gate opens."""

    def __init__(self, row):
        """Stay closed."""
        self.row = row
        self.is_begun = threading.Event()
        self.opens = threading.Event()

    def __call__(self):
        """Wait and return the row."""
        self.is_begun.set()
        assert self.opens.wait(60)
        return self.row


def test_a_row_that_is_being_made_holds_up_nobody(sink, tmp_path):
    """Rows and files behind it are taken; rows are written in their order once it is made."""
    path = tmp_path / "statistic.csv"
    gate = Gate(b"1,1\n")

    sink.append_later(str(path), gate, HEADER, LARGE)
    assert gate.is_begun.wait(60)
    sink.append_later(str(path), lambda: b"2,2\n", HEADER, 8)
    sink.append(str(path), b"3,3\n", HEADER)
    sink.write(Artifact(str(tmp_path), "file", (b"contents",)))

    assert not path.exists()
    assert (tmp_path / "file").read_bytes() == b"contents"
    gate.opens.set()
    sink.flush()
    assert path.read_bytes() == HEADER + b"1,1\n2,2\n3,3\n"


def test_who_waits_makes_rows_too(sink, tmp_path):
    """While a thread makes one row, flush makes the others, and releases their tensors."""
    path = tmp_path / "statistic.csv"
    gate = Gate(b"1,1\n")
    makers = []
    array = np.zeros(8)
    held = weakref.ref(array)

    def make(tensor):
        makers.append(threading.current_thread())
        gate.opens.set()
        return b"2,%d\n" % len(tensor)

    sink.append_later(str(path), gate, HEADER, LARGE)
    assert gate.is_begun.wait(60)
    sink.append_later(str(path), lambda array=array: make(array), HEADER, LARGE)
    del array
    sink.flush()

    assert makers == [threading.current_thread()]
    assert path.read_bytes() == HEADER + b"1,1\n2,8\n"
    assert held() is None


def test_a_failure_is_told_and_loses_no_other_row(tmp_path):
    """A row that cannot be written is counted and raised by the flush; rows of other files are written."""
    sink = AsyncSink(OnWriteError.RAISE, **AT_ONCE)
    (tmp_path / "folder").write_text("no folder")
    gate = Gate(b"1,1\n")

    sink.append_later(f"{tmp_path}/folder/statistic.csv", gate, HEADER, LARGE)
    sink.append_later(f"{tmp_path}/statistic.csv", lambda: b"2,2\n", HEADER, LARGE)
    gate.opens.set()
    with pytest.raises(DumpWriteError, match=r"folder/statistic\.csv"):
        sink.flush()

    assert (tmp_path / "statistic.csv").read_bytes() == HEADER + b"2,2\n"
    assert sum(sink.summary.lost.values()) == 1
    sink.close()


def test_an_error_while_a_row_is_made_is_raised(sink, tmp_path):
    """An error of making a row in a thread comes to the caller, and later rows are written."""
    path = tmp_path / "statistic.csv"
    gate = Gate(b"1,1\n")
    sink.append_later(str(path), gate, HEADER, LARGE)
    assert gate.is_begun.wait(60)
    sink.append_later(str(path), Mock(side_effect=MemoryError), HEADER, LARGE)
    sink.append_later(str(path), lambda: b"3,3\n", HEADER, LARGE)
    gate.opens.set()
    with pytest.raises(MemoryError):
        sink.flush()
    sink.flush()

    assert path.read_bytes() == HEADER + b"1,1\n3,3\n"


def test_an_interrupted_row_is_made_by_the_next_flush(sink, tmp_path):
    """Ctrl-C while the caller makes a row loses none."""
    path = tmp_path / "statistic.csv"
    interrupts = [KeyboardInterrupt]
    gate = Gate(b"0,0\n")
    sink.append_later(str(path), gate, HEADER, LARGE)
    assert gate.is_begun.wait(60)  # the only thread

    def make():
        if interrupts:
            raise interrupts.pop()
        return b"1,1\n"

    sink.append_later(str(path), make, HEADER, LARGE)
    with pytest.raises(KeyboardInterrupt):
        sink.flush()
    gate.opens.set()
    sink.flush()

    assert path.read_bytes() == HEADER + b"0,0\n1,1\n"


ENDS = {
    "the program ends": "",
    "an exception": "raise SystemExit(3)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "a forked child ends": "os.fork() or sys.exit(0); os.wait()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("options", [AT_ONCE, {}], ids=["sync", "async"])
def test_a_process_that_ends_writes_its_rows_once(tmp_path, forks, options, end):
    """Rows on their way are on disk when the process is gone, however it ends."""
    path = tmp_path / "statistic.csv"
    program = f"""
        import os, signal, sys, time
        from msdump.store.write.async_sink import AsyncSink
        sink = AsyncSink(**{options})
        def make():
            time.sleep(0.3)
            return b"1,1\\n"
        sink.append_later({str(path)!r}, make, b"A,B\\n", 1 << 20)
        sink.append_later({str(path)!r}, lambda: b"2,2\\n", b"A,B\\n", 8)
        {end}
    """
    environment = os.environ | {env.THREADS: "2"}

    done = subprocess.run([forks / "python", "-c", textwrap.dedent(program)], env=environment, check=False)

    assert done.returncode in {0, 3, -signal.SIGTERM}
    assert path.read_bytes() == HEADER + b"1,1\n2,2\n"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("category", ["md5", "hash"])
def test_hashes_of_a_run_are_those_of_its_files(tmp_path, is_async, category):
    """Every row of a step has the hash of the elements that its file holds, in the order of timestamps."""
    model = build("lenet", tmp_path, batch=64)
    plan = sides.plan(
        tmp_path, saved_data="full", input_output=0, statistic_category=["max", "l2norm", category]
    )
    plan = replace(plan, files=replace(plan.files, is_async=is_async))
    process = Process()
    Network(loader.load(model), plan, process).run(sides.inputs(model))
    process.close()

    folder = tmp_path / "rank_0" / "Net" / "0" / "0"
    rows = list(csv.DictReader((folder / "statistic.csv").read_text().splitlines()))
    title, function = {"md5": ("MD5", hashlib.md5), "hash": ("SHA1", hashlib.sha1)}[category]
    files = {file.name.split(".")[4]: np.load(file) for file in folder.glob("*.npy")}
    expected = {time: function(array.tobytes()).hexdigest() for time, array in files.items()}
    assert expected == {row["Timestamp"]: row[title] for row in rows}
    assert sorted(expected) == [row["Timestamp"] for row in rows]
    assert 20 < len(rows)
