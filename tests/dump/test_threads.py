"""Networks that several threads call, in processes of their own: a crash would be one of the interpreter."""

from __future__ import annotations

import csv
import json
import logging
import re
import threading

import numpy as np
import onnx
import pytest

import msdump
from msdump.capture.capture import Capture
from msdump.errors import ReentryError
from tests.dump import nets, o2
from tests.dump.conftest import config

THREADS = 4
CALLS = 5
ASCEND = {"device_target": "Ascend", "jit_level": "O0"}
X = {"x": np.ones((2, 4), np.float32)}
ZERO = {"x": np.zeros(2, np.float32)}
NUMBER = re.compile(r"add(\d)")
TENSOR = re.compile(r"Add\..*add(?P<number>\d).*\.(?P<io>input|output)\.(?P<slot>\d)\..*npy")

# Every thread calls every network, the first time at once; each call has numbers of its own.
RUN = f"""
import json, sys, threading
import numpy as np
import msdump

networks = []
for settings in json.loads(sys.argv[1]):
    msdump.set_context(**settings)
    networks.append(msdump.load("net.onnx"))
start = threading.Barrier({THREADS})
wrong = []

def call(thread):
    start.wait(60)
    for turn in range({CALLS}):
        for at, network in enumerate(networks):
            number = 1 + at + len(networks) * (turn + {CALLS} * thread)
            found = network(np.full((2, 40), number, np.float32))
            if not np.array_equal(found, np.full((2, 40), number + 3, np.float32)):
                wrong.append((number, found))

threads = [threading.Thread(target=call, args=(n,)) for n in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(wrong)
"""


def network():
    """Return a network that adds three weights of one; each is fed to its operator."""
    nodes = [nets.node("Add", f"v{n} one{n}", f"v{n + 1}", f"add{n}/Add") for n in range(3)]
    ones = {f"one{n}": np.ones(40, np.float32) for n in range(3)}
    return nets.model(nodes, [nets.value("v0", [2, 40])], ["v3"], ones)


def run(python, folder, blocks, contexts):
    """Run the network from several threads in a process of its own."""
    onnx.save(network(), folder / "net.onnx")
    (folder / "dump.json").write_text(json.dumps(blocks))
    arguments = f"import sys; sys.argv[1:] = [{json.dumps(contexts)!r}]\n"
    process = python(arguments + RUN, MINDSPORE_DUMP_CONFIG="dump.json")
    out, err = process.communicate(timeout=100)
    assert (0, "[]\n") == (process.returncode, out), err


def tensors(directory):
    """Yield number of the operator, side, slot and largest value of each tensor in a directory."""
    for path in directory.glob("*Add*.npy"):
        match = TENSOR.match(path.name)
        yield int(match["number"]), match["io"], match["slot"], float(np.load(path).max())
    for path in directory.glob("*.csv"):
        for row in csv.DictReader(path.read_text().splitlines()):
            number = NUMBER.search(row["Op Name"])[1]
            yield int(number), row["IO"], row["Slot"], float(row["Max Value"])


def fed(directory):
    """Return the input of the call of a directory; each of its tensors lies there once, and no others."""
    found = list(tensors(directory))
    (number,) = {value for at, io, slot, value in found if (at, io, slot) == (0, "input", "0")}
    expected = [
        row
        for at in range(3)
        for row in (
            (at, "input", "0", number + at),
            (at, "input", "1", 1.0),
            (at, "output", "0", number + at + 1),
        )
    ]
    assert expected == sorted(set(found))
    assert len(found) in {len(expected), 2 * len(expected)}  # as files, as rows, or both
    return number


FULL = {"saved_data": "full", "statistic_category": ["max", "min"]}
MODES = {
    "CPU": (config, {}, [{}, {}]),
    "sync": (config, {}, [ASCEND]),
    "async": (config, {"enable": False, "queue_bytes": 4096, "writer_threads": 2}, [ASCEND, ASCEND]),
    "statistics": (config, FULL, [ASCEND, ASCEND]),
    "O2": (o2.configuration, {"file_format": "npy"}, [o2.CONTEXT, o2.CONTEXT]),
}


@pytest.mark.parametrize(("configuration", "changes", "contexts"), MODES.values(), ids=MODES)
def test_calls_from_several_threads(python, tmp_path, configuration, changes, contexts):
    """Each call gives its own result, and is one iteration, whole, in a directory of its own."""
    run(python, tmp_path, configuration(tmp_path / "dump", **changes), contexts)

    directories = {path.parent for path in (tmp_path / "dump").rglob("*Add*.npy")}
    assert [1.0 + call for call in range(THREADS * CALLS * len(contexts))] == sorted(map(fed, directories))


def within(seconds, work):
    """Call a function in a thread; return its result, or fail where it takes too long."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, "it hangs"
    return results[0]


class During(logging.Handler):
    """Calls a function while a network runs: when it logs an operator that overflows."""

    def __init__(self, work):
        """Take the function; its results are kept."""
        super().__init__()
        self.work, self.results = work, []

    def emit(self, record):
        """Do it."""
        if record.getMessage().startswith("overflow:"):
            self.results.append(self.work())


@pytest.fixture
def during(door):
    """Return a function that runs a network which overflows, and does something meanwhile."""
    handlers = []

    def run(work, runs=1):
        door.configure(op_debug_mode=3)
        network = door.load(nets.model([nets.node("Log", "x", "y")], [nets.value("x", [2])], ["y"]), **ASCEND)
        handlers.append(During(lambda: work(network)))
        logging.getLogger("msdump.capture").addHandler(handlers[-1])
        for _ in range(runs):
            network.run(ZERO)
        return network, handlers[-1].results

    yield run
    for handler in handlers:
        logging.getLogger("msdump.capture").removeHandler(handler)


def test_call_from_within_a_run(during):
    """A network that is called from within its own run refuses, and the run goes on."""

    def call(network):
        with pytest.raises(ReentryError, match="called from within its own run; call it when the run has"):
            network.run(ZERO)
        return True

    network, results = during(call, runs=2)

    assert [True, True] == results
    assert 2 == network.iteration


def test_other_network_within_a_run(door, during):
    """Another network may be called from within a run."""

    def call(_network):
        return door.load(nets.cosine()).run(X)["output"].shape

    assert [(2, 4)] == during(call)[1]


def test_calls_wait_for_the_run(during):
    """A call from another thread starts when the run that goes on has ended."""
    waiting = []

    def call(network):
        thread = threading.Thread(target=lambda: waiting.append(network.run(ZERO)["y"][0]), daemon=True)
        if not waiting:
            waiting.append(thread)
            thread.start()
            thread.join(0.2)
            return thread.is_alive()
        return None

    _, results = during(call)
    waiting[0].join(60)

    assert [True, None] == results
    assert np.isneginf(waiting[1])


def test_user_steps_from_another_thread(during):
    """Stepping, starting and stopping, and marks do not wait for a run."""

    def steer(network):
        def work():
            msdump.set_init_iter(7)
            msdump.dump_step()
            msdump.dump_stop()
            msdump.dump_start()
            msdump.set_dump(network, True)
            return True

        return within(60, work)

    network, results = during(steer)

    assert [True] == results
    assert 8 == network.iteration


def test_marks_of_a_run_that_goes_on(door, monkeypatch):
    """Marks that are set while a network runs hold from its next run on."""
    nodes = [nets.node("Log", "x", "y"), nets.node("Neg", "y", "z")]
    door.configure(dump_mode=2)
    network = door.load(nets.model(nodes, [nets.value("x", [2])], ["z"]))
    log, neg = network.operators

    def marking(function):
        def mark(*given, **named):
            msdump.set_dump(neg)
            return function(*given, **named)

        return mark

    monkeypatch.setattr(Capture, "ran", marking(Capture.ran))
    msdump.set_dump(log)
    for _ in range(2):
        network.run(ZERO)

    runs = [[path.name.split(".")[1] for path in door.rank.glob(f"Net/0/{n}/*put.0*.npy")] for n in range(2)]
    assert [{"Default_Log-op0"}, {"Default_Log-op0", "Default_Neg-op0"}] == [
        {name for name in names if not name.endswith("x")} for names in runs
    ]


INTERRUPTED = """
import logging, os, signal, threading
import numpy as np
import msdump

msdump.set_context(device_target="Ascend", jit_level="O0")
network = msdump.load("net.onnx")
go_on, inside = threading.Event(), threading.Event()

class Wait(logging.Handler):
    def emit(self, record):
        inside.set()
        go_on.wait(60)

logging.getLogger("msdump.capture").addHandler(Wait())
zero = np.zeros((2, 40), np.float32)
thread = threading.Thread(target=network, args=(zero,))
thread.start()
inside.wait(60)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    network(zero)
except KeyboardInterrupt:
    print("interrupted")
go_on.set()
thread.join(60)
network(zero)
print(network.iteration)
"""


def test_interrupt_while_a_call_waits(python, tmp_path):
    """Ctrl-C ends the wait for another thread's run, which goes on; the waiting call was no step."""
    nodes = [nets.node("Log", "x", "y")]
    onnx.save(nets.model(nodes, [nets.value("x", [2, 40])], ["y"]), tmp_path / "net.onnx")
    (tmp_path / "dump.json").write_text(json.dumps(config(tmp_path / "dump", op_debug_mode=3)))

    process = python(INTERRUPTED, MINDSPORE_DUMP_CONFIG="dump.json")
    out, err = process.communicate(timeout=100)

    assert (0, "interrupted\n2\n") == (process.returncode, out), err
