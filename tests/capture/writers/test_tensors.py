"""What the files of tensors hold, on hand-made tensors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from msdump.capture.writers.tensors import widened
from tests.capture.statistics.cases import record

STORED = {
    "int4": (np.array([[-8, 7], [-1, 0]], ml_dtypes.int4), np.array([[-8, 7], [-1, 0]], np.int8)),
    "uint4": (np.array([15, 0], ml_dtypes.uint4), np.array([15, 0], np.uint8)),
    "uint1": (np.array([1, 0, 1], ml_dtypes.uint1), np.array([1, 0, 1], np.uint8)),
    "bfloat16": (np.array([1.5, -np.inf], ml_dtypes.bfloat16), np.array([1.5, -np.inf], np.float32)),
    "float16": (np.array([1.5], np.float16), np.array([1.5], np.float16)),
    "bool": (np.array([True, False]), np.array([True, False])),
}


@pytest.mark.parametrize(("array", "expected"), STORED.values(), ids=STORED)
def test_stored_types(array, expected):
    """int4, uint1 and bfloat16 are stored as int8, uint8 and float32; the record keeps their names."""
    given = record(array)

    found = widened(given)

    assert expected.dtype == found.array.dtype
    assert expected.tolist() == found.array.tolist()
    assert given.dtype is found.dtype
