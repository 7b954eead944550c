"""The programs of the wheel, as processes: their names, and streams that nothing can be written to."""

import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests import path_warnings
from tests.world import ROOT, completed, write_config

ACCUCMP = (sys.executable, "-c", "from msdump.cli.accucmp import main; main()")
MSDUMP = (sys.executable, "-m", "msdump")
FORKED = ("{forks}/python",)  # starts at once; test_loading.py proves the imports of each command
NAME = "rank_0/Net/0/0/Add.Default_Add-op{}.0.0.{}.output.0.DefaultFormat.float32.npy"


def test_entry_points_exist():
    """Every program that the wheel declares is a function that can be imported."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert {"msdump": "msdump.cli:main", "msaccucmp": "msdump.cli.accucmp:main"} == declared
    for target in declared.values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize("program", ["msdump", "msaccucmp"])
def test_entry_points_are_installed(program):
    """The installed package has the program, and it answers."""
    path = shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip("the package is not installed here")

    done = completed(path, "--help", timeout=60)

    assert (0, "") == (done.returncode, done.stderr)
    assert "convert" in done.stdout


@pytest.fixture
def dump(tmp_path):
    """Return a dump of two hundred operators with statistics."""
    for number in range(200):
        path = tmp_path / "dump" / NAME.format(number, 1795219089580885 + number)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.arange(3, dtype=np.float32))
    return tmp_path / "dump"


COMMANDS = {
    "help": (*MSDUMP, "--help"),
    "show": (*FORKED, "-m", "msdump", "show", "{dump}"),
    "compare": (*FORKED, "-m", "msdump", "compare", "{dump}", "{dump}", "-v", "-out", "{out}"),
    "check": (
        *(*FORKED, "-m", "msdump", "check", "sample_nets/mini/data_dump.json"),
        *("--model", "graphs/mini.onnx"),
    ),
    "msaccucmp": (*ACCUCMP, "--help"),
    "sample": (*FORKED, "sample_nets/mini/run.py", "--steps", "1", "--cache", "{out}"),
    "sample's help": (*FORKED, "sample_nets/mini/run.py", "--help"),
    "training": (*FORKED, "sample_nets/lenet/train_lenet.py", "--steps", "1", "--cache", "{out}"),
    "acl": (*FORKED, "sample_nets/lenet/run_acl.py", "--steps", "1", "--cache", "{out}"),
    "show_training": (*FORKED, "scripts/show_training.py", "{dump}"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_reader_that_goes_away(tmp_path, dump, forks, command):
    """``| head -1`` ends a program without a word on standard error."""
    line = [part.format(dump=dump, out=tmp_path / "out", forks=forks) for part in command]
    surroundings = {"PATH": "/usr/bin:/bin", "MS_DIAGNOSTIC_DATA_PATH": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(line, cwd=ROOT, stdout=pipe, stderr=pipe, env=surroundings) as program:
        program.stdout.close()  # no reader from the start
        told = program.stderr.read()
        code = program.wait(60)

    assert "" == path_warnings.without(told.decode(), tmp_path)
    assert code in {0, 1, 141}  # click and rich end with 1


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_below_standard_output(tmp_path, dump, forks, command):
    """A program that cannot write to standard output says so, and ends with 1."""
    line = [part.format(dump=dump, out=tmp_path / "out", forks=forks) for part in command]
    surroundings = {"PATH": "/usr/bin:/bin", "MS_DIAGNOSTIC_DATA_PATH": str(tmp_path)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            line, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, env=surroundings, timeout=60, check=False
        )

    told = path_warnings.without(done.stderr.decode(), tmp_path)
    assert "msdump: error: standard output cannot be written: No space left on device\n" == told
    assert 1 == done.returncode


LIBRARY = """
import msdump, numpy
msdump.load("graphs/mini.onnx")(numpy.zeros((1, 1, 6, 6), numpy.float32))
"""


STARTS = {
    "program": (*MSDUMP, "run", "graphs/mini.onnx", "--config", "{config}"),
    "sample": (sys.executable, "sample_nets/mini/run.py", "--steps", "1", "--cache", "{out}"),
    "library": (sys.executable, "-c", LIBRARY),
}


@pytest.mark.parametrize(
    ("start", "closing"),
    [
        *(("program", closing) for closing in ("2>&-", ">&-", "<&- >&- 2>&-", "2>/dev/full")),
        ("sample", "<&- >&- 2>&-"),
        *(("library", closing) for closing in ("2>&-", "2>/dev/full")),
    ],
)
def test_closed_streams(tmp_path, start, closing):
    """A dump is made where standard streams are closed, or standard error cannot be written."""
    config = write_config(tmp_path / "config.json", tmp_path / "dump", iteration="0")
    line = [part.format(config=config, out=tmp_path / "out") for part in STARTS[start]]

    done = subprocess.run(
        ["bash", "-c", f'"$@" {closing}', "bash", *line],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "MINDSPORE_DUMP_CONFIG": str(config), "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )

    assert done.returncode in {0, 120}  # Python's own code where standard error cannot be flushed at its end
    assert len(list((tmp_path / "dump/rank_0/Net").rglob("*.npy"))) > 5
