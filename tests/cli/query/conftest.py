"""What the tests of ``msdump query`` share: dumps by hand, and answers as rows."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.encode import npy


@pytest.fixture
def ask():
    """Return a function that asks a question and returns the exit code, the rows and standard error."""

    def call(*arguments, **options):
        done = CliRunner().invoke(main, ["query", *map(str, arguments), "--csv"], **options)
        return done.exit_code, [*csv.reader(io.StringIO(done.stdout))][1:], done.stderr

    return call


@pytest.fixture
def answered(ask):
    """Return a function that asks a question that goes well and says nothing, and returns the rows."""

    def call(*arguments):
        code, rows, stderr = ask(*arguments)
        assert (code, stderr) == (0, "")
        return rows

    return call


@pytest.fixture
def put():
    """Return a function that writes a file of a dump, of bytes, text or an array."""

    def write(path, contents):
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(contents, np.ndarray):
            contents = b"".join(npy.encode(contents))
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path

    return write
