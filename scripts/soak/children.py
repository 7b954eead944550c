"""Processes that are forked from one that has imported everything: cheap enough to be killed by thousands."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
import traceback

LIMIT = 120  # seconds that any child may take


class Child:
    """A forked process and the pipe that it reports to."""

    def __init__(self, function, *arguments):
        """Fork; the child calls the function with a ``report`` of bytes before the arguments, and ends."""
        self._reader, writer = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            _run(writer, function, arguments)
        os.close(writer)

    def wait_for_bytes(self):
        """Return the next bytes that it reports, nothing where it has ended."""
        return os.read(self._reader, 1 << 16)

    def send(self, number):
        """Send a signal."""
        os.kill(self.pid, number)

    def end(self):
        """Wait for its end; return the rest of its report and the status as in ``subprocess``."""
        told = b""
        limit = time.monotonic() + LIMIT
        with os.fdopen(self._reader, "rb") as pipe:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(self.pid, signal.SIGKILL))
            signal.alarm(LIMIT)
            told = pipe.read()
            _, status = os.waitpid(self.pid, 0)
            signal.alarm(0)
        code = os.waitstatus_to_exitcode(status)
        return told, "hangs" if time.monotonic() > limit else code


def _run(writer, function, arguments):
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.disable(logging.CRITICAL)
        function(lambda data: os.write(writer, data), *arguments)
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        with contextlib.suppress(OSError):
            os.write(writer, b"\n" + traceback.format_exc().encode())
    finally:
        os._exit(code)
