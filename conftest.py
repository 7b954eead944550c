"""Rules of every test: Ctrl-C works, a busy machine breaks none, one that hangs fails by itself.

None leaves a sink open, as other tests would count the sink's threads.
"""

import atexit
import gc
import logging
import os
import resource
import signal
import sys
import threading
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from msdump import env
from msdump.capture import Process
from msdump.cli import messages
from msdump.frontends import mindspore
from msdump.store.write.async_sink import THREAD_NAME
from tests import fork_server, path_warnings

_ALLOCATIONS = 20_000
"""Allocations between collections of garbage: Python's own 700 take 6 to 18 % of the tests' time."""
_SLOW_LIMIT = 600  # seconds for a test marked slow; the limit of the others stands in pyproject.toml

settings.register_profile(
    "msdump",
    deadline=None,  # how long an example takes says more about the machine than about the code
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,  # there a failure is the change's fault, not chance's
)
settings.load_profile("msdump")


def pytest_configure():
    """Let tests and the programs that they start keep compiled modules; collect garbage less often."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    gc.set_threshold(_ALLOCATIONS)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the garbage collector the hundreds of thousands of objects that collecting makes and that stay.

    It looks for garbage neither while they are made nor, later, among them: every ``gc.collect()`` of a test,
    or of its measurements, would walk through all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        atexit.register(
            gc.unfreeze
        )  # else nanobind reports leaks of objects that Python does not take apart at its end


def pytest_collection_modifyitems(items):
    """Give slow tests their own limit, where they do not name one."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SLOW_LIMIT))


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c():
    """Let Ctrl-C and SIGHUP reach the tests and the programs that they start, though both are ignored.

    A shell ignores Ctrl-C for commands in the background (``scripts/test.sh &``), nohup ignores SIGHUP, and
    every child inherits that.
    """
    heard = ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))
    before = {number: signal.getsignal(number) for number, _ in heard}
    for number, handler in heard:
        if before[number] is signal.SIG_IGN:
            signal.signal(number, handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _place(tmp_path_factory):
    """Let no test see a warning that its folder alone brings about, as in a clone below ``my.models``."""
    with path_warnings.silenced(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(autouse=True)
def _messages():
    """Let no command that a test runs in this process go on printing the log of later tests."""
    yield
    logging.getLogger("msdump").removeHandler(messages._lines)


def _own_state():
    """Hide the options, configurations and iterations that commands have left in this process."""
    with mock.patch.object(mindspore, "_state", mindspore.ProcessState(Process())):
        yield


# of a module too: its fixtures run before the fixtures of a test
_state_of_module = pytest.fixture(_own_state, scope="module", autouse=True)
_state_of_test = pytest.fixture(_own_state, autouse=True)


@pytest.fixture(scope="module", autouse=True)
def _writers():
    """Fail where threads that write files outlive a module; name the tests after which they were seen first.

    Later than a test: fixtures of a module may keep a sink open until its last test.
    """
    before, seen = threading.enumerate(), {}
    yield seen
    for thread in seen.keys() - before:
        thread.join(30)  # seconds: closing a sink lets its threads end, and waits for none
    left = {test for thread, test in seen.items() if thread.is_alive() and thread not in before}
    assert set() == left, "an asynchronous sink was left open: close its network's process"


@pytest.fixture(autouse=True)
def _seen_writers(_writers, request):
    """Note the owner of the threads."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD_NAME):
            _writers.setdefault(thread, request.node.nodeid)


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Return a folder with an msdump and a python that are forks of a process that has imported msdump."""
    with fork_server.programs(tmp_path_factory.mktemp("forks")) as folder:
        yield folder


@pytest.fixture
def fresh(monkeypatch):
    """Take every variable of msdump out of the environment; return the test's process."""
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    return mindspore._state.process


@pytest.fixture
def quiet():
    """Undo the program's changes of the library's log."""
    log = logging.getLogger("msdump")
    before = log.handlers[:], log.level
    yield
    log.handlers[:], log.level = before


@pytest.fixture
def file_size_limit():
    """Return a function that limits the size of every file this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def in_processes(quiet, monkeypatch):
    """Return a function that lets two processes do any work, in units of one item unless a cost is given."""
    from msdump import executors  # not above: most tests map nothing

    def let(unit_cost=0):
        monkeypatch.setattr(executors, "WORTH_IT", 0)
        monkeypatch.setattr(executors, "cores", lambda: 2)
        monkeypatch.setattr(executors, "UNIT_COST", unit_cost)

    return let
