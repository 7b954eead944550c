"""Fixtures of the tests of ranks."""

import pytest

from tests.communication import launching


@pytest.fixture(autouse=True)
def _forked(forks, monkeypatch):
    """Let ranks of MPI be forks, which have imported msdump."""
    monkeypatch.setattr(launching, "PYTHON", str(forks / "python"))


@pytest.fixture(autouse=True)
def _fresh(fresh):
    """Let each test begin as a new process, which ends with it."""
    yield
    fresh.close()
