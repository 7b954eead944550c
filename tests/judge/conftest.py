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
    """Return a function that runs ``msdump compare``, on ``mine`` and ``golden`` unless paths come first."""

    def compare(*arguments):
        if str(next(iter(arguments), "-")).startswith("-"):
            arguments = (tmp_path / "mine", tmp_path / "golden", *arguments)
        return CliRunner().invoke(main, ["compare", "-out", str(tmp_path / "out"), *map(str, arguments)])

    return compare
