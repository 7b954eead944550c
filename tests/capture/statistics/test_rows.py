"""Statistics of hand-made tensors, the expected numbers written out."""

import hashlib

import ml_dtypes
import numpy as np
import pytest

from msdump.capture import Statistics
from msdump.device import Task
from msdump.encode import statistic_csv
from msdump.plan import StatisticSpec
from msdump.record import OperatorRef
from msdump.statistics import ON_DEVICE, StatisticNeed, TotalsArray, measure
from msdump.store import Clock, names
from tests.capture.statistics.cases import HOST, STYLE, cells, record

INF = np.inf
NAN = np.nan

MATRIX = np.arange(1, 7, dtype=np.float32).reshape(2, 3)

# Cells in the order max, min, avg, count, < 0, > 0, NaN, -inf, inf, 0, l2norm.
TENSORS = {
    "matrix": (MATRIX, "6 1 3.5 6 0 6 0 0 0 0 9.53939"),
    "infinities": (
        np.array([[1, -INF, INF, -INF, INF], [INF, 1, -INF, INF, INF]], np.float32),
        "inf -inf nan 10 3 7 0 3 5 0 inf",
    ),
    "NaN is sticky and has no sign": (
        np.array([-2.1754317, 1.9901361, NAN, NAN, -1.8091936], np.float32),
        "nan nan nan 5 2 1 2 0 0 0 nan",
    ),
    "NaN, infinities, zeros and subnormals": (
        np.array([NAN, INF, -INF, -0.0, 0.0, 1e-45, -1e-45], np.float32),
        "nan nan nan 7 2 2 1 1 1 2 nan",
    ),
    "subnormals": (np.array([1e-45, -1e-45, 0.0, 1.0], np.float32), "1 -1.4013e-45 0.25 4 1 2 0 0 0 1 1"),
    "one infinity": (np.array([2, INF], np.float32), "inf 2 inf 2 0 2 0 0 1 0 inf"),
    "negative zero first": (np.array([-0.0, 0.0], np.float32), "-0 -0 0 2 0 0 0 0 0 2 0"),
    "negative zero last": (np.array([0.0, -0.0], np.float32), "0 0 0 2 0 0 0 0 0 2 0"),
    "negative zero is the largest": (np.array([-1, -0.0], np.float64), "-0 -1 -0.5 2 1 0 0 0 0 1 1"),
    "float16": (np.array([40000, 40000, 40000], np.float16), "40000 40000 40000 3 0 3 0 0 0 0 69282"),
    "float16 extremes": (np.array([65504, -65504, 6e-8, NAN], np.float16), "nan nan nan 4 1 2 1 0 0 0 nan"),
    "bfloat16": (np.array([1.5, -2, 0, -INF], ml_dtypes.bfloat16), "1.5 -inf -inf 4 2 1 0 1 0 1 inf"),
    "float8": (np.array([448, -0.5, 0], ml_dtypes.float8_e4m3fn), "448 -0.5 149.167 3 1 1 0 0 0 1 448"),
    "float64": (np.array([1e200, -1e200]), "1e+200 -1e+200 0 2 1 1 0 0 0 0 inf"),
    "bool": (np.array([True, False, True]), "1 0 0.666667 3 0 2 0 0 0 1 1.41421"),
    "bool, all true": (np.array([True]), "1 1 1 1 0 1 0 0 0 0 1"),
    "int4": (np.array([-8, 7, 0], ml_dtypes.int4), "7 -8 -0.333333 3 1 1 0 0 0 1 10.6301"),
    "uint4": (np.array([15, 0], ml_dtypes.uint4), "15 0 7.5 2 0 1 0 0 0 1 15"),
    "uint1": (np.array([1, 0, 1], ml_dtypes.uint1), "1 0 0.666667 3 0 2 0 0 0 1 1.41421"),
    "int8": (np.array([-128, 127, 0], np.int8), "127 -128 -0.333333 3 1 1 0 0 0 1 180.314"),
    "uint8": (np.array([0, 255], np.uint8), "255 0 127.5 2 0 1 0 0 0 1 255"),
    "int16": (np.array([-32768, 1], np.int16), "1 -32768 -16383.5 2 1 1 0 0 0 0 32768"),
    "uint16": (np.array([65535], np.uint16), "65535 65535 65535 1 0 1 0 0 0 0 65535"),
    "int32": (np.array([1000000, -5], np.int32), "1e+06 -5 499998 2 1 1 0 0 0 0 1e+06"),
    "uint32": (np.array([0, 2**32 - 1], np.uint32), "4.29497e+09 0 2.14748e+09 2 0 1 0 0 0 1 4.29497e+09"),
    "int64 beyond 2**53": (
        np.array([2**53 + 1], np.int64),
        "9.0072e+15 9.0072e+15 9.0072e+15 1 0 1 0 0 0 0 9.0072e+15",
    ),
    "uint64": (
        np.array([2**64 - 1], np.uint64),
        "1.84467e+19 1.84467e+19 1.84467e+19 1 0 1 0 0 0 0 1.84467e+19",
    ),
    "scalar": (np.array(-3.0, np.float32), "-3 -3 -3 1 1 0 0 0 0 0 3"),
}

HASHES = {
    "1 to 6": (MATRIX, "fa85978152c7dfb5f1322082915cb050"),
    "7 to 12": (MATRIX + 6, "9fd3b07ba2cfea7833f1da3a2960aadd"),
    "their sum": (2 * MATRIX + 6, "72bb57525231b5c8d3176bc5497f8aa0"),
    "scalar": (np.float32(1).reshape(()), hashlib.md5(b"\0\0\x80\x3f", usedforsecurity=False).hexdigest()),
    "columns in memory order": (np.asfortranarray(MATRIX), "fa85978152c7dfb5f1322082915cb050"),
    "big endian": (MATRIX.astype(">f4"), "fa85978152c7dfb5f1322082915cb050"),
    "bfloat16 as it is": (
        np.array([1.5, -2], ml_dtypes.bfloat16),
        hashlib.md5(b"\xc0\x3f\x00\xc0", usedforsecurity=False).hexdigest(),
    ),
    "int4 unpacked": (
        np.array([-8, 7], ml_dtypes.int4),
        hashlib.md5(b"\xf8\x07", usedforsecurity=False).hexdigest(),
    ),
    "uint1 unpacked": (
        np.array([1, 0, 1], ml_dtypes.uint1),
        hashlib.md5(b"\x01\x00\x01", usedforsecurity=False).hexdigest(),
    ),
}


@pytest.mark.parametrize(("array", "expected"), TENSORS.values(), ids=TENSORS)
def test_cells_are_those_of_the_definitions(array, expected):
    """Every statistic of a tensor is the number that its definition gives by hand."""
    assert expected.split() == cells(array, *HOST)


def line(tensor, found, task):
    """Return the row of a tensor, cell by cell."""
    texts = map(statistic_csv.text, found)
    shape = ",".join(map(str, tensor.array.shape))
    before_time = f"Add,{names.op_name(tensor.operator, STYLE)},{task.task_id},{task.stream_id}"
    described = f'{statistic_csv.data_size(tensor)},{tensor.dtype.name},"({shape})"'
    place = f"{tensor.timestamp},{tensor.io},{tensor.slot}"
    return f"{before_time},{place},{described},{','.join(texts)}\n".encode()


@pytest.mark.parametrize("spec", [StatisticSpec((*HOST, "md5")), StatisticSpec(ON_DEVICE, on_device=True)])
def test_rows_of_many_tensors_are_those_of_each(spec):
    """Rows that are written together have the text of single ones, a name with a percent sign included."""
    statistics = Statistics(spec, STYLE)
    tensors = [
        record(array)._replace(operator=OperatorRef("Add", f"100%d/{name}"), slot=slot)
        for name, (array, _) in TENSORS.items()
        for slot in range(2)
    ]
    measured = statistics.measure_all(tensors)

    for tasks in (Task(0, 0), Task(7, 2)):
        together = statistics.rows(
            (tensor, found, tasks) for tensor, found in zip(tensors, measured, strict=True)
        )

        single = [line(tensor, statistics.measure(tensor), tasks) for tensor in tensors]
        assert b"".join(single) == together


@pytest.mark.parametrize(("array", "expected"), HASHES.values(), ids=HASHES)
def test_md5_is_that_of_the_raw_bytes(array, expected):
    """MD5 covers the elements in C order, little endian, in their original type."""
    assert [expected] == cells(array, "md5")


@pytest.mark.parametrize("category", HOST)
def test_each_statistic_alone(category):
    """A statistic is the same whether it is computed alone or with all others."""
    array = np.array([3, -1, 0, INF, 5], np.float16)
    together = dict(zip(HOST, cells(array, *HOST), strict=True))

    assert [together[category]] == cells(array, category)


def test_rows_of_what_was_measured_are_those_of_tensors():
    """Rows made of columns of totals have the text of the rows of the tensors, in every statistic."""
    tensors = [record(array) for array, _ in TENSORS.values()]
    clock = Clock(lambda: 0)
    sheet = Statistics(StatisticSpec(HOST), STYLE).sheet(tensors)
    need = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
    found = TotalsArray.of([measure(each.array, each.dtype, need) for each in tensors])

    expected = sheet.rows([each.array for each in tensors], clock)

    assert expected == sheet.rows_of(found, Clock(lambda: 0))
