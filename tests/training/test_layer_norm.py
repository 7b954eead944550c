"""Gradients of LayerNormalization and its kin against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from msdump.errors import GraphError
from msdump.training import step_graph
from tests.training.differences import WEIGHTED, check, one_operator, outputs_of

_RNG = np.random.default_rng(5)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _layer_norm(*arrays: np.ndarray, outputs: int = 1, **attributes: float) -> tuple[object, ...]:
    return ("LayerNormalization", arrays, attributes, outputs)


def _skip(op_type: str, *arrays: np.ndarray, epsilon: float = 1e-5) -> tuple[object, ...]:
    return (op_type, arrays, {"epsilon": epsilon}, 1, 20, "com.microsoft")


X = _normal(2, 3, 4)

CASES = {
    "last_axis": (_layer_norm(X, _normal(4), _normal(4)), X.shape),
    "matrix": (_layer_norm(_normal(3, 5), _normal(5), _normal(5), epsilon=0.1), (3, 5)),
    "without_shift": (_layer_norm(X, _normal(4)), X.shape),
    "two_axes": (_layer_norm(X, _normal(3, 4), _normal(3, 4), axis=1), X.shape),
    "negative_axes": (_layer_norm(X, _normal(3, 4), _normal(3, 4), axis=-2), X.shape),
    "all_axes": (_layer_norm(X, _normal(2, 3, 4), _normal(2, 3, 4), axis=0), X.shape),
    "broadcast_scale": (_layer_norm(X, _normal(3, 1), _normal(4), axis=1), X.shape),
    "broadcast_scale_without_shift": (_layer_norm(X, _normal(1), axis=1), X.shape),
    "scale_of_a_sample": (_layer_norm(X, _normal(2, 1, 4), _normal(4)), X.shape),
    "with_statistics": (_layer_norm(X, _normal(4), _normal(4), outputs=3), X.shape),
}

IMAGES = _normal(2, 4, 3, 3)

OTHERS = {
    "instance_1d": (("InstanceNormalization", [_normal(2, 3, 5), _normal(3), _normal(3)], {}), None),
    "instance": (("InstanceNormalization", [IMAGES, _normal(4), _normal(4)], {"epsilon": 0.1}), None),
    "rms": (("RMSNormalization", [X, _normal(4)], {}, 1, 23), None),
    "rms_axes": (("RMSNormalization", [X, _normal(3, 4)], {"axis": 1, "epsilon": 0.1}, 1, 23), None),
    "rms_broadcast": (("RMSNormalization", [X, _normal(3, 1)], {"axis": -2}, 1, 23), None),
    "l2": (("LpNormalization", [X], {"axis": 1}), None),
}

BY_RUNTIME = {
    "group": (
        ("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 2}, 1, 21),
        IMAGES.shape,
    ),
    "group_of_each_channel": (
        ("GroupNormalization", [IMAGES, _normal(4), _normal(4)], {"num_groups": 4, "epsilon": 0.1}, 1, 21),
        IMAGES.shape,
    ),
    "group_by_group": (
        ("GroupNormalization", [IMAGES, _normal(2), _normal(2)], {"num_groups": 2}, 1, 18),
        IMAGES.shape,
    ),
    "group_of_all": (
        ("GroupNormalization", [_normal(3, 2, 5), _normal(2), _normal(2)], {"num_groups": 1}, 1, 21),
        (3, 2, 5),
    ),
    "mean_variance": (("MeanVarianceNormalization", [IMAGES], {}), IMAGES.shape),
    "mean_variance_axes": (("MeanVarianceNormalization", [X], {"axes": [1]}), X.shape),
    "lrn": (("LRN", [IMAGES], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}), IMAGES.shape),
    "lrn_wide": (("LRN", [_normal(1, 6, 2, 2)], {"size": 5, "alpha": 2.0}), (1, 6, 2, 2)),
    "l1": (("LpNormalization", [X], {"p": 1}), X.shape),
    "skip": (_skip("SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4)), X.shape),
    "skip_bias": (
        _skip(
            "SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4), _normal(4), epsilon=0.1
        ),
        X.shape,
    ),
    "skip_simplified": (_skip("SkipSimplifiedLayerNormalization", X, _normal(*X.shape), _normal(4)), X.shape),
    "skip_simplified_bias": (
        _skip("SkipSimplifiedLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4)),
        X.shape,
    ),
    "simplified": (("SimplifiedLayerNormalization", [X, _normal(4)], {"axis": -1}), X.shape),
}


@pytest.mark.parametrize("case", OTHERS)
def test_gradients_of_others(case):
    """Every gradient of the other normalisations agrees with numerical differences."""
    arguments, shape = OTHERS[case]

    check(one_operator(*arguments), shape)


@pytest.mark.parametrize("case", BY_RUNTIME)
def test_gradients_by_runtime(case):
    """The same, where the reference evaluator has no or another result."""
    arguments, shape = BY_RUNTIME[case]

    check(one_operator(*arguments), shape, step=1 / 128, tolerance=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    """Every gradient of an operator agrees with numerical differences."""
    arguments, shape = CASES[case]

    check(one_operator(*arguments), shape)


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

    check(model, IMAGES.shape, step=1 / 128, tolerance=1e-3)


def test_sum_of_a_skip_connection():
    """The sum that a skip normalisation hands on has a gradient, mean and variance have no type."""
    arguments = _skip("SkipLayerNormalization", X, _normal(*X.shape), _normal(4), _normal(4))
    model = one_operator(*arguments[:3], 4, *arguments[4:])

    with pytest.raises(GraphError, match=r"SkipLayerNormalization writes is of unknown type"):
        step_graph(model, WEIGHTED)

    model.graph.node[0].output[:] = ["normal", "", "", "total"]
    model.graph.node.append(helper.make_node("Mul", ["normal", "total"], ["y0"], name="product"))
    check(model, X.shape, step=1 / 128, tolerance=1e-3)
