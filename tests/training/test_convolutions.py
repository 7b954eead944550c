"""Gradients of convolutions against numerical differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.differences import check, one_operator

_RNG = np.random.default_rng(17)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _conv(
    x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], *, bias: bool = False, **attributes: Any
) -> tuple[Any, ...]:
    """Return a case: shapes of input, weight and result."""
    arrays = [_normal(*x), _normal(*w), *([_normal(w[0])] if bias else [])]
    return ("Conv", arrays, attributes), y


def _transposed(
    x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], *, bias: bool = False, **attributes: Any
) -> tuple[Any, ...]:
    """Return a case of ConvTranspose: shapes of input, weight and result."""
    arrays = [_normal(*x), _normal(*w), *([_normal(y[1])] if bias else [])]
    return ("ConvTranspose", arrays, attributes), y


CASES = {
    "1d": _conv((2, 3, 7), (4, 3, 3), (2, 4, 5), bias=True),
    "1d_strides_pads": _conv((2, 2, 8), (3, 2, 3), (2, 3, 4), strides=[2], pads=[1, 0]),
    "1d_dilated_groups": _conv((1, 4, 9), (6, 2, 3), (1, 6, 5), dilations=[2], group=2, bias=True),
    "1d_same_upper": _conv((1, 2, 8), (3, 2, 4), (1, 3, 3), strides=[3], auto_pad="SAME_UPPER"),
    "2d": _conv((2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3), bias=True),
    "2d_one_by_one": _conv((2, 3, 4, 4), (5, 3, 1, 1), (2, 5, 4, 4), bias=True),
    "2d_one_by_one_strides": _conv((1, 3, 5, 6), (2, 3, 1, 1), (1, 2, 3, 2), strides=[2, 3]),
    "2d_rectangular": _conv((1, 2, 5, 6), (3, 2, 2, 3), (1, 3, 5, 3), strides=[1, 2], pads=[1, 0, 0, 1]),
    "2d_strides_leave_rows": _conv((1, 2, 6, 7), (3, 2, 3, 3), (1, 3, 2, 2), strides=[2, 3]),
    "2d_strides_beyond_window": _conv((1, 1, 8, 8), (2, 1, 2, 2), (1, 2, 2, 2), strides=[4, 5]),
    "2d_asymmetric_pads": _conv((1, 2, 4, 5), (2, 2, 3, 3), (1, 2, 5, 6), pads=[2, 0, 1, 3]),
    "2d_wide_pads": _conv((1, 1, 3, 3), (1, 1, 2, 2), (1, 1, 8, 8), pads=[3, 3, 3, 3]),
    "2d_dilations": _conv((1, 2, 7, 8), (2, 2, 3, 2), (1, 2, 5, 8), dilations=[2, 3], pads=[1, 2, 1, 1]),
    "2d_dilations_strides": _conv((1, 2, 9, 9), (2, 2, 3, 3), (1, 2, 3, 3), dilations=[2, 2], strides=[2, 2]),
    "2d_groups": _conv((2, 4, 4, 4), (6, 2, 3, 3), (2, 6, 4, 4), group=2, pads=[1, 1, 1, 1], bias=True),
    "2d_depthwise": _conv((2, 3, 4, 4), (3, 1, 3, 3), (2, 3, 4, 4), group=3, pads=[1, 1, 1, 1]),
    "2d_depthwise_multiplier": _conv(
        (1, 2, 5, 5), (4, 1, 3, 3), (1, 4, 3, 3), group=2, strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "2d_same_upper": _conv((1, 2, 5, 6), (2, 2, 3, 3), (1, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    "2d_same_lower": _conv(
        (1, 2, 5, 6), (2, 2, 2, 3), (1, 2, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER", bias=True
    ),
    "2d_valid": _conv((1, 2, 5, 6), (2, 2, 3, 3), (1, 2, 2, 2), strides=[2, 2], auto_pad="VALID"),
    "2d_whole_image": _conv((2, 2, 3, 3), (3, 2, 3, 3), (2, 3, 1, 1), kernel_shape=[3, 3]),
    "3d": _conv((1, 2, 3, 4, 4), (2, 2, 2, 3, 2), (1, 2, 2, 2, 3), bias=True),
    "3d_strides_pads_groups": _conv(
        (1, 2, 4, 4, 3),
        (2, 1, 2, 2, 3),
        (1, 2, 2, 3, 2),
        strides=[2, 2, 1],
        pads=[0, 1, 0, 0, 1, 1],
        group=2,
    ),
    "3d_dilations": _conv((1, 1, 4, 3, 5), (1, 1, 2, 2, 2), (1, 1, 2, 2, 2), dilations=[2, 1, 3]),
}

TRANSPOSED = {
    "1d": _transposed((2, 3, 4), (3, 2, 3), (2, 2, 6), bias=True),
    "1d_strides_groups": _transposed((1, 4, 3), (4, 1, 3), (1, 2, 6), strides=[2], pads=[1, 0], group=2),
    "1d_same_upper": _transposed((1, 1, 3), (1, 2, 4), (1, 2, 6), strides=[2], auto_pad="SAME_UPPER"),
    "2d": _transposed((2, 3, 3, 3), (3, 2, 3, 3), (2, 2, 5, 5), bias=True),
    "2d_strides_pads": _transposed(
        (1, 2, 3, 4), (2, 3, 3, 2), (1, 3, 4, 9), strides=[2, 3], pads=[2, 1, 1, 1], bias=True
    ),
    "2d_output_padding": _transposed(
        (1, 2, 3, 3), (2, 2, 3, 3), (1, 2, 8, 9), strides=[2, 3], output_padding=[1, 2], pads=[0, 1, 0, 1]
    ),
    "2d_dilations": _transposed((1, 2, 3, 3), (2, 2, 2, 3), (1, 2, 5, 9), dilations=[2, 3]),
    "2d_groups": _transposed((1, 4, 3, 3), (4, 3, 2, 2), (1, 6, 6, 6), group=2, strides=[2, 2], bias=True),
    "2d_depthwise": _transposed((2, 3, 3, 3), (3, 1, 2, 2), (2, 3, 4, 4), group=3),
    "2d_output_shape": _transposed(
        (1, 2, 3, 3), (2, 2, 3, 3), (1, 2, 6, 5), strides=[2, 2], output_shape=[6, 5]
    ),
    "2d_output_shape_upper": _transposed(
        (1, 2, 3, 3), (2, 2, 3, 3), (1, 2, 6, 6), strides=[2, 2], output_shape=[6, 6], auto_pad="SAME_UPPER"
    ),
    "2d_same_lower": _transposed(
        (1, 2, 3, 4), (2, 1, 3, 3), (1, 1, 6, 8), strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "2d_valid": _transposed((1, 2, 2, 2), (2, 1, 3, 3), (1, 1, 5, 5), strides=[2, 2], auto_pad="VALID"),
    "3d": _transposed((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), (1, 2, 3, 4, 3), bias=True),
    "3d_strides_output_padding": _transposed(
        (1, 2, 2, 2, 2),
        (2, 1, 2, 2, 3),
        (1, 2, 4, 5, 3),
        strides=[2, 3, 2],
        output_padding=[1, 0, 0],
        pads=[1, 0, 1, 0, 0, 1],
        group=2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of a convolution agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape, step=0.5)


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_gradients(case):
    """Every gradient of a transposed convolution agrees with numerical differences."""
    arguments, shape = TRANSPOSED[case]

    check(one_operator(*arguments), shape, step=0.5)
