"""The sample networks that ranks share: joined, they give the results of one rank alone."""

import json

import numpy as np
import onnx
import pytest

import msdump
from msdump import communication
from sample_nets import data
from sample_nets.build_ranks import NETWORKS, build_ranks
from tests.world import ROOT, completed

BATCH = 4


@pytest.fixture
def images():
    """Return images of digits."""
    return data.digits(0, BATCH, 8)


def joined(paths, images):
    """Run a network as several ranks; return the result of each."""

    def work():
        network = msdump.load(paths[communication.get_rank()])
        return network(*([images] if network.graph.inputs else []))

    return communication.spawn(len(paths), work)


@pytest.mark.parametrize("name", NETWORKS)
def test_ranks_give_what_one_rank_gives(tmp_path, images, name):
    """The scores of the ranks equal the whole network's; the pipeline's bit by bit."""
    (whole,) = joined(build_ranks(name, tmp_path, ranks=1, batch=BATCH), images)

    results = joined(build_ranks(name, tmp_path, batch=BATCH), images)

    assert (BATCH, 10) == whole.shape
    np.testing.assert_allclose(whole, results[-1], rtol=1e-5, atol=1e-6)
    if name == "pipeline":
        np.testing.assert_array_equal(whole, results[-1])
    else:
        np.testing.assert_array_equal(results[0], results[1])


def test_weights_are_parts_of_the_whole(tmp_path):
    """Each rank of the tensor-parallel network holds half of every weight that is cut."""
    paths = build_ranks("tensor_parallel", tmp_path, ranks=1) + build_ranks("tensor_parallel", tmp_path)

    whole, *parts = (
        {weight.name: onnx.numpy_helper.to_array(weight) for weight in onnx.load(path).graph.initializer}
        for path in paths
    )

    for name, axis in {"fc1.weight": 1, "fc1.bias": 0, "fc2.weight": 0, "fc3.weight": 1}.items():
        np.testing.assert_array_equal(whole[name], np.concatenate([each[name] for each in parts], axis))


def test_dump_of_the_sample(tmp_path, forks):
    """The commands of the page write a directory for each rank, with equal AllReduce outputs."""
    config = json.loads((ROOT / "sample_nets/tensor_parallel/data_dump.json").read_text())
    config["common_dump_settings"]["path"] = str(tmp_path / "dump")
    (tmp_path / "dump.json").write_text(json.dumps(config))
    build_ranks("tensor_parallel", tmp_path)

    done = completed(
        forks / "msdump",
        "run",
        "tensor_parallel_rank{rank}.onnx",
        "--ranks",
        "2",
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "MINDSPORE_DUMP_CONFIG": "dump.json", "DEVICE_TARGET": "Ascend"},
    )

    assert 0 == done.returncode, done.stderr
    assert ["rank 0", "rank 1"] == sorted({line[:6] for line in done.stdout.splitlines()})
    first, second = (
        [np.load(path) for path in sorted(tmp_path.glob(f"dump/rank_{rank}/*/0/0/AllReduce*output*"))]
        for rank in range(2)
    )
    assert 1 == len(first)
    np.testing.assert_array_equal(first, second)
