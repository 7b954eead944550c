"""What tests of the program share when they run it in their own process."""

import logging

import pytest

from msdump import env
from msdump.capture.process import Process
from msdump.cli import messages
from msdump.frontends import mindspore


@pytest.fixture
def fresh(monkeypatch):
    """Give each test a process of its own and no variable of the environment."""
    monkeypatch.setattr(mindspore, "_state", mindspore.ProcessState(Process()))
    for variable in env.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    yield
    logging.getLogger("msdump").removeHandler(messages._lines)
