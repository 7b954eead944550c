"""Programs with a terminal as standard output and error."""

import os
import pty
import subprocess
import sys


def shown(*arguments, cwd=None, **variables):
    """Return the exit code of a Python process, and everything that it writes to a terminal."""
    terminal, side = pty.openpty()
    line = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **variables}
    with subprocess.Popen(line, stdout=side, stderr=side, cwd=cwd, env=environment) as program:
        os.close(side)
        text = b""
        while part := _read(terminal):
            text += part
    os.close(terminal)
    return program.returncode, text.decode()


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux's end of a terminal that no process holds open
        return b""
