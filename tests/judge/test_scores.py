"""The ten algorithms, against their formulas written out in numpy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msdump.errors import FormatError
from msdump.judge import ALL
from msdump.judge.scores import compare

EPSILON = np.finfo(float).eps
EXAMPLE = ([1, 2, 3, 4, 0, 6], [1, 2.5, 3, 4, 0, 5])
SEVERAL_BLOCKS = 3 * 65536 + 7


def scores(dumped, golden, names=ALL, **options):
    """Return texts by algorithm."""
    actual = compare(np.asarray(dumped), np.asarray(golden), names, **options)
    return {name: score.text for name, score in zip(names, actual, strict=True)}


def densities(x):
    """Return the densities of a Kullback-Leibler divergence."""
    extent = x.max() - x.min()
    moved = np.maximum((x - x.min()) / extent if extent else x, np.finfo(np.float32).eps)
    return moved / moved.sum()


@np.errstate(all="ignore")
def ratios(x, y):
    """Return the relative errors, 0 where golden is almost zero."""
    return np.where(np.abs(y) > EPSILON, np.abs(x / y - 1), np.float32(0))


def divergence(x, y):
    """Return sum(p * log(p / q))."""
    p, q = densities(x), densities(y)
    actual = (p * np.log(p / q)).sum()
    return 0.0 if abs(actual) < EPSILON else actual


PLAIN = {
    "MaxAbsoluteError": lambda x, y: np.abs(x - y).max(),
    "AccumulatedRelativeError": lambda x, y: ratios(x, y).sum(),
    "RelativeEuclideanDistance": lambda x, y: np.sqrt(((x - y) ** 2).sum() / (y**2).sum()),
    "KullbackLeiblerDivergence": divergence,
    "MeanAbsoluteError": lambda x, y: np.abs(x - y).mean(),
    "RootMeanSquareError": lambda x, y: np.sqrt(((x - y) ** 2).mean()),
    "MaxRelativeError": lambda x, y: ratios(x, y).max(),
    "MeanRelativeError": lambda x, y: ratios(x, y).mean(),
    "CosineSimilarity": lambda x, y: min(
        (x / np.sqrt((x * x).sum()) * (y / np.sqrt((y * y).sum()))).sum(), 1
    ),
}
"""The formulas for tensors whose golden side is not zero."""


def test_worked_example():
    """The documented example gives the documented numbers."""
    actual = scores(*EXAMPLE)

    assert {
        "CosineSimilarity": "0.992362",
        "MaxAbsoluteError": "1.000000",
        "AccumulatedRelativeError": "0.400000",
        "RelativeEuclideanDistance": "0.147764",
        "KullbackLeiblerDivergence": "0.008729",
        "StandardDeviation": "(2.667;1.972),(2.583;1.694)",
        "MeanAbsoluteError": "0.250000",
        "RootMeanSquareError": "0.456435",
        "MaxRelativeError": "0.200000",
        "MeanRelativeError": "0.066667",
    } == actual


COSINE, RELATIVE = "CosineSimilarity", "RelativeEuclideanDistance"
DIVERGENCE, DEVIATION = "KullbackLeiblerDivergence", "StandardDeviation"
RATIOS = ("AccumulatedRelativeError", "MaxRelativeError", "MeanRelativeError")
NONE = dict.fromkeys((RELATIVE, *RATIOS), "0.000000")
SPECIAL = {
    "scalar": ([3.0], [4.0], {COSINE: "1.000000"}, "This tensor is scalar."),
    "no dimension": (np.float32(3), np.float32(4), {COSINE: "1.000000"}, "This tensor is scalar."),
    "ones": ([[[2.0]]], [[[-2.0]]], {COSINE: "1.000000"}, "This tensor is scalar."),
    "both zero": ([0.0, 0], [0.0, 0], {COSINE: "1.0"}, ""),
    "mine zero": ([0.0, 0], [1.0, 0], {COSINE: "NaN"}, f"{COSINE}: all elements of mine are zero"),
    "golden zero": ([1.0, 0], [0.0, 0], {COSINE: "NaN"}, f"{COSINE}: all elements of golden are zero"),
    "opposite": ([1.0, 2], [-1.0, -2], {COSINE: "-1.000000"}, ""),
    "equal": ([3.0, 3, 3], [3.0, 3, 3], {COSINE: "1.000000"}, ""),
    "no golden element": ([0.0, 1, 2], [0.0, 0, 0], NONE, ""),
    "golden below the epsilon": ([0.0, 1, 2], [1e-17, -1e-17, 0], NONE, ""),
    "one golden zero": (
        [0.0, 1, 2],
        [0.0, 2, 4],
        dict(zip((RELATIVE, *RATIOS), ("0.500000", "1.000000", "0.500000", "0.333333"), strict=True)),
        "",
    ),
    "constants are not moved": ([5.0, 5, 5], [2.0, 2, 2], {DIVERGENCE: "0.000000"}, ""),
    "constants at the floor": ([-5.0, -5, -5], [0.0, 0, 0], {DIVERGENCE: "0.000000"}, ""),
    "means below a thousandth": (
        [-0.0004, -0.0005],
        [1000.0, 1000.0016],
        {DEVIATION: "(0.000;0.000),(1000.001;0.000)"},
        "",
    ),
    "truth values": (
        [True, True, False],
        [True, False, False],
        {"MaxAbsoluteError": "NaN", COSINE: "0.707107", RELATIVE: "1.000000", DEVIATION: "NaN"},
        "Algorithm MaxAbsoluteError does not support Boolean types.",
    ),
    "no elements": (
        np.empty((0, 3)),
        np.empty((0, 3)),
        dict.fromkeys(ALL, "NaN"),
        f"{COSINE}: there are no elements",
    ),
    "imaginary parts": (
        [1 + 2j, 3],
        [1 + 1j, 3],
        {"MaxAbsoluteError": "1.000000", "MeanAbsoluteError": "0.250000"},
        "",
    ),
    "imaginary parts beside none": ([1 + 2j, 3], [1, 3], {"MaxAbsoluteError": "2.000000"}, ""),
}


@pytest.mark.parametrize(("dumped", "golden", "expected", "note"), SPECIAL.values(), ids=SPECIAL)
def test_special_tensors(dumped, golden, expected, note):
    """Algorithms run as named and in that order; special tensors have numbers or a note."""
    found = compare(np.asarray(dumped), np.asarray(golden), [*expected])

    assert expected == {name: score.text for name, score in zip(expected, found, strict=True)}
    assert note == found[0].note


@pytest.mark.parametrize(
    "dtype",
    ["f2", "f4", ">f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ml_dtypes.bfloat16],
    ids=str,
)
def test_every_type_is_cast_to_float32(dtype):
    """Tensors of every numeric type compare as their float32 values do."""
    dumped, golden = (np.array(side, dtype) for side in EXAMPLE)

    actual = scores(dumped, golden)

    assert scores(dumped.astype("f4"), golden.astype("f4")) == actual


@pytest.mark.parametrize(
    ("dumped", "golden", "message"),
    [
        (np.zeros((2, 3)), np.zeros(5), r"mine has 6 elements, shape \(2, 3\), golden 5, shape \(5,\)"),
        (np.array(["a"]), np.zeros(1), "mine holds <U1; only numbers"),
        (np.zeros(1), np.array([b"a"], object), "golden holds object; only numbers"),
    ],
    ids=["sizes", "text", "objects"],
)
def test_what_cannot_be_compared_is_an_error(dumped, golden, message):
    """Tensors of different sizes and text are refused with a message that names the side."""
    with pytest.raises(FormatError, match=message):
        compare(dumped, golden)


FLOATS = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@example((np.float32([0, *[-1] * 7]), np.float32([-1, *[0] * 7])))  # all products are -0
@given(
    arrays.arrays(np.float32, st.integers(2, 40), elements=FLOATS).flatmap(
        lambda dumped: st.tuples(st.just(dumped), arrays.arrays(np.float32, dumped.shape, elements=FLOATS))
    )
)
def test_numbers_are_those_of_the_formulas(pair):
    """Each number is that of its formula in float64, to the digits of float32."""
    x, y = (side.astype("f8") for side in pair)
    expected = {}
    if min(np.linalg.norm(x), np.linalg.norm(y)) > math.sqrt(EPSILON):
        expected = {name: formula(x, y) for name, formula in PLAIN.items()}

    actual = scores(*pair)

    assert expected == pytest.approx({name: float(actual[name]) for name in expected}, rel=1e-6, abs=2e-5)


@pytest.mark.parametrize("size", [65535, 65536, 65537, SEVERAL_BLOCKS])
def test_numbers_of_several_blocks(size):
    """The numbers of tensors of one or more blocks equal the formulas', digit for digit."""
    rng = np.random.default_rng(size)
    golden = (rng.standard_normal(size) * 3).astype(np.float32)
    golden[rng.random(size) < 0.3] = 0
    dumped = (golden + rng.standard_normal(size) * 0.01).astype(np.float32)

    actual = scores(dumped, golden)

    expected = {name: f"{formula(dumped, golden):.6f}" for name, formula in PLAIN.items()}
    assert expected == {name: actual[name] for name in expected}
    deviations = [(side.mean(dtype="f8"), side.std(dtype="f8")) for side in (dumped, golden)]
    shown = [[0.0 if abs(number) < 0.001 else number for number in pair] for pair in deviations]
    assert ",".join(f"({mean:.3f};{std:.3f})" for mean, std in shown) == actual["StandardDeviation"]


@pytest.mark.parametrize(
    ("golden", "dumped", "text"),
    [
        (np.full(SEVERAL_BLOCKS, 2.0), np.full(SEVERAL_BLOCKS, 4.0), "0.000000"),
        (np.linspace(0, 1, SEVERAL_BLOCKS), np.full(SEVERAL_BLOCKS, 3.0), "0.306"),
        (np.linspace(-3e38, 3e38, SEVERAL_BLOCKS), np.linspace(-1e38, 1e38, SEVERAL_BLOCKS), "nan"),
    ],
    ids=["both constant", "one constant", "a range that float32 does not hold"],
)
def test_divergence_of_long_tensors_without_a_range(golden, dumped, text):
    """Long tensors that cannot be moved to 0..1 have the divergence of the formula."""
    golden, dumped = golden.astype("f4"), dumped.astype("f4")

    actual = scores(dumped, golden, ["KullbackLeiblerDivergence"])["KullbackLeiblerDivergence"]

    assert actual.lstrip("-").startswith(text)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("side", [0, 1], ids=["mine", "golden"])
def test_what_is_not_finite_in_a_late_block(bad, side):
    """One element of a late block that is NaN or infinite shows in all numbers that it has part in."""
    pair = np.random.default_rng(0).standard_normal((2, SEVERAL_BLOCKS)).astype("f4")
    pair[side, -9] = bad

    actual = scores(*pair)

    nan = {"CosineSimilarity", "KullbackLeiblerDivergence"}
    assert {"nan"} == {actual[name] for name in nan}
    assert all(actual[name] in {"nan", "inf"} for name in ("MaxAbsoluteError", "RootMeanSquareError"))
    assert "nan" in actual["StandardDeviation"]
