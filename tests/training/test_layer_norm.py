"""Gradients of LayerNormalization and its kin against numerical differences."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.training import step_graph
from tests.training.differences import WEIGHTED, check, one_operator, outputs_of

_RNG = np.random.default_rng(5)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(np.float32)


def _layer_norm(*arrays: np.ndarray, outputs: int = 1, **attributes: float) -> tuple[object, ...]:
    return ("LayerNormalization", arrays, attributes, outputs)


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
