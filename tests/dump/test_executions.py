"""Several executions in one path: programs that ran one after the other, and loops within each."""

import os

import numpy as np
import pytest

from msdump import open_dump
from msdump.errors import DumpReadError, DumpWriteError
from msdump.read import read_folder
from msdump.store import CLOCK
from tests.dump import nets, o2, trees
from tests.dump.test_control_flow import NESTED, feeds, model_of
from tests.texts import parsed
from tests.world import GPU, O0, O1, O2

MODES = {
    "CPU": ({}, {}),
    "GPU statistics": (GPU, {"saved_data": "statistic"}),
    "O0": (O0, {}),
    "O0 asynchronous": (O0, {"enable": False}),
    "O0 statistics": (O0, {"saved_data": "statistic"}),
    "O1 both": (O1, {"saved_data": "full"}),
}
X = {"x": np.ones((2, 4), np.float32)}
TWICE = [feeds(rounds, condition=True) for rounds in (3, 2)]


def largest(execution):
    """Return the largest element of an execution's first input, from its tensors or its statistics."""
    tensors = [r.array.max() for r in execution.records if r.io == "input"]
    return float(tensors[0] if tensors else execution.statistics[0]["Max Value"])


@pytest.mark.parametrize(("context", "changes"), MODES.values(), ids=MODES)
def test_programs_are_kept_apart(door, context, changes, caplog):
    """Each program's tensors and rows are an execution; the last one is taken, and said to be."""
    door.programs(nets.dense(), *({"x": factor * X["x"]} for factor in (1, 2, 3)), context=context, **changes)
    caplog.clear()

    iterations = open_dump(door.path).iterations

    found = [execution for iteration in iterations for execution in iteration.executions]
    assert [1, 2, 3] == [largest(execution) for execution in found]
    assert 3 == largest(iterations[-1])
    assert [0, 1, 2] == [execution.number for execution in found]
    told = "holds files of 3 executions (numbers 0-2); the last complete one, 2, is read"
    assert [told] == [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert 1 == largest(iterations[0].execution(0))
    with pytest.raises(DumpReadError, match="no execution 3: there are 3, numbers from 0"):
        iterations[0].execution(3)


@pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
def test_programs_with_other_statistics(door, enable):
    """A program that measures something else adds rows with their own titles, which the reader follows."""
    wanted = [["max", "min"], ["min", "max"], ["avg"], ["max", "min", "l2norm"]]
    for category in wanted:
        settings = {"saved_data": "statistic", "statistic_category": category, "enable": enable}
        door.dump(nets.dense(), X, context=O0, **settings)
        door.again()

    (iteration,) = open_dump(door.path).iterations

    rows = [execution.statistics[0] for execution in iteration.executions]
    assert [
        {"Max Value": 1, "Min Value": 1},
        {"Max Value": 1, "Min Value": 1},
        {"Avg Value": 1},
        {"Max Value": 1, "Min Value": 1, "L2Norm Value": 2.82843},
    ] == [{title: row[title] for title in row if title.endswith("Value")} for row in rows]
    assert 1 == len({len(execution.statistics) for execution in iteration.executions})


def test_a_program_that_was_broken_off(door):
    """The last whole execution is taken; executions in one directory never mix."""
    door.programs(nets.dense(), X, {"x": 2 * X["x"]}, context=O0)
    last = open_dump(door.path).iterations[0].executions[1].records[-1]
    (door.path / last.path).unlink()  # a killed program never came to its last operator
    for record in open_dump(door.path).iterations[0].executions[1].records:
        if record.op_name == last.op_name:
            (door.path / record.path).unlink()

    (iteration,) = open_dump(door.path).iterations

    assert [True, False] == [execution.is_whole for execution in iteration.executions]
    assert 1 == largest(iteration)
    assert {0} == {record.execution for record in iteration.records}


@pytest.mark.parametrize("context", [{}, GPU, O0, O1], ids=str)
@pytest.mark.parametrize("saved_data", ["tensor", "statistic", "full"])
def test_passes_are_no_executions(door, context, saved_data):
    """The passes of a body are numbered within the execution of their time."""
    if not context and saved_data != "tensor":
        pytest.skip("the CPU has no statistics")
    door.programs(model_of(NESTED), *TWICE, context=context, saved_data=saved_data)

    graphs = open_dump(door.path).ranks[0].networks["Net"].graphs

    body = graphs[1].iterations[0]
    assert [0, 1] == [execution.number for execution in body.executions]
    if saved_data != "statistic":
        passes = [{record.pass_number for record in execution.records} for execution in body.executions]
        assert [{0, 1, 2}, {0, 1}] == passes
        assert {1} == {record.execution for record in body.records}
    if saved_data != "tensor":
        rows = [[(row["Op Name"], row["IO"], row["Slot"]) for row in e.statistics] for e in body.executions]
        assert [3, 2] == [each.count(each[0]) for each in rows]


def test_a_branch_that_only_one_execution_entered(door):
    """Files of a branch belong to the execution that entered it, though it is the only one there."""
    door.programs(model_of(NESTED), feeds(1, condition=True), feeds(1, condition=False), context=O0)

    graphs = open_dump(door.path).ranks[0].networks["Net"].graphs

    assert [0] == [execution.number for execution in graphs[4].iterations[0].executions]
    assert [1] == [execution.number for execution in graphs[5].iterations[0].executions]
    assert () == graphs[4].iterations[0].records  # the last execution did not enter it
    assert graphs[5].iterations[0].records


def test_a_body_alone(door):
    """The directory of a body, opened alone, still has the executions of the main graph."""
    door.programs(model_of(NESTED), *TWICE, context=O0)

    folder = read_folder(str(door.rank / "Net" / "1" / "0"))
    first = read_folder(str(door.rank / "Net" / "1" / "0"), execution=0)

    assert (1, 2) == (folder.execution, folder.executions)
    assert {0, 1} == {each.pass_number for each in folder.tensors}
    assert {0, 1, 2} == {each.pass_number for each in first.tensors}


def test_a_body_of_which_alone_something_is_dumped(door):
    """Where nothing of the main graph was dumped, the time of loading separates the programs."""
    door.programs(model_of(NESTED), *TWICE, context=O0, dump_mode=1, kernels=["Default/FloorMod-op0"])

    (iteration,) = open_dump(door.path).iterations

    assert [9, 6] == [len(execution.records) for execution in iteration.executions]


def test_a_graph_that_runs_twice_in_an_iteration(door):
    """Where no file names the called graphs, the list of iterations separates passes from executions."""
    door.programs(model_of(NESTED), *TWICE)
    for path in door.rank.rglob("*.ir"):
        path.unlink()  # as MindSpore's own dump, in which graphs do not name one another
    for path in door.path.rglob("ms_execution_order_graph_0.csv"):
        os.utime(path, (0, 0))
    (listed,) = door.path.rglob("ms_global_execution_order_graph_0.csv")
    found = []
    for lines in ("0\n0\n", "0\n"):
        listed.write_text(lines)
        graph = open_dump(door.path).ranks[0].networks["Net"].graphs[0]
        found.append([execution.number for execution in graph.iterations[0].executions])

    assert [[0, 1], [0]] == found


def test_other_operators_of_the_same_graph(door):
    """Programs that dumped different operators share no tensor; the time of loading separates them."""
    for kernels in (["BiasAdd"], ["MatMul"]):
        door.dump(nets.dense(), X, context=O0, dump_mode=1, kernels=kernels)
        door.again()

    (iteration,) = open_dump(door.path).iterations

    assert [{"BiasAdd"}, {"MatMul"}] == [
        {record.op_type for record in execution.records} for execution in iteration.executions
    ]


def test_loops_of_compiled_graphs(door):
    """A directory of a compiled graph is one execution; its operators count their passes."""
    door.dump(model_of(NESTED), feeds(3, condition=True), context=O2)

    (iteration,) = open_dump(door.path).iterations

    assert {0, 1, 2} == {record.pass_number for record in iteration.records}
    assert 1 == len(iteration.executions)


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_programs_and_runs_of_compiled_graphs(door, monkeypatch, file_format):
    """Two programs of one second get directories of their own; runs within a program are iterations."""
    monkeypatch.setattr(type(CLOCK), "seconds", lambda _clock: "20261231235959")
    for factor in (1, 3):
        network = o2.load(door, nets.dense(), file_format=file_format)
        for step in range(2):
            network.run({"x": (factor + step) * X["x"]})
        door.again()

    iterations = open_dump(door.path).all_iterations

    times = ["20261231235959", "20270101000000"]
    assert [(step, time) for time in times for step in range(2)] == [
        (each.key.step, each.key.time) for each in iterations
    ]
    assert [1, 2, 3, 4] == [largest(iteration) for iteration in iterations]
    assert [{(run, 0)} for run in range(2) for _ in range(2)] == [
        {(record.execution, record.pass_number) for record in each.records} for each in iterations
    ]


EXISTING = {
    "CPU": ({}, {}),
    "O0 asynchronous": (O0, {"enable": False}),
    "O0 statistics": (O0, {"saved_data": "statistic"}),
    "O2 npy": (O2, {}),
    "O2 bin": (O2, {"file_format": "bin"}),
}


def held(door):
    """Return the dumped files by path."""
    return {path: path.read_bytes() for path in door.path.rglob("*.0.0.*") if path.is_file()} | {
        path: path.read_bytes() for path in door.path.rglob("statistic.csv")
    }


@pytest.mark.parametrize(("context", "changes"), EXISTING.values(), ids=EXISTING)
class TestExisting:
    """``msdump.existing``: keep, refuse or replace the files of earlier programs."""

    def test_refuse(self, door, context, changes):
        """Before anything runs a run is refused, and nothing that lies there changes."""
        door.programs(nets.dense(), X, context=context, existing="refuse", **changes)
        before = held(door)

        with pytest.raises(DumpWriteError, match=r"already holds \d files .* msdump.existing is 'refuse'"):
            door.dump(nets.dense(), X, context=context, existing="refuse", **changes)

        assert before == held(door)
        assert before

    def test_replace(self, door, context, changes, caplog):
        """The files of the earlier program go, foreign files stay."""
        door.dump(nets.dense(), X, steps=3, context=context, **changes)
        door.again()
        foreign = next(iter(held(door))).parent / "notes.txt"
        foreign.write_text("mine")

        door.programs(nets.dense(), {"x": 5 * X["x"]}, context=context, existing="replace", **changes)

        iterations = [each for each in open_dump(door.path).iterations if each.records or each.statistics]
        assert 1 == len(iterations)
        assert "mine" == foreign.read_text()
        assert any("removed" in record.getMessage() for record in caplog.records)

    def test_networks_of_one_process(self, door, context, changes, caplog):
        """Files of the process itself are not refused."""
        door.configure(existing="refuse", **changes)
        for _ in range(2):
            door.load(nets.dense(), **context).run(X)

        assert not [r for r in caplog.records if "already holds" in r.getMessage()]
        assert 2 == len(open_dump(door.path).iterations)


def test_networks_that_replace(door):
    """The second network of a program takes no file of the first one."""
    door.dump(nets.dense(), X, context=O0, net_name="First", existing="replace")
    before = trees.timeless(trees.tree(door.path))

    door.dump(nets.dense(), X, context=O0, net_name="Second", existing="replace")

    assert set(before) < set(trees.timeless(trees.tree(door.path)))


@pytest.mark.parametrize(("steps", "held"), [(1, "6 files"), (2, "12 files")])
def test_keep_counts(door, caplog, steps, held):
    """One warning at load counts the existing files, and names the alternatives."""
    door.dump(nets.dense(), X, steps=steps, context=O0)
    door.again()
    caplog.clear()

    door.dump(nets.dense(), X, context=O0)
    door.load(nets.dense())

    (message,) = [r.getMessage() for r in caplog.records if "already holds" in r.getMessage()]
    assert f"already holds {held} (" in message
    assert f"of network Net in {'1 directory' if steps == 1 else '2 directories'}" in message
    assert '("msdump": {"existing": "replace"} removes the earlier files' in message


def test_a_run_that_goes_on(door, caplog):
    """A program that begins where another one ended is not refused."""
    door.dump(nets.dense(), X, steps=2, context=O0)
    door.again()

    door.dump(nets.dense(), X, context=O0, initial_iteration=2, existing="refuse")

    assert [0, 1, 2] == [each.number for each in open_dump(door.path).iterations]


def twins():
    """Return a network with operators of one type in two scopes: their classic file names are the same."""
    return parsed('graph (float[2,4] x) => (b) { ["first/Relu"] a = Relu(x) ["second/Relu"] b = Relu(a) }')


@pytest.mark.parametrize("programs", [1, 2])
@pytest.mark.parametrize("naming", ["classic", "2.5"])
def test_operators_that_share_a_name_are_one_execution(door, naming, programs):
    """Where a file's name has no scope, each of the operators that it may mean comes once in an execution."""
    door.programs(twins(), *[X] * programs, naming=naming)

    (iteration,) = open_dump(door.path).iterations

    tensors = [
        [(r.io, r.pass_number) for r in each.records if r.op_type == "ReLU"] for each in iteration.executions
    ]
    second = int(naming == "classic")
    one = [("input", 0), ("output", 0), ("input", second), ("output", second)]
    assert [one] * programs == tensors
