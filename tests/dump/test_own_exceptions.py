"""Exceptions of the program's own amid a step: a timer's handler, another thread, a callback."""

import ctypes
import random
import signal
import sys
import threading
import time
import traceback
from functools import partial

import numpy as np
import pytest

from tests.dump import nets, trees
from tests.world import CPU, O0, O2

MODES = {
    "CPU": (CPU, {}),
    "O0": (O0, {}),
    "statistics": (O0, {"saved_data": "statistic", "statistic_category": ["max", "md5"]}),
    "asynchronous": (O0, {"enable": False}),
    "O2": (O2, {"file_format": "npy"}),
}
X = np.linspace(1, 2, 40_000, dtype=np.float32)
"""Large enough for the threads of an asynchronous dump."""


class Stop(Exception):  # noqa: N818 - as users name them
    """A program's own."""


class StopRuntime(RuntimeError):  # noqa: N818 - the same
    """Of a class that the runtime raises."""


class StopTime(TimeoutError):  # noqa: N818 - the same
    """Of a class that the disk raises."""


KINDS = (Stop, StopRuntime, StopTime, TimeoutError, RuntimeError, StopIteration)


def network():
    """Return a model of some operators."""
    nodes = [nets.node("Neg" if n % 2 else "Abs", f"v{n}", f"v{n + 1}") for n in range(6)]
    return nets.model(nodes, [nets.value("v0", ["n"])], ["v6"])


class Timer:
    """Raises an exception from a signal's handler at a moment in a call.

    Attributes:
        came: Whether it was raised.
        place: Where, for messages.
    """

    def __init__(self, monkeypatch):
        """Take the signal of alarms until the test ends."""
        self.came, self.place, self._error, self._dropped = False, "", None, []
        monkeypatch.setattr(sys, "unraisablehook", lambda told: self._dropped.append(told.exc_value))
        signal.signal(signal.SIGALRM, self._expire)

    def _expire(self, _number, frame):
        if self._error is not None:
            self.came, self.place = True, "".join(traceback.format_stack(frame, 4))
            raise self._error

    def call(self, function, error, delay):
        """Return the exception of a call, None where it is over first."""
        self.came, self._error = False, error
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            function()
            self._error = None
        except Exception as raised:  # noqa: BLE001 - it is looked at
            return raised
        finally:
            self._error = None
            signal.setitimer(signal.ITIMER_REAL, 0)
        # Python itself drops a handler's exception amid the callback of a weak reference
        return error if self.came and self._dropped[-1:] == [error] else None


@pytest.fixture
def timer(monkeypatch):
    """Give a timer, and the signal back."""
    before = signal.getsignal(signal.SIGALRM)
    yield Timer(monkeypatch)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("mode", MODES)
def test_a_timer_in_a_step(mode, door, timer):
    """An exception of a handler amid a step reaches the caller as it is; files stand, and steps go on."""
    context, changes = MODES[mode]
    moments = random.Random(mode)  # noqa: S311 - no secret
    door.configure(**changes)
    lost = []

    for network_number in range(2):
        net = door.load(network(), **context)
        longest = 0.02  # the first step compiles
        for number in range(20):
            error = KINDS[number % len(KINDS)](f"told {number}")
            raised = timer.call(partial(net, X), error, moments.uniform(1e-5, longest))
            if raised is not (error if timer.came else None):
                lost.append((network_number, number, error, raised, timer.place))
            if number == 0:
                started = time.perf_counter()
                net(X)
                longest = 1.2 * (time.perf_counter() - started)
    before = net.summary.files
    np.testing.assert_array_equal(-X, net(X))
    after = net.summary
    door.process.close()

    assert [] == lost
    assert {} == after.lost
    assert after.files > before or mode == "statistics"
    files = [path for _, path in trees.tensors(door.path)]
    assert {X.shape} >= {np.load(path).shape for path in files}


def test_a_thread_is_told_to_stop(door):
    """An exception from another thread amid a step reaches the worker as it is."""
    door.configure(saved_data="statistic")
    net = door.load(network(), **O0)
    for kind in KINDS[:3]:
        caught, is_running = [], threading.Event()

        def work(caught=caught, is_running=is_running):
            try:
                for _ in range(3000):  # an exception that is lost must not fill the disk
                    net(X)
                    is_running.set()
            except Exception as error:  # noqa: BLE001 - it is looked at
                caught.append(type(error))

        worker = threading.Thread(target=work)
        worker.start()
        assert is_running.wait(60)
        told = ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(worker.ident), ctypes.py_object(kind)
        )
        worker.join(60)

        assert (1, [kind]) == (told, caught)
