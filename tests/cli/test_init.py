"""``msdump init``: the written configurations are valid and dump."""

import json
import os
import pty
import subprocess
import sys

import pytest

from msdump.capture import Process
from msdump.config import templates
from msdump.frontends import mindspore
from tests.world import GRAPHS, cli

MINI = GRAPHS / "mini.onnx"
MODES = templates.MODES
PLAIN = [name for name, mode in MODES.items() if not mode.is_acl]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a directory with characters that MindSpore accepts."""
    monkeypatch.chdir(tmp_path)
    mindspore._state = mindspore.ProcessState(Process())
    return tmp_path


def commands(output):
    """Return the commands of a call by title."""
    return {line[:11].strip(): line[11:] for line in output.splitlines()}


@pytest.mark.parametrize("mode", MODES)
def test_files_have_no_fault(folder, caplog, mode):
    """The file of each mode is read without a warning, also by colleagues."""
    done = cli("init", "--mode", mode)

    assert (0, "") == (done.exit_code, done.stderr)
    assert MODES[mode].check((folder / "data_dump.json").read_bytes(), "data_dump.json") is not None
    assert 0o644 == (folder / "data_dump.json").stat().st_mode & 0o777
    assert [] == caplog.messages


@pytest.mark.parametrize("mode", PLAIN)
def test_printed_commands_run(folder, mode):
    """The printed commands accept the file without a warning, and dump as the mode says."""
    shown = commands(cli("init", "--mode", mode, "-o", f"{mode}.json").stdout)

    checked = cli(*shown["check"].split()[1:])
    run = cli(*shown["run"].replace("MODEL.onnx", str(MINI)).split()[1:])
    assert (0, "", 0, "") == (checked.exit_code, checked.stderr, run.exit_code, run.stderr)
    assert "dumped   1 iteration (0): " in run.stdout
    assert (mode != "overflow") == any(
        (folder / "dump").rglob("*.*.npy" if mode != "statistics" else "*.csv")
    )


def test_comments_stand_before_their_keys(folder):
    """Each key has a comment in front, the key with an underscore."""
    cli("init", "--yes", "--iteration", "0|2-3")

    document = json.loads((folder / "data_dump.json").read_text())
    assert ["_", "common_dump_settings", "e2e_dump_settings"] == [*document]
    keys = [*document["common_dump_settings"]]
    assert [f"_{key}" for key in keys[1::2]] == keys[::2]
    block = document["common_dump_settings"]
    assert (f"{folder}/dump", "0|2-3") == (block["path"], block["iteration"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "data_dump.json exists; --force replaces it"),
        (("--yes",), 2, "data_dump.json exists; --force replaces it"),
        (("--force",), 0, ""),
        (("-o", "dump.txt"), 2, "must end in .json"),
        (("-o", "missing/../other.json"), 0, ""),
        (("--mode", "o3"), 2, "'o3' is not one of"),
    ],
)
def test_files_are_kept(folder, arguments, code, words):
    """An existing file is replaced with --force alone."""
    (folder / "data_dump.json").write_text("{}")

    done = cli("init", *arguments)
    assert code == done.exit_code
    assert words in done.stderr
    assert ("--force" in arguments) == ((folder / "data_dump.json").read_text() != "{}")


def test_a_path_that_mindspore_refuses_is_told(folder, monkeypatch):
    """A directory with other characters is the path of the dump all the same; a warning says so."""
    odd = folder / "odd+name"
    odd.mkdir()
    monkeypatch.chdir(odd)

    done = cli("init")
    path = json.loads((odd / "data_dump.json").read_text())["common_dump_settings"]["path"]
    assert (0, f"{odd}/dump") == (done.exit_code, path)
    assert "MindSpore refuses a path with" in done.stderr


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("\n\n\n\n\n", {"dump_mode": 0, "net_name": "Net", "iteration": "0", "kernels": []}),
        (
            "cpu\n\nMini\n0|2\nConv2D, ReLU\n",
            {"dump_mode": 1, "iteration": "0|2", "kernels": ["Conv2D", "ReLU"]},
        ),
        ("overflow\n\nMini\nall\n", {"op_debug_mode": 3, "iteration": "all"}),
    ],
)
def test_a_terminal_has_questions(folder, typed, expected):
    """The answers on a terminal decide about the file."""
    terminal, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "msdump", "init"], stdin=side, stdout=subprocess.PIPE
    ) as program:
        os.write(terminal, typed.encode())
        shown, _ = program.communicate()
    os.close(side)
    os.close(terminal)

    block = json.loads((folder / "data_dump.json").read_text())["common_dump_settings"]
    assert expected == {key: block[key] for key in expected}
    assert b"written" in shown


def test_answers_are_checked():
    """Wrong answers are the reader's errors."""
    data = templates.render(MODES["sync"], templates.Answers("/dump", iteration="x")).encode()

    with pytest.raises(RuntimeError, match="iteration"):
        MODES["sync"].check(data, "data_dump.json")
