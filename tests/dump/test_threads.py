"""Networks that several threads call, in processes of their own: a crash would be one of the interpreter."""

import json
import logging
import threading

import numpy as np
import onnx
import pytest

import msdump
from msdump.capture.capture import Capture
from msdump.errors import ReentryError
from scripts.soak import networks
from tests.dump import nets
from tests.texts import parsed
from tests.world import O0, config

X = {"x": np.ones((2, 4), np.float32)}
ZERO = {"x": np.zeros(2, np.float32)}


@pytest.mark.parametrize("number", range(len(networks.SETUPS)), ids=[each.name for each in networks.SETUPS])
def test_calls_from_several_threads(python, tmp_path, number):
    """Each call gives its own result, and is one iteration, whole, in a directory of its own."""
    place = f"networks.SETUPS[{number}], 2, Path({str(tmp_path)!r})"
    process = python(
        f"from pathlib import Path; from scripts.soak import networks, threads; print(threads.calls({place}))"
    )

    out, err = process.communicate(timeout=100)

    assert "[]\n" == out, err


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
        network = door.load(parsed("graph (float[2] x) => (y) { y = Log(x) }"), **O0)
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
        with pytest.raises(ReentryError, match="called during its own run; call it after the run"):
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
    door.configure(dump_mode=2)
    network = door.load(parsed("graph (float[2] x) => (z) { y = Log(x) z = Neg(y) }"))
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
    onnx.save(parsed("graph (float[2,40] x) => (y) { y = Log(x) }"), tmp_path / "net.onnx")
    (tmp_path / "dump.json").write_text(json.dumps(config(tmp_path / "dump", op_debug_mode=3)))

    process = python(INTERRUPTED, MINDSPORE_DUMP_CONFIG="dump.json")
    out, err = process.communicate(timeout=100)

    assert (0, "interrupted\n2\n") == (process.returncode, out), err
