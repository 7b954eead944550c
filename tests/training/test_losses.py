"""Losses and their gradients against formulas and numerical differences; models that end in a loss."""

import numpy as np
import pytest

import msdump
from msdump.errors import GraphError
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
    return _dense(x, np.eye(x.shape[-1])[labels])


def _dense(x, labels):
    return -(labels * _log_softmax(x)).sum(-1).ravel()


def _squares(x, labels):
    return (x - labels) ** 2


def _smooth(beta):
    def losses(x, labels):
        error = np.abs(x - labels)
        return np.where(error < beta, error**2 / (2 * beta), error - beta / 2)

    return losses


def _binary(x, labels):
    return -(labels * np.log(1 / (1 + np.exp(-x))) + (1 - labels) * np.log(1 / (1 + np.exp(x))))


def _classes(count, *shape):
    return _RNG.integers(0, count, shape).astype(np.int32)


LOSSES = {
    "sparse": ("softmax_cross_entropy", _sparse, _normal(5, 4), _classes(4, 5)),
    "sparse_sequence": ("softmax_cross_entropy", _sparse, _normal(2, 3, 4), _classes(4, 2, 3)),
    "dense": ("dense_softmax_cross_entropy", _dense, _normal(5, 4), _shares(5, 4)),
    "dense_sequence": ("dense_softmax_cross_entropy", _dense, _normal(2, 3, 4), _shares(2, 3, 4)),
    "mse": ("mse", _squares, _normal(4, 2), _normal(4, 2)),
    "l1": ("l1", lambda x, labels: np.abs(x - labels), _normal(4, 2), _normal(4, 2)),
    "smooth": ("smooth_l1", _smooth(1.0), _normal(4, 2), _normal(4, 2)),
    "smooth_beta": ("smooth_l1:beta=0.25", _smooth(0.25), _normal(4, 2), _normal(4, 2)),
    "bce": ("bce_with_logits", _binary, _normal(4, 2), _RNG.integers(0, 2, (4, 2)).astype(np.float32)),
}

REDUCED = {"mean": np.mean, "sum": np.sum, "none": lambda losses: losses}


def _fed(shape, names=None):
    """Return a network that adds a parameter to its input."""
    shown = ",".join(map(str, names or shape))
    arrays = {"w": np.zeros(shape[-1:], np.float32)}
    return parsed(f"net (float[{shown}] x) => (float[{shown}] y) {{ y = Add(x, w) }}", **arrays)


def _with(loss, reduction):
    return f"{loss}{',' if ':' in loss else ':'}reduction={reduction}"


@pytest.mark.parametrize("reduction", REDUCED)
@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("case", LOSSES)
def test_losses(case, is_free, reduction):
    """A loss follows its formula, and its gradient the differences of its sum, with free sizes, too."""
    name, formula, x, labels = LOSSES[case]
    names = [f"n{axis}" for axis in range(x.ndim - 1)] + [x.shape[-1]] if is_free else None
    step = step_graph(_fed(x.shape, names), _with(name, reduction), "momentum:0")

    loss, gradient = outputs_of(
        step, [step.graph.output[0].name, bindings_of(step)["moments.w"]], {"inputs0": x, "inputs1": labels}
    )

    wide, reduced = x.astype(np.float64), REDUCED[reduction]
    steps = np.eye(x.shape[-1]) * 1e-6
    sides = [[reduced(formula(wide + one * sign, labels)).sum() for sign in (1, -1)] for one in steps]
    expected = [(above - below) / 2e-6 for above, below in sides]
    np.testing.assert_allclose(reduced(formula(wide, labels)), loss, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(expected, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss_scale", [None, 8, "dynamic:8"])
def test_scaled_losses(loss_scale):
    """A loss scale multiplies the gradient of each loss, and leaves losses and updates as they are."""
    x, labels = _normal(4, 2), _normal(4, 2)
    step = step_graph(_fed(x.shape), "mse:none", "momentum:0", loss_scale=loss_scale)

    loss, gradient = outputs_of(
        step, [step.graph.output[0].name, bindings_of(step)["moments.w"]], {"inputs0": x, "inputs1": labels}
    )

    np.testing.assert_allclose(_squares(x, labels), loss, rtol=1e-5)
    np.testing.assert_allclose(2 * (x - labels).sum(0), gradient, rtol=1e-5)


@pytest.mark.parametrize("reduction", REDUCED)
@pytest.mark.parametrize("case", ["sparse", "dense", "mse", "l1", "smooth_beta", "bce"])
def test_half_types(case, reduction):
    """Losses in float16 are reduced in float32, and returned in float16."""
    name, formula, x, labels = LOSSES[case]
    shown = ",".join(map(str, x.shape))
    text = f"net (float16[{shown}] x) => (float16[{shown}] y) {{ y = Add(x, w) }}"
    step = step_graph(parsed(text, w=np.zeros(x.shape[-1], np.float16)), _with(name, reduction))
    x = x.astype(np.float16)
    labels = labels if labels.dtype == np.int32 else labels.astype(np.float16)

    (loss,) = outputs_of(step, [step.graph.output[0].name], {"inputs0": x, "inputs1": labels})

    assert loss.dtype == np.float16
    expected = REDUCED[reduction](formula(x.astype(np.float64), labels))
    np.testing.assert_allclose(expected, loss, rtol=5e-3, atol=5e-3)  # a few roundings of float16


def test_model(capsys):
    """``Model`` trains and evaluates on losses of elements; monitor and metric show their mean."""
    model, x, labels = _fed((4, 2)), _normal(4, 2), _normal(4, 2)
    network = msdump.load(step_graph(model, "l1:none", "sgd:0.0"))
    trainer = msdump.Model(network, msdump.training.eval_graph(model, "l1:none"), metrics={"loss"})

    trainer.train(1, [(x, labels)], callbacks=[msdump.LossMonitor()])

    expected = np.abs(x - labels).mean()
    assert pytest.approx(expected, rel=1e-5) == float(capsys.readouterr().out.split()[-1])
    assert pytest.approx(expected, rel=1e-5) == trainer.eval([(x, labels)])["loss"]


def test_faulty_losses_are_told(caplog):
    """One loss of many that is not finite is warned of."""
    network = msdump.load(step_graph(_fed((2, 2)), "l1:none"))

    network.train_step(np.array([[1, 2], [np.inf, 3]], np.float32), np.zeros((2, 2), np.float32))

    assert "iteration 0: the loss is not finite: 'inputs0' held NaN or infinity" in caplog.text


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_without_a_class(label):
    """Where losses are no mean, a label that is no class has no loss, as with MindSpore's one-hot labels."""
    step = step_graph(_fed((1, 4)), "softmax_cross_entropy:none")

    (loss,) = outputs_of(
        step, [step.graph.output[0].name], {"inputs0": _normal(1, 4), "inputs1": np.array([label], np.int32)}
    )

    assert [0.0] == loss.tolist()


@pytest.mark.parametrize("name", ["softmax_cross_entropy", "dense_softmax_cross_entropy", "bce_with_logits"])
def test_large_logits(name):
    """A loss of large logits is large, and finite."""
    x = np.array([[1e4, -1e4]], np.float32)
    labels = np.array([1], np.int32) if name == "softmax_cross_entropy" else np.array([[0, 1]], np.float32)
    step = step_graph(_fed((1, 2)), name)

    (loss,) = outputs_of(step, [step.graph.output[0].name], {"inputs0": x, "inputs1": labels})

    assert (1e4 if name == "bce_with_logits" else 2e4) == loss


def _operators(step, scope):
    """Return MindSpore's names of the operators in a scope, and which of their slots are dumped."""
    return [
        (node.name.removeprefix(f"{scope}/"), [slot for slot, name in enumerate(node.input) if name])
        for node in step.graph.node
        if node.name.startswith(scope) and node.op_type != "Constant"
    ]


OPERATORS = {
    "dense_softmax_cross_entropy": (
        "SoftmaxCrossEntropyWithLogits",
        [("SoftmaxCrossEntropyWithLogits", [0, 1]), ("ReduceMean", [0, 1, 2])],
        [
            ("Grad_ReduceMean/RealDiv", [0, 1]),
            ("Grad_SoftmaxCrossEntropyWithLogits/ExpandDims", [0]),
            ("Grad_SoftmaxCrossEntropyWithLogits/Mul", [0, 1]),
        ],
    ),
    "softmax_cross_entropy:none": (
        "SoftmaxCrossEntropyWithLogits",
        [("OneHot", [0, 2, 3, 4]), ("SoftmaxCrossEntropyWithLogits", [0, 1])],
        [
            ("Grad_SoftmaxCrossEntropyWithLogits/ExpandDims", [0]),
            ("Grad_SoftmaxCrossEntropyWithLogits/Mul", [0, 1]),
        ],
    ),
    "mse:sum": (
        "MSELoss",
        [("Sub", [0, 1]), ("Square", [0]), ("ReduceSum", [0, 1, 2, 3])],
        [("Grad_Square/Pow", [0, 1]), ("Grad_Square/Mul", [0, 1])],
    ),
    "l1": ("L1Loss", [("Sub", [0, 1]), ("Abs", [0]), ("ReduceMean", [0, 1, 2])], None),
    "l1:none": ("L1Loss", [("Sub", [0, 1]), ("Abs", [0])], None),
    "smooth_l1:sum,0.5": (
        "SmoothL1Loss",
        [("SmoothL1Loss", [0, 1, 2, 3])],
        [("Grad_SmoothL1Loss/SmoothL1LossGrad", [0, 1, 2, 3, 4])],
    ),
    "bce_with_logits": (
        "BCEWithLogitsLoss",
        [("BCEWithLogitsLoss", [0, 1, 4])],
        [
            ("Grad_BCEWithLogitsLoss/OnesLike", [0]),
            ("Grad_BCEWithLogitsLoss/OnesLike_1", [0]),
            ("Grad_BCEWithLogitsLoss/Sigmoid", [0]),
            ("Grad_BCEWithLogitsLoss/Mul", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Add", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Sub", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Mul_1", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Sub_1", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Mul_2", [0, 1]),
            ("Grad_BCEWithLogitsLoss/Mul_3", [0, 1]),
            ("Grad_BCEWithLogitsLoss/RealDiv", [0, 1]),
        ],
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    """The operators of a loss and of its gradient are MindSpore's, with its slots."""
    cell, forward, backward = OPERATORS[name]
    step = step_graph(_fed((4, 2)), name)
    scope = f"Default/network-WithLossCell/_loss_fn-{cell}"

    assert forward == _operators(step, scope)
    assert backward is None or backward == _operators(step, f"Gradients/{scope}")


_SCORES, _LABELS = _normal(4, 3), np.array([0, 2, 1, 2], np.int64)


def test_own_loss():
    """With "none" the first output of a model is the loss, and it takes no labels."""
    step = step_graph(one_operator("SoftmaxCrossEntropyLoss", [_SCORES, _LABELS], {}), "none")

    (loss,) = outputs_of(step, [step.graph.output[0].name], {})

    assert pytest.approx(_sparse(_SCORES, _LABELS).mean(), abs=1e-6) == loss
    assert ["learning_rate"] == [value.name for value in step.graph.input]


def test_own_loss_is_a_number():
    """With "none" an output of several elements is refused; one of a single element is taken."""
    with pytest.raises(GraphError, match=r"output 'y0' .* shape \(4, 3\) is not a loss"):
        step_graph(one_operator("Neg", [_SCORES], {}), "none")

    assert () == tuple(
        step_graph(one_operator("ReduceSum", [_SCORES], {}), "none")
        .graph.output[0]
        .type.tensor_type.shape.dim
    )


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "dense_softmax_cross_entropy"])
def test_one_number_has_no_classes(loss):
    """A network with one number as output is refused by losses over classes, with other losses."""
    text = "g (float[3] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }"
    with pytest.raises(GraphError, match="is one number and has no classes"):
        step_graph(parsed(text), loss)
