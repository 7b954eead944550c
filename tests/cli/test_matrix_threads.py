"""Threads of numpy's library for matrices, which only commands start that multiply some."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys
from msdump.cli import main
sys.argv = ["msdump", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print("threads:", os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [("show", None, "1"), ("convert", None, "1"), ("show", "3", "3"), ("compare", None, "None")],
)
def test_commands_that_multiply_nothing_spare_threads(command, given, expected):
    """A command without matrices starts no threads for them, unless the user has asked for some."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given:
        environment["OPENBLAS_NUM_THREADS"] = given

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, command, "--help"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=100,
    )

    assert f"threads: {expected}" == done.stdout.splitlines()[-1]
