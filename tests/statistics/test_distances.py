"""The first look at pairs of vectors, against numpy in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump.statistics import compiled
from msdump.statistics import distances as first_look


@pytest.fixture(scope="module", params=["compiled", "numpy"], autouse=True)
def way(request):
    """Look by the compiled pass, where there is one, or by numpy."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(compiled, "KERNEL", None)
        yield


def shifted(vector):
    """Return the vector at an odd address."""
    return np.frombuffer(b"\0" + vector.tobytes(), np.float32, offset=1)


def distance(x, y):
    """Return the look at one pair."""
    return first_look.distances([(x, y)])[0]


SIZED = st.integers(1, 70).flatmap(
    lambda size: st.tuples(*[arrays.arrays(np.float32, size, elements=st.floats(-1e9, 1e9, width=32))] * 2)
)


@settings(deadline=None)
@given(SIZED)
def test_distance_is_that_of_numpy(vectors):
    """The sums and extremes of float32 distances are found, wherever the elements lie."""
    x, y = vectors
    apart, wide = np.abs(x - y).astype("f8"), y.astype("f8")

    found = distance(shifted(x), y)

    assert (apart @ apart, wide @ wide) == pytest.approx(
        (found.differences, found.squares), rel=1e-5, abs=1e-37
    )
    assert (apart.max(), np.abs(wide).max()) == (found.largest, found.most)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", [0, 40, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_distance_shows_what_is_not_finite(bad, place, side):
    """One element that is NaN or infinite makes the sum of differences no number that is finite."""
    both = np.ones((2, 101), np.float32)
    both[side, place] = bad

    assert not math.isfinite(distance(*both).differences)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        (np.zeros(3, np.float32), True),
        (shifted(np.zeros(3, np.float32)), True),
        (np.zeros(4, np.float32), False),
        (np.zeros(6, np.float32)[::2], False),
        (np.zeros(3, ">f4"), False),
        (np.zeros(3, np.float64), False),
    ],
    ids=["plain", "at an odd address", "another length", "strided", "other byte order", "other type"],
)
def test_vectors_of_a_first_look(vector, expected):
    """A look takes float32 elements that lie one after the other, at any address, as many on both sides."""
    assert expected == first_look.takes(vector, np.zeros(3, np.float32))
