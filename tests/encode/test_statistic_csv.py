"""The lines of statistic.csv."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump import dtypes
from msdump.encode import statistic_csv
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.store.read import texts

ADD = OperatorRef("Add", "Default/Add-op0")

TEXTS = {
    "whole": (6.0, "6"),
    "six digits": (9.539392014169456, "9.53939"),
    "a million": (1e6, "1e+06"),
    "just below": (999999.0, "999999"),
    "rounded up": (1234567.0, "1.23457e+06"),
    "small": (0.0001, "0.0001"),
    "smaller": (0.00001, "1e-05"),
    "subnormal": (1.401298464324817e-45, "1.4013e-45"),
    "zero": (0.0, "0"),
    "negative zero": (-0.0, "-0"),
    "inf": (math.inf, "inf"),
    "-inf": (-math.inf, "-inf"),
    "nan": (math.nan, "nan"),
    "count": (12345678, "12345678"),
    "truth": (True, "True"),
    "hash": ("d41d8cd98f00b204e9800998ecf8427e", "d41d8cd98f00b204e9800998ecf8427e"),
    "none": (None, "null"),
}

SHAPES = {
    "scalar": ((), '"()"'),
    "vector": ((5,), '"(5)"'),
    "matrix": ((2, 3), '"(2,3)"'),
    "image": ((1, 3, 2, 2), '"(1,3,2,2)"'),
}

SIZES = {
    "float32": (np.zeros(6, np.float32), 24),
    "bfloat16": (np.zeros(6, ml_dtypes.bfloat16), 12),
    "bool": (np.zeros(3, bool), 3),
    "int4": (np.zeros(4, ml_dtypes.int4), 2),
    "odd int4": (np.zeros(5, ml_dtypes.int4), 3),
    "int2": (np.zeros(5, ml_dtypes.int2), 2),
}


def record(array, io=IO.INPUT, slot=0):
    """Return a tensor of an operator."""
    return TensorRecord(ADD, io, slot, dtypes.from_numpy(array.dtype), array, 1795217009720246)


def row(tensor, conversions, cells, **task):
    """Return the line of a tensor."""
    template = statistic_csv.template(tensor, conversions, "Add", "Default_Add-op0", **task)
    return (template % (tensor.timestamp, *cells)).encode()


def test_header():
    """The header has MindSpore's columns, then the statistics, and no comma at its end."""
    expected = (
        b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,MD5\n"
    )

    assert expected == statistic_csv.header(["Max Value", "MD5"])


@pytest.mark.parametrize(("cell", "expected"), TEXTS.values(), ids=TEXTS)
def test_cells_are_printed_as_a_stream_prints_them(cell, expected):
    """Doubles have six significant digits, counts all of theirs."""
    assert expected == statistic_csv.text(cell)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(number):
    """A printed number is read back to six digits."""
    assert float(statistic_csv.text(number)) == pytest.approx(number, rel=5.1e-6, abs=3e-323)


@pytest.mark.parametrize(("shape", "expected"), SHAPES.values(), ids=SHAPES)
def test_shapes_are_quoted(shape, expected):
    """A shape stands in double quotes, without spaces."""
    line = row(record(np.zeros(shape, np.float32)), (), ())

    assert line.endswith(f",float32,{expected}\n".encode())


@pytest.mark.parametrize(("array", "expected"), SIZES.values(), ids=SIZES)
def test_sizes_are_those_of_the_original_type(array, expected):
    """Data Size counts bytes of the original type, packed where it is packed."""
    assert expected == statistic_csv.data_size(record(array))


def test_the_reader_reads_what_is_written(tmp_path):
    """Header and rows come back, every cell under its title, numbers as numbers."""
    path = tmp_path / "statistic.csv"
    output = record(np.zeros((2, 3), np.float16), IO.OUTPUT, 1)
    path.write_bytes(
        statistic_csv.header(["Max Value", "Count"])
        + row(output, (statistic_csv.NUMBER, statistic_csv.WHOLE), (1e6, 6), stream_id=2)
        + row(record(np.array(True)), (statistic_csv.NULL, statistic_csv.WHOLE), (1,))
    )

    first, second = texts.read_statistics(str(path))

    assert first == {
        "Op Type": "Add",
        "Op Name": "Default_Add-op0",
        "Task ID": 0,
        "Stream ID": 2,
        "Timestamp": 1795217009720246,
        "IO": "output",
        "Slot": 1,
        "Data Size": 12,
        "Data Type": "float16",
        "Shape": "(2,3)",
        "Max Value": 1e6,
        "Count": 6,
    }
    assert ("()", None, 1) == (second["Shape"], second["Max Value"], second["Count"])
