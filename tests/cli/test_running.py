"""How the tests themselves run: none hangs, Ctrl-C works, examples have no deadline."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[2]

HANGING = """
import threading

def test_hangs():
    threading.Event().wait()

def test_runs():
    pass
"""


@pytest.fixture
def pytest_run(tmp_path):
    """Return a function that runs pytest with the project's configuration in a process of its own.

    Its temporary files have a folder of their own: among those of other runs it would tidy up, which takes
    half a minute after some whole ones.
    """
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider"]

    def run(*arguments):
        line = [*command, "--basetemp", tmp_path / "temporary", *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)

    return run


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_hangs_fails(pytest_run, tmp_path, workers):
    """A test that waits for ever fails at the limit, and the others run."""
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text(HANGING)

    done = pytest_run("-n", workers, "-o", "timeout=1", hanging)

    assert "1 failed, 1 passed" in done.stdout
    assert "Timeout" in done.stdout


def test_every_test_has_a_limit(request):
    """The limit holds without an option and is shorter than the last resort, which is on."""
    limit, last = (float(request.config.getini(name)) for name in ("timeout", "faulthandler_timeout"))

    assert 0 < limit < last
    assert request.config.getini("faulthandler_exit_on_timeout") is True


@pytest.mark.slow
def test_slow_tests_have_a_longer_limit(request):
    """A test marked slow may take minutes."""
    assert (600,) == request.node.get_closest_marker("timeout").args


def test_examples_have_no_deadline():
    """Hypothesis measures no example: a busy machine breaks none."""
    assert settings.default.deadline is None


def test_the_suite_passes_where_ctrl_c_is_ignored(pytest_run):
    """Tests of Ctrl-C pass in a process that a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = pytest_run("tests/store/write/test_exits.py", "-k", "Ctrl-C")
    finally:
        signal.signal(signal.SIGINT, before)

    assert 0 == done.returncode, done.stdout
