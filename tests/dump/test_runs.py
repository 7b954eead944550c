"""Several networks in a process, several processes in a path, and networks of unusual shape."""

import contextlib

import numpy as np
import pytest

import msdump
from msdump.capture.graph_files import GraphDump
from msdump.errors import DumpWriteError, ExecutionError, InputError
from tests.dump import nets, o2, trees
from tests.world import GPU, GRAPHS, O0, O1

X = {"x": np.ones((2, 4), np.float32)}


def iterations(door, graph):
    """Return the iterations that a graph has directories for."""
    return sorted(int(path.name) for path in (door.rank / "Net" / str(graph)).iterdir())


def turns(door, order, **changes):
    """Run networks in the order of their letters; return the iterations of each graph."""
    door.configure(**changes)
    loaded = {letter: door.load(nets.dense()) for letter in sorted(set(order))}
    for letter in order:
        loaded[letter].run(X)
    return [iterations(door, graph) for graph in range(len(loaded))]


TURNS = {
    "one": ("AAA", {}, [[0, 1, 2]]),
    "two in turn": ("ABABAB", {}, [[0, 1, 2], [1, 2, 3]]),
    "one after the other": ("AAABBB", {}, [[0, 1, 2], [1, 2, 3]]),
    "three": ("ABCABC", {}, [[0, 1], [1, 2], [1, 2]]),
    "first number": ("ABAB", {"initial_iteration": 5}, [[5, 6], [6, 7]]),
    "one runs more": ("AAAB", {}, [[0, 1, 2], [3]]),
    "the other runs more": ("AAABBBB", {}, [[0, 1, 2], [1, 2, 3, 4]]),
    "twice in a row": ("ABB", {}, [[0], [1, 2]]),  # a number that a network has used is not used again
}


@pytest.mark.parametrize(("order", "changes", "expected"), TURNS.values(), ids=TURNS)
def test_counter(door, order, changes, expected):
    """After each run the process's counter is that network's count of runs plus ``initial_iteration``."""
    assert expected == turns(door, order, **changes)


def test_failed_run_does_not_count(door):
    """A run that is refused has no number; the next one takes it."""
    door.configure()
    network = door.load(nets.dense())
    network.run(X)
    with pytest.raises(InputError):
        network.run({"x": np.ones((2, 5), np.float32)})

    network.run(X)

    assert iterations(door, 0) == [0, 1]


def test_graph_without_operators(door):
    """A graph that only passes its input on writes nothing, takes no number and does not count."""
    x = nets.value("x", ["n", 4])
    door.configure()
    identity = door.load(nets.model([], [x], [x]))
    identity.run(X)
    assert not door.path.exists()

    network = door.load(nets.dense())
    identity.run(X)
    network.run(X)
    identity.run(X)
    network.run(X)

    assert iterations(door, 0) == [0, 1]


def test_metadata_are_written_once(door, caplog):
    """In a fresh path several networks write the metadata once and say nothing about it."""
    turns(door, "ABC")

    assert len(list((door.rank / ".dump_metadata").iterdir())) == 2
    assert caplog.records == []


def test_second_run_adds(door, caplog):
    """A second process in the same path destroys no tensor, appends to histories and keeps the metadata."""
    door.dump(nets.dense(), X, steps=2)
    before = {path: path.read_bytes() for path in door.path.rglob("*.npy")}
    door.again()

    door.dump(nets.dense(), X, iteration="0-7", steps=2)

    after = list(door.path.rglob("*.npy"))
    assert before == {path: path.read_bytes() for path in before}
    assert 2 * len(before) == len(after)
    history = door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv"
    assert history.read_text() == "0\n1\n0\n1\n"
    assert b'"all"' in (door.rank / ".dump_metadata" / "data_dump.json").read_bytes()
    kept = [
        record.getMessage()
        for record in caplog.records
        if "already exists and is kept" in record.getMessage()
    ]
    assert len(kept) == 2


def test_second_run_replaces_graph_files(door):
    """Graph files and execution orders belong to the latest process."""
    door.dump(nets.dense(), X)
    door.again()

    door.dump(nets.cosine(), X)

    order = door.rank / "execution_order" / "ms_execution_order_graph_0.csv"
    assert order.read_text() == "NodeExecutionOrder-FullNameWithScope\nDefault/Cos-op0\n"
    for suffix in ("ir", "pb"):
        data = (door.rank / "graphs" / f"ms_output_trace_code_graph_0.{suffix}").read_bytes()
        assert b"Default/Cos-op0" in data
        assert b"MatMul" not in data
    modes = {trees.mode(path) for path in door.path.rglob("*") if path.is_file()}
    assert {0o400} == modes


def test_second_run_adds_to_mappings(door):
    """Stand-ins of a second process differ from the first's, and both are mapped."""
    for _ in range(2):
        door.dump(nets.long_names(), {"x": np.ones((2, 4), np.float32)})
        door.again()

    folder = door.rank / "Net" / "0" / "0"
    lines = (folder / "mapping.csv").read_text().splitlines()
    assert 12 == len(lines) == len({line.split(",")[0] for line in lines})
    assert all((folder / line.split(",")[0]).is_file() for line in lines)
    assert sum(len(name) > 255 for name in (path.rpartition("/")[2] for path in trees.tree(folder))) == 12


def test_outputs_that_nothing_computes(door):
    """An output that is an input or an initializer comes back, and only the operator between is dumped."""
    network = door.dump(GRAPHS / "passthrough.onnx", {"x": np.ones((2, 2), np.float32)})

    assert len(network.run({"x": np.ones((2, 2), np.float32)})) == 3
    assert {"Default_Add-op0"} == trees.operators(door.rank)


STEPS = {
    "CPU": ({}, {}, [0, 1, 2], "0\n1\n2\n"),
    "CPU, failed step only": ({"iteration": "1"}, {}, [1], "1\n"),
    "CPU, other steps": ({"iteration": "0|2"}, {}, [0, 2], "0\n2\n"),
    "GPU": ({"iteration": "0"}, GPU, [0], "0\n1\n2\n"),
    "sync": ({}, O0, [0, 1, 2], None),
    "async": ({"enable": False}, O1, [0, 1, 2], None),
    "exceptions": ({"op_debug_mode": 4}, O0, [1], None),
    "later number": ({"initial_iteration": 5}, {}, [5, 6, 7], "5\n6\n7\n"),
}


@pytest.mark.parametrize(("changes", "context", "dumped", "listed"), STEPS.values(), ids=STEPS)
def test_step_that_fails_is_a_step(door, changes, context, dumped, listed):
    """A failed step keeps its directory, is listed as executed, and the next step takes the next number."""
    door.configure(**changes)
    network = door.load(nets.gather(), **context)
    network.run(nets.gather_feeds(0))
    with pytest.raises(ExecutionError):
        network.run(nets.gather_feeds(5))
    network.run(nets.gather_feeds(1))

    history = door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv"
    assert (dumped, listed) == (iterations(door, 0), history.read_text() if history.exists() else None)
    assert changes.get("initial_iteration", 0) + 3 == network.iteration


def test_step_that_fails_where_the_user_steps(door):
    """The user's numbers hold whether steps fail or not."""
    door.configure()
    network = door.load(nets.gather())
    msdump.set_init_iter(3)
    for row in (0, 5, 1):
        with contextlib.suppress(ExecutionError):
            network.run(nets.gather_feeds(row))
        msdump.dump_step(2)

    assert [3, 5, 7] == iterations(door, 0)


def test_step_that_fails_in_a_compiled_graph(door):
    """Under O2, step and number of the run go on after a step that failed."""
    network = o2.load(door, nets.gather())
    for row in (0, 5, 1):
        with contextlib.suppress(ExecutionError):
            network.run(nets.gather_feeds(row))

    found = [(step, run) for step, _, _, _, run in o2.places(door.path)]
    assert [(0, 0), (1, 1), (2, 2)] == found


def test_step_whose_parameters_cannot_be_written_is_listed(door, monkeypatch):
    """A step that loses its files at its end has been executed, too."""
    door.configure()
    network = door.load(nets.dense())

    def full(*_):
        raise DumpWriteError("no space left")

    monkeypatch.setattr(GraphDump, "write_parameters", full)
    with pytest.raises(DumpWriteError, match="no space"):
        network.run(X)

    history = door.rank / "execution_order" / "ms_global_execution_order_graph_0.csv"
    assert ("0\n", 1) == (history.read_text(), network.iteration)
