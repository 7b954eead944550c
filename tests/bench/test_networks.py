"""Networks that the bench makes itself."""

import numpy as np
import onnx
import pytest

from msdump.graph import loader
from msdump.session import Network
from tests.bench import whole
from tests.bench.networks import chains


def saved(path, model):
    """Write a model and return its path."""
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "model",
    [chains.loop(passes=3), chains.unary(7, [16]), chains.binary(7, 16)],
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
