"""Gradients of convolutions with many channels, whose weights' gradients are products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.differences import check, one_operator

_RNG = np.random.default_rng(31)
_CHANNELS = 16


def _conv(
    sizes: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], **attributes: Any
) -> tuple[Any, ...]:
    """Return a case: sizes of the image, shape of the weight behind its filters, shape of the result."""
    arrays = [
        _RNG.standard_normal(shape).astype(np.float32) for shape in ((y[0], _CHANNELS, *sizes), (y[1], *w))
    ]
    return ("Conv", arrays, attributes), y


CASES = {
    "1d_strides_leave_more_than_a_dilation": _conv((9,), (16, 2), (1, 1, 2), strides=[4], dilations=[3]),
    "2d": _conv((3, 4), (16, 2, 3), (2, 2, 2, 2)),
    "2d_pads": _conv((3, 3), (16, 3, 3), (1, 1, 3, 3), pads=[1, 1, 1, 1]),
    "2d_wide_asymmetric_pads": _conv((2, 2), (16, 2, 2), (1, 1, 5, 4), pads=[3, 1, 1, 2]),
    "2d_dilations": _conv((5, 4), (16, 2, 2), (1, 1, 3, 1), dilations=[2, 3]),
    "2d_strides_leave_rows": _conv((4, 5), (16, 2, 2), (1, 1, 2, 2), strides=[2, 3]),
    "2d_strides_dilations_pads": _conv(
        (4, 4), (16, 2, 2), (1, 1, 2, 2), strides=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 1]
    ),
    "2d_one_by_one": _conv((2, 2), (16, 1, 1), (2, 3, 2, 2)),
    "2d_one_by_one_strides_pads": _conv((3, 2), (16, 1, 1), (1, 2, 2, 2), strides=[3, 2], pads=[1, 1, 0, 0]),
    "2d_groups": _conv((3, 3), (8, 2, 2), (1, 2, 2, 2), group=2),
    "3d": _conv((2, 2, 3), (16, 1, 2, 2), (1, 1, 2, 1, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of a convolution agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)
