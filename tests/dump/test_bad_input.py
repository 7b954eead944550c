"""Faults of the surroundings, the configuration and the network: one clear message each, nothing lost."""

import errno
import itertools
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from msdump.errors import ConfigError, DumpWriteError, ExecutionError, UnsupportedOpError
from tests import disks
from tests.dump import nets, trees
from tests.texts import parsed
from tests.world import O0


@pytest.fixture
def small_disk(tmp_path):
    """Give the directory of a file system that holds half a megabyte."""
    with disks.mounted(tmp_path / "small", "512k") as folder:
        yield folder


def messages(caplog, level="WARNING"):
    """Return the messages that were logged from a level on."""
    caplog.handler.setLevel(level)
    return [record.getMessage() for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


def complete(root):
    """Tell how many tensor files there are, after loading each, and that nothing else was left there."""
    files = trees.tree(root)
    assert not [name for name in files if name.endswith(".tmp")]
    return len([np.load(path) for name, path in files.items() if name.endswith(".npy")])


def test_expression_without_end(door):
    """An expression that would search for ever is refused at the load, with file, line, place and a name."""
    file = door.configure(dump_mode=1, kernels=["Add", "name-regex(Default/(a|aa)+/ReLU-op1)"])
    model = nets.model(
        [nets.node("Relu", "x", "y", f"{80 * 'a'}/Relu")], [nets.value("x", [1])], [nets.value("y", [1])]
    )

    with pytest.raises(ConfigError) as caught:
        door.load(model)

    line = 1 + file.read_text().splitlines().index('   "name-regex(Default/(a|aa)+/ReLU-op1)"')
    assert f"{file}:{line}: $.common_dump_settings.kernels[1]: 'name-regex(" in str(caught.value)
    assert f"takes too long to match 'Default/{80 * 'a'}/ReLU-op0'" in str(caught.value)
    assert not door.path.exists() or {} == trees.tree(door.path)


def test_longest_path_takes_a_whole_dump(door, caplog):
    """Below the longest path that is accepted every file finds its place: stand-ins, side files, rows."""
    root = f"{door.folder}/my+dump"
    root += (3400 - len(root)) // 100 * f"/{99 * 'd'}"
    root += (3400 - len(root)) * "d"
    network = door.dump(
        nets.long_names(),
        {"x": np.ones((2, 4), np.float32)},
        context=O0,
        path=root,
        net_name=255 * "n",
        saved_data="full",
    )

    assert {} == dict(network.summary.lost)
    assert 6 == complete(Path(root))
    (warning,) = messages(caplog)
    assert warning.endswith("+'")


def replaced_by_a_copy(path):
    """Move a dump away and put a copy in its place."""
    path.rename(path.with_name("aside"))
    shutil.copytree(path.with_name("aside"), path)


@pytest.mark.parametrize("context", [{}, O0], ids=["CPU", "O0"])
@pytest.mark.parametrize("enable", [True, False], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize(
    ("leave", "fault"),
    [
        (shutil.rmtree, "the path of the dump was removed or moved"),
        (lambda path: path.rename(path.with_name("aside")), "the path of the dump was removed or moved"),
        (replaced_by_a_copy, "another directory took the place of the dump's path"),
        (
            lambda path: shutil.rmtree(path) or path.mkdir(),
            "another directory took the place of the dump's path",
        ),
    ],
    ids=["removed", "moved", "replaced", "made again"],
)
def test_dump_path_that_goes(door, leave, fault, enable, context):
    """A path that is removed, moved away or replaced is a write error: no second tree is begun."""
    door.configure(enable=enable)
    network = door.load(nets.mini(), **context)
    network.run(nets.mini_feeds())
    leave(door.path)
    before = trees.tree(door.path)

    with pytest.raises(DumpWriteError, match=f"{fault} during the run; put the first directory back, or"):
        network.run(nets.mini_feeds())

    assert before == trees.tree(door.path)


@pytest.mark.parametrize("often", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "changes",
    [{}, {"enable": False}, {"saved_data": "full"}],
    ids=["synchronous", "asynchronous", "with a table"],
)
def test_closing_that_fails(door, monkeypatch, caplog, changes, often):
    """A close that fails before a file has its name loses the file, any other one nothing; all is counted."""
    calls, faults = itertools.count(1), []
    close = os.close

    def fail(descriptor):
        close(descriptor)
        if next(calls) % often == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(threading, "excepthook", faults.append)
    door.configure(on_write_error="warn", **changes)
    network = door.load(elements(40_000), **O0)
    monkeypatch.setattr(os, "close", fail)
    for _ in range(3):
        network.run({"v0": np.ones(40_000, np.float32)})
    door.load(elements(3), **O0)
    door.process.close()
    monkeypatch.undo()

    files = trees.tree(door.path)
    assert [] == faults
    assert network.summary.files == len(files)
    assert [os.strerror(errno.EIO)] == list(network.summary.lost)
    assert complete(door.path) + sum(network.summary.lost.values()) >= 3 * 8
    assert 1 == sum("cannot write" in message for message in messages(caplog))


def elements(count):
    """Return a network that changes the sign of many numbers, four times."""
    nodes = [nets.node("Neg", f"v{n}", f"v{n + 1}", f"n{n}/Neg") for n in range(4)]
    return nets.model(nodes, [nets.value("v0", [count])], ["v4"])


@pytest.mark.parametrize("count", [2_000, 40_000], ids=["inline", "in threads"])
@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_full_disk_in_the_middle_of_an_asynchronous_dump(door, small_disk, caplog, policy, count):
    """The step raises for lost files; the others are complete, and the counts equal the files on disk."""
    door.configure(
        path=str(small_disk / "dump"),
        enable=False,
        writer_threads=2,
        saved_data="full",
        on_write_error=policy,
    )
    network = door.load(elements(count), device_target="Ascend", jit_level="O0")
    x = np.ones(count, np.float32)
    steps = 0

    while not network.summary.lost:
        steps += 1
        if policy == "warn":
            network(x)
            continue
        try:
            network(x)
        except DumpWriteError as error:
            assert "No space left on device; free space" in str(error)  # noqa: PT017 - earlier steps fit

    tensors = complete(small_disk / "dump")
    files = [path for path in trees.tree(small_disk / "dump").values() if path.stat().st_size]
    lost = network.summary.lost[os.strerror(errno.ENOSPC)]
    assert {os.strerror(errno.ENOSPC)} == set(network.summary.lost)
    assert network.summary.files == len(files)
    assert network.summary.bytes == sum(path.stat().st_size for path in files)
    assert tensors < 8 * steps <= tensors + lost
    for path in (small_disk / "dump").rglob("statistic.csv"):
        rows = path.read_text().splitlines(keepends=True)
        assert all(row.endswith("\n") and row.count(",") == 12 for row in rows)
    assert 1 == len([message for message in messages(caplog) if "No space left" in message])


@pytest.mark.parametrize(
    "changes",
    [{}, {"enable": False}, {"watch": [{"condition": "tensor_overflow"}], "history": 40}],
    ids=["synchronous", "asynchronous", "history"],
)
def test_iterations_on_a_full_disk(door, small_disk, changes):
    """Iterations that have lost all files are not among the written ones, iterations with some files are."""
    door.configure(path=str(small_disk / "dump"), on_write_error="warn", **changes)
    network = door.load(elements(2_000), **O0)

    for step in range(20):
        network(np.full(2_000, np.inf if step == 19 else 1, np.float32))

    steps = (small_disk / "dump/rank_0/Net/0").iterdir()
    on_disk = {int(step.name) for step in steps if any(step.iterdir())}
    assert 0 < len(on_disk) < 20
    assert on_disk == {step for step in range(20) if step in network.written_iterations}


@pytest.mark.parametrize("changes", [{}, {"on_write_error": "warn"}], ids=["raise", "warn"])
def test_failing_operator(door, changes):
    """When an operator fails, the exception names it, earlier ones have files and the step is listed."""
    door.configure(**changes)
    network = door.load(
        parsed("""graph (float[3,2] x, int64[1] where) => (y) {
        ["relu-ReLU/Relu"] positive = Relu(x)
        ["pick-Pick/Gather"] row = Gather(positive, where)
        ["neg-Neg/Neg"] y = Neg(row)
    }""")
    )

    with pytest.raises(ExecutionError) as caught:
        network.run({"x": np.ones((3, 2), np.float32), "where": np.array([7])})

    assert "operator Default/pick-Pick/Gather-op0 failed: " in str(caught.value)
    assert "(inputs: float32[3, 2], int64[1])" in str(caught.value)
    assert "Default/pick-Pick/Gather-op0" == caught.value.operator
    assert ["ReLU-op0 input 0", "ReLU-op0 output 0"] == trees.slots(door.rank)
    assert 2 == complete(door.rank)
    assert "0\n" == (door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv").read_text()


def test_operator_that_nothing_runs(door):
    """An operator that nothing can run is named with its node and domain; earlier ones are dumped."""
    nodes = [nets.node("Relu", "x", "positive", "a/Relu")]
    nodes += [nets.node("Wonder", "positive", "y", "b/Wonder", domain="my.domain")]
    model = nets.model(nodes, [nets.value("x", [2])], ["y"])
    model.opset_import.append(nets.helper.make_opsetid("my.domain", 1))
    door.configure()
    network = door.load(model)

    with pytest.raises(UnsupportedOpError, match=r"node 'b/Wonder': .* can run my\.domain"):
        network.run({"x": np.ones(2, np.float32)})

    assert ["ReLU-op0 input 0", "ReLU-op0 output 0"] == trees.slots(door.rank)
