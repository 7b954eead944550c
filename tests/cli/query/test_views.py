"""The views that are made of a dump's files: tensors, operators, files, runs."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.encode import dump_data
from msdump.encode.dump_data import DumpData, TensorInfo

STAMP = 1795219089580885
NAME = "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.{time}.{io}.{slot}.DefaultFormat.{dtype}.npy"


def named(time=STAMP, io="output", slot=0, dtype="float32"):
    """Return the name of a tensor's file."""
    return NAME.format(time=time, io=io, slot=slot, dtype=dtype)


TREES = {
    "ranks": ("rank_1/Net/2/3", [1, "Net", 2, 3]),
    "GE": ("20240112093000/5/resnet/1/3", [5, "resnet", 1, 3]),
    "constants": ("rank_1/Net/2/constants", [1, "Net", 2, None]),
}


@pytest.mark.parametrize("tree", ["ranks", "GE", "constants"])
def test_place_of_a_tensor(put, answered, tmp_path, tree):
    """Rank, network, graph and iteration come from the path, in every kind of tree."""
    directory, place = TREES[tree]
    put(tmp_path / directory / named(), np.ones((2, 3), np.float32))

    columns = "rank, network, graph, iteration, directory, op_type, io, slot, dtype, shape, bytes"
    (row,) = answered(tmp_path, f"select {columns} from tensors")

    cells = ["" if cell is None else str(cell) for cell in place]
    assert [*cells, directory, "Conv2D", "output", "0", "float32", "[2, 3]", "24"] == row


def test_mixed_trees(put, answered, tmp_path):
    """Ranks and compiled models below one root are told together."""
    for tree in ("ranks", "GE"):
        put(tmp_path / TREES[tree][0] / named(), np.ones(3, np.float32))

    assert [["1", "Net"], ["5", "resnet"]] == answered(
        tmp_path, "select rank, network from tensors order by rank"
    )


def test_file_of_an_operator(put, answered, tmp_path):
    """Every tensor of CANN's dump file of an operator is a row, as its header tells it."""
    info = TensorInfo(data_type=2, format=2, shape=(2, 3), original_shape=(2, 3), size=12)
    header = DumpData(dump_time=STAMP, op_name="Default/Add-op0", inputs=(info,), outputs=(info,))
    data = dump_data.header(header) + bytes(24)
    put(tmp_path / f"20240112093000/0/net/1/3/Add.Default_Add-op0.5.7.{STAMP}", data)

    question = (
        "select full_name, io, slot, dtype, shape, format, bytes, task_id, stream_id from tensors order by io"
    )
    told = ["0", "float16", "[2, 3]", "ND", "12", "5", "7"]
    assert [["Default/Add-op0", "input", *told], ["Default/Add-op0", "output", *told]] == answered(
        tmp_path, question
    )


def test_torn_file(put, ask, tmp_path):
    """A file that is torn has a row without a shape, and is told; the others are there."""
    place = tmp_path / "rank_0/Net/0/0"
    put(place / named(slot=0), np.ones(3, np.float32))
    torn = put(place / named(STAMP + 1, slot=1), b"\x93NUMPY\x01\x00v")

    code, rows, stderr = ask(tmp_path, "select slot, shape, path from tensors order by slot")

    assert (0, [["0", "[3]", f"{place / named(slot=0)}"], ["1", "", str(torn)]]) == (code, rows)
    assert f"msdump: warning: {torn} at byte 9: the header is truncated: no length field\n" == stderr


def test_executions(put, answered, tmp_path):
    """Of two programs that wrote into one directory all tensors and both runs are there."""
    for start in (STAMP, STAMP + 1000):
        for slot in (0, 1):
            put(tmp_path / "rank_0/Net/0/0" / named(start + slot, slot=slot), np.ones(3, np.float32))

    rows = answered(tmp_path, "select execution, slot, timestamp from tensors order by all")
    assert [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]] == [row[:2] for row in rows]
    runs = (
        "select execution, is_whole, tensors, started, ended - started as took from runs order by execution"
    )
    assert [
        ["0", "true", "2", "2026-11-20 23:58:09.580885", "0:00:00.000001"],
        ["1", "true", "2", "2026-11-20 23:58:09.581885", "0:00:00.000001"],
    ] == answered(tmp_path, runs)


def test_kinds_of_files(put, answered, tmp_path):
    """Every file has its kind and size, foreign ones too, also with marks in their names."""
    put(tmp_path / "rank_0/Net/0/0" / named(), np.ones(3, np.float32))
    put(tmp_path / "rank_0/Net/0/0/statistic.csv", "")
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", "x\n")
    put(tmp_path / "rank_0/notes <script>.txt", "words")

    rows = answered(tmp_path, "select kind, name, bytes, graph from files order by kind")

    assert [
        ["execution_order", "ms_execution_order_graph_0.csv", "2", "0"],
        ["foreign", "notes <script>.txt", "5", ""],
        ["statistics", "statistic.csv", "0", "0"],
        ["tensor", named(), "140", "0"],
    ] == rows


def test_operators_without_a_graph_file(put, answered, tmp_path):
    """The order of execution tells names; ``classic`` files spell the last component of a name alone."""
    order = "NodeExecutionOrder-FullNameWithScope\nDefault/conv1-Conv2d/Conv2D-op0\nDefault/ReLU-op1\n"
    put(tmp_path / "rank_0/execution_order/ms_execution_order_graph_0.csv", order)
    put(
        tmp_path / "rank_0/Net/0/0/Conv2D.Conv2D-op0.0.0.1.output.0.DefaultFormat.npy", np.ones(3, np.float32)
    )

    rows = answered(tmp_path, "select execution_order, full_name, scope, op_name from operators order by all")

    assert [
        ["0", "Default/conv1-Conv2d/Conv2D-op0", "Default/conv1-Conv2d", "Conv2D-op0"],
        ["1", "Default/ReLU-op1", "Default", "Default_ReLU-op1"],
    ] == rows


def test_measured_tensors(put, answered, tmp_path):
    """With --measure a tensor without a row of statistics has one; those with a row keep it."""
    place = tmp_path / "rank_0/Net/0/0"
    put(place / named(slot=0), np.array([1, -2, np.nan], np.float32))
    put(place / named(STAMP + 1, slot=1), np.array([1, 2, 3], np.float32))
    head = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value"
    row = f'Conv2D,Default_conv1-Conv2d_Conv2D-op0,0,0,{STAMP + 1},output,1,12,float32,"(3)",7'
    put(place / "statistic.csv", f"{head}\n{row}\n")

    question = "select slot, max, nan_count, count, dtype from statistics order by slot"
    assert [["1", "7.0", "", "", "float32"]] == answered(tmp_path, question)
    measured = [["0", "nan", "1", "3", "float32"], ["1", "7.0", "", "", "float32"]]
    assert measured == answered("--measure", tmp_path, question)


def test_json_of_a_comparison(put, answered, tmp_path):
    """The document and the table of one comparison give the same rows."""
    for dump, high in (("good", 3.0), ("bad", 9.0)):
        put(tmp_path / dump / "rank_0/Net/0/0" / named(), np.array([1, 2, high], np.float32))
    both = [str(tmp_path / "bad"), str(tmp_path / "good")]
    done = CliRunner().invoke(main, ["compare", *both, "--json", "-out", str(tmp_path / "tables")])
    put(tmp_path / "result.json", done.stdout)
    (table,) = (tmp_path / "tables").iterdir()

    columns = "op_type, op_name, io, slot, verdict, operator_verdict, dtype, shape, iteration, rank"
    question = f"select {columns}, round(distance, 3), max_error, ulps > 1 from comparisons"
    told = [
        "Conv2D",
        "Default_conv1-Conv2d_Conv2D-op0",
        "output",
        "0",
        "differs",
        "unchecked",
        "float32",
        "[3]",
    ]

    of_document, of_table = (answered(path, question) for path in (tmp_path / "result.json", table))

    assert of_document == of_table
    assert told[:5] == of_document[0][:5]
