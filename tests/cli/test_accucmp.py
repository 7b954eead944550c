"""scripts/msaccucmp.py as a program: its log, its exit codes, and the options that it hands on."""

import re
import sys

import numpy as np
import pytest

from msdump.cli import accucmp
from msdump.return_codes import ReturnCode
from tests.judge import dumped
from tests.judge.dumped import IMAGE, NAME
from tests.world import ROOT, completed

pytestmark = pytest.mark.usefixtures("quiet")

SCRIPT = ROOT / "scripts" / "msaccucmp.py"
LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+\) - \[(INFO|WARNING|ERROR)\] \S.*"


def program(*arguments):
    """Run the script in a process of its own."""
    command = [sys.executable, SCRIPT, *map(str, arguments)]
    return completed(*command)


def test_log_has_the_documented_form(tmp_path):
    """Every line of the log has date, process, level and message; the last has the seconds."""
    dumped.image_file(tmp_path / "in" / NAME)

    done = program("convert", "-d", tmp_path / "in", "-out", tmp_path / "out")

    lines = done.stderr.splitlines()
    assert (0, "") == (done.returncode, done.stdout)
    assert [] == [line for line in lines if not re.fullmatch(LINE, line)]
    assert re.search(r"\[INFO\] The command was completed and took \d+ seconds\.$", lines[-1])
    assert "Converted 1 dump files to " in done.stderr


def test_exit_code_is_the_return_code(tmp_path):
    """The program exits with the return code of its command."""
    done = program("convert", "-d", tmp_path / "missing", "-out", tmp_path / "out")

    assert 3 == done.returncode
    assert f"[ERROR] {tmp_path}/missing: " in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [(), ("nonsense",), ("compare", "-m", "a", "-g", "b"), ("convert",), ("convert", "-d", "a", "-x"),
     ("convert", "-d", "a", "-o", "1", "-i", "1"), ("convert", "-d", "a", "-v", "3")],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)  # fmt: skip
def test_wrong_command_line(arguments, capsys):
    """A command line that cannot be understood ends with 2 and says how it is used."""
    with pytest.raises(SystemExit) as raised:
        accucmp.run(arguments)

    assert 2 == raised.value.code
    assert "usage: msaccucmp.py" in capsys.readouterr().err


def test_fault_of_the_program_is_no_traceback_alone(tmp_path, monkeypatch, capsys):
    """A fault in the program itself is logged and has the code 1."""
    monkeypatch.setattr(accucmp, "find_sources", lambda *_given: 1 / 0)

    assert 1 == accucmp.run(["convert", "-d", str(tmp_path), "-out", "out"])
    assert "[ERROR] internal error: ZeroDivisionError" in capsys.readouterr().err


def test_interruption(tmp_path, monkeypatch, capsys):
    """Ctrl-C ends the command with 130."""

    def interrupted(*_given):
        raise KeyboardInterrupt

    monkeypatch.setattr(accucmp, "find_sources", interrupted)

    assert 130 == accucmp.run(["convert", "-d", str(tmp_path), "-out", "out"])
    assert "[ERROR] interrupted" in capsys.readouterr().err


class TestConvert:
    """convert, which hands its options on."""

    @pytest.fixture
    def image(self, tmp_path):
        """Return a dump file of an image."""
        return dumped.image_file(tmp_path / "in" / NAME)

    @staticmethod
    def run(*arguments):
        """Run ``msaccucmp.py convert``."""
        return accucmp.run(["convert", *map(str, arguments)])

    def test_one_tensor_in_another_format(self, tmp_path, image):
        """-f, -i, -s and -t choose format, tensor, shape and kind of file."""
        code = self.run("-d", image, "-out", tmp_path / "out", "-f", "NCHW", "-i", 0, "-s", "2,19,5,4")

        (name,) = dumped.names(tmp_path / "out")
        assert (0, f"{NAME}.input.0.2x19x5x4.npy") == (code, name)
        assert np.array_equal(IMAGE[:, :19], np.load(tmp_path / "out" / name))

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            (("-o", "1"), 6),
            (("-s", "1,2"), 6),
            (("-f", "NCHW", "-s", "1,x"), 6),
            (("-f", "NCHW", "-o", "x"), 6),
            (("-f", "NCHX"), 6),
            (("-f", "NCHW", "-o", "7"), 12),
        ],
        ids=["-o without -f", "-s without -f", "shape", "number", "format", "index"],
    )
    def test_what_cannot_be_converted(self, tmp_path, image, options, code):
        """Options that are wrong have msaccucmp's codes."""
        assert code == self.run("-d", image, "-out", tmp_path / "out", *options)

    def test_failures_are_told(self, tmp_path, image, capsys):
        """A file that cannot be converted is reported with its reason, and the code is its own."""
        (image.parent / "bad").write_bytes(b"bad")

        code = self.run("-d", image.parent, "-out", tmp_path / "out")

        log = capsys.readouterr().err
        assert 11 == code
        assert f"{image.parent}/bad: file: " in log
        assert "1 dump files failed; see" in log


def test_page_lists_codes_of_the_program():
    """The page on msaccucmp gives return codes their meaning, and has no code that does not exist."""
    page = (SCRIPT.parents[1] / "docs" / "reference" / "msaccucmp.md").read_text(encoding="utf-8")

    assert {*map(int, re.findall(r"^\| (\d+) \| [a-z]", page, re.MULTILINE))} < {*map(int, ReturnCode)}
