"""The server that starts programs as forks: each is a process as if it had been started by itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess

import pytest

from tests import fork_server

PROGRAMS = {
    "ends": ("pass", 0, "", ""),
    "exits": ("import sys; sys.exit(3)", 3, "", ""),
    "raises": ("1 / 0", 1, "", "ZeroDivisionError: division by zero"),
    "says why": ("import sys; sys.exit('no')", 1, "", "no"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", -9, "", ""),
    # whoever started the tests may ignore the signal, as nohup does
    "hangs up": (
        "import os, signal; signal.signal(1, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGHUP)",
        *(-signal.SIGHUP, "", ""),
    ),
    "is main": ("print(__name__, __file__)", 0, "__main__ program.py", ""),
    "arguments": ("import sys; print(sys.argv)", 0, "['program.py', 'a b', '']", ""),
    "folder": ("import os; print(os.path.basename(os.getcwd()))", 0, "here", ""),
    "beside": ("import beside", 0, "imported", ""),
    "environment": ("import os; print(os.environ['ONE'], 'TWO' in os.environ)", 0, "1 False", ""),
    "input": ("print(input().upper())", 0, "TYPED", ""),
    "at its end": ("import atexit; atexit.register(print, 'last')", 0, "last", ""),
}
"""Text of a program, its exit code, what it prints, the last line that it says on standard error."""


@pytest.fixture
def start(forks, tmp_path):
    """Return a function that starts a program in a folder; its environment is what is given, and no more."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "beside.py").write_text("print('imported')")

    def run(name, *arguments, **environment):
        return subprocess.Popen(
            [forks / name, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.mark.parametrize(("text", "code", "printed", "said"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_one_of_its_own(start, tmp_path, monkeypatch, text, code, printed, said):
    """Its arguments, folder, environment, streams and end are those of ``python FILE``."""
    monkeypatch.setenv("TWO", "2")
    (tmp_path / "here" / "program.py").write_text(text)

    with start("python", "program.py", "a b", "", ONE="1") as program:
        out, err = program.communicate("typed\n", timeout=60)

    assert (code, printed) == (program.returncode, out.strip())
    assert [said] == (err.splitlines() or [""])[-1:]


def test_a_text_is_one_of_its_own(start):
    """Its arguments, folder and module are those of ``python -c``."""
    text = "import beside, sys; x = 3\ndef f(): return x\nprint(__name__, sys.argv, f())"

    with start("python", "-c", text, "a b") as program:
        out, err = program.communicate(timeout=60)

    assert (0, "imported\n__main__ ['-c', 'a b'] 3\n", "") == (program.returncode, out, err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_caught", [True, False])
def test_a_signal_reaches_the_fork(start, number, is_caught):
    """What whoever started a program tells it by a signal, the program hears."""
    caught = f"signal.signal({int(number)}, lambda *_: sys.exit('caught'))"
    default = f"signal.signal({int(number)}, signal.SIG_DFL)"
    text = f"import signal, sys, time\n{caught if is_caught else default}\nprint('ready', flush=True)\n"
    text += "for _ in range(6000): time.sleep(0.01)"  # one long wait may begin just behind a signal

    with start("python", "-c", text) as program:
        assert "ready\n" == program.stdout.readline()
        program.send_signal(number)
        _, err = program.communicate(timeout=60)

    assert ((1, "caught\n") if is_caught else (-number, "")) == (program.returncode, err)


WAYS = pytest.mark.parametrize("way", [("msdump",), ("python", "-m", "msdump")], ids=["program", "module"])


@WAYS
def test_msdump_is_the_program(start, way):
    """Its commands end with their codes."""
    with start(*way, "--version") as told, start(*way, "show", "nowhere") as refused:
        (out, _), (_, err) = told.communicate(timeout=60), refused.communicate(timeout=60)

    assert (0, "msdump") == (told.returncode, out[:6])
    assert (2, "msdump: error: nowhere: no dump here\n") == (refused.returncode, err)


IMPORTED = "import sys; print('msdump.cli.compare' in sys.modules)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("program.py",), "True"), (("-c", IMPORTED), "True"), ((), "False")],
    ids=["file", "-c", "standard input"],
)
def test_what_is_imported_already(start, tmp_path, arguments, expected):
    """A file and a text are run by a fork, which has imported msdump; standard input starts afresh."""
    (tmp_path / "here" / "program.py").write_text(IMPORTED)

    with start("python", *arguments) as program:
        out, _ = program.communicate(IMPORTED, timeout=60)

    assert expected == out.strip()


@WAYS
def test_a_command_that_starts_afresh(start, tmp_path, way):
    """A command that the environment names is a program that has imported nothing yet."""
    (tmp_path / "here" / "click.py").write_text("raise SystemExit('another click')")
    folder = str(tmp_path / "here")

    with (
        start(*way, "show", PYTHONPATH=folder, **{fork_server.AFRESH: "run,show"}) as afresh,
        start(*way, "show", "--help", PYTHONPATH=folder, **{fork_server.AFRESH: "run"}) as forked,
    ):
        ends = afresh.communicate(timeout=60)[1], forked.communicate(timeout=60)[1]

    assert ("another click\n", "") == ends
    assert (1, 0) == (afresh.returncode, forked.returncode)


def test_a_program_ends_with_its_client(start, tmp_path):
    """Whoever kills what it has started kills the fork."""
    (tmp_path / "here" / "program.py").write_text(
        "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    )

    with start("python", "program.py") as program:
        fork = os.pidfd_open(int(program.stdout.readline()))
        program.kill()
        ended, _, _ = select.select([fork], [], [], 60)
        os.close(fork)

    assert [fork] == ended


def test_the_server_ends(tmp_path):
    """Nothing is left of it once it is not wanted."""

    def version():
        command = [tmp_path / "msdump", "--version"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    with fork_server.programs(tmp_path):
        before = version()
    after = version()

    assert (0, "") == (before.returncode, before.stderr)
    assert 1 == after.returncode
    assert "ConnectionRefusedError" in after.stderr
