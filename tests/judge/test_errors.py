"""How far two tensors are apart: numbers of any scale and type, against numpy's in float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from msdump import dtypes
from msdump.judge import TensorError, errors, is_rounding, measure
from msdump.judge.errors import are_same, rounded_to
from msdump.judge.verdict import TYPES, Limits


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("f4", 1e-8), ("f4", 1e-30), ("f4", 1e30), ("f8", 1e-8), ("f8", 1e-200), ("f8", 1e200)],
)
def test_scale_does_not_matter(dtype, scale):
    """Tensors with squares beyond float32 or float64 are as far apart as others."""
    golden = np.array([1, -2, 3, 4], dtype)
    dumped = golden * np.array([1.25, 1, 1, 1], dtype)

    error = measure(dumped * np.array(scale, dtype), golden * np.array(scale, dtype))

    assert 0.25 / math.sqrt(30) == pytest.approx(error.distance, rel=1e-6)
    assert measure(dumped, golden).cosine == pytest.approx(error.cosine, rel=1e-6)


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
    """Every rounded type has its limit, and a GPU's; from 16 bits on 2 % of noise shows."""
    floats = {row.name for row in dtypes.DTYPES if row.name.startswith(("float", "bfloat", "complex"))}
    usual = [TYPES[name].distance for name in ("float64", "float32", "float16", "bfloat16")]

    assert (floats - {"float8_e8m0"}) | {"tfloat32"} == TYPES.keys()
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
    """Units are the coarser type's at the golden element, and not lost beside large elements."""
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


def _at_an_odd_address(array):
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)


@pytest.mark.parametrize(
    "lay",
    [np.copy, _at_an_odd_address, lambda array: np.repeat(array, 2)[::2]],
    ids=["plain", "odd", "strided"],
)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1", "?", "c8"])
def test_one_bit_decides_wherever_arrays_lie(dtype, lay):
    """Arrays have the same bits until one bit of one element is another one."""
    array = np.arange(1000).astype(dtype)
    other = lay(array)
    changed = array.copy()
    changed.view("u1")[-1] ^= 1

    assert are_same(array, other)
    assert not are_same(changed, other)


@pytest.mark.parametrize("length", [1, 65_536, 200_001])
@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "i4", "f2", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=str
)
def test_blocks_add_up(dtype, length):
    """The numbers of one or more blocks equal numpy's over all elements, of every type."""
    rng = np.random.default_rng(length)
    one, other = (rng.normal(2, 10, (2, length))).astype(dtype)
    x, y = one.astype("f8"), other.astype("f8")

    error = measure(one, other)

    expected = {
        "distance": np.linalg.norm(x - y) / np.linalg.norm(y),
        "cosine": x @ y / np.linalg.norm(x) / np.linalg.norm(y),
        "norm": np.linalg.norm(x - y),
        "largest": np.abs(x - y).max(),
        "scaled": np.abs(x - y).max() / np.abs(y).max(),
        "changed": np.count_nonzero(x != y) if dtype == "i4" else 0,
    }
    assert expected == pytest.approx({name: getattr(error, name) for name in expected}, rel=1e-12)


def test_roundings_of_elements_that_are_not_aligned():
    """Elements of dump files, at any address, are compared with the other side's, not with themselves."""
    pairs = ([1, 2], [3, 4]), ([0.1, 2], np.float32([0.1, 2]).astype("f2"))
    sides = [
        [np.frombuffer(b"x" + np.float32(side).tobytes(), "f4", offset=1) for side in each] for each in pairs
    ]

    assert [False, True] == [is_rounding(*each) for each in sides]
    assert ["", "float16"] == [rounded_to(*reversed(each)) for each in sides]


@pytest.mark.parametrize("factor", [1.0, 1.02])
def test_each_side_rounds_to_a_type_of_its_own(factor):
    """A weight in float16 and the same one in bfloat16 are one number, without a graph that has the types."""
    weight = np.random.default_rng(0).standard_normal(64).astype("f4")
    dumped, golden = weight.astype("f2"), (weight * np.float32(factor)).astype(ml_dtypes.bfloat16)

    assert (factor == 1) == is_rounding(dumped.astype("f4"), golden.astype("f4"))


@pytest.mark.parametrize(
    ("dumped", "golden", "distance"),
    [
        ([0, -np.inf], [0, -3.4e38], 0),
        ([1000, -np.inf], [2000, -3.4e38], 0.5),
        ([-np.inf, -np.inf], [-3.4e38, -3.4e38], 0),
        ([0, np.inf], [0, 3.4e38], None),
        ([0, np.nan], [0, -3.4e38], None),
        ([0, -np.inf], [0, -100], None),
        ([np.inf, -np.inf], [0, -3.4e38], None),
    ],
    ids=["mask", "large_scores", "all", "positive", "nan", "small", "both"],
)
def test_errors_beside_masks(dumped, golden, distance):
    """Very low elements alone may be left out of a tensor that only a softmax reads."""
    error = measure(np.float32(dumped), np.float32(golden))

    assert error.misplaced
    assert distance == (None if error.beside_masks is None else error.beside_masks.distance)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (np.s_[3], "16 of 256 elements, all in row 3"),
        (np.s_[:, 3:5], "32 of 256 elements, all in 2 columns from 3 to 4"),
        (np.s_[::4, ::4], "16 of 256 elements"),
        (np.s_[:], "256 of 256 elements"),
        (np.s_[:0], "0 of 256 elements"),
    ],
)
def test_places_that_differ(place, text):
    """Few rows or columns with all differences are named; NaN on both sides is no difference."""
    golden = np.full((16, 16), np.nan, np.float32)
    dumped = golden.copy()
    dumped[place] = 1

    assert text == errors.places_text(dumped, golden)
