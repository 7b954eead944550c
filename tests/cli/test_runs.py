"""Several runs in one path: each stands by itself, the newest is read, and another one can be chosen."""

import json

import numpy as np
import pytest

from msdump import open_dump
from msdump.errors import DumpReadError
from tests.world import cli

FIRST, SECOND, LATER = "20240131120000", "20240131120500", "20240131120501"
NAME = "Add.Default_Add-op0.2.0.{}.output.0.ND.float32.npy"
START = 1795219089575530


def put(folder, value):
    """Write the one tensor of an execution."""
    folder.mkdir(parents=True)
    np.save(folder / NAME.format(START), np.full(4, value, np.float32))


def steps(root, world=""):
    """Write two runs of Ascend O2: the second one has a time for each step, and ends before the first."""
    for step in range(3):
        put(root / world / str(step) / FIRST / "0" / "net" / "1" / str(step), 1 + step)
    for step, time in enumerate((SECOND, LATER)):
        put(root / world / str(step) / time / "0" / "net" / "1" / str(step), 11 + step)


def models(root):
    """Write two runs of acl, of two executions each."""
    for time, value in ((FIRST, 1), (SECOND, 11)):
        for execution in range(2):
            put(root / time / "0" / "net" / "1" / str(execution), value + execution)


def ranks(root):
    """Write two runs of torchair on two ranks, each with times of its own."""
    times = (("20240131120000", "20240131120500"), ("20240131120003", "20240131120502"))
    for rank, started in enumerate(times):
        for time, value in zip(started, (1, 11), strict=True):
            put(root / f"worldsize2_global_rank{rank}" / time / "0" / "graph_1" / "1" / "0", value)


def shared(root):
    """Write two runs into MindSpore's directories, which they share."""
    folder = root / "rank_0" / "Net" / "0" / "0"
    folder.mkdir(parents=True)
    for number, value in enumerate((1, 11)):
        name = NAME.replace(".2.0.", ".0.0.").format(START + 1_000_000 * number)
        np.save(folder / name, np.full(4, value, np.float32))


TREES = {"steps": steps, "models": models, "ranks": ranks}


@pytest.fixture(params=TREES)
def dump(request, tmp_path, monkeypatch):
    """Return a dump that two runs of a compiled graph wrote into."""
    monkeypatch.chdir(tmp_path)
    TREES[request.param](tmp_path / "dump")
    return tmp_path / "dump"


def run(*arguments):
    """Run a command; return its exit code, standard output and standard error."""
    done = cli(*arguments)
    return done.exit_code, done.stdout, done.stderr


def values(opened):
    """Return the first elements of all tensors that are read."""
    return {float(record.array[0]) for record in opened.records}


def test_the_newest_is_read(dump, caplog):
    """A line names the runs by their times, and the one that is taken."""
    opened = open_dump(dump)

    assert values(opened) <= {11, 12}
    assert [0, 1] == [each.number for each in opened.runs]
    assert (FIRST, SECOND) == (opened.runs[0].time, opened.runs[1].time)
    assert f"holds 2 runs, 0 ({FIRST}), 1 ({SECOND}); the newest, 1, is read" in caplog.text


@pytest.mark.parametrize("execution", [0, int(FIRST)])
def test_another_one_is_chosen(dump, execution, caplog):
    """By its number or its time; nothing is warned of then, and nothing of the other one is read."""
    opened = open_dump(dump, execution)

    assert values(opened) <= {1, 2, 3}
    assert {0} == {record.execution for record in opened.records}
    assert "runs" not in caplog.text


def test_there_is_no_such_run(dump):
    """The error lists the runs."""
    with pytest.raises(DumpReadError, match=rf"no run 7: there are 0 \({FIRST}\), 1 \({SECOND}\)"):
        open_dump(dump, 7)


def test_all_are_there(dump):
    """Iterations of all runs have the number of their run."""
    iterations = open_dump(dump).all_iterations
    found = {(each.run, float(record.array[0])) for each in iterations for record in each.records}

    assert {number for number, _ in found} == {0, 1}
    assert all((value > 10) == bool(number) for number, value in found)


def test_compare_within_one_path(dump):
    """Two runs of one path are compared; without a choice the newest of each side is."""
    code, _, warned = run("compare", dump, dump)
    assert (0, True) == (code, "the newest, 1, is read" in warned)
    assert 1 == run("compare", dump, dump, "--golden-execution", FIRST)[0]
    assert 0 == run("compare", dump, dump, "--execution", "0", "--golden-execution", FIRST)[0]
    assert 2 == run("compare", dump, dump, "--execution", "5")[0]


def test_runs_are_never_mixed(dump, tmp_path):
    """Each series of a trend, each row of a query and all hits of watch rules are of one run."""
    _, printed, _ = run("trend", dump, "*", "--stat", "max", "--json")
    for series in json.loads(printed)["series"]:
        (number,) = {point["execution"] for point in series["points"]}
        assert all((point["values"]["max"] > 10) == bool(number) for point in series["points"])
    _, printed, _ = run("query", dump, "select distinct execution from tensors order by 1", "--csv")
    assert ["execution", "0", "1"] == printed.split()
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([{"condition": "tensor_too_large", "max_gt": 10}]), encoding="utf-8")
    code, printed, _ = run("watch", dump, "--rules", rules, "--execution", "0")
    assert 0 == code, printed


@pytest.mark.parametrize(("chosen", "value"), [((), 11), (("--execution", "0"), 1)])
def test_show_and_baseline(dump, tmp_path, chosen, value):
    """The tensors of an operator, and the statistics of a baseline, are of the chosen run."""
    _, printed, _ = run("show", dump, "Default_Add-op0", "--iteration", "0", *chosen, "--json")
    assert value == json.loads(printed)["tensors"][0]["statistics"]["max"]
    assert 0 == run("baseline", dump, "-out", tmp_path / "kept", *chosen)[0]
    assert 0 == run("compare", dump, tmp_path / "kept", *chosen)[0]


def test_directories_that_runs_share(tmp_path):
    """Of MindSpore's tree the last whole execution is read, or the one that is chosen."""
    shared(tmp_path)

    assert {11} == values(open_dump(tmp_path))
    assert {1} == values(open_dump(tmp_path, 0))
    _, printed, _ = run("show", tmp_path, "Default_Add-op0", "--execution", "0", "--json")
    assert 1 == json.loads(printed)["tensors"][0]["statistics"]["max"]


def test_an_earlier_run_that_went_further(tmp_path, caplog):
    """An iteration that the last run did not dump is read of the earlier one, which is reported once."""
    shared(tmp_path)
    for iteration in (1, 2):
        folder = tmp_path / "rank_0" / "Net" / "0" / str(iteration)
        folder.mkdir()
        np.save(
            folder / NAME.replace(".2.0.", ".0.0.").format(START + iteration), np.float32([1 + iteration])
        )
    orders = tmp_path / "rank_0" / "execution_order"
    orders.mkdir()
    (orders / "ms_global_execution_order_graph_0.csv").write_text("0\n1\n2\n0\n", encoding="utf-8")

    assert {11, 2, 3} == values(open_dump(tmp_path))

    assert 1 == caplog.text.count("is of an earlier run")
    assert "Net/0/1: is of an earlier run" in caplog.text


def test_a_run_that_goes_on(tmp_path):
    """Where a second program goes on with later steps, its directories are of the same run."""
    for step, time in enumerate((FIRST, FIRST, SECOND)):
        put(tmp_path / str(step) / time / "0" / "net" / "1" / str(step), step)

    (only,) = open_dump(tmp_path).runs

    assert (FIRST, SECOND) == only.times
    assert {0, 1, 2} == values(open_dump(tmp_path))
