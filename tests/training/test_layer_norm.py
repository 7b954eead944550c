"""Gradients of LayerNormalization and its kin against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import WEIGHTED, check, normals, one_operator, outputs_of

_RNG = np.random.default_rng(5)


_normal = normals(_RNG)


def _layer_norm(*arrays, outputs=1, **attributes):
    return ("LayerNormalization", arrays, attributes, outputs)


def _skip(op_type, *arrays, epsilon=1e-5):
    return (op_type, arrays, {"epsilon": epsilon}, 1, 20, "com.microsoft")


X = _normal(2, 3, 4)

CASES = {
    "last_axis": _layer_norm(X, _normal(4), _normal(4)),
    "matrix": _layer_norm(_normal(3, 5), _normal(5), _normal(5), epsilon=0.1),
    "without_shift": _layer_norm(X, _normal(4)),
    "two_axes": _layer_norm(X, _normal(3, 4), _normal(3, 4), axis=1),
    "negative_axes": _layer_norm(X, _normal(3, 4), _normal(3, 4), axis=-2),
    "all_axes": _layer_norm(X, _normal(2, 3, 4), _normal(2, 3, 4), axis=0),
    "broadcast_scale": _layer_norm(X, _normal(3, 1), _normal(4), axis=1),
    "broadcast_scale_without_shift": _layer_norm(X, _normal(1), axis=1),
    "scale_of_a_sample": _layer_norm(X, _normal(2, 1, 4), _normal(4)),
    "with_statistics": _layer_norm(X, _normal(4), _normal(4), outputs=3),
}

IMAGES = _normal(2, 4, 3, 3)

OTHERS = {
    "instance_1d": ("InstanceNormalization", [_normal(2, 3, 5), _normal(3), _normal(3)], {}),
    "instance": ("InstanceNormalization", [IMAGES, _normal(4), _normal(4)], {"epsilon": 0.1}),
    "rms": ("RMSNormalization", [X, _normal(4)], {}, 1, 23),
    "rms_axes": ("RMSNormalization", [X, _normal(3, 4)], {"axis": 1, "epsilon": 0.1}, 1, 23),
    "rms_broadcast": ("RMSNormalization", [X, _normal(3, 1)], {"axis": -2}, 1, 23),
    "l2": ("LpNormalization", [X], {"axis": 1}),
}

BY_RUNTIME = {
    "group": ("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21),
    "group_of_each_channel": (
        "GroupNormalization",
        [IMAGES, _normal(4), _normal(4)],
        {"num_groups": 4, "epsilon": 0.1},
        1,
        21,
    ),
    "group_by_group": ("GroupNormalization", [IMAGES, _normal(2), _normal(2)], {"num_groups": 2}, 1, 18),
    "group_of_all": (
        "GroupNormalization",
        [_normal(3, 2, 5), _normal(2), _normal(2)],
        {"num_groups": 1},
        1,
        21,
    ),
    "mean_variance": ("MeanVarianceNormalization", [IMAGES], {}),
    "mean_variance_axes": ("MeanVarianceNormalization", [X], {"axes": [1]}),
    "lrn": ("LRN", [IMAGES], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
    "lrn_wide": ("LRN", [_normal(1, 6, 2, 2)], {"size": 5, "alpha": 2.0}),
    "l1": ("LpNormalization", [X], {"p": 1}),
    "skip": _skip("SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4)),
    "skip_bias": _skip(
        "SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4), _normal(4), epsilon=0.1
    ),
    "skip_simplified": _skip("SkipSimplifiedLayerNormalization", X, _normal(*X.shape), _normal(4)),
    "skip_simplified_bias": _skip(
        "SkipSimplifiedLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4)
    ),
    "simplified": ("SimplifiedLayerNormalization", [X, _normal(4)], {"axis": -1}),
}


def test_slots():
    """LayerNorm gives mean and variance, and its gradient reads them in MindSpore's order."""
    model = one_operator(*_layer_norm(X, _normal(4), _normal(4)))

    step = step_graph(model, WEIGHTED)

    forward, backward = (
        next(node for node in step.graph.node if node.op_type == kind)
        for kind in ("LayerNorm", "LayerNormGrad")
    )
    x, gamma, *_ = forward.input
    _, mean, variance = forward.output
    assert [x, variance, mean, gamma] == [backward.input[0], *backward.input[2:5]]
    assert [x, gamma, forward.input[2]] == ["p0", "p1", "p2"]
    values = outputs_of(step, [mean, variance], {"inputs0": np.ones_like(X)})
    np.testing.assert_allclose(X.mean(-1, keepdims=True), values[0], atol=1e-6)
    np.testing.assert_allclose(X.var(-1, keepdims=True), values[1], rtol=1e-5)


def test_types_behind_functions():
    """Operators behind one whose type ONNX does not infer are trained as well."""
    model = one_operator("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21)
    model.graph.node[0].output[0] = "normal"
    model.graph.node.append(helper.make_node("Mul", ["normal", "normal"], ["square"], name="square"))
    model.graph.node.append(helper.make_node("Relu", ["square"], ["y0"], name="relu"))

    check(model, step=1 / 128, tolerance=1e-3)


def test_sum_of_a_skip_connection():
    """The sum that a skip normalisation hands on has a gradient, mean and variance have no type."""
    arguments = _skip("SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4))
    model = one_operator(*arguments[:3], 4, *arguments[4:])

    with pytest.raises(GraphError, match=r"SkipLayerNormalization writes is of unknown type"):
        step_graph(model, WEIGHTED)

    model.graph.node[0].output[:] = ["normal", "", "", "total"]
    model.graph.node.append(helper.make_node("Mul", ["normal", "total"], ["y0"], name="product"))
    check(model, step=1 / 128, tolerance=1e-3)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_operator_without_a_schema_stays_in_float32(precision):
    """Operators of onnxruntime in ONNX's domain, which no schema describes, are float32 amid half types."""
    text = "g (float[2, 4] x) => (float[2, 4] y) { y = SimplifiedLayerNormalization<axis = -1>(x, w) }"
    step = step_graph(parsed(text, w=np.ones(4, np.float32)), "mse", precision=precision)
    feeds = {"inputs0": _normal(2, 4), "inputs1": np.zeros((2, 4), np.float32)}

    (loss,) = outputs_of(
        step, [step.graph.output[0].name], feeds | {"learning_rate": np.array(0.1, np.float32)}
    )

    assert pytest.approx(1, rel=1e-3) == loss  # the mean of the squares of what was divided by their root
