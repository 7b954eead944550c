"""Networks that the bench makes itself: they are what they are called, and run."""

import numpy as np
import onnx
import onnxruntime
import pytest

from msdump.graph import loader
from msdump.session import Network
from sample_nets import build as samples
from sample_nets.tracing import trace
from tests.bench import whole
from tests.bench.networks import chains, gpt2


def saved(path, model):
    """Write a model and return its path."""
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "model",
    [chains.loop(passes=3), chains.unary(7, 16), chains.binary(7, 16)],
    ids=["loop", "unary", "binary"],
)
def test_chains_run_alike_on_both_sides(model, tmp_path):
    """Both sides compute the same from the same seeded inputs."""
    path = saved(tmp_path / "model.onnx", model)
    session = whole.session(path, 1)
    feeds = whole.inputs(session)

    (expected,) = session.run(None, feeds)
    (result,) = Network(loader.load(path)).run(feeds).values()

    np.testing.assert_array_equal(expected, result)


def test_chains_have_as_many_operators_as_asked_for():
    """The length of a chain is its number of nodes, every second binary one with a weight."""
    model = chains.binary(10, 16)

    assert 10 == len(model.graph.node)
    assert 5 == len(model.graph.initializer)


def test_gpt2_sees_no_token_that_comes_later(tmp_path):
    """A small decoder's scores of a token depend on those before it alone."""
    config = gpt2.Gpt2Config(vocabulary=50, sequence=6, hidden=16, heads=2, layers=2)
    model = trace(gpt2.network(config), gpt2.inputs(1, config), name="gpt2", outputs=("logits",))
    path = tmp_path / "gpt2.onnx"
    samples.write(path, model)
    session = onnxruntime.InferenceSession(str(path))
    ids = np.array([[1, 2, 3, 4, 5, 6]])
    changed = np.array([[1, 2, 3, 40, 41, 42]])

    (first,), (second,) = (session.run(None, {"input_ids": each}) for each in (ids, changed))

    assert (1, 6, 50) == first.shape
    np.testing.assert_allclose(first[:, :3], second[:, :3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(first[:, 3:], second[:, 3:])


def test_gpt2_has_its_public_size():
    """GPT-2 small: 124 million parameters, and a head of its own as exporters write it."""
    count = sum(np.prod(weight.shape.numpy()) for weight in gpt2.network().parameters())

    assert 124_439_808 - (1024 - 128) * 768 + 50257 * 768 == count
