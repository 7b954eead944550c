"""Programs that fork or leave threads behind while they dump."""

from __future__ import annotations

import json

import pytest

from tests.dump.conftest import config
from tests.soak import networks, wholeness

PROGRAM = """
import json, multiprocessing, os, sys, threading
from pathlib import Path
import numpy as np
import msdump

x = np.ones((40, 1000), np.float32)
msdump.set_context(device_target="Ascend", jit_level="O0")
network = msdump.load("net.onnx")
network(x)
{middle}
network(x)
print(json.dumps([network.summary.files, network.summary.lost]), flush=True)
"""

FORK = """
child = os.fork()
if child == 0:
    os._exit(3)
assert 3 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

MULTIPROCESSING = """
child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(3,))
child.start()
child.join(60)
assert 3 == child.exitcode
"""

DAEMON = """
def work():
    while True:
        network(x)

first = threading.Event()
threading.Thread(target=lambda: (network(x), first.set(), work()), daemon=True).start()
first.wait(60)
"""


def start(python, tmp_path, middle):
    """Start a program that dumps through a queue, something else in its middle."""
    (tmp_path / "net.onnx").write_bytes(networks.wide()[0])
    (tmp_path / "data_dump.json").write_text(json.dumps(config(tmp_path / "dump", enable=False)))
    return python(PROGRAM.format(middle=middle), MINDSPORE_DUMP_CONFIG="data_dump.json")


@pytest.mark.parametrize("middle", [FORK, MULTIPROCESSING], ids=["fork", "multiprocessing"])
def test_a_forked_child_takes_nothing_from_its_parent(python, tmp_path, middle):
    """A child that ends by os._exit, as those of multiprocessing do, leaves its parent's dump as it was."""
    told, errors = start(python, tmp_path, middle).communicate(timeout=60)

    tensors = list((tmp_path / "dump").glob("rank_0/Net/0/*/*.npy"))
    files = [path for path in (tmp_path / "dump").rglob("*") if path.is_file()]
    assert 2 * 12 == len(tensors), errors
    assert [] == wholeness.violations(tmp_path / "dump")
    assert [len(files), {}] == json.loads(told)


def test_a_daemon_thread_that_dumps_at_the_end(python, tmp_path):
    """A program ends though a daemon thread goes on dumping; what is there is whole."""
    program = start(python, tmp_path, DAEMON)

    _, errors = program.communicate(timeout=60)

    assert 0 == program.returncode, errors
    assert [] == wholeness.violations(tmp_path / "dump")
    assert 3 <= len(list((tmp_path / "dump").glob("rank_0/Net/0/*")))


SINK = """
import os, sys, time
from msdump.record import Artifact
from msdump.store.write.async_sink import AsyncSink
from msdump.store.write.files import DiskFiles

class Slow(DiskFiles):
    def create(self, *arguments):
        time.sleep(0.02)
        super().create(*arguments)

sink = AsyncSink(files=Slow, inline_bytes=0)
for number in range(20):
    sink.write(Artifact(os.path.abspath("dump"), f"{number}.npy", (b"x" * 1000,), 1000))
child = os.fork()
if child == 0:
    sys.exit(3)
assert 3 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sink.close()
print(sink.summary.files, sink.summary.lost)
"""


def test_a_child_that_exits_writes_nothing_of_its_parent(python, tmp_path):
    """The end of a child by sys.exit, where no network was loaded, neither writes nor loses queued files."""
    told, errors = python(SINK).communicate(timeout=60)

    assert "20 {}\n" == told, errors
    assert {1000} == {path.stat().st_size for path in (tmp_path / "dump").iterdir()}
