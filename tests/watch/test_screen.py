"""Screens: what lets most tensors pass at once never lets a hit pass."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.config import watch as config
from msdump.statistics import StatisticNeed, measure, rough_squares
from msdump.watch import RuleWatch, Screen, Screens
from tests.watch.test_watch import f32, findings

RANGE = {"range_start_inclusive": -2, "range_end_inclusive": 3}
SCREENED = [
    ("tensor_overflow", {}, True),
    ("tensor_all_zero", {}, True),
    ("tensor_too_large", {"max_gt": 10, "abs_mean_gt": 8}, True),
    ("tensor_too_large", {"min_gt": 10, "mean_gt": 9}, True),
    ("tensor_too_small", {"max_lt": -8}, True),
    ("tensor_range", {"max_min_gt": 16}, True),
    (
        "tensor_range",
        {"range_percentage_lt": 60, "range_start_inclusive": -9, "range_end_inclusive": 8},
        True,
    ),
    ("saturated_float16", {}, True),
    ("tensor_too_large", {"max_gt": 0}, False),
    ("tensor_too_small", {"abs_mean_lt": 1}, False),
    ("tensor_all_zero", {"zero_percentage_ge": 50}, False),
    ("tensor_range", {"range_percentage_gt": 60, **RANGE}, False),
    ("tensor_initialization", {}, False),
    ("tensor_not_changed", {}, False),
    ("loss_spike", {}, False),
]


def rules_of(folder, *rules):
    """Return rules on any tensor, by way of a file."""
    path = folder / "rules.json"
    path.write_text(json.dumps([{"role": "any", **rule} for rule in rules]))
    return config.read(str(path))


@pytest.mark.parametrize(("condition", "parameters", "expected"), SCREENED)
def test_screen_decides_rules_on_magnitudes(condition, parameters, expected, tmp_path):
    """A screen lets small numbers pass a rule that no small number passes the limit of, and no others."""
    screen = Screen(rules_of(tmp_path, {"condition": condition, **parameters}))
    array = f32(0.5, -0.25)

    assert expected == (screen.decides and screen.clears(rough_squares(array), array.size))
    assert expected is not bool(screen.others)


NUMBERS = st.one_of(
    st.floats(width=32),
    st.floats(-20, 20, width=32),
    st.sampled_from([0.0, -0.0, 1e-30, 8, 10, -10, 65504, 1e19, 3e38]),
)


SQUARES = StatisticNeed(squares=True)
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64]


@given(
    st.lists(NUMBERS, min_size=1, max_size=5),
    st.sampled_from([1, 7, 9000, 20001]),
    st.sampled_from(TYPES),
    st.booleans(),
)
@settings(deadline=None)
def test_nothing_hits_what_a_screen_clears(tmp_path_factory, numbers, repeats, dtype, is_rough):
    """Where a screen clears a tensor, no rule that it decides hits when all elements are looked at."""
    with np.errstate(all="ignore"):
        array = np.repeat(np.array(numbers, np.float64).astype(dtype), repeats)
    rough = rough_squares(array) if is_rough else None
    squares = measure(array, dtypes.from_numpy(array.dtype), SQUARES).squares if rough is None else rough
    folder = tmp_path_factory.mktemp("rules")
    for condition, parameters, is_screened in SCREENED:
        if is_screened:
            rules = rules_of(folder, {"condition": condition, **parameters})
            is_clear = Screen(rules).clears(squares, array.size)
            assert not is_clear or [] == findings(RuleWatch(rules), array)


@given(st.lists(st.tuples(st.floats(width=64), st.integers(0, 1 << 40), st.integers(0, 2)), max_size=6))
@settings(deadline=None)
def test_screens_together_clear_what_each_clears(tmp_path_factory, told):
    """Screens that are asked together clear tensors where each clears its own, whatever was found."""
    folder = tmp_path_factory.mktemp("rules")
    parameters = ({"max_gt": 10}, {"max_gt": 1e30}, {"min_gt": 1e-30})
    screens = [Screen(rules_of(folder, {"condition": "tensor_too_large", **each})) for each in parameters]
    chosen = [screens[number] for *_, number in told]
    squares, counts = [each[0] for each in told], [each[1] for each in told]

    assert Screens(chosen, counts).clear(np.array(squares, float)) is all(
        screen.clears(found, count) for screen, found, count in zip(chosen, squares, counts, strict=True)
    )


@given(st.integers(0, 100_000), st.floats(-12, 12), st.integers(0, 9))
@settings(deadline=None)
def test_rough_squares_are_near_and_see_all_elements(count, scale, seed):
    """The rough sum of squares is right to 0.1 %, of any number of elements."""
    array = np.float32(np.random.default_rng(seed).standard_normal(count) * 10**scale)

    assert pytest.approx(float(np.sum(array.astype(np.float64) ** 2)), rel=1e-3) == rough_squares(array)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int32, np.bool_])
def test_other_types_have_no_rough_squares(dtype):
    """Types in which squares are not summed fast are left to the pass over their elements."""
    assert rough_squares(np.ones(3, dtype)) is None
