"""The files of operators: dump files, .npy files, statistics; each against values worked out by hand."""

from __future__ import annotations

import csv
import io

import ml_dtypes
import numpy as np
import pytest

from msdump import dtypes
from msdump.capture import writers
from msdump.capture.steps import to_device_memory
from msdump.capture.writers import OperatorTableWriter, OperatorWriter
from msdump.device import formats
from msdump.encode import dump_data, dump_message, operator_csv
from msdump.plan import DEFAULT_STATISTICS, DeviceTarget, FileFormat, Naming, Tree
from msdump.record import IO
from msdump.store import names, operator_names
from tests.capture.records import CONV, TASK, TIME, compiled_plan, record, take
from tests.store.memory import MemorySink

NAMING = (Naming.V2_5, DeviceTarget.ASCEND)
STYLE = names.STYLES[NAMING]
NAME = operator_names.of(CONV, STYLE, TASK.task_id, TASK.stream_id, TIME)
ALL = tuple(operator_csv.TITLES)
BIN = compiled_plan(tree=Tree.STEPS, file_format=FileFormat.BIN)
TABLE = compiled_plan(tree=Tree.MODELS, file_format=FileFormat.BIN, operator_statistics=ALL)


def read(*tensors):
    """Return the header of the dump file of tensors, and its bytes behind the header."""
    sink = MemorySink()
    take(BIN, OperatorWriter(sink, STYLE), sink, tensors)
    ((_, data),) = sink.files.contents.items()
    header, offset = dump_data.read_header(memoryview(data))
    return header, data[offset:]


def table(statistics, *tensors):
    """Return path and contents of the csv file of tensors."""
    sink = MemorySink()
    take(TABLE, OperatorTableWriter(sink, STYLE, statistics), sink, tensors)
    ((path, data),) = sink.files.contents.items()
    return path, io.StringIO(data.decode())


IMAGE = np.arange(24, dtype=np.float16).reshape(1, 3, 2, 4)
WEIGHT = np.arange(4 * 2 * 1 * 1, dtype=np.float16).reshape(4, 2, 1, 1)

DEVICE = {
    "host image": (record(IMAGE), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "host matrix": (record(IMAGE[0, 0]), ("FLOAT16", "ND", (2, 4), 0)),
    "image": (record(IMAGE, layout="NC1HWC0"), ("FLOAT16", "NC1HWC0", (1, 1, 2, 4, 16), 0)),
    "matrix": (record(IMAGE[0, 0], layout="FRACTAL_NZ"), ("FLOAT16", "FRACTAL_NZ", (1, 1, 16, 16), 0)),
    "grouped weight": (
        record(WEIGHT, layout="FRACTAL_Z", groups=2),
        ("FLOAT16", "FRACTAL_Z", formats.shape("FRACTAL_Z", WEIGHT.shape, None, 2), 2),
    ),
    "as on the host": (record(IMAGE, layout="DefaultFormat"), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "ChannelLast": (record(IMAGE, layout="ChannelLast"), ("FLOAT16", "NCHW", (1, 3, 2, 4), 0)),
    "scalar": (record(np.float32(3).reshape(())), ("FLOAT", "ND", (), 0)),
    "no elements": (record(np.zeros((0, 3), np.int64)), ("INT64", "ND", (0, 3), 0)),
    "bfloat16": (record(np.ones(3, ml_dtypes.bfloat16)), ("BF16", "ND", (3,), 0)),
    "type without a number": (record(np.ones(3, ml_dtypes.float8_e5m2fnuz)), ("UNDEFINED", "ND", (3,), 0)),
}


@pytest.mark.parametrize(("tensor", "expected"), DEVICE.values(), ids=DEVICE)
def test_tensor_in_device_memory(tensor, expected):
    """A header has the device's type, format and shape of a tensor, beside the shape on the host."""
    dtype, layout, shape, groups = expected

    shown = to_device_memory(tensor)
    info, array = writers.info(shown), shown.array

    assert (
        dump_message.DATA_TYPES[dtype],
        dump_message.FORMATS[layout],
        shape,
        groups,
    ) == (
        *(info.data_type, info.format),
        *(info.shape, info.sub_format),
    )
    assert (tensor.array.shape, shape, array.nbytes) == (info.original_shape, array.shape, info.size)


STRIDED = np.arange(12, dtype=np.int32).reshape(3, 4)
BYTES = {
    "transposed": (record(STRIDED.T), STRIDED.T.tobytes()),
    "big endian": (record(STRIDED.astype(">i4")), STRIDED.tobytes()),
    "int4": (record(np.array([1, -2, 3], ml_dtypes.int4)), b"\xe1\x03"),
    "bool": (record(np.array([True, False])), b"\x01\x00"),
    "complex": (record(np.array([1j], np.complex64)), np.array([1j], np.complex64).tobytes()),
    "no elements": (record(np.zeros((0, 2), np.float32)), b""),
}


@pytest.mark.parametrize(("tensor", "expected"), BYTES.values(), ids=BYTES)
def test_bytes_of_a_tensor(tensor, expected):
    """Elements are little endian, in C order, packed where their type is."""
    assert expected == read(tensor)[1]


def cells(array, chosen=ALL):
    """Return the cells of the statistics of a tensor by their titles."""
    (row,) = csv.DictReader(table(chosen, record(array))[1])
    return list(row.values())[6:]


NAN, INF = np.nan, np.inf
STATISTICS = {
    "numbers": ([1, 2, 4], ["3", "4", "1", "2.33333", "0", "0", "0", "4.58258"]),
    "nan first": ([NAN, 2, 4], ["3", "nan", "nan", "nan", "1", "0", "0", "nan"]),
    "nan later": ([1, NAN, 4], ["3", "4", "1", "nan", "1", "0", "0", "nan"]),
    "inf": ([1, INF], ["2", "inf", "1", "inf", "0", "0", "1", "inf"]),
    "-inf": ([1, -INF], ["2", "1", "-inf", "-inf", "0", "1", "0", "inf"]),
    "both": ([-INF, INF], ["2", "inf", "-inf", "nan", "0", "1", "1", "inf"]),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
@pytest.mark.parametrize(("values", "expected"), STATISTICS.values(), ids=STATISTICS)
def test_statistics(values, dtype, expected):
    """NaN counts for the extremes only where it comes first; infinities give the mean that C++ gives."""
    array = np.array(values).astype(dtypes.from_name(dtype).numpy)

    assert expected == cells(array)


def test_statistics_count_padding():
    """The zeros that fill a device format are elements too."""
    (row,) = csv.DictReader(table(("Max", "Min"), record(IMAGE + 1, layout="NC1HWC0"))[1])

    assert ("128", "24", "0") == (row["Count"], row["Max Value"], row["Min Value"])


def test_statistics_of_integers():
    """Integers and truth values are measured; small integers print as numbers."""
    assert ["3", "-1", "-128"] == cells(np.array([-1, -128, -7], np.int8), ("Max", "Min"))
    assert ["2", "1", "0"] == cells(np.array([True, False]), ("Max", "Min"))


@pytest.mark.parametrize(
    "array", [np.array([1j], np.complex64), np.zeros(0, np.float32)], ids=["complex", "empty"]
)
def test_types_without_statistics(array):
    """Statistics that cannot be measured have cells that say so."""
    assert ["NA", "NA"] == cells(array, ("Max",))
    assert [""] * 7 == cells(array, DEFAULT_STATISTICS)


def test_statistics_file_has_a_row_for_each_tensor():
    """The file is named after the operator; indices count within inputs and within outputs."""
    tensors = [record(IMAGE, slot=0), record(IMAGE, slot=2), record(IMAGE, IO.OUTPUT)]

    path, text = table(("Max",), *tensors)

    assert f"/d/{NAME}.csv" == path
    assert [("Input", "0"), ("Input", "1"), ("Output", "0")] == [
        (row["Input/Output"], row["Index"]) for row in csv.DictReader(text)
    ]
