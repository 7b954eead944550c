"""The scripts that a user runs: setting up, the demonstration, showing a dump."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import msdump
from msdump.record import IO
from tests import path_warnings
from tests.communication import launching
from tests.world import ROOT, completed

PYTHONS = ("python", "python3", "python3.11", "python3.12", "python3.13", "python3.14")

FIRST_OPERATOR = "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.*"

# Stands for a Python that is new enough: notes how it is called and makes a .venv of itself.
NEW_PYTHON = """#!/bin/bash
echo "${0##*/}: $*" >> "$CALLS"
if [ "$1 $2" = "-m venv" ]; then
    rm -rf "${@: -1}"
    mkdir -p "${@: -1}/bin"
    cp "$0" "${@: -1}/bin/python"
fi
"""
OLD_PYTHON = """#!/bin/bash
[ "$1" != --version ] || echo Python 3.9.2
exit 1
"""


def write_script(path, text):
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path):
    """Return a copy of the repository's files that the scripts need."""
    folder = tmp_path / "clone"
    for name in ("scripts", "sample_nets"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".cache"))
    (folder / "msdump").symlink_to(ROOT / "msdump")  # large, and nothing writes there
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    yield folder
    shutil.rmtree(tmp_path)  # the demonstration writes hundreds of megabytes


@pytest.fixture
def setup(clone, tmp_path):
    """Return a function that runs setup.sh with stand-ins for Python and returns the calls of them."""
    calls = tmp_path / "calls"

    def run(*groups, python=NEW_PYTHON, **variables):
        for name in PYTHONS:
            write_script(tmp_path / "bin" / name, python)
        calls.write_text("", encoding="utf-8")
        environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls), **variables}
        done = completed("bash", clone / "scripts" / "setup.sh", *groups, env=environment)
        return done, calls.read_text(encoding="utf-8").splitlines()

    return run


def installs(calls):
    """Return the calls that install something."""
    return [call for call in calls if " pip install " in call]


def test_first_setup_makes_an_environment(setup, clone):
    """Without .venv, setup makes one, with a new pip and msdump under the locked versions."""
    done, calls = setup("test")

    pip, msdump = installs(calls)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"python3: -m venv --clear {clone}/.venv" in calls
    assert pip.endswith(f"--constraint {clone}/requirements.lock --upgrade pip")
    assert msdump.endswith(f"--editable {clone}[{EXTRAS}] --group {clone}/pyproject.toml:test")
    assert f"--constraint {clone}/requirements.lock" in msdump


def test_another_environment(setup, clone, tmp_path):
    """Variables choose the folder, the Python and the versions of an environment beside .venv."""
    versions = tmp_path / "versions.txt"
    versions.write_text("numpy==2.0.0\n", encoding="utf-8")
    chosen = {"MSDUMP_VENV": ".venv-3.12", "MSDUMP_PYTHON": "python3.12", "MSDUMP_CONSTRAINTS": str(versions)}

    done, calls = setup("test", **chosen)
    _, again = setup("test", **chosen)

    assert (done.returncode, (clone / ".venv").exists()) == (0, False)
    assert f"python3.12: -m venv --clear {clone}/.venv-3.12" in calls
    assert [f"--constraint {versions}" in call for call in installs(calls)] == [True, True]
    assert again == ["python: -c "]


def appended(name):
    """Return a function that adds a line to a file of a clone."""

    def append(clone):
        with (clone / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")

    return append


def moved(clone):
    """Note another place in the stamp of an environment."""
    stamp = clone / ".venv/ready"
    stamp.write_text(stamp.read_text(encoding="utf-8").replace(str(clone), "/elsewhere"), encoding="utf-8")


EXTRAS = "samples,mpi,frames,query,cluster"
SECOND = {
    "nothing": (("test",), ("test",), None, 0, False),
    "fewer groups": (("test",), (), None, 0, False),
    "another group": ((), ("test",), None, 1, False),
    "an extra": ((), ("+torch",), None, 1, False),
    "the project file": ((), (), appended("pyproject.toml"), 1, False),
    "the lock": ((), (), appended("requirements.lock"), 1, False),
    "an unfinished environment": ((), (), lambda clone: (clone / ".venv/ready").unlink(), 2, True),
    "no Python": ((), (), lambda clone: (clone / ".venv/bin/python").unlink(), 2, True),
    "a moved clone": ((), (), moved, 2, True),
}
"""Groups of the first and the second setup, a change between; installations, a new environment."""


@pytest.mark.parametrize(("first", "second", "change", "count", "is_new"), SECOND.values(), ids=SECOND)
def test_second_setup(setup, clone, first, second, change, count, is_new):
    """A second setup installs changed and added packages, and makes an unusable environment anew."""
    setup(*first)
    if change:
        change(clone)

    done, calls = setup(*second)

    assert (0, "", count) == (done.returncode, done.stdout, len(installs(calls)))
    assert is_new == (f"python3: -m venv --clear {clone}/.venv" in calls)
    assert count or calls == ["python: -c "]
    assert ("+torch" in second) == any(f"[{EXTRAS},torch]" in call for call in calls)


def test_old_python_is_refused(setup, clone):
    """With nothing newer than Python 3.9 setup names the needed and the present version."""
    done, _ = setup(python=OLD_PYTHON)

    assert done.returncode == 1
    assert done.stderr == "setup: Python 3.11 or newer is required, but python3 is: Python 3.9.2\n"
    assert not (clone / ".venv").exists()


def test_failed_installation_is_not_taken_for_finished(setup, clone):
    """When pip fails, setup fails, and the next one starts from scratch."""
    failing = NEW_PYTHON + '[ "$1 $2 $3" != "-m pip install" ] || exit 3\n'

    done, _ = setup(python=failing)

    assert done.returncode != 0
    assert not (clone / ".venv" / "ready").exists()


@pytest.fixture
def demo(clone, tmp_path, forks):
    """Return a function that runs a demonstration with this test's own Python as .venv.

    Its programs are forks; ranks, which their launcher is to know as its children, start really.
    """
    write_script(
        clone / ".venv" / "bin" / "python",
        f"""#!/bin/bash
[ -n "${{OMPI_COMM_WORLD_RANK:-}}" ] && python={sys.executable} || python={forks}/python
PYTHONPATH={clone} exec "$python" "$@"
""",
    )
    key = subprocess.run(
        ["bash", "-c", "source scripts/setup.sh; venv_key"], cwd=clone, capture_output=True, check=True
    )
    (clone / ".venv" / "ready").write_bytes(key.stdout)

    def run(*arguments, script="dump_sync_dump.sh", launcher=(), **variables):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = completed(
            *launcher,
            "bash",
            clone / "scripts" / script,
            *arguments,
            cwd=tmp_path,
            env=environment | variables,
        )
        said = path_warnings.without(done.stderr, tmp_path)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, said)

    return run


def dumped(folder):
    """Return the iteration folders of a dump."""
    return sorted(folder.glob("debug_dump/rank_0/AlexNet/*/*"))


def untimed(text):
    """Return the tree that a text begins with, each timestamp the same."""
    root, *below = text.partition("\n\n")[0].splitlines()
    return [f"{Path(root).name}/", *(re.sub(r"\.\d{16}\.", ".(time).", line) for line in below)]


def tree_of_the_page():
    """Return the tree that docs/formats.md shows, each timestamp the same."""
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    (block,) = re.findall(r"^```text\n(debug_dump/\n.*?)```$", page, re.MULTILINE | re.DOTALL)
    return untimed(block)


def test_demonstration_dumps_alexnet(demo, tmp_path):
    """The script runs AlexNet, dumps the chosen iterations, prints the tree and reads a tensor back."""
    done = demo(str(tmp_path / "dump"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nstep ") == 4
    assert [folder.name for folder in dumped(tmp_path / "dump")] == ["0", "2"]
    for folder in dumped(tmp_path / "dump"):
        (first,) = folder.glob(f"{FIRST_OPERATOR}.output.0.DefaultFormat.float32.npy")
        assert np.load(first).shape == (1, 96, 55, 55)
        assert stat.S_IMODE(first.stat().st_mode) == 0o400
    assert "numpy.load('Conv2D.Default_conv1-Conv2d_Conv2D-op0." in done.stdout
    assert "float32 (1, 96, 55, 55): [" in done.stdout
    assert tree_of_the_page() == untimed(done.stdout[done.stdout.index(f"{tmp_path}/dump/debug_dump/\n") :])


@pytest.mark.slow
def test_demonstration_of_dump_files_converts_one(demo, tmp_path):
    """O2's dump of AlexNet is a file for each operator; the converted one loads in the host's shape."""
    done = demo(str(tmp_path / "dump"), script="dump_o2_bin.sh")

    assert (done.returncode, done.stderr) == (0, "")
    steps = sorted(path.name for path in (tmp_path / "dump/debug_dump").iterdir())
    results = sorted((tmp_path / "dump/converted").iterdir(), key=lambda path: path.name)
    assert (done.returncode, done.stderr) == (0, "")
    assert ["0", "2", "acl_dump_0.json"] == steps
    assert [(1, 256, 13, 13), (384, 256, 3, 3), (1, 384, 13, 13)] == [np.load(path).shape for path in results]
    assert "\nfloat32 (1, 384, 13, 13): [" in done.stdout


@pytest.mark.slow
def test_statistics_demonstration_leaves_no_tensor(demo, tmp_path):
    """The statistics of AlexNet are a row for each tensor, printed below the tree; no tensor is saved."""
    done = demo(str(tmp_path / "dump"), script="dump_statistic.sh")

    header = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    columns = "Max Value,Min Value,Avg Value,L2Norm Value,NaN Count,MD5"
    tables = [
        (folder / "statistic.csv").read_text("utf-8").splitlines() for folder in dumped(tmp_path / "dump")
    ]
    assert (done.returncode, done.stderr) == (0, "")
    assert [(header + columns, 56)] * 2 == [(table[0], len(table)) for table in tables]
    assert f"\n{tables[0][0]}\n{tables[0][1]}\n" in done.stdout
    assert done.stdout.endswith("... and 49 more rows\n")
    assert list(tmp_path.glob("dump/**/*.npy")) == []


OVERFLOWING = ["Mul-op0", "ReduceMean-op0", "Add-op0", "Sqrt-op0"]


def overflows(folder):
    """Return the operators of the first iteration of a dump, in the order of their timestamps."""
    files = sorted(
        folder.glob("debug_dump/rank_0/Overflow/0/0/*.npy"), key=lambda path: path.name.split(".")[4]
    )
    return list(
        dict.fromkeys(path.name.split(".")[1].removeprefix("Default_norm-RMSNorm_") for path in files)
    )


@pytest.mark.parametrize(
    ("mode", "operators", "seen"),
    [
        pytest.param("INFNAN_MODE", OVERFLOWING, "inf (8)", id="infinities"),
        pytest.param("SATURATION_MODE", OVERFLOWING[:1], "saturated", id="saturation"),
    ],
)
def test_overflow_demonstration_finds_the_operators(demo, tmp_path, mode, operators, seen):
    """The square in the norm is the first to overflow in float16, in both modes; in bfloat16 nothing does."""
    done = demo(
        str(tmp_path / "dump"), script="dump_overflow.sh", MS_ASCEND_CHECK_OVERFLOW_MODE=mode, STEPS="1"
    )

    first = f"overflow: Default/norm-RMSNorm/Mul-op0 in step 0: output.0 {seen}; its inputs were finite"
    assert (done.returncode, done.stderr) == (0, "")
    assert first in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" tensors of overflowing operators, bfloat16: 0")
    assert operators == overflows(tmp_path / "dump" / "float16")
    assert overflows(tmp_path / "dump" / "bfloat16") == []


def test_training_demonstration_learns(demo, tmp_path):
    """The loss falls; the backward operators' files of the dumped steps are named; a weight changes."""
    done = demo(str(tmp_path / "dump"), script="dump_train.sh", STEPS="30")

    assert (0, "") == (done.returncode, done.stderr)
    pattern = r"^epoch: 1 step: \d+, loss is (\S+)$"
    losses = [float(loss) for loss in re.findall(pattern, done.stdout, re.MULTILINE)]
    assert len(losses) >= 8
    assert min(losses[-3:]) < losses[0] / 2
    steps = sorted(path.name for path in (tmp_path / "dump/debug_dump/rank_0/LeNet5/0").iterdir())
    assert ["0", "2", "3"] == steps
    backward = (tmp_path / "dump/debug_dump/rank_0/LeNet5/0/0").glob("*.Gradients_*.npy")
    assert sorted(path.name for path in backward) == sorted(
        re.findall(r"^    (\S+\.Gradients_\S+\.npy)$", done.stdout, re.MULTILINE)
    )
    changes = re.findall(r"^    step (\d): (.+) before, (.+) after$", done.stdout, re.MULTILINE)
    assert ["0", "2", "3"] == [step for step, *_ in changes]
    assert all(before != after for _, before, after in changes)


def dumped_steps(rank):
    """Return the records of every dumped step of a rank's training graph."""
    (network,) = rank.networks.values()
    return {step: iteration.records for step, iteration in network.graphs[0].iterations.items()}


def reduced(records, io):
    """Return inputs or outputs of AllReduce, by operator."""
    return {
        record.op_name: record.array
        for record in records
        if record.op_type == "AllReduce" and record.io is io
    }


@launching.needs_mpi
@pytest.mark.timeout(180)
def test_training_demonstration_runs_on_two_ranks(demo, tmp_path):
    """Two ranks of the demonstration dump the same averages of different gradients, and learn."""
    done = demo(
        str(tmp_path / "dump"),
        script="dump_train.sh",
        launcher=[launching.MPIRUN, "-n", "2"],
        STEPS="12",
        BATCH="16",
        **launching.SETTINGS,
    )

    assert (0, "") == (done.returncode, done.stderr)
    pattern = r"^epoch: 1 step: \d+, loss is (\S+)$"
    losses = [float(loss) for loss in re.findall(pattern, done.stdout, re.MULTILINE)]
    assert losses[-1] < losses[0]
    assert {"rank_0", "rank_1"} == set(re.findall(r"(rank_\d): the backward pass", done.stdout))
    ranks = msdump.open_dump(tmp_path / "dump/debug_dump").ranks.values()
    first, second = (dumped_steps(rank) for rank in ranks)
    assert [0, 2, 3] == list(first) == list(second)
    for step, records in first.items():
        averages, others = reduced(records, IO.OUTPUT), reduced(second[step], IO.OUTPUT)
        assert 8 == len(averages) == len(others)
        for name, average in averages.items():
            np.testing.assert_array_equal(average, others[name])
    one, other = (reduced(side[0], IO.INPUT) for side in (first, second))
    assert not any(np.array_equal(one[name], other[name]) for name in one)


def test_training_overflow_demonstration_finds_the_operators(demo, tmp_path):
    """The scale overflows float16 in the first step; once it is small enough nothing is dumped."""
    done = demo(str(tmp_path / "dump"), script="dump_train_overflow.sh", STEPS="4")

    first = "overflow: Gradients/Default/network-WithLossCell/Grad_Cast/Cast-op0 in step 0: output.0 inf"
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(first)]
    assert (0, "") == (done.returncode, done.stderr)
    assert line.endswith("its inputs were finite")
    assert {"0", "1"} == {path.name for path in (tmp_path / "dump/debug_dump/rank_0/LeNet5/0").iterdir()}


def test_report_demonstration_names_the_kernel(demo, tmp_path):
    """It prints the path of a page alone; the first line of the page names the kernel that is wrong."""
    done = demo(str(tmp_path / "report"), script="report.sh", STEPS="3", BATCH="8")

    assert (0, f"{tmp_path}/report/report.html\n") == (done.returncode, done.stdout)
    title = re.search("<title>(.*)</title>", (tmp_path / "report/report.html").read_text(encoding="utf-8"))
    assert "ReluGrad-op0 (ReluGrad) in iteration 0: own: output 0 differs by 1, its inputs agree" in title[1]


def test_acl_demonstration_converts_what_it_dumps(demo, tmp_path):
    """Two executions through pyACL leave a file for each operator; each tensor in them becomes an array."""
    done = demo(str(tmp_path / "dump"), script="dump_acl.sh")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nstep ") == 2
    runs = sorted((tmp_path / "dump/output").glob("*/0/lenet/1/*"))
    assert [("0", 17), ("1", 17)] == [(run.name, len(list(run.iterdir()))) for run in runs]
    (second,) = (tmp_path / "dump/converted").glob("*/0/lenet/1/1/Conv2D.conv2_*.output.0.*.npy")
    assert np.load(second).shape == (1, 16, 10, 10)
    assert "\nfloat32 (1, 1, 32, 32): [" in done.stdout


def test_torchair_demonstration_converts_what_it_dumps(demo, clone, tmp_path):
    """Two calls of a compiled network leave a file for each operator; each of their tensors is converted."""
    pytest.importorskip("torch")
    shutil.copy(clone / ".venv" / "ready", clone / ".venv" / "ready-+torch")

    done = demo(str(tmp_path / "dump"), script="dump_torchair.sh")

    assert (0, "") == (done.returncode, done.stderr)
    assert 2 == done.stdout.count("\nstep ")
    calls = sorted((tmp_path / "dump/output/worldsize1_global_rank0").glob("*/0/graph_1/1/*"))
    assert [("0", 13), ("1", 13)] == [(call.name, len(list(call.iterdir()))) for call in calls]
    (scores,) = (tmp_path / "dump/converted").rglob("1/Softmax.*.output.0.*npy")
    assert (4, 10) == np.load(scores).shape


def test_torchair_demonstration_says_that_torch_is_missing(clone, tmp_path):
    """Where pip fails, the demonstration ends and says that PyTorch could not be installed."""
    for name in PYTHONS:
        failing = NEW_PYTHON + '[ "$1 $2 $3" != "-m pip install" ] || exit 3\n'
        write_script(tmp_path / "bin" / name, failing)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}

    done = completed("bash", clone / "scripts" / "dump_torchair.sh", env=environment)

    assert 1 == done.returncode
    assert "PyTorch cannot be installed into .venv" in done.stderr.splitlines()[-1]
    assert not (clone / "out").exists()


@pytest.fixture
def fresh(tmp_path):
    """Return a function that runs a script in a fresh clone, in an empty home."""
    clone, home = tmp_path / "clone", tmp_path / "home"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    home.mkdir()
    kept = [name for name in os.environ if name == "PATH" or name.startswith("PIP_")]
    environment = {name: os.environ[name] for name in kept} | {"HOME": str(home)}

    def run(script, *arguments):
        command = ["bash", clone / "scripts" / script, *arguments]
        return completed(*command, env=environment)

    yield run
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_fresh_clone_needs_nothing_else(fresh):
    """In a fresh clone and an empty home either command works at once, and again."""
    for _ in range(2):
        demonstration = fresh("dump_sync_dump.sh")
        tests = fresh("test.sh", "tests/test_graphs_folder.py")

        assert demonstration.returncode == 0, demonstration.stderr
        assert "\nnumpy.load('Conv2D." in demonstration.stdout
        assert tests.returncode == 0, tests.stderr
        assert " passed in " in tests.stdout.splitlines()[-1]


DEMONSTRATIONS = {
    "acl async_dump o2_bin overflow statistic torchair watcher": "step 1: ",
    "train train_overflow": "epoch: 1 step: [15], loss is ",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for names, line in DEMONSTRATIONS.items() for name in names.split()]
)
def test_fresh_clone_runs_every_demonstration(fresh, name, line):
    """Each further demonstration works in a fresh clone and an empty home, too."""
    done = fresh(f"dump_{name}.sh")

    assert done.returncode == 0, done.stderr
    assert re.search(f"^{line}", done.stdout, re.MULTILINE)


@pytest.fixture
def show(tmp_path, forks):
    """Return a function that runs msdump show on a folder with the given files."""

    def run(files):
        for name, content in files.items():
            path = tmp_path / "dump" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                np.save(path, content)
        command = [forks / "msdump", "show", tmp_path / "dump"]
        return completed(*command)

    return run


def tensor_file(operator, timestamp, place="output.0"):
    """Return a tensor file's name below its iteration."""
    return (
        f"rank_0/Net/0/0/{operator}.Default_{operator}-op0.0.0.{timestamp}.{place}.DefaultFormat.float32.npy"
    )


def test_show_lists_tensors_as_they_were_written(show):
    """Tensor files are listed by time, folders before files, and the first output is read back."""
    done = show(
        {
            tensor_file("Conv2D", 1002): np.arange(3, dtype=np.float32),
            tensor_file("Conv2D", 1001, "input.0"): np.zeros(2, np.float32),
            tensor_file("Add", 1003): np.ones(2, np.float32),
            "rank_0/Net/mapping.csv": b"1,2\n",
        }
    )

    lines = [line.strip().split(" ")[0] for line in done.stdout.splitlines()]
    names = [
        Path(tensor_file(*key)).name for key in (("Conv2D", 1001, "input.0"), ("Conv2D", 1002), ("Add", 1003))
    ]
    assert ["rank_0/", "Net/", "0/", "0/", *names, "mapping.csv"] == lines[1:9]
    assert f"numpy.load('{names[1]}')\nfloat32 (3,): [0. 1. 2.] ...\n" in done.stdout


def test_show_says_that_nothing_was_dumped(show, tmp_path):
    """A folder that is not there and one without tensors each give one clear line."""
    missing = show({})
    empty = show({"rank_0/graphs/graph.ir": b"text"})

    nothing = "no tensor of an operator's output was dumped"
    assert (missing.returncode, missing.stderr) == (2, f"msdump: error: {tmp_path}/dump: no dump here\n")
    assert (empty.returncode, empty.stderr) == (1, f"msdump: error: {tmp_path}/dump: {nothing}\n")
