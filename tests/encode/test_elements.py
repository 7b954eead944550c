"""The bytes of an array's elements."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump.encode import element_bytes

CASES = {
    "little endian": (np.array([1, 2], "<i2"), [1, 0, 2, 0]),
    "big endian": (np.array([1, 2], ">i2"), [1, 0, 2, 0]),
    "transposed": (np.array([[1, 2], [3, 4]], "u1").T, [1, 3, 2, 4]),
    "every other one": (np.arange(6, dtype="u1")[::2], [0, 2, 4]),
    "a scalar": (np.array(7, "u1"), [7]),
    "no elements": (np.zeros((0, 3), "f4"), []),
}


@pytest.mark.parametrize(("array", "expected"), CASES.values(), ids=CASES)
def test_bytes(array, expected):
    """Elements come in C order and little endian, whatever the array is like."""
    assert expected == element_bytes(array).tolist()


def test_types_without_a_buffer_are_refused():
    """A type that numpy does not have itself hands out no bytes."""
    with pytest.raises(ValueError, match="buffer"):
        element_bytes(np.zeros(2, ml_dtypes.bfloat16))


@given(arrays.arrays("<f4", arrays.array_shapes(max_dims=3), elements=st.floats(width=32)))
def test_memory_is_shared(array):
    """An array in C order and little endian is not copied."""
    assert array.tobytes() == element_bytes(array)
    assert np.shares_memory(array, element_bytes(array))
