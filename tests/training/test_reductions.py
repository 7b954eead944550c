"""Gradients of reductions against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.differences import analytic, check, ints, one_operator

_RNG = np.random.default_rng(13)
_X = _RNG.uniform(0.5, 2.0, (2, 3, 4)).astype(np.float32)
_SIGNED = _RNG.standard_normal((2, 3, 4)).astype(np.float32)


_TYPES = [
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
]
_FORMS = {
    "all": ([], {}),
    "all_dropped": ([], {"keepdims": 0}),
    "one": ([ints(1)], {}),
    "one_dropped": ([ints(1)], {"keepdims": 0}),
    "negative": ([ints(-1, 0)], {"keepdims": 0}),
    "every": ([ints(0, 1, 2)], {"keepdims": 0}),
    "empty": ([ints()], {"keepdims": 0}),
    "nothing": ([ints()], {"noop_with_empty_axes": 1}),
}

CASES = {
    **{
        f"{op_type}_{form}": (op_type, [_X, *axes], attributes)
        for op_type in _TYPES
        for form, (axes, attributes) in _FORMS.items()
    },
    **{
        f"{op_type}_of_signed": (op_type, [_SIGNED, ints(1)], {})
        for op_type in _TYPES
        if op_type != "ReduceLogSum"
    },
    "ReduceMean_attribute": ("ReduceMean", [_X], {"axes": [0, -1]}, 1, 13),
    "ReduceMax_attribute": ("ReduceMax", [_X], {"axes": [1], "keepdims": 0}, 1, 13),
    "ReduceLogSumExp_attribute": ("ReduceLogSumExp", [_X], {"axes": [2]}, 1, 13),
    "ReduceMax_tied": ("ReduceMax", [np.array([[1, 3, 2], [0, 5, 4]], np.float32), ints(1)], {}),
}


@settings(max_examples=25)
@given(
    st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceLogSumExp"]),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.data(),
    st.booleans(),
)
def test_any_axes_of_any_shape(op_type, shape, data, keep):
    """Whatever axes of whatever shape are reduced, the gradient is right."""
    rank = len(shape)
    chosen = data.draw(st.lists(st.integers(0, rank - 1), unique=True))
    axes = [axis - rank if data.draw(st.booleans()) else axis for axis in chosen]
    x = np.random.default_rng(sum(shape)).uniform(0.5, 2.0, shape).astype(np.float32)

    check(one_operator(op_type, [x, ints(*axes)], {"keepdims": int(keep)}))


def test_equal_largest_elements_share_the_gradient():
    """Where several elements are the largest, each has its share."""
    model = one_operator("ReduceMax", [np.array([1, 3, 3, 2], np.float32), ints(0)], {})

    assert [0.0, 0.5, 0.5, 0.0] == analytic(model, np.ones(1, np.float32))["p0"].tolist()


@pytest.mark.parametrize(("values", "expected"), [((2, 0, 3), (0, 6, 0)), ((0, 0, 3), (0, 0, 0))])
def test_product_with_zeros_has_a_gradient(values, expected):
    """The gradient of a product is the product of the other factors, zeros among them too."""
    model = one_operator("ReduceProd", [np.array(values, np.float32), ints(0)], {})

    assert expected == tuple(analytic(model, np.ones(1, np.float32))["p0"])
