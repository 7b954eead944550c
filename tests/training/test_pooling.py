"""Gradients of pooling against numerical differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.differences import check, one_operator

_RNG = np.random.default_rng(23)


def _pool(op_type: str, x: tuple[int, ...], y: tuple[int, ...], **attributes: Any) -> tuple[Any, ...]:
    """Return a case: shapes of input and result. The elements are far apart from each other."""
    elements = (_RNG.permutation(int(np.prod(x))).reshape(x) / 7 - 3.04).astype(np.float32)
    return (op_type, [elements], attributes), y


CASES = {
    "max_1d": _pool("MaxPool", (2, 2, 7), (2, 2, 3), kernel_shape=[3], strides=[2]),
    "max_2d": _pool("MaxPool", (2, 3, 4, 4), (2, 3, 2, 2), kernel_shape=[2, 2], strides=[2, 2]),
    "max_2d_overlapping": _pool("MaxPool", (1, 2, 5, 5), (1, 2, 3, 3), kernel_shape=[3, 3]),
    "max_2d_pads": _pool(
        "MaxPool", (1, 2, 5, 6), (1, 2, 3, 4), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "max_2d_ceil": _pool(
        "MaxPool", (1, 2, 6, 6), (1, 2, 3, 3), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "max_2d_dilations": _pool("MaxPool", (1, 2, 6, 6), (1, 2, 4, 2), kernel_shape=[2, 3], dilations=[2, 2]),
    "max_2d_same_lower": _pool(
        "MaxPool", (1, 2, 5, 5), (1, 2, 3, 3), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "max_3d": _pool("MaxPool", (1, 2, 4, 4, 5), (1, 2, 2, 3, 2), kernel_shape=[2, 2, 3], strides=[2, 1, 2]),
    "average_1d": _pool("AveragePool", (2, 2, 7), (2, 2, 3), kernel_shape=[3], strides=[2]),
    "average_1d_pads": _pool("AveragePool", (2, 2, 7), (2, 2, 4), kernel_shape=[3], strides=[2], pads=[2, 1]),
    "average_2d": _pool("AveragePool", (2, 3, 4, 4), (2, 3, 2, 2), kernel_shape=[2, 2], strides=[2, 2]),
    "average_2d_overlapping": _pool("AveragePool", (1, 2, 5, 5), (1, 2, 3, 4), kernel_shape=[3, 2]),
    "average_2d_leaves_rows": _pool(
        "AveragePool", (1, 2, 6, 7), (1, 2, 2, 2), kernel_shape=[2, 3], strides=[3, 4]
    ),
    "average_2d_pads": _pool(
        "AveragePool", (1, 2, 5, 6), (1, 2, 3, 4), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "average_2d_include_pad": _pool(
        "AveragePool",
        (1, 2, 5, 6),
        (1, 2, 3, 4),
        kernel_shape=[3, 2],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    "average_2d_ceil": _pool(
        "AveragePool", (1, 2, 6, 6), (1, 2, 3, 3), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
    ),
    "average_2d_ceil_include_pad": _pool(
        "AveragePool",
        (1, 2, 6, 6),
        (1, 2, 4, 4),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    ),
    "average_2d_dilations": _pool(
        "AveragePool", (1, 2, 6, 6), (1, 2, 4, 2), kernel_shape=[2, 3], dilations=[2, 2]
    ),
    "average_2d_same_upper": _pool(
        "AveragePool", (1, 2, 5, 5), (1, 2, 3, 3), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"
    ),
    "average_3d": _pool(
        "AveragePool", (1, 2, 4, 4, 5), (1, 2, 2, 3, 2), kernel_shape=[2, 2, 3], strides=[2, 1, 2]
    ),
    "average_3d_pads": _pool(
        "AveragePool",
        (1, 1, 3, 3, 4),
        (1, 1, 3, 3, 5),
        kernel_shape=[3, 3, 3],
        pads=[1, 1, 1, 1, 1, 2],
        strides=[1, 1, 1],
    ),
    "global_average_1d": _pool("GlobalAveragePool", (2, 3, 5), (2, 3, 1)),
    "global_average_2d": _pool("GlobalAveragePool", (2, 3, 4, 5), (2, 3, 1, 1)),
    "global_average_3d": _pool("GlobalAveragePool", (2, 2, 2, 3, 4), (2, 2, 1, 1, 1)),
    "global_max_1d": _pool("GlobalMaxPool", (2, 3, 5), (2, 3, 1)),
    "global_max_2d": _pool("GlobalMaxPool", (2, 3, 4, 5), (2, 3, 1, 1)),
    "global_max_3d": _pool("GlobalMaxPool", (2, 2, 2, 3, 4), (2, 2, 1, 1, 1)),
    "lp_1d": _pool("LpPool", (2, 2, 7), (2, 2, 3), kernel_shape=[3], strides=[2]),
    "lp_2d_cubes": _pool(
        "LpPool", (1, 2, 5, 6), (1, 2, 3, 4), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1], p=3
    ),
    "lp_2d_magnitudes": _pool("LpPool", (1, 2, 4, 4), (1, 2, 3, 3), kernel_shape=[2, 2], p=1),
    "global_lp": _pool("GlobalLpPool", (2, 3, 4, 5), (2, 3, 1, 1)),
    "global_lp_cubes": _pool("GlobalLpPool", (2, 3, 4, 5), (2, 3, 1, 1), p=3),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape, step=1 / 32, tolerance=2e-4)
