"""Trees of compiled models read back: Ascend O2, GE, acl and torchair."""

import struct

import numpy as np
import pytest

from msdump import open_dump
from msdump.device import formats
from msdump.encode import DumpData, TensorInfo, dump_data, npy, op_debug
from msdump.errors import DumpReadError
from msdump.store import OperatorName
from tests.read.written import put

TIME = "20240112093000"
LATER = "20240112093001"
STAMP = 1795219073857172
NC1HWC0 = 3
ND = 2
FLOAT = 1
FLOAT16 = 2
IMAGE = np.arange(24, dtype=np.float16).reshape(1, 3, 2, 4)


def conv():
    """Return the file of an operator with an input in device format and an output."""
    device = formats.encode("NC1HWC0", IMAGE)
    output = np.array([1.5, 2.5], np.float32)
    header = dump_data.header(
        DumpData(
            "Default/conv1-Conv2d/Conv2D-op0",
            STAMP,
            inputs=(TensorInfo(FLOAT16, NC1HWC0, device.shape, IMAGE.shape, device.nbytes, address=4096),),
            outputs=(TensorInfo(FLOAT, ND, (2,), (2,), 8),),
        )
    )
    return header + device.tobytes() + output.tobytes()


def overflow(task_id):
    """Return an overflow file."""
    record = op_debug.DebugRecord(op_debug.Unit.AIC, {"task_id": task_id}, (2048,))
    return dump_data.header(op_debug.header_data(STAMP)) + op_debug.encode(record)


CONV = f"Conv2D.Default_conv1-Conv2d_Conv2D-op0.2.7.{STAMP}"

TREES = {
    "O2": (f"5/{TIME}/0/lenet/1/2", (5, TIME, 0, "lenet", 1, 2)),
    "GE and acl": (f"{TIME}/3/lenet/2/0", (None, TIME, 3, "lenet", 2, 0)),
    "torchair": (f"worldsize1_global_rank0/{TIME}/0/graph_1/1/4", (None, TIME, 0, "graph_1", 1, 4)),
}


@pytest.mark.parametrize(("place", "expected"), TREES.values(), ids=TREES)
def test_models_of_a_tree(tmp_path, place, expected):
    """Every tree of compiled models gives the model and its executions."""
    put(tmp_path / place / CONV, conv())

    (model,) = open_dump(tmp_path).models

    (iteration,) = model.iterations
    key = iteration.key
    assert expected == (key.step, key.time, model.device, model.name, model.model_id, iteration.number)
    assert [CONV] == [str(file.name) for file in iteration.files]


def test_tensors_of_an_operator(tmp_path):
    """A tensor shows its elements as on the device and as on the host, without a layout of its own."""
    put(tmp_path / TREES["O2"][0] / CONV, conv())

    read, made = open_dump(tmp_path).records

    assert ("Conv2D", "Default/conv1-Conv2d/Conv2D-op0") == (read.op_type, read.full_name)
    assert ("input", 0, "NC1HWC0", "float16", 2, 7) == (
        *(read.io, read.slot, read.format, read.dtype),
        *(read.name.task_id, read.name.stream_id),
    )
    assert ((1, 1, 2, 4, 16), (1, 3, 2, 4), 4096) == (read.shape, read.original_shape, read.info.address)
    np.testing.assert_array_equal(formats.encode("NC1HWC0", IMAGE), read.array)
    np.testing.assert_array_equal(IMAGE, read.host)
    assert ("output", "ND", [1.5, 2.5]) == (made.io, made.format, made.host.tolist())


def test_executions_are_in_order(tmp_path):
    """Executions come by run, then by step, not by the text of its number."""
    for place in (f"10/{TIME}/0/net/1/10", f"9/{LATER}/0/net/1/9", f"9/{TIME}/0/net/1/9"):
        put(tmp_path / place / CONV, conv())

    (model,) = open_dump(tmp_path).all_models

    keys = [iteration.key for iteration in model.iterations]
    assert [(9, TIME), (10, TIME), (9, LATER)] == [(key.step, key.time) for key in keys]


def test_npy_files_of_operators(tmp_path):
    """Under file_format npy each tensor is a file; statistics and overflows stand beside them."""
    place = tmp_path / TREES["O2"][0]
    put(place / f"{CONV}.input.0.NCHW.float16.npy", b"".join(npy.encode(IMAGE)))
    put(place / "statistic.csv", b"Op Type,Op Name\nConv2D,conv\n")
    put(place / f"Opdebug.Node_OpDebug.9.8.{STAMP}.output.0.json", b'{"AI Core":{"task_id":2}}')

    (iteration,) = open_dump(tmp_path).iterations

    (record,) = iteration.records
    (told,) = iteration.overflows
    name = record.name
    assert ("NCHW", "float16", 2, 7) == (record.format, record.dtype, name.task_id, name.stream_id)
    np.testing.assert_array_equal(IMAGE, record.host)
    assert ({"Op Type": "Conv2D", "Op Name": "conv"},) == iteration.statistics
    overflow_name = OperatorName("Opdebug", "Node_OpDebug", 9, 8, STAMP)
    assert (overflow_name, {"AI Core": {"task_id": 2}}) == (told.name, told.fields)
    assert () == iteration.ignored


def test_overflow_files_are_no_operators(tmp_path):
    """A file of an overflow gives its record, and no tensor."""
    place = tmp_path / TREES["GE and acl"][0]
    put(place / CONV, conv())
    put(place / f"Opdebug.Node_OpDebug.9.8.{STAMP}", overflow(2))

    (iteration,) = open_dump(tmp_path).iterations

    (told,) = iteration.overflows
    assert [CONV] == [str(file.name) for file in iteration.files]
    assert 2 == told.fields["acc_list"]["data"]["task_id"]
    assert {"Conv2D"} == {record.op_type for record in iteration.records}


def test_stand_ins_of_operators(tmp_path):
    """A file of digits is the operator that mapping.csv says; another file of digits belongs to no dump."""
    place = tmp_path / TREES["O2"][0]
    put(place / "606962476", conv())
    put(place / "1", b"")
    put(place / "mapping.csv", f"606962476,{CONV}\n".encode())

    (iteration,) = open_dump(tmp_path).iterations

    assert [CONV] == [str(file.name) for file in iteration.files]
    assert (str(place / "1"),) == iteration.ignored


def test_tensors_of_one_moment(tmp_path):
    """.npy files of one operator share its time: inputs come first, by number, whatever their names."""
    place = tmp_path / TREES["O2"][0]
    slots = [("input", 2), ("input", 10), ("output", 0)]
    lines = []
    for number, (io, slot) in zip("312", slots, strict=True):
        put(place / f"{number}.npy", b"".join(npy.encode(IMAGE)))
        lines.append(f"{number}.npy,{CONV}.{io}.{slot}.NCHW.float16.npy\n")
    put(place / "mapping.csv", "".join(lines).encode())

    records = list(open_dump(tmp_path).records)

    assert slots == [(str(record.io), record.slot) for record in records]


def test_operators_that_were_called_alone(tmp_path):
    """Files beside the models' directories are operators that were called alone."""
    put(tmp_path / TIME / "0" / CONV, conv())
    put(tmp_path / TIME / "0/net/1/0" / CONV, conv())

    dump = open_dump(tmp_path)

    assert [("", None), ("net", 1)] == [(model.name, model.model_id) for model in dump.models]
    assert () == dump.ignored


def test_statistics_of_operators(tmp_path):
    """A csv file in place of an operator's tensors is read by its operator's name."""
    put(tmp_path / TREES["GE and acl"][0] / f"{CONV}.csv", b"Input/Output,Index\nInput,0\n")

    (iteration,) = open_dump(tmp_path).iterations

    assert {CONV: ({"Input/Output": "Input", "Index": 0},)} == {
        str(name): rows for name, rows in iteration.operator_statistics.items()
    }


def test_what_failing_operators_left(tmp_path):
    """The files of failed operators are found, of every scene."""
    place = tmp_path / "extra-info/data-dump/0"
    put(place / "exception_info.7.2.20240112093000123", conv())
    put(place / "Conv2D.Default_Conv2D-op0.2.20240112093000456", conv())

    files = {file.name.op_type: file for file in open_dump(tmp_path).failures}

    assert {"exception_info", "Conv2D"} == set(files)
    assert (2, 7) == (files["exception_info"].name.task_id, files["exception_info"].name.stream_id)
    assert 2 == len(files["Conv2D"].records)


@pytest.mark.parametrize("depth", range(1, 7))
def test_parts_of_a_dump_are_opened(tmp_path, depth):
    """Any directory below the root opens the part of the dump that it holds."""
    mine, other = tmp_path / "5" / TIME / "0/lenet/1/2", tmp_path / "6" / LATER / "1/other/2/3"
    put(mine / CONV, conv())
    put(other / CONV, conv())

    folder = [*reversed(mine.parents), mine][-7 + depth]

    assert [str(mine)] == [iteration.path for iteration in open_dump(folder).iterations]


BROKEN = {
    "no header": (b"x", 0, "not a dump file: 1 bytes"),
    "length": (struct.pack("<Q", 1 << 40) + b"x", 0, "1099511627776 bytes, 1 are left"),
    "torn": (conv()[:-4], None, "truncated"),
}


@pytest.mark.parametrize(("data", "offset", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_operator_files(tmp_path, data, offset, message):
    """A corrupt file is reported with its path and place when its tensors are read, not before."""
    path = tmp_path / TREES["O2"][0] / CONV
    put(path, data)
    (iteration,) = open_dump(tmp_path).iterations

    with pytest.raises(DumpReadError, match=message) as caught:
        _ = iteration.records

    assert str(path) == caught.value.path
    assert offset is None or offset == caught.value.offset


@pytest.mark.parametrize("below", ["", "worldsize2_global_rank1", "worldsize2_global_rank1/graph_3/7"])
def test_captured_tensors(tmp_path, below):
    """A captured graph of torch.compile is read like a model: a node is an operator, a list counts on."""
    folder = tmp_path / "worldsize2_global_rank1" / "graph_3" / "7"
    times = (f"{TIME}{number:06}" for number in range(4))
    for name in ("mm-aten.mm.default.INPUT.0", "mm-aten.mm.default.OUTPUT.0"):
        put(folder / f"{name}.{next(times)}.npy", b"".join(npy.encode(IMAGE)))
    for name in ("cat-aten.cat.default.INPUT.0.0", "cat-aten.cat.default.INPUT.0.1"):
        put(folder / f"{name}.{next(times)}.npy", b"".join(npy.encode(IMAGE)))
    put(folder / "notes.txt", b"")
    dump = open_dump(tmp_path / below)
    (model,) = dump.captured
    assert (1, "graph_3", 3) == (model.device, model.name, model.model_id)
    assert [
        ("aten.mm.default", "mm", "input", 0, 1705051800000000),
        ("aten.mm.default", "mm", "output", 0, 1705051800000001),
        ("aten.cat.default", "cat", "input", 0, 1705051800000002),
        ("aten.cat.default", "cat", "input", 1, 1705051800000003),
    ] == [(each.op_type, each.op_name, each.io, each.slot, each.timestamp) for each in dump.records]
    assert {(1, 7)} == {(each.rank, each.iteration) for each in dump.select(name="cat")}
    assert np.array_equal(IMAGE, dump.tensors[1].array)
    assert (str(folder / "notes.txt"),) == dump.ignored
