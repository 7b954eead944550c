"""Rules on tensors: hits of each condition, decisions by statistics alone, comparisons of steps."""

import json
import math
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump import dtypes
from msdump.config import watch as config
from msdump.record import IO
from msdump.statistics import StatisticNeed, measure
from msdump.watch import (
    Hit,
    Role,
    RuleWatch,
    Sighting,
    Undecided,
    WatchedTensor,
    are_cleared,
    cleared_squares,
    measured_row,
    need_of,
    subject,
)

ANY = WatchedTensor("ReLU", "Default/ReLU-op0", IO.OUTPUT, 0, frozenset(Role))
ALL = StatisticNeed(extremes=True, counts=True, total=True, squares=True)


def rules_of(folder, *rules):
    """Return rules by way of a file."""
    path = folder / "rules.json"
    path.write_text(json.dumps(rules))
    return config.read(str(path))


def findings(watch, *arrays, need=None, has_elements=True):
    """Return the findings in the last of the steps in which a tensor holds arrays."""
    rules = watch.rules_for(ANY)
    found = []
    for number, array in enumerate(arrays):
        row = measured_row(array, dtypes.from_numpy(array.dtype), need or need_of(rules))
        elements = partial(np.asarray, array) if has_elements else None
        found = watch.check(rules, ANY, Sighting(number), row, elements)
    return found


def f16(*values):
    """Return a float16 tensor."""
    return np.array(values, np.float16)


def f32(*values):
    """Return a float32 tensor."""
    return np.array(values, np.float32)


CASES = [
    ("tensor_overflow", {}, [f32(1, np.nan, np.inf)], 2),
    ("tensor_overflow", {}, [f32(1, 3e38)], None),
    ("tensor_overflow", {}, [np.array([1, np.inf], ml_dtypes.bfloat16)], 1),
    ("gradient_exploding", {}, [f16(1, -np.inf)], 1),
    ("weight_overflow", {}, [np.array([1, 2])], None),
    ("tensor_too_large", {"max_gt": 2}, [f32(1, 3)], 3),
    ("tensor_too_large", {"max_gt": 3}, [f32(1, 3)], None),
    ("tensor_too_large", {"min_gt": 0}, [f32(1, 3)], 1),
    ("tensor_too_large", {"mean_gt": 1}, [f32(1, 3)], 2),
    ("tensor_too_large", {"abs_mean_gt": 1.5}, [f32(-1, 3)], 2),
    ("tensor_too_large", {"abs_mean_gt": 2}, [f32(-1, 3)], None),
    ("tensor_too_small", {"max_lt": 4}, [f32(1, 3)], 3),
    ("tensor_too_small", {"abs_mean_lt": 1e-7}, [f32(-1e-8, 1e-8)], 1e-8),
    ("gradient_vanishing", {"abs_mean_lt": 0.5}, [f32(-1, 1)], None),
    ("tensor_all_zero", {}, [f32(0, -0.0)], 100),
    ("tensor_all_zero", {}, [f32(0, 1)], None),
    ("tensor_all_zero", {"zero_percentage_ge": 50}, [f32(0, 1)], 50),
    ("tensor_initialization", {"max_gt": 1}, [f32(2)], 2),
    ("tensor_initialization", {"max_gt": 1}, [f32(0.5), f32(2)], None),
    ("tensor_range", {"max_min_gt": 1}, [f32(1, 3)], 2),
    ("activation_range", {"max_min_lt": 3}, [f32(1, 3)], 2),
    (
        "tensor_range",
        {"range_percentage_lt": 60, "range_start_inclusive": 0, "range_end_inclusive": 1},
        [f32(0, 1, 2, -1)],
        50,
    ),
    (
        "tensor_range",
        {"range_percentage_gt": 60, "range_start_inclusive": 0, "range_end_inclusive": 1},
        [f32(0, 1, 2, -1)],
        None,
    ),
    ("tensor_change_too_large", {}, [f32(1, 1), f32(1, 1.4)], 0.2),
    ("tensor_change_too_large", {}, [f32(1, 1)], None),
    ("weight_change_too_small", {}, [f32(1, 1), f32(1, 1.00001)], 5e-6),
    ("weight_not_changed", {}, [f32(1, 2), f32(1, 2)], 0),
    ("weight_not_changed", {}, [f32(1, 2), f32(1, 2.1)], None),
    ("weight_not_changed", {}, [f32(1, np.nan), f32(1, np.nan)], None),
    ("weight_not_changed", {"equal_nan": True}, [f32(1, np.nan), f32(1, np.nan)], 0),
    ("saturated_float16", {}, [f16(65504, -65504, 1, 0)], 50),
    ("saturated_float16", {}, [f16(65472, 1)], None),
    ("saturated_float16", {}, [f32(65504)], None),
    ("dead_relu", {}, [f32([0, 1, 0, 0], [0, 0, 2, 0])], 50),
    ("dead_relu", {"dead_percentage_ge": 51}, [f32([0, 1, 0, 0], [0, 0, 2, 0])], None),
    ("gradient_norm", {"norm_gt": 4}, [f32(3, 4)], 5),
    ("gradient_norm", {}, [*[f32(3, 4)] * 5, f32(3000, 4000)], 1000),
    ("gradient_norm", {}, [*[f32(3, 4)] * 4, f32(3000, 4000)], None),
    ("gradient_norm", {}, [*[f32(3, 4)] * 5, f32(3e-3, 4e-3)], 1e-3),
    ("update_to_weight", {}, [f32(3, 4), f32(3, 5)], 0.2),
    ("update_to_weight", {"ratio_gt": 0.2}, [f32(3, 4), f32(3, 5)], None),
    ("loss_spike", {}, [*[f32(2)] * 5, f32(7)], 3.5),
    ("loss_spike", {}, [*[f32(2)] * 5, f32(5)], None),
    ("loss_spike", {"after": 2, "window": 2}, [f32(9), f32(9), f32(1), f32(1), f32(4)], 4),
    ("loss_spike", {}, [*[f32(2)] * 5, f32(np.nan)], math.inf),
    ("loss_spike", {"after": 1}, [f32(-2), f32(4)], 4),
]


@pytest.mark.parametrize(("condition", "parameters", "steps", "expected"), CASES)
def test_condition_hits_with_what_was_measured(condition, parameters, steps, expected, tmp_path):
    """A condition hits where its limit is passed, with the measured value, and nowhere else."""
    watch = RuleWatch(rules_of(tmp_path, {"condition": condition, "role": "any", **parameters}))

    found = findings(watch, *steps)

    assert ([] if expected is None else [pytest.approx(expected, rel=1e-2)]) == [
        hit.measured for hit in found
    ]
    assert all(isinstance(hit, Hit) for hit in found)


@pytest.mark.parametrize(("condition", "parameters", "steps", "expected"), CASES)
def test_statistics_alone_never_tell_otherwise(condition, parameters, steps, expected, tmp_path):
    """Without elements a rule finds the same, or says that it cannot be decided."""
    watch = RuleWatch(rules_of(tmp_path, {"condition": condition, "role": "any", **parameters}))

    found = findings(watch, *steps, need=ALL, has_elements=False)

    hits = [each for each in found if isinstance(each, Hit)]
    assert (expected is not None) >= bool(hits)
    assert bool(hits) == (expected is not None) or any(isinstance(each, Undecided) for each in found)


@pytest.mark.parametrize(("values", "expected"), [((1, np.inf), ["at least 1 (> 0)"]), ((1, 2), [])])
def test_extremes_show_infinities(values, expected, tmp_path):
    """Without counts the extremes show that there are NaN or infinities: their number is a lower bound."""
    watch = RuleWatch(rules_of(tmp_path, {"condition": "tensor_overflow"}))

    found = findings(watch, f32(*values), need=StatisticNeed(extremes=True), has_elements=False)

    assert expected == [str(hit).partition(" is ")[2] for hit in found]


def test_state_is_bounded(tmp_path):
    """However many steps pass, the tensor of the last one and a window of values are kept."""
    rules = rules_of(
        tmp_path,
        {"condition": "weight_not_changed", "role": "any"},
        {"condition": "loss_spike", "role": "any", "window": 7},
    )
    kept = []
    watch = RuleWatch(rules, lambda elements: kept.append(elements) or elements)
    findings(watch, *[f32(number) for number in range(100)])

    assert 100 == len(kept)
    assert (1, [7]) == (len(watch._before), [len(trail) for trail in watch._trails.values()])


def test_tensor_of_another_shape_is_undecided(tmp_path):
    """A tensor of another shape than in the step before is undecided, with both shapes."""
    watch = RuleWatch(rules_of(tmp_path, {"condition": "update_to_weight", "role": "any"}))

    (undecided,) = findings(watch, f32(1, 2), f32(1, 2, 3))

    assert undecided.reason == "its shape was (2) in the step before and is (3)"


def test_what_a_rule_cannot_decide_says_what_it_needs(tmp_path):
    """Without elements a rule names the statistics that would do."""
    watch = RuleWatch(rules_of(tmp_path, {"condition": "tensor_all_zero", "zero_percentage_ge": 30}))

    (undecided,) = findings(watch, f32(-1, 0, 1), need=StatisticNeed(extremes=True), has_elements=False)

    assert (
        "the share of zeros in percent needs the elements, or the statistics zero count and count"
        == undecided.reason
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"role": "gradient"}, [1, 2]),
        ({"role": "weight"}, [0]),
        ({"role": "activation"}, [3]),
        ({"role": "loss"}, [4]),
        ({"operators": ["Default/net/fc-Dense/ReLU-op0"]}, [3]),
        ({"operators": ["name-regex(Default.*)"]}, [0, 1, 3, 4]),
        ({"operators": ["momentum"]}, [0, 1]),
        ({"types": ["matmul"]}, [2]),
        ({"scope": "net.fc"}, [2, 3]),
        ({"scope": "net/fc-Dense", "io": "input"}, []),
        ({"slot": 3}, [1]),
    ],
)
def test_keys_select_tensors(keys, expected, tmp_path):
    """A rule looks at the tensors that all of its keys select."""
    tensors = [
        subject("ApplyMomentum", "Default/ApplyMomentum-op0", IO.INPUT, 0),
        subject("ApplyMomentum", "Default/ApplyMomentum-op0", IO.INPUT, 3),
        subject("MatMul", "Gradients/Default/net/fc-Dense/MatMul-op1", IO.OUTPUT, 0),
        subject("ReLU", "Default/net/fc-Dense/ReLU-op0", IO.OUTPUT, 0),
        subject("NLLLoss", "Default/NLLLoss-op0", IO.OUTPUT, 0),
    ]
    (rule,) = rules_of(tmp_path, {"condition": "tensor_overflow", **keys})

    assert expected == [number for number, tensor in enumerate(tensors) if rule.target.takes(tensor)]


RANGE = {"range_start_inclusive": -2, "range_end_inclusive": 3}
CLEARED = [
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


def clears(rules, array):
    """Return whether the sum of squares of an array shows that no rule hits."""
    squares = measure(array, dtypes.from_numpy(array.dtype), StatisticNeed(squares=True)).squares
    (is_cleared,) = are_cleared(
        np.array([squares]), np.array([array.size]), np.array([cleared_squares(rules)])
    )
    return bool(is_cleared)


@pytest.mark.parametrize(("condition", "parameters", "expected"), CLEARED)
def test_small_numbers_are_cleared_of_limits_on_magnitudes(condition, parameters, expected, tmp_path):
    """A sum of squares clears small numbers of a rule that no small number can hit, and of no other."""
    rules = rules_of(tmp_path, {"condition": condition, "role": "any", **parameters})

    assert expected == clears(rules, f32(0.5, -0.25))


NUMBERS = st.one_of(
    st.floats(width=32),
    st.floats(-20, 20, width=32),
    st.sampled_from([0.0, -0.0, 1e-30, 8, 10, -10, 65504, 1e19, 3e38]),
)
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64]


@given(
    st.lists(NUMBERS, min_size=1, max_size=5), st.sampled_from([1, 7, 9000, 20001]), st.sampled_from(TYPES)
)
@settings(deadline=None)
def test_nothing_hits_a_cleared_tensor(tmp_path_factory, numbers, repeats, dtype):
    """No rule hits a cleared tensor when all elements are checked."""
    with np.errstate(all="ignore"):
        array = np.repeat(np.array(numbers, np.float64).astype(dtype), repeats)
    folder = tmp_path_factory.mktemp("rules")
    for condition, parameters, is_clearable in CLEARED:
        rules = rules_of(folder, {"condition": condition, "role": "any", **parameters})
        assert not (is_clearable and clears(rules, array)) or [] == findings(RuleWatch(rules), array)
