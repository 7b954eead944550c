"""The command that compares dumps."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.tools.mapping import executors, mapper, sizes


@pytest.fixture(autouse=True)
def _quiet(quiet):
    """Every test here starts programs."""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs ``msdump compare`` and returns what it printed."""

    def compare(dumped, golden, *options):
        arguments = ["compare", str(dumped), str(golden), "-out", str(tmp_path / "out"), *map(str, options)]
        return CliRunner().invoke(main, arguments)

    return compare


@pytest.fixture
def in_processes(monkeypatch):
    """Return a function that lets two processes do any work, in units that take so long."""

    def let(seconds=0):
        monkeypatch.setattr(mapper, "WORTH_IT", 0)
        monkeypatch.setattr(executors, "cores", lambda: 2)
        monkeypatch.setattr(sizes, "_SECONDS", seconds)

    return let
