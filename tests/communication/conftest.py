"""What the tests of ranks share."""

from __future__ import annotations

import pytest

from msdump import env
from msdump.capture.process import Process
from msdump.frontends import mindspore


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Give each test a process of its own and no variable of the environment."""
    process = Process()
    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(process))
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    yield
    process.close()
