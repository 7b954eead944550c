"""``msdump completion``: the shells complete commands and options."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.cli.program import COMMANDS

PLACES = {
    "bash": ".local/share/bash-completion/completions/msdump",
    "zsh": ".zfunc/_msdump",
    "fish": ".config/fish/completions/msdump.fish",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give the user a directory of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("shell", PLACES)
def test_script_is_printed_and_installed(home, shell):
    """The script that is written where the shell looks is the one that is printed."""
    printed = CliRunner().invoke(main, ["completion", shell])
    done = CliRunner().invoke(main, ["completion", shell, "--install"])

    path = home / PLACES[shell]
    assert (0, 0) == (printed.exit_code, done.exit_code)
    assert f"written    {path}" == done.stdout.splitlines()[0]
    assert printed.stdout == path.read_text(encoding="utf-8") + "\n"
    assert "_MSDUMP_COMPLETE" in printed.stdout
    assert stat.S_IRUSR & path.stat().st_mode


def test_own_shell(monkeypatch):
    """Without a name it is the user's own shell."""
    monkeypatch.setenv("SHELL", "/usr/bin/fish")

    assert (
        CliRunner().invoke(main, ["completion", "fish"]).stdout
        == CliRunner().invoke(main, ["completion"]).stdout
    )


@pytest.mark.parametrize(("shell", "told"), [("/bin/tcsh", "$SHELL is tcsh"), ("", "$SHELL is not set")])
def test_unknown_shell(monkeypatch, shell, told):
    """A shell without a script is refused; the message lists the shells with one."""
    monkeypatch.setenv("SHELL", shell)

    done = CliRunner().invoke(main, ["completion"])

    assert 2 == done.exit_code
    assert f"{told}: give one of bash, zsh, fish" in done.stderr


def complete(words, incomplete):
    """Return the program's answer to the script of bash."""
    line = " ".join(["msdump", *words, incomplete])
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) + 1), "_MSDUMP_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'msdump'; from msdump.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_are_completed():
    """The first word is a command."""
    assert [name for name in COMMANDS if name.startswith("co")] == complete([], "co")


def test_options_are_completed():
    """Words of a command are its options and their values."""
    assert ["--seed", "--steps", "--save-state", "--save-outputs"] == complete(["run"], "--s")
    assert ["own", "scope", "type"] == sorted(complete(["compare", "--by"], ""))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_the_script(home):
    """Bash defines the function and names it for the program."""
    CliRunner().invoke(main, ["completion", "bash", "--install"])

    done = subprocess.run(
        ["bash", "-c", f"source {Path(home) / PLACES['bash']}; complete -p msdump"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "-F _msdump_completion msdump" in done.stdout
