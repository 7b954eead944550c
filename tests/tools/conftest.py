"""The command that compares dumps."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from msdump.cli import main


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
