"""Dumps of ranks: directories, devices, the inputs and outputs of collectives, and how readers take them."""

import json
import os
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

import msdump
from msdump import communication
from tests.communication.models import collective, configuration, model, one, saved
from tests.world import ROOT

ASCEND = {"device_target": "Ascend"}
CONTEXTS = {
    "CPU": {"device_target": "CPU"},
    "O0": {**ASCEND, "jit_level": "O0"},
    "O1": {**ASCEND, "jit_level": "O1"},
    "O2": {**ASCEND, "jit_level": "O2"},
}


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setenv("MSDUMP_COMMUNICATION_TIMEOUT", "20")


def run(made, config, context, ranks=2, steps=1):
    """Run a model as several ranks, each fed its number plus one."""

    def work():
        network = msdump.load(made, config=config, context=context)
        for _ in range(steps):
            network(np.full((4, 6), communication.get_rank() + 1, np.float32))

    communication.spawn(ranks, work)


def exchanged(iteration):
    """Return time, side, pass and first element of each tensor of a collective, by time."""
    tensors = [record for record in iteration.records if record.op_type.endswith("AllReduce")]
    return [
        (tensor.timestamp, str(tensor.io), tensor.pass_number, float(tensor.array.flat[0]))
        for tensor in sorted(tensors, key=lambda tensor: tensor.timestamp)
    ]


@pytest.mark.parametrize("level", ["CPU", "O0", "O1"])
def test_each_rank_has_a_directory(tmp_path, level):
    """A rank's files lie below its number; a collective's input is older than its output."""
    run(one("AllReduce"), configuration(tmp_path / "dump"), CONTEXTS[level], steps=2)

    dump = msdump.open_dump(tmp_path / "dump")
    assert [0, 1] == sorted(dump.ranks)
    for number, rank in dump.ranks.items():
        iterations = rank.networks["Net"].graphs[0].iterations
        assert [0, 1] == sorted(iterations)
        for iteration in iterations.values():
            (first, *read), (last, *written) = exchanged(iteration)
            assert first < last
            assert [["input", 0, number + 1.0], ["output", 0, 3.0]] == [read, written]


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_compiled_collective_is_two_files_of_one_run(tmp_path, file_format):
    """Under O2 inputs and outputs have a file each, below the rank's device; both are of one pass."""
    run(one("AllReduce"), configuration(tmp_path / "dump", file_format=file_format), CONTEXTS["O2"])

    models = list(msdump.open_dump(tmp_path / "dump").iterations)
    assert [0, 1] == sorted(each.key.device for each in models)
    for iteration in models:
        assert {"HcomAllReduce", "Data"} == {record.op_type for record in iteration.records}
        (first, *read), (last, *written) = exchanged(iteration)
        assert first < last
        assert [["input", 0, iteration.key.device + 1.0], ["output", 0, 3.0]] == [read, written]


def test_passes_of_a_compiled_collective(tmp_path):
    """In a loop each pass of a collective has both of its files."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Neg", ["v"], ["n"]),
            collective("AllReduce", ("n",), ("w",)),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [4, 6]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 6]),
        ],
    )
    made = model(
        [
            helper.make_node("Constant", [], ["twice"], value_int=2),
            helper.make_node("Loop", ["twice", "", "x"], ["y"], body=body),
        ]
    )

    run(made, configuration(tmp_path / "dump", file_format="bin"), CONTEXTS["O2"])

    for iteration in msdump.open_dump(tmp_path / "dump").iterations:
        own = iteration.key.device + 1.0
        assert [("input", 0, -own), ("output", 0, -3.0), ("input", 1, 3.0), ("output", 1, 6.0)] == [
            found[1:] for found in exchanged(iteration)
        ]


def test_saturated_sum_is_told(tmp_path, monkeypatch):
    """A float16 sum beyond the range is bounded in saturation mode, and dumped as an overflow."""
    monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", "SATURATION_MODE")
    made = one("AllReduce", of=TensorProto.FLOAT16, x=(2,))
    config = configuration(tmp_path / "dump", op_debug_mode=3)

    def work():
        network = msdump.load(made, config=config, context=CONTEXTS["O0"])
        network(np.array([1, 2], np.float16))
        return network(np.array([60000, 3], np.float16)).tolist()

    assert [[65504.0, 6.0]] * 2 == communication.spawn(2, work)

    for rank in msdump.open_dump(tmp_path / "dump").ranks.values():
        iterations = rank.networks["Net"].graphs[0].iterations
        assert {1: 2} == {number: len(each.records) for number, each in iterations.items() if each.records}


SECOND = """
import sys
import numpy as np
import msdump

network = msdump.load("net.onnx", config="dump.json")
print("loaded", flush=True)
sys.stdin.readline()
"""


def test_rank_that_two_processes_were_told(tmp_path, forks):
    """Of two processes of one rank the second is refused, until the first has ended."""
    saved(tmp_path / "net.onnx", one("AllReduce"))
    (tmp_path / "dump.json").write_text(json.dumps(configuration(tmp_path / "dump")))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "RANK_ID": "1", "RANK_SIZE": "2"}

    def start():
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [forks / "python", "-c", SECOND]
        return subprocess.Popen(command, cwd=tmp_path, env=variables, text=True, **pipes)

    first = start()
    assert "loaded\n" == first.stdout.readline()
    _, refused = start().communicate("\n", 60)
    first.communicate("\n", 60)
    out, _ = start().communicate("\n", 60)

    assert (
        f"another process dumps into {tmp_path}/dump/rank_1 as rank 1:"
        " two processes have this rank (set by MindSpore), or two jobs share the path"
    ) in refused
    assert "loaded\n" == out


def test_ranks_replace_their_own_files(tmp_path):
    """Ranks that replace the files of an earlier run, at the same time, leave each other's files alone."""
    config = configuration(tmp_path / "dump", file_format="bin") | {"msdump": {"existing": "replace"}}

    for _ in range(3):
        run(one("AllReduce"), config, CONTEXTS["O2"], ranks=4, steps=2)

    iterations = msdump.open_dump(tmp_path / "dump").iterations
    assert [(device, step) for device in range(2) for step in range(2)] == sorted(
        (each.key.device, each.key.step) for each in iterations
    )
