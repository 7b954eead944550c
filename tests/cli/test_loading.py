"""Imports of commands: libraries and rooms that a call does not need cost time in every call."""

import os
import subprocess
import sys

import pytest

from msdump.encode import dump_data
from tests.world import ROOT, completed, write_config

MINI = str(ROOT / "graphs/mini.onnx")

MODELS = ("google.protobuf", "onnx", "onnxruntime")
RUNNING = ("msdump.execute.program", "msdump.session")
FILES_ALONE = (*MODELS, *RUNNING, "pydantic", "rich", "jinja2", "duckdb")


def loaded_by(*commands):
    """Return the names of the modules that calls of the program load in a fresh interpreter."""
    code = (
        "import contextlib, sys\nfrom msdump.cli import main\n"
        f"for arguments in {[[*map(str, command)] for command in commands]!r}:\n"
        "    with contextlib.suppress(SystemExit): main(arguments)\n"
        "print('loaded', *sys.modules)"
    )
    done = completed(sys.executable, "-c", code, check=True)
    words = done.stdout.splitlines()[-1].split()
    assert words[0] == "loaded"
    return set(words[1:])


@pytest.mark.parametrize(
    ("names", "spared"),
    [
        ("convert compare overflow show query trend baseline pack", FILES_ALONE),
        ("watch", (*MODELS, *RUNNING, "rich", "jinja2")),
        ("report", ("onnxruntime", *RUNNING, "pydantic", "rich", "jinja2", "duckdb")),
        ("compile", (*RUNNING, "pydantic", "rich")),
        ("run", ("rich", "jinja2", "duckdb")),
        ("", (*FILES_ALONE, "numpy")),
    ],
)
def test_command_loads_no_library_that_it_does_not_use(names, spared):
    """A command does not import the libraries of others."""
    loaded = loaded_by(*([name, "--help"] for name in names.split()), ["--help"])

    assert {f"msdump.cli.{name}" for name in names.split()} <= loaded
    assert set() == loaded & {*spared}


def test_check_runs_nothing(tmp_path):
    """A forecast of a synchronous dump loads nothing that runs a model."""
    config = write_config(tmp_path / "data_dump.json", tmp_path / "dump", iteration="0")

    loaded = loaded_by(["check", config, "--model", MINI, "--device-target", "Ascend"])

    assert set() == loaded & {*RUNNING, "rich"}


def test_converting_loads_what_it_needs(tmp_path):
    """Large files are converted without multiprocessing; pydantic and rich are not loaded."""
    tensor = dump_data.TensorInfo(2, 2, (1 << 23,), (1 << 23,), 4 << 23)
    header = dump_data.header(dump_data.DumpData("Add", 1, (), (tensor,)))
    for number in range(2):
        (tmp_path / f"Add.Default_Add-op0.0.0.{number}").write_bytes(header + bytes(tensor.size))

    loaded = loaded_by(["convert", "-j2", tmp_path, "-out", tmp_path / "out"])

    assert 2 == len([*(tmp_path / "out").iterdir()])
    assert set() == loaded & {"multiprocessing", "pydantic", "rich"}


_PROGRAM = """
import os, sys
from msdump.cli import main
sys.argv = ["msdump", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
print("threads:", os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    ("command", "given", "expected"), [("show", None, "1"), ("convert", "3", "3"), ("compare", None, "None")]
)
def test_commands_that_multiply_nothing_spare_threads(command, given, expected):
    """A command without matrices starts no threads for them, unless the user has set a number."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given:
        environment["OPENBLAS_NUM_THREADS"] = given

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, command, "--help"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=100,
    )

    assert f"threads: {expected}" == done.stdout.splitlines()[-1]
