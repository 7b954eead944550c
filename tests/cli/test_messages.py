"""Progress on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

CODE = """
from msdump.cli import messages
with messages.bar("operators", 0) as bar:
    bar.expect(4)
    for _ in range(4):
        bar(50_000_000)
"""


def test_bar_shows_the_rate_on_a_terminal():
    """Behind the bar stand the bytes a second; a pipe gets nothing."""
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CODE], stderr=side, env={**os.environ, "COLUMNS": "100"}
    ) as shown:
        os.close(side)
        told = b""
        while part := _read(terminal):
            told += part
    os.close(terminal)
    piped = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True)

    assert 0 == shown.returncode
    assert b"operators" in told
    assert b" MB/s" in told
    assert b"" == piped.stderr


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux's end of a terminal that nobody writes to any more
        return b""
