"""How far two tensors are apart: numbers of any scale and type, against numpy's in float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump import dtypes
from msdump.tools.judge.errors import TensorError, measure, measure_with_scores
from msdump.tools.judge.limits import TYPES, Limits, coarser
from msdump.tools.scores import algorithms

_SHAPES = arrays.array_shapes(max_dims=3, max_side=5)
_VALUES = st.floats(-100, 100, width=16)


@pytest.fixture(scope="module", params=["compiled", "numpy"], autouse=True)
def way(request):
    """Take sums by the compiled passes, where there are some, or by numpy."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr("msdump.statistics.pairs.PAIRS", None)
        yield


@settings(deadline=None)
@given(shape=_SHAPES, data=st.data(), dtype=st.sampled_from(["f2", "f4", "f8", ml_dtypes.bfloat16]))
def test_numbers_are_those_of_numpy(shape, data, dtype):
    """Distance, cosine and largest difference are what numpy computes of the whole in float64."""
    one, other = (data.draw(arrays.arrays("f4", shape, elements=_VALUES)).astype(dtype) for _ in range(2))
    x, y = one.astype("f8").reshape(-1), other.astype("f8").reshape(-1)

    error = measure(one, other)

    norms = np.linalg.norm(x) * np.linalg.norm(y)
    assert np.abs(x - y).max() == error.largest
    if y.any():
        assert np.linalg.norm(x - y) / np.linalg.norm(y) == pytest.approx(error.distance, rel=1e-12)
    if norms:
        assert x @ y / norms == pytest.approx(error.cosine, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("f4", 1e-8), ("f4", 1e-30), ("f4", 1e30), ("f8", 1e-8), ("f8", 1e-200), ("f8", 1e200)],
)
def test_scale_does_not_matter(dtype, scale):
    """Tensors whose squares float32 or float64 cannot hold are as far apart as others."""
    golden = np.array([1, -2, 3, 4], dtype)
    dumped = golden * np.array([1.25, 1, 1, 1], dtype)

    error = measure(dumped * np.array(scale, dtype), golden * np.array(scale, dtype))

    assert 0.25 / math.sqrt(30) == pytest.approx(error.distance, rel=1e-6)
    assert measure(dumped, golden).cosine == pytest.approx(error.cosine, rel=1e-6)


_ANY_SINGLE = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, -1e4, -65504.0, 1e-40, 3e38])


@settings(deadline=None)
@given(
    data=st.data(),
    length=st.integers(1, 40),
    types=st.tuples(*[st.sampled_from(["f2", "f4", "f8", "i4", ml_dtypes.bfloat16])] * 2),
)
def test_scores_and_error_together_are_those_of_each(data, length, types):
    """Blocks that are read once give the numbers of two readings, for NaN, masks, and any type."""
    with np.errstate(all="ignore"):
        dumped, golden = (
            data.draw(arrays.arrays("f4", length, elements=_ANY_SINGLE)).astype(dtype) for dtype in types
        )

    scores, error = measure_with_scores(dumped, golden)

    expected = measure(dumped, golden)
    assert algorithms.compare(dumped, golden) == scores
    for name in TensorError.__dataclass_fields__:
        assert getattr(expected, name) == pytest.approx(getattr(error, name), rel=1e-12, nan_ok=True), name


def test_distances_that_float32_takes_for_equal():
    """The largest difference is exact, though float32 rounds two that differ to one number."""
    dumped, golden = np.float32([2**25, 2**25]), np.float32([1, -1])

    _, together = measure_with_scores(dumped, golden)

    for error in (measure(dumped, golden), together):
        assert 2**25 + 1 == error.largest
        assert (2**25 + 1) * 2**23 == error.ulps


@pytest.mark.parametrize("length", [65_535, 65_536, 200_001])
@pytest.mark.parametrize("offset", [0.0, 1e6], ids=["around zero", "far away"])
def test_together_every_block_counts(length, offset):
    """Sums over many blocks are those of two readings, the largest difference in the last element."""
    golden = np.random.default_rng(length).standard_normal(length).astype("f4") + np.float32(offset)
    dumped = golden * np.float32(1.0001)
    dumped[-1] += 3

    scores, error = measure_with_scores(dumped, golden)

    expected = measure(dumped, golden)
    assert algorithms.compare(dumped, golden) == scores
    assert expected.largest == error.largest
    assert expected.ulps == error.ulps
    assert expected.distance == pytest.approx(error.distance, rel=1e-12)
    assert expected.cosine == pytest.approx(error.cosine, rel=1e-12)


def test_every_block_counts():
    """A difference in the last element of a large tensor is found."""
    golden = np.ones(200_001, "f4")
    dumped = golden.copy()
    dumped[-1] = 3

    error = measure(dumped, golden)

    assert 2 == error.largest
    assert 2 / math.sqrt(200_001) == pytest.approx(error.distance)


@pytest.mark.parametrize(
    ("dumped", "golden", "is_same"),
    [
        (np.float32([0.0]), np.float32([-0.0]), False),
        (np.float32([np.nan, np.inf]), np.float32([np.nan, np.inf]), True),
        (np.int64([2**60]), np.int64([2**60 + 1]), False),
        (np.float16([1.5]), np.float32([1.5]), True),
        (np.array([1.5], ml_dtypes.bfloat16), np.float16([1.5]), True),
        (np.array([3], ml_dtypes.int4), np.int8([3]), True),
        (np.float32([1e-9]), np.float32([1.0000001e-9]), False),
        (np.complex64([1 + 2j]), np.complex64([1 + 2j]), True),
        (np.empty(0, "f4"), np.empty(0, "f4"), True),
    ],
    ids=["zeros", "nan", "large_int", "wider", "halves", "int4", "tiny", "complex", "empty"],
)
def test_same_means_bit_for_bit(dumped, golden, is_same):
    """Tensors are the same if all bits are, once the narrower type is widened."""
    assert is_same == measure(dumped, golden).is_same


@pytest.mark.parametrize(
    ("dumped", "golden", "expected"),
    [
        ([np.nan, 1, 2], [np.nan, 1, 4], TensorError(False, 2 / math.sqrt(17), 9 / math.sqrt(85), 2.0)),
        ([np.nan, 3, 4], [1, 3, 4], TensorError(False, math.inf, math.nan, math.inf, 1)),
        (
            [np.inf, -np.inf, 3, 4],
            [np.inf, np.inf, 3, 4],
            TensorError(False, math.inf, math.nan, math.inf, 1),
        ),
        ([1e30, np.inf, 1], [np.inf, np.nan, 1], TensorError(False, math.inf, math.nan, math.inf, 2)),
    ],
    ids=["same_places", "nan", "sign", "mixed"],
)
def test_elements_that_are_not_finite(dumped, golden, expected):
    """NaN and infinities are counted where they differ; the same ones have no part in the numbers."""
    error = measure(np.float32(dumped), np.float32(golden))

    assert expected.misplaced == error.misplaced
    assert expected.distance == pytest.approx(error.distance)
    assert expected.cosine == pytest.approx(error.cosine, nan_ok=True)
    assert expected.largest == error.largest


@pytest.mark.parametrize(
    ("dumped", "golden", "distance"),
    [([1, 0], [0, 0], math.inf), ([0, 0], [1, 0], 1.0), ([0, -0.0], [0, 0], 0)],
)
def test_tensors_of_zeros(dumped, golden, distance):
    """A tensor of zeros is all of its counterpart's scale away, however small that is."""
    error = measure(np.float32(dumped) * np.float32(1e-20), np.float32(golden) * np.float32(1e-20))

    assert distance == pytest.approx(error.distance)


def test_each_float_has_a_limit_that_a_noisy_weight_passes():
    """Every rounded type has its limit; with those of 16 bits and more 2 % of noise shows."""
    floats = {row.name for row in dtypes.DTYPES if row.name.startswith(("float", "bfloat", "complex"))}
    usual = [TYPES[name].distance for name in ("float64", "float32", "float16", "bfloat16")]

    assert floats - {"float8_e8m0"} == TYPES.keys()
    assert sorted(usual) == usual
    assert 0.02 > usual[-1]
    assert 1e-3 >= TYPES["float32"].distance


@pytest.mark.parametrize(
    ("limits", "types", "coarsest", "expected"),
    [
        (Limits(), ("float32", "float32"), "", "float32"),
        (Limits(), ("float16", "float32"), "", "float16"),
        (Limits(), ("float32", "float32"), "bfloat16", "bfloat16"),
        (Limits(), ("int32", "float64"), "", "float64"),
        (Limits(), ("int32", "int32"), "float16", None),
        (Limits(), ("bool", "uint8"), "", None),
        (Limits(), ("99", "99"), "", None),
    ],
)
def test_coarsest_type_decides(limits, types, coarsest, expected):
    """The coarsest type that took part decides; integers and truth values must be the same."""
    assert (None if expected is None else TYPES[expected].distance) == limits.allowed(types, coarsest)


def test_given_distance_beats_every_type():
    """A distance that the user gives holds for all types."""
    assert 0.5 == Limits(distance=0.5).allowed(("int32", "int32"), "float16")
    assert "bfloat16" == coarser("float32", "bfloat16", "int8")
    assert not coarser("int8", "")


@pytest.mark.parametrize(
    ("dumped", "golden", "dtype", "ulps"),
    [
        (np.nextafter(np.float32(1), np.float32(2)), np.float32(1), "", 1),
        (np.nextafter(np.float32(8), np.float32(9)), np.float32(8), "", 1),
        (np.float32([1, 3 + 2**-7]), np.float32([1, 3]), "bfloat16", 0.5),
        (np.float16([1, 2]), np.float32([1, 2.001953125]), "", 1),
        (np.float16([0, 6e-8]), np.float16([0, 1.2e-7]), "", 1),
        (np.float64([1, 1 + 2**-52]), np.float64([1, 1]), "", 1),
        (np.float32([1, 1e-20]), np.float32([1, 2e-20]), "", 1e-20 / 2**-46),
        (np.int32([1, 5]), np.int32([1, 9]), "", 0),
    ],
    ids=["float32", "power", "bfloat16", "coarser", "denormal", "float64", "beside_large", "integers"],
)
def test_units_of_the_last_place(dumped, golden, dtype, ulps):
    """Units are those of the coarser type at the golden element, and not lost beside large elements."""
    assert ulps == pytest.approx(measure(np.atleast_1d(dumped), np.atleast_1d(golden), dtype).ulps, rel=0.05)


@pytest.mark.parametrize("mask", [-1e4, -65504, -1e9, np.finfo("f4").min, -np.inf])
def test_masked_lanes_do_not_drown_the_rest(mask):
    """Scores beside masked ones are as far apart as they are by themselves, whatever the mask."""
    golden = np.float32([1, -2, 3, 4])
    dumped = golden * np.float32([1.25, 1, 1, 1])
    lanes = np.float32([mask, mask])

    error = measure(np.append(dumped, lanes + np.float32(0.5)), np.append(golden, lanes))

    assert (2, 0) == (error.masked, error.misplaced)
    assert measure(dumped, golden).distance == pytest.approx(error.distance)
    assert 0.25 / 4 == pytest.approx(error.scaled)


@pytest.mark.parametrize(
    ("dumped", "golden", "masked"),
    [
        ([-np.inf, 1, 2.5], [-65504, 1, 2], 1),
        ([-65504, 1, 2.5], [np.finfo("f4").min, 1, 2], 1),
        ([-1e4, 1, 2.5], [-65504, 1, 2], 0),
        ([-1e4, 1, 2], [3, 1, 2], 0),
        ([-1e4, 6e3, 2], [-1e4, 6e3, 3], 0),
        ([-1e4, 0, 1], [-1e4, 0, 0], 0),
    ],
    ids=["infinity", "rounded", "milder", "one_side", "large_numbers", "mask_itself"],
)
def test_what_is_no_masked_lane(dumped, golden, masked):
    """Both sides must mask an element alike, and it must lie far below all others."""
    error = measure(np.float32(dumped), np.float32(golden))

    assert masked == error.masked
    assert 0 == error.misplaced
    assert not error.is_same


def test_elements_of_types_that_are_not_rounded_are_counted():
    """Integers and truth values that differ are counted, floats are not."""
    assert 2 == measure(np.int64([1, 2, 3]), np.int64([1, 3, 4])).changed
    assert 1 == measure(np.array([True, False]), np.array([True, True])).changed
    assert 0 == measure(np.float32([1, 2]), np.float32([1, 3])).changed


def test_elements_that_are_not_finite_on_the_examined_side():
    """Of misplaced elements those of the examined side are told apart."""
    error = measure(np.float32([np.nan, 1, np.inf, 2]), np.float32([1, np.nan, -np.inf, 2]))

    assert (3, 2) == (error.misplaced, error.nonfinite)
