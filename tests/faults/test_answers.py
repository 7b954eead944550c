"""What compare answers on a few trials: the first fault by the files alone, all faults with the model."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.faults import dumps, lockstep, networks, run, trials
from tests.faults.faults import Fault, site
from tests.faults.further import FURTHER
from tests.faults.kernels import overflowing, scaled
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


def _retyped(name, op_type):
    def edit(model):
        site(model, name).node.op_type = op_type

    return Fault("type", "", frozenset({name}), frozenset({"own", "replaced"}), edit)


def _left_out(name):
    def edit(model):
        [node] = (each for each in model.graph.node if each.name == name)
        model.graph.node.remove(node)
        for each in model.graph.node:
            each.input[:] = [node.input[0] if value == node.output[0] else value for value in each.input]

    return Fault("dropped", "", frozenset({name}), frozenset({"missing", "replaced"}), edit)


def _changed(weight, reader, change):
    def edit(model):
        [tensor] = (each for each in model.graph.initializer if each.name == weight)
        tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), weight))

    return Fault("changed", weight, frozenset({reader}), frozenset({"weight"}), edit, weight=weight)


def _scaled(weight, reader):
    return _changed(weight, reader, lambda array: array * np.float32(0.9))


def _flipped(weight, reader):
    def flip(array):
        changed = array.copy()
        changed.reshape(-1).view(np.uint32)[2] ^= 1 << 14
        return changed

    return _changed(weight, reader, flip)


_COMPILED = [mode for mode in dumps.MODES if mode.name.startswith("O2")]

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
coupling (float[4,16] x) => (float[4,16] y, float[4,16] z)
{
    [o] o = Softmax(x)  [p] p = MatMul(o, m)  [q] q = Softmax(p)  [r] r = MatMul(q, m)  [z] z = Softmax(r)
    [a] a, b = Split<axis = 1, num_outputs = 2>(x)
    [t] t = MatMul(z, n)  [c] c = Mul(a, w)  [d] d = Add(c, t)
    [e] e, f = Split<axis = 1, num_outputs = 2>(d)
    [g] g = Mul(e, v)  [h] h = Sub(g, f)
    [i] i, j = Split<axis = 1, num_outputs = 2>(h)
    [k] k = Mul(i, u)  [l] l = Add(k, j)
    [y] y = Concat<axis = 1>(a, d, h, l)
}"""


@pytest.mark.parametrize("faults", [(), (_left_out("c"),)], ids=["sound", "dropped"])
@pytest.mark.parametrize("number", [4, 5])
def test_kernels_that_read_pieces_have_their_counterparts(tmp_path, number, faults):
    """Kernels are compared that read pieces of tensors, which have no files in a compiled network."""
    model, draw = parser.parse_model(_COUPLING), np.random.default_rng(0)
    sizes = {"w": 8, "v": 4, "u": 2, "m": (16, 16), "n": (16, 8)}
    model.graph.initializer.extend(
        numpy_helper.from_array(draw.standard_normal(size, np.float32), name) for name, size in sizes.items()
    )
    net = Net("coupling", model, {"x": draw.standard_normal((4, 16), np.float32)})
    trial = trials.Trial(0, net, faults, dumps.MODES[number], dumps.CPU)

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


_SAMPLED = """<ir_version: 10, opset_import: ["" : 20]>
sampled (float[4,16] x, float[4,16] noise) => (float[4,16] y, float[4,16] spread)
{
    [mean] m = MatMul(x, w)  [variance] v = MatMul(x, u)
    [half] h = Mul(v, s)  [spread] spread = Exp(h)  [scaled] r = Mul(spread, noise)  [moved] z = Add(m, r)
    [decoded] d = MatMul(z, w)  [curve] y = Elu(d)
}"""


_PAIRS = [*((mode, dumps.CPU) for mode in dumps.MODES), *((mode, mode) for mode in dumps.MODES)]


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_the_reader_of_what_a_dropped_part_read_is_not_accused(tmp_path, mine, golden):
    """Where the last part of a fused kernel was dropped, its reader reads what it is given and is right."""
    model, draw = parser.parse_model(_SAMPLED), np.random.default_rng(0)
    arrays = {name: draw.standard_normal((16, 16), np.float32) for name in "wu"}
    arrays["s"] = np.float32([0.5])
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    feeds = {name: draw.standard_normal((4, 16), np.float32) for name in ("x", "noise")}
    trial = trials.Trial(0, Net("sampled", model, feeds), (_left_out("moved"),), mine, golden)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_MIXED = """<ir_version: 10, opset_import: ["" : 20]>
mixed (float[2,8,16] x) => (float[2,8,16] y)
{
    [turned] t = Transpose<perm = [0, 2, 1]>(x)  [product] p = MatMul(t, w)  [moved] q = Add(p, b)
    [back] r = Transpose<perm = [0, 2, 1]>(q)  [sum] s = Add(r, x)
    [product1] p1 = MatMul(s, u)  [moved1] q1 = Add(p1, c)  [curve1] r1 = Sigmoid(q1)
    [product2] p2 = MatMul(r1, u)  [moved2] q2 = Add(p2, c)  [gate2] r2 = Softmax(q2)
    [product3] p3 = MatMul(r2, u)  [moved3] q3 = Add(p3, c)  [gate3] y = Softmax(q3)
}"""


@pytest.mark.parametrize("changed", ["moved", "moved1"])
@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_the_reader_of_what_replaces_a_fused_part_is_not_accused(tmp_path, mine, golden, changed):
    """What reads an operator that is no more a part of its kernel reads the right one."""
    model, draw = parser.parse_model(_MIXED), np.random.default_rng(0)
    sizes = {"w": (8, 8), "b": (8,), "u": (16, 16), "c": (16,)}
    arrays = {name: draw.standard_normal(size, np.float32) for name, size in sizes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("mixed", model, {"x": draw.standard_normal((2, 8, 16), np.float32)})
    trial = trials.Trial(0, net, (_retyped(changed, "Max"),), mine, golden)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


@pytest.mark.parametrize("mine", _COMPILED, ids=lambda mode: mode.name)
def test_what_replaces_a_fused_part_is_told_behind_another_fault(tmp_path, mine):
    """An operator of another type is told though its inputs differ, and the part beside it is not."""
    model, draw = parser.parse_model(_MIXED), np.random.default_rng(0)
    sizes = {"w": (8, 8), "b": (8,), "u": (16, 16), "c": (16,)}
    arrays = {name: draw.standard_normal(size, np.float32) for name, size in sizes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("mixed", model, {"x": draw.standard_normal((2, 8, 16), np.float32)})
    error = Fault("error", "", frozenset({"sum"}), frozenset({"own"}), wrong={"sum": scaled(0.1)})
    faults = (error, _retyped("moved1", "Sub"))

    told = dict(
        run.answers(trials.Trial(0, net, faults, mine, dumps.CPU), tmp_path, checks=("files", "model"))
    )

    assert {"files": [], "model": []} == told


_SCANNED = """<ir_version: 10, opset_import: ["" : 20]>
scanned (float[5,8] x) => (float[8] last, float[5,8] y)
{
    [start] h = Mul(h0, one)
    [scan] last, y =
    Scan<num_scan_inputs = 1, body = step (float[8] s, float[8] v) => (float[8] t, float[8] w)
    {
        [decayed] d = Mul(s, a)  [grown] t = Add(d, v)  [product] p = MatMul(t, u)  [curve] w = Tanh(p)
    }>(h, x)
}"""


@pytest.mark.parametrize("golden", [dumps.CPU, None], ids=["CPU", "same"])
@pytest.mark.parametrize(
    ("weight", "reader", "part", "other"),
    [("u", "product", "grown", "Max"), ("a", "decayed", "curve", "Softsign")],
    ids=["grown", "curve"],
)
@pytest.mark.parametrize("mine", _COMPILED, ids=lambda mode: mode.name)
def test_the_only_stranger_in_a_body_stands_for_what_the_body_lacks(
    tmp_path, mine, weight, reader, part, other, golden
):
    """An operator of another type in a loop's body is told beside a wrong weight in the same body."""
    model, draw = parser.parse_model(_SCANNED), np.random.default_rng(0)
    sizes = {"h0": (8,), "a": (8,), "u": (8, 8)}
    arrays = {name: draw.standard_normal(size, np.float32) for name, size in sizes.items()}
    arrays["one"] = np.ones(8, np.float32)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("scanned", model, {"x": draw.standard_normal((5, 8), np.float32)})

    faults = (_scaled(weight, reader), _retyped(part, other))
    told = dict(run.answers(trials.Trial(0, net, faults, mine, golden or mine), tmp_path, checks=("model",)))

    assert {"model": []} == told


_CELL = """<ir_version: 10, opset_import: ["" : 20]>
cell (float[6,2,12] x) => (float[6,2,4] y)
{
    [cell] c, h, s = LSTM<hidden_size = 8>(x, w, r, b)
    [flat] f = Reshape(c, shape)  [product] p = MatMul(f, u)  [share] y = Softmax(p)
}"""


@pytest.mark.parametrize("golden", [dumps.CPU, None], ids=["CPU", "same"])
@pytest.mark.parametrize("weight", "wrb")
@pytest.mark.parametrize("mine", _COMPILED, ids=lambda mode: mode.name)
def test_weights_of_an_operator_that_few_neighbours_tell(tmp_path, mine, golden, weight):
    """Weights without names are compared with golden's though it is not quite sure who reads them."""
    model, draw = parser.parse_model(_CELL), np.random.default_rng(0)
    sizes = {"w": (1, 32, 12), "r": (1, 32, 8), "b": (1, 64), "u": (8, 4)}
    arrays = {name: draw.standard_normal(size, np.float32) / 4 for name, size in sizes.items()}
    arrays["shape"] = np.array([6, 2, 8])
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("cell", model, {"x": draw.standard_normal((6, 2, 12), np.float32)})

    trial = trials.Trial(0, net, (_flipped(weight, "cell"),), mine, golden or mine)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_SCALED = """<ir_version: 10, opset_import: ["" : 20]>
scaled (float[6,2,8] x) => (float[6,2,5] y)
{
    [curve] c = Tanh(x)  [product] p = MatMul(c, w)  [bias] a = Add(p, b)  [scale] d = Div(a, t)
    [share] y = Softmax(d)
}"""


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_a_part_that_the_only_fused_kernel_lacks_is_told(tmp_path, mine, golden):
    """A kernel that gives the same again, though golden's gives something else, lacks a part of it."""
    model, draw = parser.parse_model(_SCALED), np.random.default_rng(0)
    arrays = {"w": draw.standard_normal((8, 5), np.float32), "b": draw.standard_normal(5, np.float32)}
    arrays["t"] = np.float32([0.7])
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("scaled", model, {"x": draw.standard_normal((6, 2, 8), np.float32)})
    trial = trials.Trial(0, net, (_left_out("bias"),), mine, golden)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_SQUEEZED = """<ir_version: 10, opset_import: ["" : 20]>
squeezed (float[1,8,6,6] x) => (float[1,8,6,6] y)
{
    [first] h0 = Conv<pads = [1, 1, 1, 1]>(x, w0)  [mean0] m0 = GlobalAveragePool(h0)
    [dense0] d0 = Conv(m0, u0)  [gate0] g0 = HardSigmoid(d0)  [weighed0] e0 = Mul(h0, g0)
    [sum0] s = Add(x, e0)
    [second] h1 = Conv<pads = [1, 1, 1, 1]>(s, w1)  [mean1] m1 = GlobalAveragePool(h1)
    [dense1] d1 = Conv(m1, u1)  [gate1] g1 = HardSigmoid(d1)  [weighed1] e1 = Mul(h1, g1)
    [sum1] y = Add(s, e1)
}"""


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_a_kernel_that_is_fused_otherwise_behind_what_was_dropped_is_not_accused(tmp_path, mine, golden):
    """Parts that come together as what stood before them is left out are in golden, in several kernels."""
    model, draw = parser.parse_model(_SQUEEZED), np.random.default_rng(0)
    for number in range(2):
        for name, size, scale in ((f"w{number}", (8, 8, 3, 3), 0.12), (f"u{number}", (8, 8, 1, 1), 0.3)):
            array = draw.standard_normal(size, np.float32) * np.float32(scale)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    net = Net("squeezed", model, {"x": draw.standard_normal((1, 8, 6, 6), np.float32)})
    trial = trials.Trial(0, net, (_left_out("dense1"), _scaled("w1", "second")), mine, golden)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_FOLDED = """<ir_version: 10, opset_import: ["" : 20]>
folded (float[4,8] x) => (float[4,8] y)
{
    [curve] c = Tanh(x)  [turned] t = Transpose<perm = [1, 0]>(w)
    [product] p = MatMul(c, t)  [share] y = Softmax(p)
}"""


@pytest.mark.parametrize("golden", [dumps.CPU, None], ids=["CPU", "same"])
@pytest.mark.parametrize("mine", _COMPILED, ids=lambda mode: mode.name)
def test_the_reader_of_a_wrong_constant_is_accused(tmp_path, mine, golden):
    """Who reads a constant that the compiler made wrongly is told, though golden's comes from an operator."""
    model = parser.parse_model(_FOLDED)
    array = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))

    def edit(changed):
        changed.graph.node[1].attribute[0].ints[:] = [0, 1]

    fault = Fault("attribute", "", frozenset({"product"}), frozenset({"weight"}), edit)
    net = Net("folded", model, {"x": np.random.default_rng(1).standard_normal((4, 8), np.float32)})

    told = dict(
        run.answers(trials.Trial(0, net, (fault,), mine, golden or mine), tmp_path, checks=("files", "model"))
    )

    assert {"files": [], "model": []} == told


_PIECES = """<ir_version: 10, opset_import: ["" : 20]>
pieces (float[4,8] x) => (float[4,4] y)
{
    [gate] g = Mul(x, half)  [dense] d = MatMul(g, w)  [cut] q, k = Split<axis = -1, num_outputs = 2>(d)
    [scale] s = Mul(q, less)  [turned] t = Transpose<perm = [1, 0]>(k)  [scores] p = MatMul(s, t)
    [share] h = Softmax(p)  [last] y = Mul(h, half)
}"""


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_readers_of_pieces_are_not_missing(tmp_path, mine, golden):
    """Who reads pieces, of which compiled graphs have no files, is found under another number, too."""
    model, draw = parser.parse_model(_PIECES), np.random.default_rng(0)
    arrays = {
        "half": np.float32(0.5),
        "less": np.float32(0.35),
        "w": draw.standard_normal((8, 16), np.float32),
    }
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    net = Net("pieces", model, {"x": draw.standard_normal((4, 8), np.float32)})
    trial = trials.Trial(0, net, (_retyped("gate", "Add"),), mine, golden)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_RECURRENT = """<ir_version: 10, opset_import: ["" : 20]>
recurrent (float[5,8] x) => (float[5,8] y)
{
    d = MatMul(x, w)  delta = Softplus(d)  z = MatMul(x, u)
    last, seq = Scan<num_scan_inputs = 2, body = step (float[8] h, float[8] dt, float[8] v)
        => (float[8] next, float[8] o) {
        n = Mul(dt, a)  decay = Exp(n)  kept = Mul(h, decay)  more = Mul(dt, v)
        next = Add(kept, more)  o = Tanh(next) }>(zeros, delta, x)
    gate = Sigmoid(z)  gated = Mul(z, gate)  mixed = Mul(seq, gated)  y = MatMul(mixed, w)
}"""


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_what_a_scan_cuts_and_puts_together_is_no_weight(tmp_path, mine, golden):
    """The pieces that a body reads, and what its passes give together, are nobody's fault."""
    model, draw = parser.parse_model(_RECURRENT), np.random.default_rng(0)
    arrays = {name: draw.standard_normal((8, 8), np.float32) * np.float32(0.3) for name in "wu"}
    arrays |= {"a": -np.abs(draw.standard_normal(8, np.float32)), "zeros": np.zeros(8, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    net = Net("recurrent", model, {"x": draw.standard_normal((5, 8), np.float32)})

    told = dict(run.answers(trials.Trial(0, net, (), mine, golden), tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


_ROTATED = """<ir_version: 10, opset_import: ["" : 20]>
rotated (float[4,8] x) => (float[4,8] y)
{
    [dense] q = MatMul(x, v)  [angle] s = Tanh(x)  [wide] e = Mul(q, s)
    [front] f, b = Split<axis = 1, num_outputs = 2>(q)  [turned] n = Neg(b)
    [joined] r = Concat<axis = 1>(n, f)  [across] g = Mul(r, s)  [sum] a = Add(e, g)
    [share] h = Softmax(a)  [last] y = MatMul(h, w)
}"""


@pytest.mark.parametrize(("mine", "golden"), _PAIRS, ids=lambda mode: mode.name)
def test_what_a_concat_put_together_is_no_weight(tmp_path, mine, golden):
    """Behind a wrong weight, the operator that reads what has no file in a compiled network is innocent."""
    model, draw = parser.parse_model(_ROTATED), np.random.default_rng(0)
    for name in "vw":
        array = draw.standard_normal((8, 8), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    net = Net("rotated", model, {"x": draw.standard_normal((4, 8), np.float32)})
    trial = trials.Trial(0, net, (_scaled("v", "dense"),), mine, golden)

    assert {"model": []} == dict(run.answers(trial, tmp_path, checks=("model",)))


_SQUARED = """<ir_version: 10, opset_import: ["" : 20]>
squared (float[4,16] x) => (float[4,16] y)
{
    [square] s = Pow(x, two)  [share] h = Softmax(s)  [product] p = MatMul(h, w)  [curve] y = Tanh(p)
}"""


@pytest.mark.parametrize("number", range(4))  # the others have no file of a graph
def test_swapped_inputs_of_the_network_are_told(tmp_path, number):
    """Inputs and weights that an operator reads in another order are no errors that it inherits."""
    model, draw = parser.parse_model(_SQUARED), np.random.default_rng(0)
    arrays = {"two": np.float32(2), "w": draw.standard_normal((16, 16), np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), n) for n, each in arrays.items())

    def edit(changed):
        changed.graph.node[0].input[:] = ["two", "x"]

    fault = Fault("swapped", "", frozenset({"square"}), frozenset({"own", "replaced"}), edit)
    net = Net("squared", model, {"x": np.abs(draw.standard_normal((4, 16), np.float32))})
    trial = trials.Trial(0, net, (fault,), dumps.MODES[number], dumps.CPU)

    told = dict(run.answers(trial, tmp_path, checks=("files", "model")))

    assert {"files": [], "model": []} == told


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_trials(capsys):
    """Of a hundred trials every answer is right."""
    wrong = run.run(run.jobs(("files", "model"), range(100)), None)

    assert 0 == wrong, capsys.readouterr().out
