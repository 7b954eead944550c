"""The compiled passes over pairs of vectors, against numpy in float64."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump.statistics import pairs

NOTHING = np.float32(2.0**-52)
FLOOR = float(np.finfo(np.float32).eps)

pytestmark = pytest.mark.skipif(pairs.PAIRS is None, reason="no compiled passes on this machine")


def vectors(elements, largest=70):
    """Return a strategy of two vectors of as many float32 elements."""
    return st.integers(1, largest).flatmap(
        lambda size: st.tuples(*[arrays.arrays(np.float32, size, elements=elements)] * 2)
    )


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0])


def shifted(vector):
    """Return the vector at an odd address."""
    return np.frombuffer(b"\0" + vector.tobytes(), np.float32, offset=1)


@settings(deadline=None)
@given(vectors(FINITE))
@np.errstate(all="ignore")
def test_sums_are_those_of_numpy(vectors):
    """Extremes are exact, sums right to float64's precision, wherever the elements lie."""
    x, y = vectors
    wide_x, wide_y = x.astype("f8"), y.astype("f8")
    ratios = np.where(np.abs(y) > NOTHING, np.abs(x / y - np.float32(1)), np.float32(0))

    sums = pairs.PAIRS.sums(shifted(x), y, float(NOTHING))

    assert pairs.PAIRS.sums(x, shifted(y), float(NOTHING)) == sums
    for side, wide in ((sums.x, wide_x), (sums.y, wide_y)):
        assert (wide.min(), wide.max()) == (side.low, side.high)
        scale = np.abs(wide).sum()
        assert wide.sum() == pytest.approx(side.total, rel=1e-12, abs=1e-12 * scale)
        assert wide @ wide == pytest.approx(side.squares, rel=1e-12)
        assert wide.var() * x.size == pytest.approx(side.deviations, rel=1e-9, abs=1e-12 * (wide @ wide))
    magnitudes = np.abs(wide_x) @ np.abs(wide_y)
    assert wide_x @ wide_y == pytest.approx(sums.products, rel=1e-12, abs=1e-12 * magnitudes)
    distances = np.abs(wide_x - wide_y)
    assert distances @ distances == pytest.approx(sums.differences, rel=1e-12)
    assert distances.max() == sums.largest
    assert distances.sum() == pytest.approx(sums.distances, rel=1e-12)
    assert ratios.max() == sums.largest_ratio
    assert ratios.sum() == sums.ratios
    assert x.size == sums.count


@pytest.mark.parametrize("size", [7, 8, 127, 128, 129, 4095, 4096, 4097, 65536, 65535, 50_003, 300_001])
def test_ratios_are_added_in_the_order_of_numpy(size):
    """The sum of the ratios is numpy's to the last bit, at every length of its halves and leaves."""
    x, y = np.random.default_rng(size).standard_normal((2, size)).astype("f4")

    assert np.abs(x / y - np.float32(1)).sum() == pairs.PAIRS.sums(x, y, float(NOTHING)).ratios


@settings(deadline=None)
@given(vectors(st.floats(-(2.0**50), 2.0**50, width=32)))
def test_distance_is_that_of_numpy(vectors):
    """The sums and extremes of float32 distances are found, wherever the elements lie."""
    x, y = vectors
    distances = np.abs(x - y)

    found = pairs.PAIRS.distance(shifted(x), y)

    assert distances.astype("f8") @ distances.astype("f8") == pytest.approx(found.differences, rel=1e-12)
    assert y.astype("f8") @ y.astype("f8") == pytest.approx(found.squares, rel=1e-12)
    assert (distances.max(), np.abs(y).max()) == (found.largest, found.most)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", [0, 40, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_distance_shows_what_is_not_finite(bad, place, side):
    """One element that is NaN or infinite makes the sum of differences no number that is finite."""
    both = np.ones((2, 101), np.float32)
    both[side, place] = bad

    assert not math.isfinite(pairs.PAIRS.distance(*both).differences)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", [0, 40, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_has_no_sums(bad, place, side):
    """One element that is NaN or infinite, on either side and anywhere, is found."""
    both = np.ones((2, 101), np.float32)
    assert pairs.PAIRS.sums(*both, 0.0) is not None
    both[side, place] = bad

    assert pairs.PAIRS.sums(*both, 0.0) is None


@settings(deadline=None)
@given(vectors(st.floats(-1000, 1000, width=32)), st.integers(0, 2**32 - 1))
def test_densities_are_those_of_numpy(vectors, seed):
    """The sums of both and of the logarithms of their quotients are those of the formula."""
    x, y = vectors
    noise = np.random.default_rng(seed).random((2, x.size), np.float32)
    x, y = (np.append(side, np.float32([-1, 1])) for side in (x + noise[0], y + noise[1]))
    ranges = (float(x.min()), float(np.ptp(x)), float(y.min()), float(np.ptp(y)))
    p, q = (np.maximum((side - side.min()) / np.ptp(side), np.float32(FLOOR)).astype("f8") for side in (x, y))

    total_x, total_y, logarithms = pairs.PAIRS.densities(shifted(x), y, ranges, FLOOR)

    assert p.sum() == pytest.approx(total_x, rel=1e-12)
    assert q.sum() == pytest.approx(total_y, rel=1e-12)
    terms = p * np.log(p / q)
    assert terms.sum() == pytest.approx(logarithms, rel=1e-6, abs=3e-7 * np.abs(p).sum())


def test_equal_densities_have_logarithms_of_zero():
    """Where both are the same, each quotient is 1 and its logarithm exactly 0."""
    x = np.linspace(-3, 7, 1001, dtype=np.float32)

    assert 0.0 == pairs.PAIRS.densities(x, x.copy(), (-3.0, 10.0, -3.0, 10.0), FLOOR)[2]


@settings(deadline=None)
@given(vectors(FINITE), st.sampled_from([2.0**-126, 1e-9, 1.0]))
def test_units_are_those_of_the_golden_element(vectors, least):
    """The largest distance in powers of two at or below the second element's magnitude is found exactly."""
    x, y = (side.astype("f8") for side in vectors)
    with np.errstate(divide="ignore"):
        powers = np.where(y == 0, 0, 2.0 ** np.floor(np.log2(np.abs(y, where=y != 0, out=np.ones_like(y)))))
    expected = (np.abs(x - y) / np.maximum(powers, least)).max()

    assert expected == pairs.PAIRS.most_units(shifted(vectors[0]), vectors[1], least)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [
        (np.zeros(3, np.float32), True),
        (shifted(np.zeros(3, np.float32)), True),
        (np.zeros(6, np.float32)[::2], False),
        (np.zeros(3, ">f4"), False),
        (np.zeros(3, np.float64), False),
    ],
    ids=["plain", "at an odd address", "strided", "other byte order", "other type"],
)
def test_what_the_passes_take(vector, expected):
    """They take float32 elements that lie one after the other, at any address."""
    assert expected == pairs.PAIRS.takes(vector)


def test_without_a_library_there_are_no_passes():
    """Where nothing was compiled, numpy has to do."""
    assert pairs.load(Path("/nowhere")) is None
