"""Packed element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdump.device import packing
from msdump.errors import FormatError

CASES = {
    "int4 low half first": ("int4", [1, 2, -8, -1], b"\x21\xf8"),
    "int4 odd": ("int4", [7, -2, 3], b"\xe7\x03"),
    "uint1 highest bit first": ("uint1", [1, 0, 0, 0, 0, 0, 1, 1], b"\x83"),
    "uint1 ragged": ("uint1", [1, 1, 0, 0, 0, 0, 0, 0, 1], b"\xc0\x80"),
    "nothing": ("int4", [], b""),
}


@pytest.mark.parametrize(("kind", "values", "data"), CASES.values(), ids=CASES)
def test_bytes(kind, values, data):
    """Elements lie in these bits, and are read back with their sign."""
    packed = packing.pack(np.array(values, "i1"), kind)
    back = packing.unpack(np.frombuffer(data, "u1"), kind, (len(values),))

    assert data == packed.tobytes()
    assert values == back.tolist()
    assert {"int4": "int8", "uint1": "uint8"}[kind] == back.dtype


@given(st.lists(st.integers(-8, 7)).map(lambda values: np.array(values, ml_dtypes.int4)))
def test_ml_dtypes_are_packed(values):
    """Arrays of ml_dtypes' int4 come back as the same numbers."""
    back = packing.unpack(packing.pack(values, "int4"), "int4", values.shape)

    assert values.astype("i1").tolist() == back.tolist()


@given(st.lists(st.booleans()))
def test_booleans_are_packed(values):
    """Booleans come back as ones and zeros."""
    back = packing.unpack(packing.pack(np.array(values, bool), "uint1"), "uint1", (len(values),))

    assert values == back.tolist()


def test_values_out_of_range_are_refused():
    """A number beyond the type is an error, not a wrong one."""
    with pytest.raises(FormatError, match=r"values from -9 to 3 do not fit int4, which holds -8 to 7"):
        packing.pack(np.array([3, -9]), "int4")


def test_too_few_bytes_are_refused():
    """A missing byte is an error."""
    with pytest.raises(FormatError, match=r"1 bytes hold 8 uint1 elements, 9 are needed"):
        packing.unpack(np.zeros(1, "u1"), "uint1", (3, 3))
