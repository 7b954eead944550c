"""Keeping the first elements of tensors."""

import logging

import ml_dtypes
import numpy as np
import pytest

from msdump.capture.steps import sample
from tests.capture.statistics.cases import record

CASES = {
    "more elements": (np.arange(27).reshape(1, 3, 3, 3), 20, np.arange(20)),
    "as many elements": (np.arange(20).reshape(4, 5), 20, np.arange(20).reshape(4, 5)),
    "fewer elements": (np.arange(6).reshape(2, 3), 20, np.arange(6).reshape(2, 3)),
    "scalar": (np.array(5), 1, np.array(5)),
    "one of a vector": (np.arange(3), 1, np.arange(1)),
    "transposed": (np.arange(6).reshape(2, 3).T, 3, np.array([0, 3, 1])),
}


@pytest.mark.parametrize(("array", "count", "expected"), CASES.values(), ids=CASES)
def test_first_elements_are_kept(array, count, expected):
    """A larger tensor becomes a vector of its first elements, another stays whole."""
    kept = sample(count)(record(array))

    assert expected.shape == kept.array.shape
    assert np.array_equal(expected, kept.array)


def test_sample_is_a_view():
    """Keeping a few elements of a large tensor copies nothing."""
    array = np.arange(100)

    kept = sample(7)(record(array))

    assert np.shares_memory(array, kept.array)


@pytest.mark.parametrize(
    ("count", "shape", "expected"),
    [(3, (9,), (4,)), (4, (3, 3), (4,)), (1, (9,), (2,)), (3, (2, 2), (2, 2)), (3, (3, 1), (3, 1))],
    ids=["odd", "even", "one", "rounded to all", "not more than there are"],
)
def test_packed_types_keep_whole_bytes(count, shape, expected):
    """int4 shares bytes, so that an odd count becomes the next even one."""
    array = np.zeros(shape, ml_dtypes.int4)

    kept = sample(count)(record(array))

    assert expected == kept.array.shape


def test_rounding_is_told_once(caplog):
    """The rounded count is one warning for each type."""
    step = sample(3)
    tensor = record(np.zeros(9, ml_dtypes.int4))

    with caplog.at_level(logging.WARNING, "msdump"):
        step(tensor)
        step(tensor)

    assert ["sample_num 3: 2 elements of int4 share a byte; 4 are kept"] == caplog.messages
