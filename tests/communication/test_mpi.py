"""Ranks that are processes of MPI."""

import hashlib
import json
import os
import re
import signal
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import msdump
from msdump import communication
from msdump.errors import RankError
from tests.communication import launching
from tests.communication.models import collective, model, one, saved
from tests.world import common_settings, completed

RESULTS = """
import sys
from pathlib import Path
from msdump import communication
from tests.communication.test_mpi import digests

# to files: the launcher may mix the lines of its ranks
Path(f"{communication.get_rank()}.txt").write_text(" ".join(digests(sys.argv[1:])))
"""

# Runs one step after the other until something happens to rank 1, or for ever.
STEPS = """
import os, sys, threading, time
import numpy as np
import msdump
from msdump import communication

what, after = sys.argv[1], float(sys.argv[2])
rank = communication.get_rank()
network = msdump.load("net.onnx", config="dump.json")
number = 0
while True:
    network(np.ones((4, 6), np.float32))
    number += 1
    print("step" if rank == 0 else "other", flush=True)
    if rank == 1 and what == "kill" and number == 2:
        threading.Timer(after, os.kill, (os.getpid(), 9)).start()
    if rank == 1 and what == "raise" and number == 2:
        raise KeyError("of the user")
    if rank == 1 and what == "end" and number == 2:
        sys.exit()
    if rank == 1 and what == "stay" and number == 2:
        time.sleep(1000)
"""


def digests(paths):
    """Return a digest of the bits that each model gives the calling rank."""
    found = []
    for path in paths:
        network = msdump.load(path)
        value = network.graph.inputs[0].type
        rng = np.random.default_rng(communication.get_rank())
        array = rng.normal(0, 30, value.shape).astype(value.dtype.numpy)
        found.append(hashlib.sha256(network(array).tobytes()).hexdigest()[:16])
    return found


MODELS = {
    "float": one("AllReduce", x=(300_000,)),
    "half": one("AllReduce", x=(70_001,), of=TensorProto.FLOAT16),
    "bfloat": one("AllReduce", x=(7,), of=TensorProto.BFLOAT16),
    "gather": one("AllGather"),
    "scatter": one("ReduceScatter"),
    "all": one("AlltoAll", split_dim=0, concat_dim=1),
    "root": one("Broadcast", root_rank=1),
}


@pytest.fixture
def models(tmp_path):
    """Return paths of models that exchange tensors in every way."""
    return [saved(tmp_path / f"{name}.onnx", each) for name, each in MODELS.items()]


@launching.needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_bits_are_those_of_threads(tmp_path, models, ranks):
    """Processes and threads give every rank the same bits."""
    code, _, err = launching.python(ranks, RESULTS, tmp_path, *models).end()

    assert 0 == code, err
    by_process = {rank: (tmp_path / f"{rank}.txt").read_text().split() for rank in range(ranks)}
    by_thread = dict(enumerate(communication.spawn(ranks, digests, models)))
    assert by_thread == by_process
    alike = [name for name, *found in zip(MODELS, *by_process.values(), strict=True) if len(set(found)) == 1]
    assert ["float", "half", "bfloat", "gather", "root"] == alike


@pytest.fixture
def steps(tmp_path):
    """Write a network that computes and then exchanges, and a configuration that dumps it."""
    relu = helper.make_node("Relu", ["x"], ["r"], name="relu")
    saved(tmp_path / "net.onnx", model([relu, collective("AllReduce", ("r",))]))
    common = common_settings(tmp_path / "dump", support_device=[0, 1])
    blocks = {"common_dump_settings": common, "e2e_dump_settings": {"enable": False, "trans_flag": True}}
    (tmp_path / "dump.json").write_text(json.dumps(blocks))
    return lambda what, after=0.0, limit=60: launching.python(
        2,
        STEPS,
        tmp_path,
        what,
        after,
        MSDUMP_COMMUNICATION_TIMEOUT=str(limit),
        DEVICE_TARGET="Ascend",
        JIT_LEVEL="O0",
    )


def check_files(folder, completed):
    """Assert that every file is whole, and that rank 0 has all files of the steps that it completed."""
    files = sorted(folder.glob("dump/rank_*/Net/0/*/*.npy"))
    for path in files:
        np.load(path)
    per_step = [sum(f"rank_0/Net/0/{number}/" in str(path) for path in files) for number in range(completed)]
    assert [4] * completed == per_step
    # the step that was broken off: its Relu ran, and the input of the AllReduce is there
    last = [path.name.split(".")[0] for path in files if f"rank_0/Net/0/{completed}/" in str(path)]
    assert len(last) in {0, 3, 4}, last
    assert [] == [path for path in folder.rglob("*") if path.name.startswith(".tmp")]


@launching.needs_mpi
@pytest.mark.parametrize(
    "after", [0.0, 0.013, *(pytest.param(seed / 200, marks=pytest.mark.slow) for seed in range(1, 21))]
)
def test_killed_rank(steps, tmp_path, after):
    """A rank that is killed in a step ends the other with an error that names it; files are whole."""
    code, out, err = steps("kill", after).end()

    assert 0 != code
    assert re.search(r"rank 1 \(process \d+ on \S+\) has died|process rank 1 with PID \d+", err), err
    check_files(tmp_path, out.count("step\n"))


ENDS = {
    "raise": "rank 1 failed: KeyError: 'of the user'",
    "end": "rank 1 has ended its program before this collective",
    "stay": "rank 0 has waited 5 s here: rank 1 is in no collective",
}


@launching.needs_mpi
@pytest.mark.parametrize(("what", "expected"), ENDS.items(), ids=ENDS)
def test_rank_that_does_not_come(steps, tmp_path, what, expected):
    """A rank that raises, ends or stays away ends the other one with an error that names it."""
    code, out, err = steps(what, limit=5 if what == "stay" else 60).end()

    assert 1 == code
    head = "operator Default/AllReduce-op0 failed: AllReduce of group hccl_world_group: "
    assert f"RankError: {head}{expected}" in err
    check_files(tmp_path, out.count("step\n"))


@launching.needs_mpi
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_launcher_that_is_told_to_end(steps, tmp_path, number):
    """SIGTERM and Ctrl-C on the launcher end all ranks; files are whole."""
    launch = steps("nothing")
    lines = [launch.wait_for_line() for _ in range(4)]

    launch.process.send_signal(number)

    code, out, _ = launch.end()
    assert 0 != code
    check_files(tmp_path, ("".join(lines) + out).count("step\n"))


@launching.needs_mpi
def test_program_under_a_launcher(tmp_path):
    """Mpirun msdump run gives each rank its model, its directory and a name in its output."""
    saved(tmp_path / "rank0.onnx", model([collective("Send", dest_rank=1)]))
    receive = collective("Receive", (), src_rank=0, shape=[4, 6], dtype="float32")
    saved(tmp_path / "rank1.onnx", model([receive]))

    code, out, err = launching.msdump(2, tmp_path, "run", "rank{rank}.onnx").end()

    assert 0 == code, err
    assert ["rank 0: ran ", "rank 1: ran "] == sorted(
        line[:12] for line in out.splitlines() if "ran " in line
    )


@launching.needs_mpi
def test_rank_that_is_told_twice(tmp_path):
    """Two processes with one rank are both named."""
    saved(tmp_path / "net.onnx", one("AllReduce"))
    code = "import os; os.environ['OMPI_COMM_WORLD_RANK'] = '0'\\n"
    code += "import msdump, numpy as np; msdump.load('net.onnx')(np.ones((4, 6), np.float32))"

    returned, _, err = launching.python(2, code.replace("\\n", "\n"), tmp_path).end()

    assert 1 == returned
    assert re.search(r"process \d+ on \S+ and process \d+ on \S+ both have rank 0; give", err), err


@launching.needs_mpi
def test_ranks_without_mpis_launcher(tmp_path):
    """Ranks that another launcher started cannot find each other, and say so."""
    saved(tmp_path / "net.onnx", one("AllReduce"))
    code = "import msdump, numpy as np; msdump.load('net.onnx')(np.ones((4, 6), np.float32))"
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("OMPI", "PMI"))}

    done = completed(
        sys.executable,
        "-c",
        code,
        cwd=tmp_path,
        env=variables | {"RANK": "0", "WORLD_SIZE": "2", "PYTHONPATH": str(launching.ROOT)},
        timeout=launching.LONGEST,
    )

    assert "rank 0 is one of 2, but MPI has 1: start ranks that exchange tensors with" in done.stderr


def test_without_mpi4py(monkeypatch):
    """A graph that exchanges tensors names the extra that it needs; others need nothing."""
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    array = np.ones((4, 6), np.float32)

    np.testing.assert_array_equal(array, msdump.load(model([helper.make_node("Relu", ["x"], ["y"])]))(array))
    with pytest.raises(RankError) as caught:
        msdump.load(one("AllReduce"))(array)

    assert str(caught.value).endswith(
        "rank 1 of 2 needs mpi4py to reach the other ranks; pip install 'msdump[mpi]'"
    )
