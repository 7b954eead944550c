"""The prompt of ``msdump query``, on a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import sys
import time

import pytest

pytest.importorskip("readline")

PLACE = "rank_0/Net/0/3/statistic.csv"
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value"
STATISTICS = f'{HEAD}\nAdd,Default_Add-op0,0,0,9,output,0,24,float32,"(2,3)",6\n'
PROGRAM = "import sys; from msdump.cli import main; main(sys.argv[1:])"
SECONDS = 100


class Terminal:
    """A program on a terminal: what is typed, and what it shows."""

    def __init__(self, home, *arguments):
        """Start the program with a home directory of its own."""
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"HOME": str(home), "TERM": "dumb", "COLUMNS": "100", "INPUTRC": "/dev/null"}
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *map(str, arguments)])  # noqa: S606

    def until(self, text):
        """Return what is shown up to a text; what follows it is left for the next call."""
        end = time.monotonic() + SECONDS
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.fd], [], [], 1)[0]:
                self.shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.fd, 4096).decode())
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def type(self, text):
        """Type a text."""
        os.write(self.fd, text.encode())

    def ends(self):
        """Return the exit code, once the program has ended and with it what it shows."""
        with contextlib.suppress(OSError):  # what Linux says where the other side is closed
            while select.select([self.fd], [], [], SECONDS)[0] and os.read(self.fd, 4096):
                pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


def test_prompt(put, tmp_path):
    """Words are completed, questions answered, mistakes told without an end; the next session remembers."""
    put(tmp_path / "dump" / PLACE, STATISTICS)
    first = Terminal(tmp_path, "query", tmp_path / "dump")
    first.until("msdump> ")
    first.type("select max fr\t stat\t where max = 6;\n")
    assert "│   6 │" in first.until("┘")
    first.until("msdump> ")
    first.type("choose 1;\n")
    assert "syntax error" in first.until("msdump> ")
    first.type("select count(*) as n\n")
    first.until("...> ")
    first.type("from statistics\n\n")
    assert "│ 1 │" in first.until("msdump> ")
    first.type("help\n")
    assert "operators: dump, rank" in first.until("msdump> ")
    first.type("exit\n")
    assert 0 == first.ends()

    second = Terminal(tmp_path, "query", tmp_path / "dump", "--csv")
    second.until("msdump> ")
    second.type("\x1b[A" * 6 + "\n")
    second.until("\r\n6.0")
    second.until("msdump> ")
    second.type("\x04")
    assert 0 == second.ends()
