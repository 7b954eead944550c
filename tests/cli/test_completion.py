"""The shells complete commands and options."""

import os
import shutil
import sys

import pytest

from msdump.cli.program import COMMANDS
from tests.world import completed

PROGRAM = [sys.executable, "-c", "import sys; sys.argv[0] = 'msdump'; from msdump.cli import main; main()"]


def complete(words, incomplete):
    """Return the program's answer to the script of bash."""
    line = " ".join(["msdump", *words, incomplete])
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) + 1), "_MSDUMP_COMPLETE": "bash_complete"}
    done = completed(*PROGRAM, env={**os.environ, **asked})
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
def test_bash_takes_the_script():
    """Bash defines the function and names it for the program."""
    environment = {**os.environ, "_MSDUMP_COMPLETE": "bash_source"}
    script = completed(*PROGRAM, env=environment, check=True).stdout
    done = completed("bash", "-c", f"{script}\ncomplete -p msdump", check=True)

    assert "-F _msdump_completion msdump" in done.stdout
