"""Cases of convolutions and pooling, and the names of their gradients."""

import numpy as np
import pytest

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, normals, one_operator

_RNG = np.random.default_rng(17)


_normal = normals(_RNG)


def _conv(x, w, *, bias=False, **attributes):
    """Return a case: shapes of input and weight."""
    return "Conv", [_normal(*x), _normal(*w), *([_normal(w[0])] if bias else [])], attributes


def _transposed(x, w, *, bias=False, **attributes):
    """Return a case of ConvTranspose: shapes of input and weight."""
    channels = w[1] * attributes.get("group", 1)
    return "ConvTranspose", [_normal(*x), _normal(*w), *([_normal(channels)] if bias else [])], attributes


def _pool(op_type, x, **attributes):
    """Return a case of an input's shape; its elements are far apart from each other."""
    elements = (_RNG.permutation(int(np.prod(x))).reshape(x) / 7 - 3.04).astype(np.float32)
    return op_type, [elements], attributes


CASES = {
    "1d_strides_pads": _conv((2, 2, 8), (3, 2, 3), strides=[2], pads=[1, 0]),
    "1d_dilated_groups": _conv((1, 4, 9), (6, 2, 3), dilations=[2], group=2, bias=True),
    "1d_same_upper": _conv((1, 2, 8), (3, 2, 4), strides=[3], auto_pad="SAME_UPPER"),
    "2d": _conv((2, 3, 5, 5), (4, 3, 3, 3), bias=True),
    "2d_one_by_one": _conv((2, 3, 4, 4), (5, 3, 1, 1), bias=True),
    "2d_one_by_one_strides": _conv((1, 3, 5, 6), (2, 3, 1, 1), strides=[2, 3]),
    "2d_strides_leave_rows": _conv((1, 2, 6, 7), (3, 2, 3, 3), strides=[2, 3]),
    "2d_asymmetric_pads": _conv((1, 2, 4, 5), (2, 2, 3, 3), pads=[2, 0, 1, 3]),
    "2d_dilations_strides": _conv((1, 2, 9, 9), (2, 2, 3, 3), dilations=[2, 2], strides=[2, 2]),
    "2d_groups": _conv((2, 4, 4, 4), (6, 2, 3, 3), group=2, pads=[1, 1, 1, 1], bias=True),
    "2d_depthwise": _conv((2, 3, 4, 4), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]),
    "2d_depthwise_multiplier": _conv((1, 2, 5, 5), (4, 1, 3, 3), group=2, strides=[2, 2], pads=[1, 1, 1, 1]),
    "2d_same_upper": _conv((1, 2, 5, 6), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    "2d_same_lower": _conv((1, 2, 5, 6), (2, 2, 2, 3), strides=[2, 2], auto_pad="SAME_LOWER", bias=True),
    "2d_valid": _conv((1, 2, 5, 6), (2, 2, 3, 3), strides=[2, 2], auto_pad="VALID"),
    "3d": _conv((1, 2, 3, 4, 4), (2, 2, 2, 3, 2), bias=True),
    "3d_strides_pads_groups": _conv(
        (1, 2, 4, 4, 3), (2, 1, 2, 2, 3), strides=[2, 2, 1], pads=[0, 1, 0, 0, 1, 1], group=2
    ),
}

TRANSPOSED = {
    "1d_same_upper": _transposed((1, 1, 3), (1, 2, 4), strides=[2], auto_pad="SAME_UPPER"),
    "2d_strides_pads": _transposed((1, 2, 3, 4), (2, 3, 3, 2), strides=[2, 3], pads=[2, 1, 1, 1], bias=True),
    "2d_groups": _transposed((1, 4, 3, 3), (4, 3, 2, 2), group=2, strides=[2, 2], bias=True),
    "2d_output_shape": _transposed((1, 2, 3, 3), (2, 2, 3, 3), strides=[2, 2], output_shape=[6, 5]),
    "3d": _transposed((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), bias=True),
    "3d_strides_output_padding": _transposed(
        (1, 2, 2, 2, 2),
        (2, 1, 2, 2, 3),
        strides=[2, 3, 2],
        output_padding=[1, 0, 0],
        pads=[1, 0, 1, 0, 0, 1],
        group=2,
    ),
}

WIDE = {
    "1d_strides_leave_more_than_a_dilation": _conv((1, 16, 9), (1, 16, 2), strides=[4], dilations=[3]),
    "2d": _conv((2, 16, 3, 4), (2, 16, 2, 3)),
    "2d_wide_asymmetric_pads": _conv((1, 16, 2, 2), (1, 16, 2, 2), pads=[3, 1, 1, 2]),
    "2d_strides_dilations_pads": _conv(
        (1, 16, 4, 4), (1, 16, 2, 2), strides=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 1]
    ),
    "2d_one_by_one_strides_pads": _conv((1, 16, 3, 2), (2, 16, 1, 1), strides=[3, 2], pads=[1, 1, 0, 0]),
    "2d_groups": _conv((1, 16, 3, 3), (2, 8, 2, 2), group=2),
}
"""With many channels the gradient of the weight is a product of matrices."""


POOLING = {
    "max_1d": _pool("MaxPool", (2, 2, 7), kernel_shape=[3], strides=[2]),
    "max_2d_ceil": _pool("MaxPool", (1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "max_2d_dilations": _pool("MaxPool", (1, 2, 6, 5), kernel_shape=[2, 3], dilations=[3, 2]),
    "average_2d_leaves_rows": _pool("AveragePool", (1, 2, 6, 7), kernel_shape=[2, 3], strides=[3, 4]),
    "average_2d_pads": _pool(
        "AveragePool", (1, 2, 5, 6), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    ),
    "average_2d_include_pad": _pool(
        "AveragePool",
        (1, 2, 5, 6),
        kernel_shape=[3, 2],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
    ),
    "average_2d_ceil_include_pad": _pool(
        "AveragePool",
        (1, 2, 6, 6),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    ),
    "average_3d": _pool("AveragePool", (1, 2, 4, 4, 5), kernel_shape=[2, 2, 3], strides=[2, 1, 2]),
    "average_2d_dilations": _pool("AveragePool", (1, 2, 6, 5), kernel_shape=[2, 3], dilations=[3, 2]),
    "global_average_1d": _pool("GlobalAveragePool", (2, 3, 5)),
    "global_average_2d": _pool("GlobalAveragePool", (2, 3, 4, 5)),
    "global_max_1d": _pool("GlobalMaxPool", (2, 3, 5)),
    "global_max_2d": _pool("GlobalMaxPool", (2, 3, 4, 5)),
    "global_max_3d": _pool("GlobalMaxPool", (2, 2, 2, 3, 4)),
}

NAMES = {
    "1d_strides_pads": {"Conv1DBackpropInput", "Conv1DBackpropFilter"},
    "2d_groups": {"Conv2DBackpropInput", "Conv2DBackpropFilter"},
    "3d": {"Conv3DBackpropInput", "Conv3DBackpropFilter"},
}


@pytest.mark.parametrize("case", NAMES)
def test_names(case):
    """The gradients of a convolution are named after the number of its axes."""
    step = step_graph(one_operator(*CASES[case]), WEIGHTED)

    assert NAMES[case] == {node.op_type for node in step.graph.node if "Backprop" in node.op_type}
