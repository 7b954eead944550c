"""``msdump baseline``: the statistics of a dump, kept for later dumps to be compared with."""

import json
import shutil

import numpy as np
import pytest

from tests.world import cli

START = 1795219089580885
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
NAME = "rank_0/Net/0/{}/Add.{}.0.0.{}.output.0.DefaultFormat.float32.npy"


def call(*arguments):
    """Call the program; return the exit code, standard output and standard error."""
    done = cli(*arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def dump(tmp_path):
    """Return a dump of two iterations of two operators."""
    for iteration in (0, 3):
        for number in (0, 1):
            path = tmp_path / "dump" / NAME.format(iteration, f"a{number}", START + number)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.float32([iteration, number, np.nan if number else 0.1]))
    return tmp_path / "dump"


def test_a_dump_is_compared_with_its_baseline(tmp_path, dump):
    """The dump itself equals its baseline; another number in it differs; digests are kept on demand."""
    code, out, _ = call("baseline", dump, "-out", tmp_path / "base", "--stat", "max,nan,md5")
    assert (0, "kept      4 tensors of 2 folders\n") == (code, out[: out.index("into")])
    table = (tmp_path / "base/rank_0/Net/0/3/statistic.csv").read_text().splitlines()
    assert [
        f"{HEAD},Max Value,NaN Count,MD5",
        f"Add,a0,0,0,{START},output,0,12,float32,(3),3,0,{table[1].rpartition(',')[2]}",
    ] == table[:2]

    compare = ("compare", dump, tmp_path / "base", "-out", tmp_path / "out")
    assert 0 == call(*compare)[0]
    np.save(dump / NAME.format(3, "a1", START + 1), np.float32([3, 1, 5]))
    code, out, _ = call(*compare)
    assert (1, True) == (code, "first     a1 (Add), operator 2 of 2 in rank_0/Net/0/3" in out)


def test_rows_are_taken_over(tmp_path, dump):
    """A dump of statistics keeps its own, in its own digits: a baseline of a baseline is the same."""
    call("baseline", dump, "-out", tmp_path / "one", "--stat", "max,l2norm")
    call("baseline", tmp_path / "one", "-out", tmp_path / "two", "--stat", "min")

    first, second = (
        sorted((path.relative_to(root), path.read_text()) for path in root.rglob("*.csv"))
        for root in (tmp_path / "one", tmp_path / "two")
    )
    assert first == second


def test_a_graph_that_ran_several_times(tmp_path):
    """Each run of a kernel graph, such as a loop's body, is compared with its own."""
    root = tmp_path / "dump"
    for graph in (0, 1):
        order = root / f"rank_0/execution_order/ms_execution_order_graph_{graph}.csv"
        order.parent.mkdir(parents=True, exist_ok=True)
        order.write_text(f"NodeExecutionOrder-FullNameWithScope\nDefault/Add-op{graph}\n")
        for number in range(3):
            name = NAME.format(0, f"Default_Add-op{graph}", START + 10 * number + graph)
            path = root / name.replace("Net/0", f"Net/{graph}")
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.float32([number, graph]))
    (root / "rank_0/execution_order/ms_global_execution_order_graph_0.csv").write_text("0\n")

    assert "kept      6 tensors of 2 folders\n" in call("baseline", root, "-out", tmp_path / "base")[1]
    compare = ("compare", root, tmp_path / "base", "-out", tmp_path / "out", "-v")
    code, out, _ = call(*compare)
    assert (0, True) == (code, "compared  6 tensors of 6 operators: 6 agree" in out)
    np.save(next((root / "rank_0/Net/1/0").glob(f"*.{START + 11}.*")), np.float32([7, 7]))
    code, out, _ = call(*compare)
    assert (1, True) == (code, "Default_Add-op1 (Add), pass 1, operator 2 of 3 in rank_0/Net/1/0" in out)


def test_tensors_that_cannot_be_read(tmp_path, dump):
    """A torn tensor is reported and left out, the exit code is 1."""
    path = dump / NAME.format(0, "a0", START)
    path.write_bytes(path.read_bytes()[:-2])

    code, out, _ = call("baseline", dump, "-out", tmp_path / "base", "--json")

    document = json.loads(out)
    assert (1, 3, 1) == (code, document["tensors"], len(document["unreadable"]))


def test_what_is_wrong(tmp_path, dump):
    """A directory that holds files, a dump without tensors and an unknown statistic are refused."""
    assert "holds files already" in call("baseline", dump, "-out", dump)[2]
    assert (
        "no statistic 'maxx' (did you mean 'max'?)"
        in call("baseline", dump, "-out", tmp_path / "base", "--stat", "maxx")[2]
    )
    shutil.rmtree(dump)
    dump.mkdir()
    code, _, error = call("baseline", dump, "-out", tmp_path / "base")
    assert (2, True) == (code, "no dump files in it" in error)
    assert not (tmp_path / "base").exists()
