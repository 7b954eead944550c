"""Commands by one process, several, the workers of Dask and the ranks of MPI: the same bytes."""

from __future__ import annotations

import json
import re
import shutil
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.tools.mapping import mapper, sizes
from tests.communication import launching
from tests.tools import dumped

START = 1612439563338030
RANKS, ITERATIONS, OPERATORS = 3, 2, 4


def dump(root, noise=0.0):
    """Write a dump of some ranks and iterations: tensors alone, one of them torn."""
    rng = np.random.default_rng(0)
    for rank in range(RANKS):
        for iteration in range(ITERATIONS):
            folder = root / f"rank_{rank}/Net/0/{iteration}"
            folder.mkdir(parents=True)
            for number in range(OPERATORS):
                array = rng.normal(0, 1, (5, 7)).astype("f4") + np.float32(noise * (number > 1))
                name = f"ReLU.Default_ReLU-op{number}.{number}.0.{START + number}.output.0.DefaultFormat"
                np.save(folder / f"{name}.float32.npy", array)
            weight = np.full(3, rank == 1, "f4")
            np.save(folder / f"Parameter.fc.weight.0.0.{START}.output.0.DefaultFormat.float32.npy", weight)
    torn = next((root / "rank_1/Net/0/1").glob("*op2*"))
    torn.write_bytes(torn.read_bytes()[:-9])
    (root / "rank_2/Net/0/0/what.is.this").write_text("foreign")


@pytest.fixture
def dumps(tmp_path):
    """Write two dumps, a rule file and dump files."""
    dump(tmp_path / "mine", 0.01)
    dump(tmp_path / "golden")
    rules = [
        {"name": "large", "condition": "tensor_too_large", "max_gt": 1.5},
        {"name": "stuck", "condition": "tensor_not_changed", "rtol": 0.1},
        {"name": "apart", "condition": "ranks_disagree"},
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"rules": rules}))
    (tmp_path / "alone.json").write_text(json.dumps({"rules": rules[::2]}))
    for number in range(5):
        tensor = dumped.tensor(dumped.counted((number + 1,)))
        dumped.file(tmp_path / "files" / f"Add.op{number}.0.0.{START + number}", tensor)
    (tmp_path / "files" / "broken").write_text("no dump")
    return tmp_path


COMMANDS = {
    "compare": (1, "verdict   own", "compare", "mine", "golden", "-out", "out"),
    "watch": (1, "apart: iteration 0, rank 1: ", "watch", "mine", "--rules", "rules.json"),
    "watch alone": (1, "apart: iteration 0, rank 1: ", "watch", "mine", "--rules", "alone.json"),
    "watch --json": (1, '"count": ', "watch", "mine", "--rules", "rules.json", "--json"),
    "baseline": (1, "kept      29 tensors of 6 folders", "baseline", "mine", "-out", "out"),
    "query": (0, "ReLU-op3", "query", "mine", "--measure", "--csv", "select * from statistics order by all"),
    "report": (1, "Default_ReLU-op3", "report", "mine", "golden", "--csv"),
    "report, its page": (
        1,
        "Default_ReLU-op2 (ReLU) in iteration 0: own",
        "report",
        "mine",
        "golden",
        "-o",
        "out/report.html",
    ),
    "convert": (1, "converted 5 dump files to 5 files", "convert", "files", "-out", "out"),
}
"""Exit code, something of what is printed, and arguments of commands that read tensors."""


def state(folder):
    """Return the files of a result by their names, without the time that tables and pages were made at."""
    files = [path for path in sorted((folder / "out").rglob("*")) if path.is_file()]
    return [(path.name[:8], re.sub(rb"[0-9:]{8} UTC", b"", path.read_bytes())) for path in files]


def outcome(folder, arguments, monkeypatch):
    """Run a command; return what it printed, on each stream, its exit code and the files that it wrote."""
    monkeypatch.chdir(folder)
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = CliRunner().invoke(main, [*arguments])
    printed = (*done.stdout.splitlines(), *done.stderr.splitlines())
    lines = [line for line in printed if not line.startswith("written")]
    return lines, done.exit_code, state(folder)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Let others do the work, however little it is."""
    monkeypatch.setattr(mapper, "WORTH_IT", 0)
    monkeypatch.setattr(sizes, "_SECONDS", 0)


@pytest.fixture(scope="module")
def scheduler():
    """Start a scheduler with two worker processes and return its address."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as started:
        yield started.scheduler_address


@pytest.mark.parametrize(
    ("code", "told", "arguments"),
    [(code, told, arguments) for code, told, *arguments in COMMANDS.values()],
    ids=COMMANDS,
)
def test_executors_agree(dumps, code, told, arguments, monkeypatch, scheduler):
    """What a command prints and writes is the same whoever does the work."""
    alone = outcome(dumps, (*arguments, "--jobs", "1"), monkeypatch)
    assert code == alone[1]
    assert told in "\n".join(alone[0])

    assert alone == outcome(dumps, (*arguments, "--jobs", "2"), monkeypatch)
    assert alone == outcome(dumps, (*arguments, "--scheduler", scheduler), monkeypatch)


@launching.needs_mpi
@pytest.mark.parametrize("command", ["compare", "watch", "report, its page", "convert"])
def test_ranks_of_mpi_agree(dumps, command, monkeypatch):
    """The same under mpirun, where rank 1 works for rank 0."""
    _, _, *arguments = COMMANDS[command]
    alone = outcome(dumps, (*arguments, "--jobs", "1"), monkeypatch)
    shutil.rmtree(dumps / "out", ignore_errors=True)

    program = (sys.executable, "-m", "mpi4py.futures", "-m", "msdump", *arguments)
    code, _, err = launching.Launch([launching.MPIRUN, "-n", "2", *program], dumps).end()

    assert alone[1] == code, err
    assert alone[2] == state(dumps)


@launching.needs_mpi
def test_ranks_of_mpi_do_the_work(tmp_path):
    """Rank 1 gets the items, and neither another process nor rank 0."""
    code = (
        "import os\n"
        "from mpi4py import MPI\n"
        "from msdump.tools.mapping import mapper, ranks\n"
        "from tests.tools.mapping import work\n"
        "if __name__ == '__main__':\n"
        "    done = mapper.each(work.placed, range(5), size=lambda _: 1)\n"
        "    numbers, processes = zip(*done)\n"
        "    print(ranks.is_started(), numbers, len({*processes} - {os.getpid()}))\n"
    )
    (tmp_path / "program.py").write_text(code)
    program = (sys.executable, "-m", "mpi4py.futures", "program.py")

    _, out, err = launching.Launch([launching.MPIRUN, "-n", "2", *program], tmp_path).end()

    assert "True (0, 1, 2, 3, 4) 1" == out.strip(), err


@launching.needs_mpi
def test_jobs_under_mpi(tmp_path):
    """Under MPI the ranks are the workers: --jobs is refused."""
    program = (sys.executable, "-m", "mpi4py.futures", "-m", "msdump", "compare", "a", "b", "-j", "2")

    code, _, err = launching.Launch([launching.MPIRUN, "-n", "2", *program], tmp_path).end()

    assert 2 == code
    assert "--jobs and mpi4py.futures exclude each other" in err


@pytest.mark.parametrize("name", ["baseline", "compare", "convert", "pack", "query", "report", "watch"])
def test_help_names_the_options(name):
    """Every command that reads tensors has both options."""
    told = CliRunner().invoke(main, [name, "--help"])

    assert 0 == told.exit_code
    assert "--jobs" in told.stdout
    assert "--scheduler" in told.stdout
