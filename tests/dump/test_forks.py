"""Programs that fork or leave threads behind while they dump."""

import json

import pytest

from scripts.soak import networks, wholeness
from tests.world import config

PROGRAM = """
import gc, json, multiprocessing, os, signal, sys, threading
import numpy as np
import msdump
from msdump.errors import ReentryError
from msdump.store.write.files import DiskFiles

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

DROP = """
child = os.fork()
if child == 0:
    signal.alarm(30)
    del network
    gc.collect()
    msdump.load("net.onnx")(x)
    os._exit(3)
assert 3 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

AMID_A_RUN = """
begun, go_on = threading.Event(), threading.Event()

def waiting(function):
    def wait(*arguments):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait(60)
        return function(*arguments)
    return wait

DiskFiles.create = waiting(DiskFiles.create)
other = threading.Thread(target=network, args=(x,))
other.start()
begun.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(30)
    try:
        network(x)
    except ReentryError as error:
        print(error, file=sys.stderr, flush=True)
        msdump.load("net.onnx")(x)
        os._exit(3)
    os._exit(1)
assert 3 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
other.join(60)
"""

TOGETHER = """
waiting, go_on = os.pipe()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.close(go_on)
        os.read(waiting, 1)
        for _ in range(5):
            network(x)
        os._exit(4 if network.summary.lost else 3)
    children.append(child)
os.close(go_on)
for _ in range(4):
    network(x)
"""

STANDING = """
from msdump.store.clock import CLOCK
CLOCK._source = lambda: 1_795_216_920_861_338_000
"""

JOINED = """
assert [3] * 3 == [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""

DAEMON = """
def work():
    while True:
        network(x)

first = threading.Event()
threading.Thread(target=lambda: (network(x), first.set(), work()), daemon=True).start()
first.wait(60)
"""


def start(python, tmp_path, middle, *, enable=False, **variables):
    """Start a program that dumps, through a queue unless it is enabled, something else in its middle."""
    (tmp_path / "net.onnx").write_bytes(networks.wide()[0])
    (tmp_path / "data_dump.json").write_text(json.dumps(config(tmp_path / "dump", enable=enable)))
    return python(PROGRAM.format(middle=middle), MINDSPORE_DUMP_CONFIG="data_dump.json", **variables)


@pytest.mark.parametrize("middle", [FORK, MULTIPROCESSING], ids=["fork", "multiprocessing"])
def test_a_forked_child_takes_nothing_from_its_parent(python, tmp_path, middle):
    """A child that ends by os._exit, as in multiprocessing, leaves its parent's dump as it was."""
    told, errors = start(python, tmp_path, middle).communicate(timeout=60)

    tensors = list((tmp_path / "dump").glob("rank_0/Net/0/*/*.npy"))
    files = [path for path in (tmp_path / "dump").rglob("*") if path.is_file()]
    assert 2 * 12 == len(tensors), errors
    assert [] == wholeness.violations(tmp_path / "dump")
    assert [len(files), {}] == json.loads(told)


def test_a_child_may_drop_its_parents_network(python, tmp_path):
    """A child that drops the network it inherits neither crashes nor waits for its parent's threads."""
    program = start(python, tmp_path, DROP, MSDUMP_THREADS="8")

    _, errors = program.communicate(timeout=60)

    assert 0 == program.returncode, errors
    assert 12 == len(list((tmp_path / "dump").glob("rank_0/Net/1/*/*.npy")))


def test_a_fork_amid_a_run_of_another_thread(python, tmp_path):
    """In a child the run that went on cannot be continued; it loads and dumps as any program."""
    program = start(python, tmp_path, AMID_A_RUN, enable=True)

    _, errors = program.communicate(timeout=60)

    assert 0 == program.returncode, errors
    assert "forked while another thread ran the network" in errors
    assert 12 == len(list((tmp_path / "dump").glob("rank_0/Net/1/*/*.npy")))
    assert 3 * 12 == len(list((tmp_path / "dump").glob("rank_0/Net/0/*/*.npy")))
    assert [] == wholeness.violations(tmp_path / "dump")


@pytest.mark.parametrize("clock", ["", STANDING], ids=["", "same times"])
@pytest.mark.parametrize("enable", [False, True], ids=["queue", "at once"])
def test_children_that_count_on_as_their_parent_does(python, tmp_path, enable, clock):
    """Processes that dump the same iterations at the same times lose no file of anybody."""
    (tmp_path / "net.onnx").write_bytes(networks.wide()[0])
    (tmp_path / "data_dump.json").write_text(json.dumps(config(tmp_path / "dump", enable=enable)))
    program = python(PROGRAM.format(middle=clock + TOGETHER) + JOINED, MINDSPORE_DUMP_CONFIG="data_dump.json")

    told, errors = program.communicate(timeout=60)

    assert 0 == program.returncode, errors
    assert {} == json.loads(told)[1]
    for iteration in range(1, 6):
        assert 4 * 12 == len(list((tmp_path / "dump").glob(f"rank_0/Net/0/{iteration}/*.npy")))
    assert [] == wholeness.violations(tmp_path / "dump")


def test_a_daemon_thread_that_dumps_at_the_end(python, tmp_path):
    """A program ends though a daemon thread goes on dumping; all files are whole."""
    program = start(python, tmp_path, DAEMON)

    _, errors = program.communicate(timeout=60)

    assert 0 == program.returncode, errors
    assert [] == wholeness.violations(tmp_path / "dump")
    assert 3 <= len(list((tmp_path / "dump").glob("rank_0/Net/0/*")))
