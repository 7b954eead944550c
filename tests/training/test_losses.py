"""Losses and their gradients against formulas and numerical differences; models that end in a loss."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.errors import GraphError, InputError
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import bindings_of, normals, one_operator, outputs_of

_RNG = np.random.default_rng(19)


_normal = normals(_RNG)


def _shares(*shape):
    shares = _RNG.uniform(size=shape).astype(np.float32)
    return shares / shares.sum(-1, keepdims=True)


def _log_softmax(x, axis=-1):
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


def _sparse(x, labels):
    return -np.take_along_axis(_log_softmax(x), labels[..., None].astype(int), -1).mean()


def _dense(x, labels):
    return -(labels * _log_softmax(x)).sum(-1).mean()


def _squares(x, labels):
    return ((x - labels) ** 2).mean()


def _binary(x, labels):
    return -(labels * np.log(1 / (1 + np.exp(-x))) + (1 - labels) * np.log(1 / (1 + np.exp(x)))).mean()


def _classes(count, *shape):
    return _RNG.integers(0, count, shape).astype(np.int32)


LOSSES = {
    "sparse": ("softmax_cross_entropy", _sparse, _normal(5, 4), _classes(4, 5)),
    "sparse_sequence": ("softmax_cross_entropy", _sparse, _normal(2, 3, 4), _classes(4, 2, 3)),
    "dense": ("dense_softmax_cross_entropy", _dense, _normal(5, 4), _shares(5, 4)),
    "dense_sequence": ("dense_softmax_cross_entropy", _dense, _normal(2, 3, 4), _shares(2, 3, 4)),
    "mse": ("mse", _squares, _normal(4, 2), _normal(4, 2)),
    "bce": ("bce_with_logits", _binary, _normal(4, 2), _RNG.integers(0, 2, (4, 2)).astype(np.float32)),
}


def _fed(shape, names=None):
    """Return a network that adds a parameter to its input."""
    shown = ",".join(map(str, names or shape))
    arrays = {"w": np.zeros(shape[-1:], np.float32)}
    return parsed(f"net (float[{shown}] x) => (float[{shown}] y) {{ y = Add(x, w) }}", **arrays)


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("case", LOSSES)
def test_losses(case, is_free):
    """A loss follows its formula, and its gradient differences, with free sizes, too."""
    name, formula, x, labels = LOSSES[case]
    names = [f"n{axis}" for axis in range(x.ndim - 1)] + [x.shape[-1]] if is_free else None
    step = step_graph(_fed(x.shape, names), name, "momentum:0")

    loss, gradient = outputs_of(
        step, [step.graph.output[0].name, bindings_of(step)["moments.w"]], {"inputs0": x, "inputs1": labels}
    )

    wide = x.astype(np.float64)
    steps = np.eye(x.shape[-1]) * 1e-6
    expected = [(formula(wide + one, labels) - formula(wide - one, labels)) / 2e-6 for one in steps]
    assert () == loss.shape
    assert pytest.approx(formula(wide, labels), abs=1e-6) == loss
    np.testing.assert_allclose(expected, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "dense_softmax_cross_entropy", "bce_with_logits"])
def test_large_logits(name):
    """A loss of large logits is large, and finite."""
    x = np.array([[1e4, -1e4]], np.float32)
    labels = np.array([1], np.int32) if name == "softmax_cross_entropy" else np.array([[0, 1]], np.float32)
    step = step_graph(_fed((1, 2)), name)

    (loss,) = outputs_of(step, [step.graph.output[0].name], {"inputs0": x, "inputs1": labels})

    assert (1e4 if name == "bce_with_logits" else 2e4) == loss


def _types(step, scope):
    """Return MindSpore's names of the operators in a scope."""
    return [
        node.name.removeprefix(f"{scope}/")
        for node in step.graph.node
        if node.name.startswith(scope) and node.op_type != "Constant"
    ]


OPERATORS = {
    "dense_softmax_cross_entropy": (
        "SoftmaxCrossEntropyWithLogits",
        ["SoftmaxCrossEntropyWithLogits", "ReduceMean"],
        [
            "Grad_ReduceMean/RealDiv",
            "Grad_SoftmaxCrossEntropyWithLogits/ExpandDims",
            "Grad_SoftmaxCrossEntropyWithLogits/Mul",
        ],
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    """The operators of a loss and of its gradient are MindSpore's."""
    cell, forward, backward = OPERATORS[name]
    step = step_graph(_fed((4, 2)), name)
    scope = f"Default/network-WithLossCell/_loss_fn-{cell}"

    assert forward == _types(step, scope)
    assert backward == _types(step, f"Gradients/{scope}")


_SCORES, _LABELS = _normal(4, 3), np.array([0, 2, 1, 2], np.int64)
_MAPS, _PIXELS = _normal(2, 3, 2, 2), _RNG.integers(0, 3, (2, 2, 2)).astype(np.int64)
_CLASS_WEIGHTS = np.array([0.5, 2.0, 1.0], np.float32)


def test_own_loss():
    """With "none" the first output of a model is the loss, and it takes no labels."""
    step = step_graph(one_operator("SoftmaxCrossEntropyLoss", [_SCORES, _LABELS], {}), "none")

    (loss,) = outputs_of(step, [step.graph.output[0].name], {})

    assert pytest.approx(_sparse(_SCORES, _LABELS), abs=1e-6) == loss
    assert ["learning_rate"] == [value.name for value in step.graph.input]


def test_own_loss_is_a_number():
    """With "none" an output of several elements is refused; one of a single element is taken."""
    with pytest.raises(GraphError, match=r"output 'y0' .* shape \(4, 3\) is no loss of its own"):
        step_graph(one_operator("Neg", [_SCORES], {}), "none")

    assert () == tuple(
        step_graph(one_operator("ReduceSum", [_SCORES], {}), "none")
        .graph.output[0]
        .type.tensor_type.shape.dim
    )


def test_unknown():
    """An unknown loss is refused with the known ones."""
    with pytest.raises(InputError, match=r"unknown loss 'mes': .*, mse, .* \(did you mean 'mse'\?\)"):
        step_graph(_fed((4, 2)), "mes")


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "dense_softmax_cross_entropy"])
def test_one_number_has_no_classes(loss):
    """A network with one number as output is refused by losses over classes, with other losses."""
    text = "g (float[3] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }"
    with pytest.raises(GraphError, match="is one number and has no classes"):
        step_graph(parsed(text), loss)
