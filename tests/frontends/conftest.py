"""Doors with a state of their own for each test."""

import pytest

from msdump import acl, env
from msdump.frontends.acl import state
from tests.frontends.acl.script import Script


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Give pyACL's door of a fresh process; no variable of the machine reaches it."""
    for variable in env.VARIABLES:
        if variable.name != env.THREADS:
            monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.chdir(tmp_path)
    state.replace_state(state.AclState())
    yield Script(tmp_path)
    state.current().dumps.stop()
    state.replace_state(state.AclState())


@pytest.fixture
def started(script):
    """Give a script that has initialised."""
    assert 0 == acl.init()
    return script
