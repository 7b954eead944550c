"""The lines of statistic.csv."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump import dtypes
from msdump.encode import statistic_csv
from msdump.record import IO, OperatorRef, TensorRecord

ADD = OperatorRef("Add", "Default/Add-op0")

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


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(number):
    """A printed number is read back to six digits."""
    assert float(statistic_csv.text(number)) == pytest.approx(number, rel=5.1e-6, abs=3e-323)


@pytest.mark.parametrize(("array", "expected"), SIZES.values(), ids=SIZES)
def test_sizes_are_those_of_the_original_type(array, expected):
    """Data Size counts bytes of the original type, packed where it is packed."""
    assert expected == statistic_csv.data_size(record(array))
