"""What compare answers on a few trials: the first fault by the files alone, all faults with the model."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.faults import dumps, lockstep, networks, run, trials
from tests.faults.faults import Fault
from tests.faults.further import FURTHER
from tests.faults.kernels import overflowing
from tests.faults.networks import Net

SEEDS = (0, 7, 15, 26, 48, 58)
"""Trials of small networks, one in each way to dump."""


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_named(tmp_path, seed):
    """By the files the first fault is named, with the model every one, and nobody else is accused."""
    trial = trials.draw(seed)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told, str(trial)


@pytest.mark.parametrize("network", ["lenet", "mlp"])
def test_sound_networks_are_not_accused(tmp_path, network):
    """A sound network beside itself on the CPU and in another arithmetic accuses nobody."""
    pairs = [trial for trial in run.sound_pairs() if trial.net.name == network]
    for number, trial in enumerate(pairs[1::5]):
        told = dict(run.answers(trial, tmp_path / str(number), checks=("files", "model")))
        assert {"files": [], "model": []} == told, str(trial)


_NARROW = ("O1 beside CPU", "O0 bfloat16 beside CPU", "O0 force_fp16 beside O0", "O0 force_fp16 beside CPU")


@pytest.mark.parametrize("network", FURTHER)
def test_narrow_arithmetic_accuses_nobody(tmp_path, network):
    """Steps of integers, sums of updates and numbers that float16 does not hold are nobody's fault."""
    pairs = [trial for trial in run.sound_pairs() if trial.net.name == network]
    chosen = [trial for trial in pairs if any(f" {names}" in str(trial) for names in _NARROW)]
    assert len(chosen) == len(_NARROW)
    for number, trial in enumerate(chosen):
        told = dict(run.answers(trial, tmp_path / str(number), checks=("files", "model")))
        assert {"files": [], "model": []} == told, str(trial)


@pytest.mark.parametrize(
    ("network", "mine", "golden"),
    [
        ("integers", "Ascend:force_fp16", "float32"),
        ("tiny", "float32", "float64"),
        ("quantised", "onnxruntime:all", "float32"),
    ],
)
def test_variants_accuse_nobody(tmp_path, network, mine, golden):
    """Rounded inputs move integers by a step, exponentials lose what is small, fused kernels round later."""
    trial = lockstep.VariantTrial(networks.network(network), mine, golden)

    assert not lockstep.innocents(trial, tmp_path)


_ROUTING = """<ir_version: 10, opset_import: ["" : 20]>
routing (float[4,16] x, int64 count) => (float[4,16] y)
{
    y = Loop(count, , zeros) <body = step (int64 i, bool go, float[4,16] v) => (bool more, float[4,16] w) {
        more = Identity(go)
        s = Softmax(v)
        p = MatMul(s, weight)
        q = Tanh(p)
        w = Add(q, x) }>
}"""


@pytest.mark.parametrize("number", range(len(dumps.MODES)))
def test_what_a_loop_begins_with_is_no_weight_of_later_passes(tmp_path, number):
    """A loop that begins with a constant computes its later states, which rounding changes."""
    model, draw = parser.parse_model(_ROUTING), np.random.default_rng(0)
    arrays = {"weight": draw.standard_normal((16, 16), np.float32), "zeros": np.zeros((4, 16), np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("routing", model, {"x": draw.standard_normal((4, 16), np.float32), "count": np.array(3)})
    trial = trials.Trial(0, net, (), dumps.MODES[number], dumps.CPU)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_COUPLING = """<ir_version: 10, opset_import: ["" : 20]>
coupling (float[4,16] x) => (float[4,16] y)
{
    a, b = Split<axis = 1, num_outputs = 2>(x)
    c = Mul(a, w)  d = Add(c, b)
    e, f = Split<axis = 1, num_outputs = 2>(d)
    g = Mul(e, v)  h = Sub(g, f)
    i, j = Split<axis = 1, num_outputs = 2>(h)
    k = Mul(i, u)  l = Add(k, j)
    y = Concat<axis = 1>(a, d, h, l)
}"""


@pytest.mark.parametrize("number", [4, 5])
def test_kernels_that_read_pieces_have_their_counterparts(tmp_path, number):
    """Kernels are compared that read pieces of tensors, which have no files in a compiled network."""
    model, draw = parser.parse_model(_COUPLING), np.random.default_rng(0)
    sizes = {"w": 8, "v": 4, "u": 2}
    model.graph.initializer.extend(
        numpy_helper.from_array(draw.standard_normal(size, np.float32), name) for name, size in sizes.items()
    )
    net = Net("coupling", model, {"x": draw.standard_normal((4, 16), np.float32)})
    trial = trials.Trial(0, net, (), dumps.MODES[number], dumps.CPU)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_SCORES = """<ir_version: 10, opset_import: ["" : 20]>
scores (float[6,2,8] x) => (float[6,2,5] y)
{
    [product] p = MatMul(x, w)
    [shares] y = Softmax<axis = -1>(p)
}"""


@pytest.mark.parametrize("number", range(len(dumps.MODES)))
def test_a_wrong_axis_is_told_behind_an_overflow(tmp_path, number):
    """What an operator makes of infinities tells little, its finite elements tell that it is wrong."""
    model, draw = parser.parse_model(_SCORES), np.random.default_rng(0)
    weight = draw.standard_normal((8, 5), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    net = Net("scores", model, {"x": draw.standard_normal((6, 2, 8), np.float32)})
    edge = float(np.quantile(np.abs(net.feeds["x"] @ weight), 0.8))
    wrong = {"product": overflowing(70000 / edge)}
    overflow = Fault("overflow", "", frozenset({"product"}), frozenset({"nonfinite"}), wrong=wrong)

    def edit(changed):
        changed.graph.node[1].attribute[0].i = 0

    axis = Fault("attribute", "", frozenset({"shares"}), frozenset({"own", "replaced"}), edit)
    trial = trials.Trial(0, net, (overflow, axis), dumps.MODES[number], dumps.CPU)

    assert {"model": []} == dict(run.answers(trial, tmp_path, checks=("model",)))


_BLOCKS = """<ir_version: 10, opset_import: ["" : 20]>
blocks (float[4,16] x) => (float[4,16] y)
{
    [scaled0] a0 = Mul(x, s)  [moved0] b0 = Add(a0, t)  [gate0] g0 = Sigmoid(b0)  [gated0] c0 = Mul(b0, g0)
    [product0] d0 = MatMul(c0, w)  [bias0] e0 = Add(d0, t)  [curve0] f0 = Elu(e0)
    [scaled1] a1 = Mul(f0, s)  [moved1] b1 = Add(a1, t)  [gate1] g1 = Sigmoid(b1)  [gated1] c1 = Mul(b1, g1)
    [product1] d1 = MatMul(c1, v)  [bias1] e1 = Add(d1, t)  [curve1] f1 = Elu(e1)
    [scaled2] a2 = Mul(f1, s)  [moved2] b2 = Add(a2, t)  [gate2] g2 = Sigmoid(b2)  [gated2] c2 = Mul(b2, g2)
    [product2] d2 = MatMul(c2, u)  [bias2] e2 = Add(d2, t)  [curve2] y = Elu(e2)
}"""


def _retyped(name, op_type):
    def edit(model):
        next(each for each in model.graph.node if each.name == name).op_type = op_type

    return Fault("type", "", frozenset({name}), frozenset({"own", "replaced"}), edit)


def _left_out(name):
    def edit(model):
        [node] = (each for each in model.graph.node if each.name == name)
        model.graph.node.remove(node)
        for each in model.graph.node:
            each.input[:] = [node.input[0] if value == node.output[0] else value for value in each.input]

    return Fault("dropped", "", frozenset({name}), frozenset({"missing", "replaced"}), edit)


@pytest.mark.parametrize(
    "fault", [_retyped("scaled0", "Add"), _retyped("moved1", "Sub"), _left_out("curve0")]
)
@pytest.mark.parametrize("number", range(len(dumps.MODES)))
def test_moved_numbers_of_kernels_accuse_nobody(tmp_path, number, fault):
    """Kernels behind a changed operator, whose parts have other numbers, are not taken for others."""
    model, draw = parser.parse_model(_BLOCKS), np.random.default_rng(0)
    sizes = {"s": (16,), "t": (16,), "w": (16, 16), "v": (16, 16), "u": (16, 16)}
    arrays = {name: draw.standard_normal(size, np.float32) for name, size in sizes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("blocks", model, {"x": draw.standard_normal((4, 16), np.float32)})
    trial = trials.Trial(0, net, (fault,), dumps.MODES[number], dumps.CPU)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_trials(capsys):
    """Of a hundred trials every answer is right."""
    wrong = run.run(run.jobs(("files", "model"), range(100)), None)

    assert 0 == wrong, capsys.readouterr().out
