"""The bytes of an array's elements, and of packed element types."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump import dtypes
from msdump.encode import element_bytes, elements
from msdump.errors import FormatError

ARRAYS = {
    "little endian": (np.array([1, 2], "<i2"), [1, 0, 2, 0]),
    "big endian": (np.array([1, 2], ">i2"), [1, 0, 2, 0]),
    "transposed": (np.array([[1, 2], [3, 4]], "u1").T, [1, 3, 2, 4]),
    "every other one": (np.arange(6, dtype="u1")[::2], [0, 2, 4]),
    "a scalar": (np.array(7, "u1"), [7]),
    "no elements": (np.zeros((0, 3), "f4"), []),
}


@pytest.mark.parametrize(("array", "expected"), ARRAYS.values(), ids=ARRAYS)
def test_bytes_of_an_array(array, expected):
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


PACKED_BYTES = {
    "int4 low half first": ("int4", [1, 2, -8, -1], b"\x21\xf8"),
    "int4 odd": ("int4", [7, -2, 3], b"\xe7\x03"),
    "uint4": ("uint4", [15, 1, 8], b"\x1f\x08"),
    "int2": ("int2", [1, -2, -1, 0, 1], b"\x39\x01"),
    "uint2": ("uint2", [3, 0, 1], b"\x13"),
    "float4": ("float4_e2m1", [0.5, -6.0, 1.0], b"\xf1\x02"),
    "uint1 highest bit first": ("uint1", [1, 0, 0, 0, 0, 0, 1, 1], b"\x83"),
    "uint1 ragged": ("uint1", [1, 1, 0, 0, 0, 0, 0, 0, 1], b"\xc0\x80"),
    "nothing": ("int4", [], b""),
}
PACKED = [row for row in dtypes.DTYPES if row.per_byte > 1]


@pytest.mark.parametrize(("name", "values", "data"), PACKED_BYTES.values(), ids=PACKED_BYTES)
def test_bytes(name, values, data):
    """Elements lie in these bits, and are read back with their sign."""
    dtype = dtypes.from_name(name)
    packed = elements.pack(np.array(values, dtype.saved), dtype)
    back = elements.unpack(np.frombuffer(data, "u1"), dtype, (len(values),))

    assert data == packed.tobytes()
    assert np.array(values, dtype.saved).astype(dtype.numpy).tobytes() == back.tobytes()
    assert values == dtypes.widen(back, dtype).tolist()
    assert dtype.numpy == back.dtype


def test_bits_beyond_an_element_do_not_count():
    """A byte that extends the sign of its element leaves the next element alone."""
    array = np.array([0xF8, 0x02], "u1").view(dtypes.from_name("int4").numpy)

    assert b"\x28" == elements.pack(array, dtypes.from_name("int4")).tobytes()


@pytest.mark.parametrize("dtype", PACKED, ids=lambda row: row.name)
@given(codes=st.binary(max_size=40), rows=st.integers(1, 3))
def test_unpacking_undoes_packing(dtype, codes, rows):
    """Arrays of every packed type come back as they were, whatever their shape."""
    bits = np.frombuffer(codes, "u1") & ((1 << 8 // dtype.per_byte) - 1)
    array = bits[: len(bits) // rows * rows].reshape(rows, -1).view(dtype.numpy)

    back = elements.unpack(elements.pack(array, dtype), dtype, array.shape)

    assert dtypes.widen(array, dtype).tolist() == dtypes.widen(back, dtype).tolist()


def test_values_out_of_range_are_refused():
    """A number beyond the type is an error, not a wrong one."""
    with pytest.raises(FormatError, match=r"int4 has no value -9"):
        elements.pack(np.array([3, -9]), dtypes.from_name("int4"))
