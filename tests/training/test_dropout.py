"""Dropout in a training step: masks, their gradients, seeds."""

import numpy as np
import pytest

import msdump
from msdump.training import step_graph
from tests.texts import parsed
from tests.training.differences import OPSET, WEIGHTED, analytic, bindings_of, one_operator, session_of

X = np.random.default_rng(11).uniform(1, 2, (40, 50)).astype(np.float32)
ONES = np.ones_like(X)
RATIO = np.array(0.3, np.float32)
ON = np.array(True)
OFF = np.array(False)

COVERED = {("", "Dropout"), ("mindspore.ops", "Dropout")}

DROPPING = {
    "torch": [X, RATIO, ON],
    "inference_form": [X, RATIO],
    "whole_ratio": [X, np.array(0.3, np.float64), ON],
}


def _values(model, count=1, **options):
    """Return result, mask and gradient of every Dropout, for some steps."""
    step = step_graph(model, WEIGHTED, "momentum:0.0,0.0", **options)
    bindings = bindings_of(step)
    nodes = [node for node in step.graph.node if node.op_type == "Dropout"]
    names = [name for node in nodes for name in node.output] + [bindings["moments.p0"]]
    session = session_of(step, names)
    return [session.run(names, {"inputs0": ONES}) for _ in range(count)]


@pytest.mark.parametrize("opset", [OPSET, 22, 24])
@pytest.mark.parametrize("case", DROPPING)
def test_mask(case, opset):
    """Dropout keeps the elements of the mask, divided by their share, and so does its gradient."""
    ((y, mask, gradient),) = _values(one_operator("Dropout", DROPPING[case], {}, opset=opset))

    assert {0.0, 1.0} == set(np.unique(mask))
    assert 0.65 < mask.mean() < 0.75
    np.testing.assert_allclose(X * mask / 0.7, y, rtol=1e-6)
    np.testing.assert_allclose(mask / 0.7, gradient, rtol=1e-6)


def test_seeds():
    """Each Dropout has a mask of its own, and another seed gives other masks."""
    text = "two () => (y0) { [first] a = Dropout(p0) [second] b = Dropout(p0) [sum] y0 = Add(a, b) }"
    model = parsed(text, p0=X)

    ((_, first, _, second, _),) = _values(model)
    ((_, other, *_),) = _values(model, seed=1)

    assert (first != second).any()
    assert (first != other).any()


@pytest.mark.parametrize("arrays", [[X, np.array(0, np.float32), ON], [X, RATIO, OFF]], ids=["zero", "off"])
def test_nothing_is_dropped(arrays):
    """A Dropout of nothing, or in inference form, stays ONNX's and passes its gradient."""
    model = one_operator("Dropout", arrays, {})

    gradients = analytic(model, ONES)

    np.testing.assert_array_equal(ONES, gradients["p0"])


def _switched():
    """Return a Dropout with ratio and mode as inputs of the model."""
    text = "one (float ratio, bool training) => (y0) { [switched] y0, mask = Dropout(p0, ratio, training) }"
    return parsed(text, p0=X)


@pytest.mark.parametrize("training", [True, False])
def test_computed_mode(training):
    """Ratio and mode may be values of the run."""
    step = step_graph(_switched(), WEIGHTED, "momentum:0.0,0.0")
    bindings = bindings_of(step)
    names = ["mask", bindings["moments.p0"]]

    mask, gradient = session_of(step, names).run(
        names, {"inputs0": np.array(0.25, np.float32), "inputs1": np.array(training), "inputs2": ONES}
    )

    assert mask.all() == (not training)
    np.testing.assert_allclose(mask / (0.75 if training else 1), gradient, rtol=1e-6)


@pytest.mark.parametrize("opset", [OPSET, 22])
def test_networks_draw_for_themselves(opset):
    """A network draws the numbers of its seed, whatever other networks of the same operators have drawn."""
    step = step_graph(one_operator("Dropout", [X, RATIO], {}, opset=opset), WEIGHTED, "sgd:0.0")

    first, second = msdump.load(step), msdump.load(step)
    losses = [[float(network.train_step(ONES)) for _ in range(2)] for network in (first, second)]

    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]
