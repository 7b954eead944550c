"""Ranks that do not agree, do not come, or fail: the others end in time, with an error that names them."""

import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from onnx import helper

import msdump
from msdump import communication
from msdump.errors import ExecutionError, InputError, RankError
from tests.communication.models import collective, configuration, model, one, saved
from tests.world import ROOT

HEAD = "operator Default/AllReduce-op0 failed: "
GROUP = "hccl_world_group"


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    """Let ranks wait as long as a busy machine needs; return the function that sets another limit."""
    set_limit = lambda seconds: monkeypatch.setenv("MSDUMP_COMMUNICATION_TIMEOUT", seconds)  # noqa: E731
    set_limit("60")
    return set_limit


def ones(shape=(4, 6)):
    """Return an input."""
    return np.ones(shape, np.float32)


def errors(*models, shape=(4, 6), config=None):
    """Run a model in each rank; return each rank's error as text, None for none."""

    def work():
        network = msdump.load(models[communication.get_rank()], config=config)
        try:
            network(*([ones(shape)] if network.graph.inputs else []))
        except Exception as error:  # noqa: BLE001 - whatever it is
            return str(error)
        return None

    return communication.spawn(len(models), work)


def test_the_rank_that_failed_first_is_told_first():
    """The rank of a failed network is the first one, though it ends after ranks that waited for it."""
    refusing = model([collective("Reshape", ("x", "x"), ("z",), domain=""), collective("AllReduce", ("z",))])
    has_ended = threading.Event()

    def work():
        rank = communication.get_rank()
        try:
            msdump.load((one("AllReduce"), refusing)[rank])(ones())
        finally:
            if rank == 1:
                assert has_ended.wait(60)
            else:
                has_ended.set()

    with pytest.raises(ExecutionError, match="operator Default/Reshape-op0 failed") as caught:
        communication.spawn(2, work)

    assert ["in rank 1 of 2"] == caught.value.__notes__


def test_time_limit_tells_who_waits_where(limit):
    """A rank that waits too long names the place of each awaited rank."""
    receive = collective("Receive", (), src_rank=2, shape=[1], dtype="float32", name="second/get")
    idle = model([helper.make_node("Relu", ["x"], ["y"])])
    loaded, has_failed = threading.Barrier(3), threading.Event()
    limit("2")

    def work():
        rank = communication.get_rank()
        network = msdump.load((one("AllReduce"), model([receive]), idle)[rank])
        loaded.wait(60)
        try:
            network(ones())
        except RankError as error:
            has_failed.set()
            return str(error)
        has_failed.wait(60)  # it is there, and in no collective
        return None

    first, second, third = communication.spawn(3, work)

    assert has_failed.is_set()
    here = "has waited 2 s here: "
    waits = f"rank 1 waits in Receive Default/second/Receive-op0 (group {GROUP})"
    told = {
        f"{HEAD}AllReduce of group {GROUP}: rank 0 {here}{waits}; rank 2 is in no collective",
        (
            f"operator Default/second/Receive-op0 failed: Receive of group {GROUP}: rank 1 {here}"
            "rank 2 is in no collective"
        ),
    }
    assert told & {first, second}  # the other one may hear of it before its own time is over
    assert third is None


DIFFERENT = {
    "collective": (
        (one("AllReduce"), one("AllGather")),
        (
            "rank 0 calls AllReduce(sum) of Float32[4,6] in Default/AllReduce-op0, "
            "rank 1 AllGather of Float32[4,6] in Default/AllGather-op0"
        ),
    ),
    "shape": (
        (
            one("AllReduce"),
            model([helper.make_node("Flatten", ["x"], ["f"], axis=0), collective("AllReduce", ("f",))]),
        ),
        (
            "rank 0 calls AllReduce(sum) of Float32[4,6] in Default/AllReduce-op0, "
            "rank 1 AllReduce(sum) of Float32[1,24] in Default/AllReduce-op0"
        ),
    ),
    "root": (
        (one("Broadcast", root_rank=0), one("Broadcast", root_rank=1)),
        (
            "rank 0 calls Broadcast of Float32[4,6] in Default/Broadcast-op0, "
            "rank 1 Broadcast of Float32[4,6] from root 1 in Default/Broadcast-op0"
        ),
    ),
}


@pytest.mark.parametrize(("models", "expected"), DIFFERENT.values(), ids=DIFFERENT)
def test_calls_that_differ_are_refused_by_all(models, expected):
    """Ranks in different collectives, or with different tensors, all name both calls."""
    told = errors(*models)

    assert [f"the ranks of group {GROUP} do not agree: {expected}"] * 2 == [
        text.partition("failed: ")[2] for text in told
    ]


def test_other_tensors_than_expected():
    """A Receive of another shape or type than the sent tensor's is refused."""
    receive = collective("Receive", (), src_rank=0, shape=[24], dtype="float32")

    _, told = errors(one("Send", dest_rank=1), model([receive]))

    assert told.endswith(
        "rank 1 expects Receive of Float32[24] in Default/Receive-op0, "
        "rank 0 sent Send of Float32[4,6] in Default/Send-op0"
    )


def test_different_models_are_refused(tmp_path):
    """Ranks of different models are refused at the first collective, though their calls fit."""
    negated = model([helper.make_node("Neg", ["x"], ["n"]), collective("AllReduce", ("n",))])
    paths = saved(tmp_path / "a.onnx", one("AllReduce")), saved(tmp_path / "b.onnx", negated)

    assert [
        (
            f"{HEAD}the ranks run different models: rank 0 {paths[0]}, rank 1 {paths[1]};"
            " give all ranks one file, or files named alike except for the rank (rank0.onnx, rank1.onnx)"
        )
    ] * 2 == errors(*paths)


def test_files_that_differ_in_the_rank_are_one_model(tmp_path):
    """Files with the rank in their names are parts of one model, which may differ."""
    negated = model([helper.make_node("Neg", ["x"], ["n"]), collective("AllReduce", ("n",))])

    assert [None, None] == errors(
        saved(tmp_path / "part0.onnx", one("AllReduce")), saved(tmp_path / "part1.onnx", negated)
    )


def test_different_configurations_are_told(tmp_path, caplog):
    """Ranks that dump by different configurations are named, once for each rank; they run."""
    config = configuration(tmp_path / "dump")

    def work():
        network = msdump.load(one("AllReduce"), config=None if communication.get_rank() else config)
        for _ in range(2):
            network(ones())

    communication.spawn(2, work)

    told = [record.getMessage() for record in caplog.records if "different" in record.getMessage()]
    expected = "the ranks have different dump configurations or devices: rank 0: config; rank 1: no dump"
    assert [expected] * 2 == told


def test_failing_operator_ends_the_others(tmp_path):
    """Under op_debug_mode 4 the inputs of the failing operator and of the waiting collective are there."""
    config = configuration(tmp_path / "dump", op_debug_mode=4)
    failing = model([helper.make_node("Reshape", ["x", "x"], ["r"]), collective("AllReduce", ("r",))])

    def work():
        made = (one("AllReduce"), failing)[communication.get_rank()]
        context = {"device_target": "Ascend", "jit_level": "O0"}
        msdump.load(made, config=config, context=context)(ones())

    with pytest.raises(ExecutionError, match="operator Default/Reshape-op0 failed") as caught:
        communication.spawn(2, work)

    assert ["in rank 1 of 2"] == caught.value.__notes__
    assert {0: {("AllReduce", "input")}, 1: {("Reshape", "input")}} == {
        number: {(record.op_type, str(record.io)) for record in iteration.records}
        for number, rank in msdump.open_dump(tmp_path / "dump").ranks.items()
        for iteration in rank.networks["Net"].graphs[0].iterations.values()
    }


def test_rank_that_ends_is_not_waited_for(limit):
    """A rank that returns ends the waits of others at once, long before the limit."""
    limit("1000")  # above that of a test

    def work():
        if communication.get_rank() == 0:
            msdump.load(one("AllReduce"))(ones())

    with pytest.raises(RankError, match="rank 1 has ended its program before this collective"):
        communication.spawn(2, work)


def test_tensors_that_nobody_receives_are_limited(limit):
    """A rank that sends more and more without a receiver waits at last, and names the receiver."""
    has_failed = threading.Event()
    limit("0.5")

    def work():
        if communication.get_rank() == 1:
            has_failed.wait(60)
            return
        network = msdump.load(one("Send", dest_rank=1))
        try:
            for _ in range(100):
                network(ones())
        finally:
            has_failed.set()

    with pytest.raises(RankError, match=r"rank 0 has waited 0\.5 s here: rank 1 is in no collective"):
        communication.spawn(2, work)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e9"])
def test_limit_is_checked(limit, text):
    """A time limit that is no number of seconds is refused."""
    limit(text)

    with pytest.raises(
        InputError, match=f"MSDUMP_COMMUNICATION_TIMEOUT = '{text}': must be a number of seconds above 0"
    ):
        communication.spawn(2, print)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_signals_end_all_ranks(tmp_path, forks, limit, number, code):
    """Ctrl-C and SIGTERM end all ranks of a process; files are whole, complete steps have all of theirs."""
    saved(tmp_path / "net.onnx", one("AllReduce"))
    config = configuration(tmp_path / "dump", enable=False)
    (tmp_path / "dump.json").write_text(json.dumps(config))
    limit("60")
    program = [forks / "python", "-m", "msdump", "run", "net.onnx", "--ranks", "2", "--steps", "1000000"]
    options = ["--config", "dump.json", "--device-target", "Ascend", "--jit-level", "O0"]
    process = subprocess.Popen([*program, *options], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    third = tmp_path / "dump/rank_1/Net/0/3"
    while not third.exists():
        assert process.poll() is None
        time.sleep(0.01)

    process.send_signal(number)

    assert code == process.wait(60)
    files = list(tmp_path.glob("dump/rank_*/Net/0/*/*.npy"))
    for path in files:
        np.load(path)
    for rank in range(2):  # the first may stand between the exchange of the third step and its files
        assert [2, 2] == [
            sum(f"rank_{rank}/Net/0/{step}/" in str(path) for path in files) for step in range(2)
        ]
