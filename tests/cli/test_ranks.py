"""``msdump run`` as several ranks of one process, and as the rank that a launcher says."""

import re

import numpy as np
import pytest

from tests.communication.models import collective, model, one, saved
from tests.world import cli, write_config

pytestmark = pytest.mark.usefixtures("fresh", "quiet")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs ``msdump run`` with a configuration that dumps below ``dump``."""
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "dump.json", tmp_path / "dump", support_device=[0, 1])
    return lambda *arguments: cli("run", *arguments, "--config", "dump.json")


def tensors(folder, pattern):
    """Return the tensors of all ranks in files of a name."""
    return [np.load(path) for path in sorted(folder.glob(f"dump/rank_*/Net/0/*/{pattern}"))]


def pipeline(folder):
    """Write the two stages of a pipeline, rank0.onnx and rank1.onnx."""
    saved(folder / "rank0.onnx", model([collective("Send", dest_rank=1)]))
    receive = collective("Receive", (), src_rank=0, shape=[4, 6], dtype="float32")
    saved(folder / "rank1.onnx", model([receive]))


def test_ranks_of_one_process(run, tmp_path):
    """Each rank has a network, numbers and a directory of its own, and a summary."""
    saved(tmp_path / "net.onnx", one("AllReduce"))

    done = run("net.onnx", "--ranks", "2", "--steps", "2", "--seed", "5")

    assert 0 == done.exit_code, done.output
    told = re.sub(r"in \d+\.\d\d s|, [\d,]+ bytes", "", done.stdout).splitlines()
    assert [
        line
        for rank in range(2)
        for line in (
            f"rank {rank}: ran      2 iterations (0-1) of net.onnx ",
            f"rank {rank}: dumped   2 iterations (0-1): 12 files",
            f"rank {rank}: into     {tmp_path}/dump/rank_{rank}/Net",
        )
    ] == told
    inputs, outputs = (tensors(tmp_path, f"AllReduce.*.{io}.0.*") for io in ("input", "output"))
    assert [4, 4] == [len(inputs), len(outputs)]
    for read, written in zip(inputs, outputs, strict=True):
        np.testing.assert_array_equal(read * 2, written)  # the inputs of all ranks are made up alike


def test_each_rank_has_its_model_and_inputs(run, tmp_path):
    """``{rank}`` in the model's path and in that of the inputs stands for the number of the rank."""
    pipeline(tmp_path)
    for rank in range(2):
        np.savez(tmp_path / f"in{rank}.npz", x=np.full((4, 6), rank + 1, np.float32))

    done = run("rank{rank}.onnx", "--ranks", "2", "--inputs", "in{rank}.npz")

    assert 0 == done.exit_code, done.output
    (received,) = tensors(tmp_path, "Receive.*.output.0.*")
    np.testing.assert_array_equal(np.full((4, 6), 1, np.float32), received)


def test_a_rank_that_fails_fails_the_run(run, tmp_path):
    """The rank that failed first is reported first, the others with it, and captured files are there."""
    saved(tmp_path / "rank0.onnx", one("AllReduce"))
    refusing = model([collective("Reshape", ("x", "x"), ("z",), domain=""), collective("AllReduce", ("z",))])
    saved(tmp_path / "rank1.onnx", refusing)

    done = run("rank{rank}.onnx", "--ranks", "2")

    assert 1 == done.exit_code
    first, second = (line for line in done.stderr.splitlines() if "error" in line)
    assert first.startswith("msdump: rank 1: error: operator Default/Reshape-op0 failed: ")
    assert second.startswith(
        "msdump: rank 0: error: operator Default/AllReduce-op0 failed: AllReduce of group hccl_world_group: "
        "rank 1 failed: ExecutionError: operator Default/Reshape-op0 failed: "
    )
    assert "rank 0: ran      0 iterations of rank0.onnx" in done.stdout
    assert 1 == len(tensors(tmp_path, "AllReduce.*.input.0.*"))


@pytest.mark.parametrize(
    ("name", "expected"), [("DUMP_GE_GRAPH", "pid_*_deviceid_*"), ("MS_DEV_SAVE_GRAPHS", "rank_*")]
)
def test_graph_files_of_ranks_stand_apart(run, tmp_path, monkeypatch, name, expected):
    """Files that show graphs, which all ranks call alike, have a directory for each rank."""
    saved(tmp_path / "net.onnx", one("AllReduce"))
    monkeypatch.setenv(name, "1")

    done = run("net.onnx", "--ranks", "2", "--device-target", "Ascend", "--jit-level", "O2")

    assert 0 == done.exit_code, done.output
    first, second = ({path.name for path in folder.iterdir()} for folder in sorted(tmp_path.glob(expected)))
    assert first == second


REFUSED = {
    "model": (("none.onnx", "--ranks", "2"), {}, "none.onnx: the model cannot be read"),
    "no ranks": (("rank0.onnx", "--ranks", "0"), {}, "'--ranks'"),
    "device": (
        ("rank0.onnx", "--ranks", "2", "--device-id", "1"),
        {},
        "--ranks excludes --device-id: each rank has the device of its number",
    ),
    "launcher": (
        ("rank0.onnx", "--ranks", "2"),
        {"RANK": "1", "WORLD_SIZE": "2"},
        "--ranks excludes a launcher: torchrun says that this is rank 1 of 2",
    ),
    "launcher of no ranks": (
        ("rank0.onnx",),
        {"RANK": "0", "WORLD_SIZE": "0"},
        "WORLD_SIZE = '0': must be a number of processes from 1",
    ),
}


@pytest.mark.parametrize(("arguments", "variables", "expected"), REFUSED.values(), ids=REFUSED)
def test_nothing_runs_where_something_is_wrong(run, tmp_path, monkeypatch, arguments, variables, expected):
    """Wrong options, models and variables end with 2, before any rank runs."""
    pipeline(tmp_path)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)

    done = run(*arguments)

    assert 2 == done.exit_code
    assert expected in done.stderr
    assert [] == tensors(tmp_path, "*.npy")


def test_rank_of_a_launcher(run, tmp_path, monkeypatch):
    """A process that torchrun started runs its own model, and names its rank in its messages."""
    saved(tmp_path / "rank1.onnx", model([collective("Relu", domain="")]))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    done = run("rank{rank}.onnx")

    assert 0 == done.exit_code, done.output
    assert ["rank 1: ran ", "rank 1: dump", "rank 1: into"] == [
        line[:12] for line in done.stdout.splitlines()
    ]
    assert ["rank_1"] == [path.name for path in (tmp_path / "dump").iterdir()]
