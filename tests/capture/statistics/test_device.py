"""Statistics that the emulated device computes."""

import ml_dtypes
import numpy as np
import pytest

from msdump.capture import Statistics
from msdump.device import Task
from msdump.plan import StatisticSpec
from tests.capture.statistics.cases import STYLE, cells, record

ALL = ("max", "min", "avg", "l2norm")

# Cells in high precision, then in low.
TENSORS = {
    "float16 that overflows": (
        np.array([40000, 40000, 40000], np.float16),
        "40000 40000 40000 69282",
        "40000 40000 inf inf",
    ),
    "float16 that rounds": (np.array([2048, 1, 1], np.float16), "2048 1 683.333 2048", "2048 1 682.5 inf"),
    "bfloat16": (np.array([256, 1, 1, 1], ml_dtypes.bfloat16), "256 1 64.75 256.006", "256 1 64.5 256"),
    "float32": (np.array([3, -4], np.float32), "3 -4 -0.5 5", "3 -4 -0.5 5"),
    "float64": (np.array([1e39, 1.0]), "1e+39 1 inf null", "1e+39 1 5e+38 null"),
    "int8 that wraps": (np.array([100, 100, 100], np.int8), "100 100 100 null", "100 100 14 null"),
    "int8 rounds towards zero": (np.array([-1, -2], np.int8), "-1 -2 -1.5 null", "-1 -2 -1 null"),
    "int64": (np.array([2, 4]), "4 2 3 null", "4 2 3 null"),
    "bool": (np.array([True, False]), "True False null null", "null null null null"),
    "uint16": (np.array([1], np.uint16), "null null null null", "null null null null"),
    "NaN": (np.array([1, np.nan], np.float16), "nan nan nan nan", "nan nan nan nan"),
    "infinities": (np.array([np.inf, -np.inf], np.float32), "inf -inf nan inf", "inf -inf nan inf"),
    "scalar": (np.array(7, np.float16), "7 7 7 7", "7 7 7 7"),
}


@pytest.mark.parametrize(("array", "high", "low"), TENSORS.values(), ids=TENSORS)
def test_precision_decides_where_sums_are_rounded(array, high, low):
    """High precision adds in float32; low precision rounds every step to the tensor's type."""
    assert high.split() == cells(array, *ALL, on_device=True)
    assert low.split() == cells(array, *ALL, on_device=True, high_precision=False)


def test_the_tensor_stays_as_it_is():
    """Folding never writes into the operator's memory."""
    array = np.arange(1000, dtype=np.float32)

    cells(array, *ALL, on_device=True)

    assert np.array_equal(np.arange(1000, dtype=np.float32), array)


def test_the_row_has_the_stream():
    """Rows of the device hold its stream; the task stays 0."""
    statistics = Statistics(StatisticSpec(("max",), on_device=True), STYLE)
    tensor = record(np.array([2], np.float16))

    row = statistics.rows([(tensor, statistics.measure(tensor), Task(0, 3))])

    assert row == b'Add,Default_Add-op0,0,3,1795217009720246,input,0,2,float16,"(1)",2\n'
