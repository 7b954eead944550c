"""Element types of the emulated device, by precision mode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from msdump import dtypes
from msdump.device import rounded
from msdump.graph.kernel import FLOAT16

BFLOAT16 = dtypes.BFLOAT16

VALUES = {
    "tie to even, down": (FLOAT16, 2049, 2048),
    "tie to even, up": (FLOAT16, 2051, 2052),
    "largest": (FLOAT16, 65519, 65504),
    "beyond": (FLOAT16, 65520, np.inf),
    "below": (FLOAT16, -70000, -np.inf),
    "smallest subnormal": (FLOAT16, 2.0**-24, 2.0**-24),
    "half of it": (FLOAT16, 2.0**-25, 0),
    "bfloat16 tie, down": (BFLOAT16, 257, 256),
    "bfloat16 tie, up": (BFLOAT16, 259, 260),
    "bfloat16 keeps the range": (BFLOAT16, 2.0**100, 2.0**100),
    "bfloat16 beyond": (BFLOAT16, 3.4e38, np.inf),
}


@pytest.mark.parametrize(("dtype", "value", "expected"), VALUES.values(), ids=VALUES)
def test_rounding(dtype, value, expected):
    """Values round to nearest, ties to even, and beyond the range to infinity."""
    found = rounded(np.array([value], np.float32), dtype)

    assert dtype.numpy == found.dtype
    assert expected == float(found[0])


SATURATED = {
    "above": (70000, 65504),
    "below": (-1e9, -65504),
    "inf": (np.inf, 65504),
    "nan": (np.nan, 0),
    "in": (7, 7),
}


@pytest.mark.parametrize(("value", "expected"), SATURATED.values(), ids=SATURATED)
def test_saturation(value, expected):
    """Saturated float16 stays within its range, and NaN becomes 0; bfloat16 does not saturate."""
    array = np.array([value], np.float32)

    assert expected == float(rounded(array, FLOAT16, saturates=True)[0])
    assert rounded(array, BFLOAT16).tobytes() == rounded(array, BFLOAT16, saturates=True).tobytes()


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, 8, elements=st.floats(width=32, allow_nan=False)))
def test_bfloat16_is_the_upper_half(array):
    """bfloat16 is the upper half of float32's bits, the lower one rounded to nearest even."""
    bits = array.view(np.uint32).astype(np.uint64)
    expected = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF).astype(np.uint16)

    np.testing.assert_array_equal(expected, rounded(array, BFLOAT16).view(np.uint16))
