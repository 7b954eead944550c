"""Training steps that run as one session: the same bits and errors, and what stays operator by operator."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import parser

import msdump
from msdump.errors import ExecutionError
from msdump.execute.training import joined, runs
from msdump.graph import loader
from msdump.training import step_graph
from sample_nets.build import build
from tests import steps

RNG = np.random.default_rng(11)


@pytest.fixture
def whole(monkeypatch):
    """Run steps as a whole as soon as they may; return the number of times that one did, in a list."""
    counts = [0]
    completed = joined.JoinedStep.completed

    def counting(self, fed):
        frame = completed(self, fed)
        counts[0] += 1
        return frame

    monkeypatch.setattr(runs, "SHORT", 1e9)
    monkeypatch.setattr(joined.JoinedStep, "completed", counting)
    return counts


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """Return the training step of LeNet."""
    return step_graph(build("lenet", tmp_path_factory.mktemp("nets"), batch=2))


def _batches(count):
    for _ in range(count):
        yield RNG.standard_normal((2, 1, 32, 32)).astype(np.float32), RNG.integers(0, 10, 2).astype(np.int32)


def test_bits_are_those_of_single_operators(lenet, whole, monkeypatch):
    """Losses and variables are equal bit by bit, however a step has run."""
    batches = list(_batches(5))
    network = msdump.load(lenet)
    losses = [network.train_step(*batch) for batch in batches]
    assert [3] == whole  # the first step compiles the operators, the second is timed
    monkeypatch.setattr(runs, "SHORT", 0.0)
    single = msdump.load(lenet)

    assert losses == [single.train_step(*batch) for batch in batches]
    assert [3] == whole
    for name, array in single.state().items():
        np.testing.assert_array_equal(array, network.state()[name], err_msg=name)


def test_dumped_steps_run_operator_by_operator(lenet, whole, tmp_path):
    """A step that is dumped shows every operator, between steps that run as a whole."""
    common = {"op_debug_mode": 0, "dump_mode": 0, "path": str(tmp_path / "dump"), "net_name": "Net"}
    common |= {"iteration": "3", "saved_data": "tensor", "input_output": 0, "kernels": []}
    settings = {
        "common_dump_settings": common | {"support_device": [0]},
        "e2e_dump_settings": {"enable": False, "trans_flag": True},
    }
    config = tmp_path / "dump.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    network = msdump.load(lenet, config=config, context={"device_target": "CPU"})

    for batch in _batches(6):
        network.train_step(*batch)

    assert [3] == whole
    files = [path.name for path in (tmp_path / "dump").rglob("*.npy")]
    assert any(name.startswith("Conv2DBackpropFilter.") for name in files)
    assert 6 == network.runs


def test_failing_operators_are_named(lenet, whole):
    """A step that fails as a whole fails by the name of an operator, and changes nothing."""
    network = msdump.load(lenet)
    image, labels = next(_batches(1))
    for _ in range(3):
        network.train_step(image, labels)
    before = network.state()

    with pytest.raises(ExecutionError, match="SparseSoftmaxCrossEntropyWithLogits-op"):
        network.train_step(image, labels + 1000)

    assert [1] == whole
    for name, array in before.items():
        np.testing.assert_array_equal(array, network.state()[name], err_msg=name)
    assert np.isfinite(network.train_step(image, labels))


def test_a_learning_rate_holds_for_one_step(lenet, whole):
    """The whole takes a learning rate for a step, and its own in the others."""
    network = msdump.load(lenet)
    batch = next(_batches(1))
    network.train_step(*batch)
    weights = []

    for rate in (0.0, None, 0.0, None):
        network.train_step(*batch, **({} if rate is None else {"learning_rate": np.float32(rate)}))
        weights.append(network.state()["fc3.bias"])

    assert [3] == whole
    assert weights[0].tolist() != weights[1].tolist() == weights[2].tolist() != weights[3].tolist()


def test_a_free_batch_size_may_change(whole):
    """The whole takes other batch sizes in the next step, as operators do."""
    network = steps.plain()

    for size in (4, 4, 4, 2, 3):
        network.train_step(steps.X[:size], steps.T[:size])

    assert [3] == whole


NOT_JOINED = {
    "random numbers": "r = RandomNormalLike(x) y = Add(x, r)",
    "dropout": "r = Dropout(x) y = Identity(r)",
    "a half type": "h = Cast<to=10>(x) y = Cast<to=1>(h)",
    "another domain": "y = com.microsoft.Gelu(x)",
    "a collective": "y = mindspore.ops.AllReduce(x)",
    "a branch": "y = If(c) <then_branch = a () => (float[2,2] p) { p = Neg(x) },"
    " else_branch = b () => (float[2,2] q) { q = Abs(x) }>",
    "a matrix with two readers": "a = MatMul(x, w) y = MatMul(a, w)",
}


def _graph(body):
    return loader.load(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1, "mindspore.ops": 1]>'
            f"g (float[2,2] x, bool c) => (float[2,2] y) <float[2,2] w = {{1, 2, 3, 4}}> {{ {body} }}"
        )
    )


@pytest.mark.parametrize("reason", NOT_JOINED)
def test_what_is_not_joined(reason):
    """Operators stay single where one session might give other bits."""
    assert not joined.can_join(_graph(NOT_JOINED[reason]))


def test_a_matrix_with_one_reader_is_joined():
    """A frozen weight is packed alike in both forms."""
    assert joined.can_join(_graph("a = MatMul(x, w) y = Relu(a)"))
