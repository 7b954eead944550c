"""The promises of every sink, and the policy for failures, limits and long names."""

import contextlib
import errno
import logging
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from msdump.errors import DumpWriteError
from msdump.plan import OnWriteError
from msdump.reasons import Reason
from msdump.record import Artifact
from msdump.store.write import AsyncSink, Budget, SyncSink, place
from tests.store.memory import MemorySink

LONG = f"ReLU.{'very_long_' * 25}ReLU-op0.0.0.1795216920861338.output.0.DefaultFormat.npy"


@dataclass
class Harness:
    """A kind of sink, and how a test looks behind it."""

    make: Any
    read: Any
    fail: Any


KINDS = [
    "disk",
    "disk without nameless files",
    "memory",
    "async",
    "async, all in threads",
    "async, without nameless files",
]


@pytest.fixture(params=KINDS)
def harness(request, monkeypatch):
    """Give each kind of sink in turn."""
    if request.param == "memory":
        yield _memory_harness()
        return
    if request.param.endswith("without nameless files"):
        monkeypatch.setattr(place, "_NAMELESS", 0)
    fail = lambda _, error: monkeypatch.setattr(os, "writev", _raiser(error))  # noqa: E731 - a field
    if not request.param.startswith("async"):
        yield Harness(SyncSink, _read, fail)
        return
    with contextlib.ExitStack() as stack:
        inline = 1000 if request.param == "async" else 0
        yield Harness(partial(_async_sink, stack, inline), _read_complete, fail)


def _async_sink(stack, inline, *arguments, **options):
    sink = AsyncSink(*arguments, inline_bytes=inline, writer_threads=2, **options)
    stack.callback(_close, sink)
    return sink


def _close(sink):
    with contextlib.suppress(DumpWriteError):
        sink.close()


def _read_complete(sink, path):
    sink.complete()
    return _read(sink, path)


def _read(_, path):
    return Path(path).read_bytes() if Path(path).exists() else None


def _raiser(error):
    def writev(*_):
        raise error

    return writev


def _memory_harness():
    def fail(sink, error):
        sink.files.failure = error

    return Harness(MemorySink, lambda sink, path: sink.files.contents.get(path), fail)


@pytest.fixture
def folder(tmp_path):
    """Give the path of an iteration directory that does not exist yet."""
    return str(tmp_path / "rank_0" / "Net" / "0" / "0")


def tensor(folder, name="a.npy", data=b"data"):
    """Return a tensor file of a header and some bytes."""
    return Artifact(folder, name, (b"head", memoryview(data)), len(data))


def put(sink, artifact):
    """Hand a file over and wait until it is written."""
    sink.write(artifact)
    sink.flush()


def full_disk():
    """Return the error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestEverySink:
    """Properties of sinks of every kind."""

    def test_counts_files_and_bytes(self, harness, folder):
        """The summary counts complete files, a file of rows once, and all of their bytes."""
        sink = harness.make()

        sink.write(tensor(folder))
        sink.replace(tensor(folder, "b.ir"))
        for _ in range(3):
            sink.append(f"{folder}/c.csv", b"row\n", b"title\n")
        sink.flush()

        assert (sink.summary.files, sink.summary.bytes) == (3, 16 + 6 + 3 * 4)
        assert sink.summary.lost == {}

    def test_counts_what_is_on_disk(self, harness, folder):
        """A file that is replaced counts once, with its last size, and so does the list of stand-ins."""
        sink = harness.make()

        for text in (b"longer", b"short"):
            sink.replace(tensor(folder, "g.ir", text))
        sink.write(tensor(folder, LONG, b"data"))
        sink.flush()

        mapping = harness.read(sink, f"{folder}/mapping.csv")
        assert (sink.summary.files, sink.summary.bytes) == (3, len(b"headshort" + b"headdata" + mapping))

    def test_never_destroys_a_tensor(self, harness, folder):
        """A second file of the same name is lost and the first stays."""
        sink = harness.make()
        put(sink, tensor(folder, data=b"first"))

        with pytest.raises(DumpWriteError, match=r"a\.npy': File exists; two runs write into"):
            put(sink, tensor(folder, data=b"second"))

        assert harness.read(sink, f"{folder}/a.npy") == b"headfirst"
        assert sink.summary.lost == {"File exists": 1}

    def test_keep_keeps_the_older_file(self, harness, folder, caplog):
        """A kept file keeps its first contents and a warning names it."""
        sink = harness.make()

        sink.keep(tensor(folder, "config.json", b"old"))
        sink.flush()
        sink.keep(tensor(folder, "config.json", b"new"))

        assert harness.read(sink, f"{folder}/config.json") == b"headold"
        assert [f"{folder}/config.json already exists and is kept"] == caplog.messages

    def test_failure_raises_with_path_and_remedy(self, harness, folder, caplog):
        """A file that cannot be written raises, is logged and counted, and does not appear."""
        sink = harness.make()
        put(sink, tensor(folder, "before.npy"))
        harness.fail(sink, full_disk())

        with pytest.raises(DumpWriteError) as raised:
            put(sink, tensor(folder))

        message = f"cannot write '{folder}/a.npy': No space left on device; free space, dump less"
        assert str(raised.value).startswith(message)
        assert [str(raised.value)] == caplog.messages
        assert sink.summary.lost == {"No space left on device": 1}
        assert harness.read(sink, f"{folder}/a.npy") is None

    def test_warn_goes_on_and_logs_once_per_cause(self, harness, folder, caplog):
        """Under "warn" every loss is counted and only the first of a cause is logged."""
        sink = harness.make(OnWriteError.WARN)
        put(sink, tensor(folder, "before.npy"))

        harness.fail(sink, full_disk())
        for number in range(3):
            put(sink, tensor(folder, f"{number}.npy"))
        harness.fail(sink, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        sink.replace(tensor(folder, "g.ir"))
        sink.flush()

        assert sink.summary.lost == {"No space left on device": 3, "Permission denied": 1}
        assert sink.summary.files == 1
        assert [f"{folder}/0.npy", f"{folder}/g.ir"] == [text.split("'")[1] for text in caplog.messages]
        assert {logging.ERROR} == {entry.levelno for entry in caplog.records}

    def test_over_max_bytes_is_skipped(self, harness, folder, caplog):
        """A tensor file that does not fit is skipped and warned of once; a smaller one still fits."""
        sink = harness.make(budget=Budget(24))

        for number, size in enumerate([8, 9, 100, 3]):
            sink.write(tensor(folder, f"{number}.npy", bytes(size)))
        sink.replace(tensor(folder, "g.ir", bytes(1000)))
        sink.flush()

        assert sink.summary.skipped == {Reason.OVER_LIMIT: 2}
        assert sink.summary.files == 3
        assert len(caplog.messages) == 1
        assert f"{folder}/1.npy of 13 bytes is skipped: 12 of max_bytes 24 are used" in caplog.text

    def test_lost_bytes_return_to_the_budget(self, harness, folder):
        """A file that could not be written uses nothing of max_bytes."""
        budget = Budget(24)
        sink = harness.make(OnWriteError.WARN, budget)
        put(sink, tensor(folder, "same.npy"))

        put(sink, tensor(folder, "same.npy"))

        assert budget.used == 8

    def test_a_closed_sink_opens_again(self, harness, folder):
        """Closing twice is harmless, and writing after it still works."""
        sink = harness.make()
        sink.append(f"{folder}/s.csv", b"1\n", b"title\n")

        sink.flush()
        sink.close()
        sink.close()
        sink.append(f"{folder}/s.csv", b"2\n", b"title\n")
        sink.write(tensor(folder))

        assert harness.read(sink, f"{folder}/s.csv") == b"title\n1\n2\n"
        assert harness.read(sink, f"{folder}/a.npy") == b"headdata"


def test_mapping_line_stands_before_the_file(tmp_path, monkeypatch):
    """The file of a stand-in is linked when its line is already in mapping.csv."""
    link = os.link
    seen = []

    def spy(source, name, **options):
        if name.endswith(".npy"):
            seen.append(((tmp_path / "mapping.csv").read_text(), name))
        return link(source, name, **options)

    monkeypatch.setattr(os, "link", spy)
    SyncSink().write(tensor(str(tmp_path), LONG))

    assert [(f"{name},{LONG}\n", name) for _, name in seen] == seen
    assert len(seen) == 1
