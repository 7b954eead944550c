"""Gradients of layers next to PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.differences import analytic, normals, one_operator

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.nn.functional")

_RNG = np.random.default_rng(41)


_normal = normals(_RNG)


def _positive(count):
    return _RNG.uniform(0.5, 1.5, count).astype(np.float32)


X = _normal(2, 4, 9, 8)
ROW = _normal(2, 4, 17)
VOLUME = _normal(2, 4, 5, 6, 7)
MOVING = [_normal(4), _positive(4)]

CASES = {
    "convolution": (
        ("Conv", [X, _normal(6, 2, 3, 3), _normal(6)], {"strides": [2, 1], "pads": [1, 2, 1, 2], "group": 2}),
        lambda x, w, b: functional.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), groups=2),
    ),
    "dilated_convolution": (
        ("Conv", [X, _normal(20, 4, 3, 2)], {"dilations": [2, 3]}),
        lambda x, w: functional.conv2d(x, w, dilation=(2, 3)),
    ),
    "convolution_of_rows": (
        ("Conv", [ROW, _normal(5, 4, 3), _normal(5)], {"strides": [3], "pads": [1, 1]}),
        lambda x, w, b: functional.conv1d(x, w, b, stride=3, padding=1),
    ),
    "convolution_of_volumes": (
        ("Conv", [VOLUME, _normal(3, 4, 2, 3, 2), _normal(3)], {"strides": [1, 2, 2], "pads": [0, 1, 0] * 2}),
        lambda x, w, b: functional.conv3d(x, w, b, stride=(1, 2, 2), padding=(0, 1, 0)),
    ),
    "transposed_convolution": (
        (
            "ConvTranspose",
            [X, _normal(4, 3, 3, 3), _normal(6)],
            {"strides": [2, 3], "pads": [1, 1, 1, 1], "output_padding": [1, 2], "group": 2},
        ),
        lambda x, w, b: functional.conv_transpose2d(
            x, w, b, stride=(2, 3), padding=1, output_padding=(1, 2), groups=2
        ),
    ),
    "max_pool": (
        ("MaxPool", [X], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
        lambda x: functional.max_pool2d(x, (3, 2), 2, 1, ceil_mode=True),
    ),
    "max_pool_of_volumes": (
        ("MaxPool", [VOLUME], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
        lambda x: functional.max_pool3d(x, (2, 3, 2), (2, 1, 2)),
    ),
    "average_pool": (
        (
            "AveragePool",
            [X],
            {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        ),
        lambda x: functional.avg_pool2d(x, (3, 2), (2, 1), 1),
    ),
    "average_pool_of_what_is_there": (
        ("AveragePool", [X], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ),
    "average_pool_of_volumes": (
        ("AveragePool", [VOLUME], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
        lambda x: functional.avg_pool3d(x, (2, 3, 2), (2, 1, 2)),
    ),
    "global_average_pool": (("GlobalAveragePool", [X], {}), lambda x: functional.adaptive_avg_pool2d(x, 1)),
    "batch_norm": (
        ("BatchNormalization", [X, _normal(4), _normal(4), *MOVING], {}),
        lambda x, gamma, beta, *_: functional.batch_norm(x, None, None, gamma, beta, training=True),
    ),
    "layer_norm": (
        ("LayerNormalization", [X, _normal(9, 8), _normal(9, 8)], {"axis": 2}),
        lambda x, gamma, beta: functional.layer_norm(x, (9, 8), gamma, beta),
    ),
    "rms_norm": (
        ("RMSNormalization", [X, _normal(8)], {"epsilon": 1e-5}, 1, 23),
        lambda x, gamma: functional.rms_norm(x, (8,), gamma, eps=1e-5),
    ),
    "group_norm": (
        ("GroupNormalization", [X, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21),
        lambda x, gamma, beta: functional.group_norm(x, 2, gamma, beta),
    ),
    "instance_norm": (
        ("InstanceNormalization", [X, _normal(4), _normal(4)], {}),
        lambda x, gamma, beta: functional.instance_norm(x, weight=gamma, bias=beta),
    ),
    "local_response_norm": (
        ("LRN", [X], {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
        lambda x: functional.local_response_norm(x, 3, 0.3, 0.6, 1.5),
    ),
    "bilinear": (
        ("Resize", [X, None, None, np.array([2, 4, 13, 20])], {"mode": "linear"}),
        lambda x: functional.interpolate(x, (13, 20), mode="bilinear"),
    ),
    "bicubic_corners": (
        (
            "Resize",
            [X, None, None, np.array([2, 4, 13, 20])],
            {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        ),
        lambda x: functional.interpolate(x, (13, 20), mode="bicubic", align_corners=True),
    ),
    "causal_attention": (
        (
            "Attention",
            [_normal(2, 4, 6, 8), _normal(2, 2, 6, 8), _normal(2, 2, 6, 8)],
            {"is_causal": 1},
            1,
            23,
        ),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of a layer is PyTorch's, and so is what it is the gradient of."""
    arguments, layer = CASES[case]
    tensors = [
        torch.tensor(array, requires_grad=array.dtype == np.float32)
        for array in arguments[1]
        if array is not None and array.dtype == np.float32
    ]
    result = layer(*tensors)
    weights = _normal(*result.shape)
    result.backward(torch.tensor(weights))

    gradients = analytic(one_operator(*arguments), weights)

    assert gradients
    for name, gradient in gradients.items():
        expected = tensors[int(name[1:])].grad.numpy()
        np.testing.assert_allclose(expected, gradient, atol=1e-5 * np.abs(expected).max(), err_msg=name)
