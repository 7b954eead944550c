"""A run that is killed at any moment."""

import os
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from msdump.encode import npy
from msdump.store.write import DiskFiles, parse_mapping

WRITER = """
import itertools, os, sys
from msdump.record import Artifact
from msdump.store.write import place
from msdump.store.write.async_sink import AsyncSink
from msdump.store.write.sinks import SyncSink

root, header, way, kind = sys.argv[1], bytes.fromhex(sys.argv[2]), *sys.argv[3:]
if way == "renamed":
    place._NAMELESS = 0
sink = SyncSink() if kind == "sync" else AsyncSink(writer_threads=2, queue_bytes=2 << 20)
elements = bytes(4 * 50_000)
print(os.getpid(), flush=True)
for number in itertools.count():
    folder = f"{root}/{number // 40}"
    name = f"{number}.npy" if number % 5 else f"{'long_' * 60}{number}.npy"
    sink.write(Artifact(folder, name, (header, elements), len(elements)))
    if number % 40 == 39:
        sink.flush()
    sink.replace(Artifact(root, "data_dump.json", (b"[" * 5000 + b"]" * 5000,)))
    sink.append(f"{folder}/statistic.csv", f"{number},{'x' * 200},end\\n".encode(), b"number,text,end\\n")
"""


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("sync", 8), ("async", 13), pytest.param("async", 100, marks=pytest.mark.slow)],
    ids=["sync", "async", "async, often"],
)
@pytest.mark.parametrize("way", ["nameless", "renamed"])
def test_kill_leaves_whole_files_and_rows(tmp_path, forks, way, kind, rounds):
    """After SIGKILL at any moment every file is whole, every row but a last one, every stand-in mapped."""
    header = npy.header("<f4", (50_000,)).hex()
    moments = random.Random(4711)  # noqa: S311 - no secret
    done = killed_late = 0

    while done < rounds or killed_late < rounds // 2:  # a busy machine may begin no file in the time given
        root = tmp_path / str(done)
        command = [forks / "python", "-c", WRITER, str(root), header, way, kind]
        _kill_writer(command, moments.uniform(0.002, 0.12))
        _check_tree(root, way)
        _check_leftovers(root)
        killed_late += (root / "0").is_dir()
        done += 1
        shutil.rmtree(root, ignore_errors=True)


def _kill_writer(command, delay):
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        process = int(writer.stdout.readline())  # a fork that the writer waits for
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL


def _check_tree(root, way):
    for path in root.rglob("*"):
        if path.name.startswith("."):
            assert path.name.startswith(".msdump-")
            # nameless files have a name when they are whole, but the empty one that tries whether they can be
            assert way == "renamed" or path.stat().st_size in {0, 10_000}
        elif path.suffix == ".npy":
            assert np.load(path).shape == (50_000,)
        elif path.suffix == ".json":
            assert path.stat().st_size == 10_000
        elif path.name == "statistic.csv":
            _check_rows(path, way)
        elif path.name == "mapping.csv":
            _check_mapping(path)


def _check_leftovers(root):
    """Check that the next replacement in a directory clears temporary files of the killed run."""
    if (root / "data_dump.json").is_file():
        disk = DiskFiles()
        disk.replace(str(root), "data_dump.json", (b"[]",))
        disk.close()
        assert [path for path in root.iterdir() if path.name.startswith(".")] == []


def _check_rows(path, way):
    lines = path.read_text().splitlines(keepends=True)
    assert lines[:1] == ["number,text,end\n"] or (way == "renamed" and lines == [])
    # the kernel may cut off the very call that a kill falls into: the next run to open the file mends it
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        _append_row(path)
        assert path.read_text() == "".join(lines) + "0,x,end\n"
    assert all(line.endswith(",end\n") for line in lines)


def _append_row(path):
    disk = DiskFiles()
    disk.append(str(path.parent), path.name, b"0,x,end\n", b"number,text,end\n")
    disk.close()


def _check_mapping(path):
    text = path.read_bytes()
    mapping = parse_mapping(text)
    unmapped = {each.name for each in path.parent.glob("*.npy") if len(each.stem) > 6} - set(mapping)
    assert len(mapping) == text.count(b"\n")
    assert text == b"" or text.endswith(b"\n")
    assert set() == unmapped
