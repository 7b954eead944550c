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

    assert repr(pairs.PAIRS.sums(x, shifted(y), float(NOTHING))) == repr(sums)
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
    assert ratios.max() == sums.largest_ratio
    near = x - y
    expected = [side.sum() for side in (x * x, y * y, near * near, np.abs(near), ratios)]
    assert expected == sums.singles.tolist()
    assert x.size == sums.count


SIZES = [7, 8, 127, 128, 129, 511, 512, 513, 4097, 65535, 65536, 50_003, 300_001]
"""Lengths of vectors, about those of the halves, parts and leaves of a sum."""


@pytest.mark.parametrize("size", SIZES)
def test_floats_are_added_in_the_order_of_numpy(size):
    """Each sum in float32 is numpy's to the last bit, at every length of its halves and leaves."""
    x, y = np.random.default_rng(size).standard_normal((2, size)).astype("f4")
    terms = (x * x, y * y, (x - y) * (x - y), np.abs(x - y), np.abs(x / y - np.float32(1)))

    assert [term.sum() for term in terms] == pairs.PAIRS.sums(x, y, float(NOTHING)).singles.tolist()


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


@settings(deadline=None)
@given(vectors(FINITE), st.sampled_from([8, 32, 1 << 15]))
def test_what_is_apart_has_the_bits_of_the_sums_of_blocks(vectors, block):
    """Of each block the sums are those of all sums, and they are added in order, wherever elements lie."""
    x, y = vectors
    starts = range(0, x.size, block)
    blocks = [pairs.PAIRS.sums(x[at : at + block], y[at : at + block], 0.0) for at in starts]

    found = pairs.PAIRS.apart(shifted(x), y, block)

    assert (min(y), max(y)) == (found.low, found.high)
    assert max(sums.largest for sums in blocks) == found.largest
    assert sum(sums.x.squares for sums in blocks) == found.x_squares
    assert sum(sums.y.squares for sums in blocks) == found.y_squares
    assert sum(sums.products for sums in blocks) == found.products
    assert sum(sums.differences for sums in blocks) == found.differences


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", [0, 40, -1])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_finite_has_no_sums(bad, place, side):
    """One element that is NaN or infinite, on either side and anywhere, is found."""
    both = np.ones((2, 101), np.float32)
    assert pairs.PAIRS.sums(*both, 0.0) is not None
    assert pairs.PAIRS.apart(*both, 64) is not None
    both[side, place] = bad

    assert pairs.PAIRS.sums(*both, 0.0) is None
    assert pairs.PAIRS.apart(*both, 64) is None


def scale_of(vector):
    """Return what the elements of a vector are divided by, and their units and densities."""
    norm, low, extent = np.sqrt((vector * vector).sum()), vector.min(), np.ptp(vector)
    moved = np.maximum((vector - low) / extent, np.float32(FLOOR))
    return pairs.SideScale(float(norm), float(low), float(extent)), vector / norm, moved


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SIZES), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e6]))
def test_what_is_scaled_has_the_bits_of_numpy(size, seed, factor):
    """Products of units, densities and their quotients have numpy's bits, wherever the elements lie."""
    x, y = (np.random.default_rng(seed).standard_normal((2, size)) * factor).astype("f4")
    (of_x, unit_x, moved_x), (of_y, unit_y, moved_y) = scale_of(x), scale_of(y)
    scales, out = pairs.PairScale(of_x, of_y, FLOOR), np.empty((2, size), np.float32)

    sums = pairs.PAIRS.scaled(shifted(x), y, scales)
    pairs.PAIRS.divided(shifted(x), y, scales, sums[1:], out)

    assert [(unit_x * unit_y).sum(), moved_x.sum(), moved_y.sum()] == sums.tolist()
    p, q = moved_x / moved_x.sum(), moved_y / moved_y.sum()
    assert p.tobytes() == out[0].tobytes()
    assert (p / q).tobytes() == out[1].tobytes()


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
