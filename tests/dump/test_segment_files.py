"""Files of segments: a failure leaves the files that a dump of single operators leaves."""

import errno
import os
import resource
import shutil

import numpy as np
import pytest

from msdump.errors import DumpWriteError, ExecutionError
from msdump.execute import KernelFactory
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import O0

FEEDS = {"x": np.ones((8, 64), np.float32)}


def _growing():
    """Return a model of short and long results, one of them an output of the model that is read on."""
    return parsed("""graph (float[n,64] x) => (y, b) {
        a = Neg(x)
        b = Concat<axis = 0>(a, a, a, a)
        c, d = Split<axis = 0, num_outputs = 2>(b)
        e = ReduceSum<keepdims = 0>(d)
        y = Relu(e)
    }""")


def _types(door, step):
    """Return the operator types of the files of a step in the order of their times."""
    return [match["type"] for match, _ in trees.tensors(door.rank, iteration=step)]


@pytest.fixture(params=[True, False], ids=["synchronous", "asynchronous"])
def waits(request):
    """Give whether a dump is synchronous."""
    return request.param


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize(
    ("input_output", "whole"),
    [
        (0, ["Neg", "Neg", "Abs", "Abs", "Gather", "Gather", "Gather", "ReLU", "ReLU"]),
        (1, ["Neg", "Abs", "Gather", "Gather", "ReLU"]),
        (2, ["Neg", "Abs", "Gather", "ReLU"]),
    ],
)
def test_files_before_a_failure(input_output, whole, failing, waits, door):
    """Of a step that fails the files of the operators before are there, once; other steps have all."""
    door.configure(input_output=input_output, enable=waits)
    network = door.load(nets.gather(), **O0)
    for step in range(4):
        if step == failing:
            with pytest.raises(ExecutionError, match="Gather-op0"):
                network.run(nets.gather_feeds(7))
        else:
            network.run(nets.gather_feeds(1))

    before = whole[: whole.index("Gather")]
    assert [before if step == failing else whole for step in range(4)] == [
        _types(door, step) for step in range(4)
    ]
    files = [path for path in trees.tree(door.path).values() if path.suffix == ".npy"]
    assert len(before) + 3 * len(whole) == len(files)


@pytest.fixture
def limit():
    """Give a function that limits the size of files; SIGXFSZ is ignored by Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _multiplying():
    """Return a model of matrices, which the device holds in blocks; the third of its results is long."""
    return parsed("""graph (float[n,64] x) => (y, b) {
        t = Transpose<perm = [1, 0]>(x)
        a = MatMul(x, t)
        b = MatMul(a, x)
        c = MatMul(t, b)
        d = Relu(c)
        y = ReduceSum<keepdims = 0>(d)
    }""")


def _limited(door, limit, model, **changes):
    """Run steps, the second with a limit for files; return the written types, the error and the summary."""
    door.configure(**changes)
    network = door.load(model, **O0)
    network.run({"x": np.ones((8, 64), np.float32)})
    limit(5000)
    failure = None
    try:
        network.run({"x": np.ones((8, 64), np.float32)})
    except DumpWriteError as error:
        failure = trees.TIMESTAMP.sub("", str(error).rpartition("/")[2])
    limit(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    network.run({"x": np.full((9, 64), 2, np.float32)})
    door.process.close()
    return [_types(door, step) for step in range(3)], failure, network.summary


@pytest.mark.parametrize("on_write_error", ["raise", "warn"])
@pytest.mark.parametrize(
    ("model", "changes", "types"),
    [
        (_growing(), {}, ["Neg", "Concat", "Split", "Split", "ReduceSum", "ReLU"]),
        (
            _multiplying(),
            {"trans_flag": False},
            ["Transpose", "MatMul", "MatMul", "MatMul", "ReLU", "ReduceSum"],
        ),
    ],
)
def test_files_that_cannot_be_written(
    model, changes, types, on_write_error, waits, door, limit, monkeypatch, tmp_path
):
    """A file that is too large is reported and counted as of operators that run alone; others are there."""
    left = []
    for joins in (True, False):
        monkeypatch.setattr(KernelFactory, "joins", joins)
        door.folder = tmp_path / f"joins {joins}"
        door.folder.mkdir()
        door.again()
        told = {"on_write_error": on_write_error, "enable": waits}
        left.append(_limited(door, limit, model, input_output=2, **told, **changes))

    assert left[1] == left[0]
    (whole, limited, last), failure, summary = left[0]
    assert types == whole == last
    assert ("raise" == on_write_error) == (failure is not None)
    assert {os.strerror(errno.EFBIG)} == set(summary.lost)
    assert len(limited) < len(whole)


@pytest.fixture
def network(door):
    """Return a network that has dumped its outputs in two steps."""
    door.configure(input_output=2)
    network = door.load(_growing(), **O0)
    for _ in range(2):
        network.run(FEEDS)
    return network


@pytest.mark.parametrize("way", ["removed", "moved"])
def test_a_directory_that_is_gone_is_made_again(door, network, way):
    """Files go below the dump's path, also after its directories were removed or moved away."""
    aside = (door.rank / "Net" / "0").rename(door.rank / "aside")
    if way == "removed":
        shutil.rmtree(aside)

    network.run(FEEDS)

    assert ["2"] == [path.name for path in (door.rank / "Net" / "0").iterdir()]
    assert 6 == len(_types(door, 2))
    assert way == "removed" or ["0", "1"] == sorted(path.name for path in aside.iterdir())


def test_values_that_stay_inside_are_right(door, network):
    """Files and results hold the values of operators, also where the session reuses memory."""
    x = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    results = network.run({"x": x})

    files = {match["type"]: np.load(path) for match, path in trees.tensors(door.rank, iteration=2)}
    doubled = np.concatenate([-x] * 4)
    assert doubled.tobytes() == results["b"].tobytes() == files["Concat"].tobytes()
    assert (-x).tobytes() == files["Neg"].tobytes()
    assert results["y"] == files["ReLU"]
