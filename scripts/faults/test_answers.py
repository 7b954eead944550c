"""Answers of compare on a few trials: the first fault by the files alone, all faults with the model."""

import logging

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from scripts.faults import answers, run, table, trials
from scripts.faults.dumps import CPU, MODES
from scripts.faults.faults import Fault, site
from scripts.faults.further import FURTHER
from scripts.faults.kernels import overflowing, scaled
from scripts.faults.networks import Net, network

SEEDS = (0, 7, 15, 26, 48, 58)
"""Trials of small networks, one in each way to dump."""

BOTH = ("files", "model")


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def told(trial, folder, checks=BOTH):
    """Return the violations of the answers of checks, None for none."""
    found = dict(run.answers(trial, folder, checks=checks))
    assert set(checks) == set(found)
    return {check: wrong for check, wrong in found.items() if wrong} or None


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_named(tmp_path, seed):
    """By the files the first fault is named, with the model every one, and no other operator is accused."""
    trial = trials.draw(seed)

    assert told(trial, tmp_path) is None, str(trial)


_NARROW = ("O1 beside CPU", "bfloat16 beside CPU", "force_fp16 beside default", "force_fp16 beside CPU")
_OTHER = ("O1 beside CPU", "O2 beside O0", "O0 async beside sync", "bfloat16 beside float16")


@pytest.mark.parametrize("network", ["lenet", "mlp", *FURTHER])
def test_sound_networks_are_not_accused(tmp_path, network):
    """Rounding, steps of integers, sums of updates and numbers beyond float16 accuse no operator."""
    for kind in _NARROW if network in FURTHER else _OTHER:
        found, _ = table.rows(network, kind, 0, methods=BOTH, keep=tmp_path / kind)
        assert [("", ())] * 2 == [(row.error, row.accused) for row in found], kind


@pytest.mark.parametrize(
    ("name", "mine", "golden"),
    [
        ("integers", "Ascend:force_fp16", "float32"),
        ("tiny", "float32", "float64"),
        ("quantised", "onnxruntime:all", "float32"),
    ],
)
def test_variants_accuse_nobody(tmp_path, name, mine, golden):
    """Rounded inputs move integers by a step, exponentials lose small numbers, fused kernels round later."""
    sound, path = trials.Case(network(name), (), (CPU, CPU)), tmp_path / "net.onnx"
    onnx.save(sound.net.model, path)
    document = answers.diff(sound, tmp_path, str(path), "--mine", mine, "--golden", golden)

    assert [] == document["failures"]
    accused = {row["operator"] for row in document["operators"] if row["verdict"] in answers.ACCUSING}
    assert accused <= {row["operator"] for row in document["operators"] if answers.overflows(row)}
    assert {row["verdict"] for row in document["operators"]} - {"unchecked", "unreadable"}


def _retyped(name, op_type):
    def edit(model):
        site(model, name).node.op_type = op_type

    return Fault("type", "", frozenset({name}), frozenset({"own", "replaced", "extra"}), edit)


def _left_out(name):
    def edit(model):
        [node] = (each for each in model.graph.node if each.name == name)
        model.graph.node.remove(node)
        for each in model.graph.node:
            each.input[:] = [node.input[0] if value == node.output[0] else value for value in each.input]

    return Fault("dropped", "", frozenset({name}), frozenset({"missing", "replaced", "extra"}), edit)


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


def _edited(kind, node, verdicts, edit):
    return Fault(kind, "", frozenset({node}), frozenset(verdicts), edit)


def _of(text, feeds, **weights):
    """Return a network; weights are arrays, sizes of drawn arrays, or sizes with a function of the array."""
    model, draw = (
        parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}'),
        np.random.default_rng(0),
    )

    def array(item):
        if isinstance(item, tuple) and callable(item[-1]):
            return np.asarray(item[-1](draw.standard_normal(item[0], np.float32)), np.float32)
        return item if isinstance(item, np.ndarray) else draw.standard_normal(item, np.float32)

    model.graph.initializer.extend(
        numpy_helper.from_array(array(item), name) for name, item in weights.items()
    )
    return Net(model.graph.name, model, {name: array(item) for name, item in feeds.items()})


def _half(*size):
    return size, lambda array: array * np.float32(0.3)


def _one(number):
    return np.array([number], np.float32)


ROUTING = _of(
    """routing (float[4,16] x, int64 count) => (float[4,16] y) {
    y = Loop(count, , zeros) <body = step (int64 i, bool go, float[4,16] v) => (bool more, float[4,16] w) {
        more = Identity(go)  s = Softmax(v)  p = MatMul(s, weight)  q = Tanh(p)  w = Add(q, x) }> }""",
    {"x": (4, 16), "count": np.array(3)},
    weight=(16, 16),
    zeros=np.zeros((4, 16), np.float32),
)
COUPLING = _of(
    """coupling (float[4,16] x) => (float[4,16] y, float[4,16] z) {
    [o] o = Softmax(x)  [p] p = MatMul(o, m)  [q] q = Softmax(p)  [r] r = MatMul(q, m)  [z] z = Softmax(r)
    [a] a, b = Split<axis = 1, num_outputs = 2>(x)
    [t] t = MatMul(z, n)  [c] c = Mul(a, w)  [d] d = Add(c, t)
    [e] e, f = Split<axis = 1, num_outputs = 2>(d)
    [g] g = Mul(e, v)  [h] h = Sub(g, f)
    [i] i, j = Split<axis = 1, num_outputs = 2>(h)
    [k] k = Mul(i, u)  [l] l = Add(k, j)
    [y] y = Concat<axis = 1>(a, d, h, l) }""",
    {"x": (4, 16)},
    w=8,
    v=4,
    u=2,
    m=(16, 16),
    n=(16, 8),
)
SCORES = _of(
    """scores (float[6,2,8] x) => (float[6,2,5] y) {
    [product] p = MatMul(x, w)  [shares] y = Softmax<axis = -1>(p) }""",
    {"x": (6, 2, 8)},
    w=(8, 5),
)
BLOCKS = _of(
    """blocks (float[4,16] x) => (float[4,16] y) {
    [scaled0] a0 = Mul(x, s)  [moved0] b0 = Add(a0, t)  [gate0] g0 = Sigmoid(b0)  [gated0] c0 = Mul(b0, g0)
    [product0] d0 = MatMul(c0, w)  [bias0] e0 = Add(d0, t)  [curve0] f0 = Elu(e0)
    [scaled1] a1 = Mul(f0, s)  [moved1] b1 = Add(a1, t)  [gate1] g1 = Sigmoid(b1)  [gated1] c1 = Mul(b1, g1)
    [product1] d1 = MatMul(c1, v)  [bias1] e1 = Add(d1, t)  [curve1] f1 = Elu(e1)
    [scaled2] a2 = Mul(f1, s)  [moved2] b2 = Add(a2, t)  [gate2] g2 = Sigmoid(b2)  [gated2] c2 = Mul(b2, g2)
    [product2] d2 = MatMul(c2, u)  [bias2] e2 = Add(d2, t)  [curve2] y = Elu(e2) }""",
    {"x": (4, 16)},
    s=16,
    t=16,
    w=(16, 16),
    v=(16, 16),
    u=(16, 16),
)
SAMPLED = _of(
    """sampled (float[4,16] x, float[4,16] noise) => (float[4,16] y, float[4,16] spread) {
    [mean] m = MatMul(x, w)  [variance] v = MatMul(x, u)
    [half] h = Mul(v, s)  [spread] spread = Exp(h)  [scaled] r = Mul(spread, noise)  [moved] z = Add(m, r)
    [decoded] d = MatMul(z, w)  [curve] y = Elu(d) }""",
    {"x": (4, 16), "noise": (4, 16)},
    w=(16, 16),
    u=(16, 16),
    s=_one(0.5),
)
MIXED = _of(
    """mixed (float[2,8,16] x) => (float[2,8,16] y) {
    [turned] t = Transpose<perm = [0, 2, 1]>(x)  [product] p = MatMul(t, w)  [moved] q = Add(p, b)
    [back] r = Transpose<perm = [0, 2, 1]>(q)  [sum] s = Add(r, x)
    [product1] p1 = MatMul(s, u)  [moved1] q1 = Add(p1, c)  [curve1] r1 = Sigmoid(q1)
    [product2] p2 = MatMul(r1, u)  [moved2] q2 = Add(p2, c)  [gate2] r2 = Softmax(q2)
    [product3] p3 = MatMul(r2, u)  [moved3] q3 = Add(p3, c)  [gate3] y = Softmax(q3) }""",
    {"x": (2, 8, 16)},
    w=(8, 8),
    b=8,
    u=(16, 16),
    c=16,
)
SCANNED = _of(
    """scanned (float[5,8] x) => (float[8] last, float[5,8] y) {
    [start] h = Mul(h0, one)
    [scan] last, y = Scan<num_scan_inputs = 1,
        body = step (float[8] s, float[8] v) => (float[8] t, float[8] w) {
            [decayed] d = Mul(s, a)  [grown] t = Add(d, v)  [product] p = MatMul(t, u)  [curve] w = Tanh(p)
        }>(h, x) }""",
    {"x": (5, 8)},
    h0=8,
    a=8,
    u=(8, 8),
    one=np.ones(8, np.float32),
)
CELL = _of(
    """cell (float[6,2,12] x) => (float[6,2,4] y) {
    [cell] c, h, s = LSTM<hidden_size = 8>(x, w, r, b)
    [flat] f = Reshape(c, shape)  [product] p = MatMul(f, u)  [share] y = Softmax(p) }""",
    {"x": (6, 2, 12)},
    w=((1, 32, 12), lambda array: array / 4),
    r=((1, 32, 8), lambda array: array / 4),
    b=((1, 64), lambda array: array / 4),
    u=((8, 4), lambda array: array / 4),
    shape=np.array([6, 2, 8]),
)
SCALED = _of(
    """scaled (float[6,2,8] x) => (float[6,2,5] y) {
    [curve] c = Tanh(x)  [product] p = MatMul(c, w)  [bias] a = Add(p, b)  [scale] d = Div(a, t)
    [share] y = Softmax(d) }""",
    {"x": (6, 2, 8)},
    w=(8, 5),
    b=5,
    t=_one(0.7),
)
SQUEEZED = _of(
    """squeezed (float[1,8,6,6] x) => (float[1,8,6,6] y) {
    [first] h0 = Conv<pads = [1, 1, 1, 1]>(x, w0)  [mean0] m0 = GlobalAveragePool(h0)
    [dense0] d0 = Conv(m0, u0)  [gate0] g0 = HardSigmoid(d0)  [weighed0] e0 = Mul(h0, g0)
    [sum0] s = Add(x, e0)
    [second] h1 = Conv<pads = [1, 1, 1, 1]>(s, w1)  [mean1] m1 = GlobalAveragePool(h1)
    [dense1] d1 = Conv(m1, u1)  [gate1] g1 = HardSigmoid(d1)  [weighed1] e1 = Mul(h1, g1)
    [sum1] y = Add(s, e1) }""",
    {"x": (1, 8, 6, 6)},
    w0=((8, 8, 3, 3), lambda array: array * np.float32(0.12)),
    u0=_half(8, 8, 1, 1),
    w1=((8, 8, 3, 3), lambda array: array * np.float32(0.12)),
    u1=_half(8, 8, 1, 1),
)
FOLDED = _of(
    """folded (float[4,8] x) => (float[4,8] y) {
    [curve] c = Tanh(x)  [turned] t = Transpose<perm = [1, 0]>(w)
    [product] p = MatMul(c, t)  [share] y = Softmax(p) }""",
    {"x": (4, 8)},
    w=(8, 8),
)
PIECES = _of(
    """pieces (float[4,8] x) => (float[4,4] y) {
    [gate] g = Mul(x, half)  [dense] d = MatMul(g, w)  [cut] q, k = Split<axis = -1, num_outputs = 2>(d)
    [scale] s = Mul(q, less)  [turned] t = Transpose<perm = [1, 0]>(k)  [scores] p = MatMul(s, t)
    [share] h = Softmax(p)  [last] y = Mul(h, half) }""",
    {"x": (4, 8)},
    half=np.array(0.5, np.float32),
    less=np.array(0.35, np.float32),
    w=(8, 16),
)
RECURRENT = _of(
    """recurrent (float[5,8] x) => (float[5,8] y) {
    d = MatMul(x, w)  delta = Softplus(d)  z = MatMul(x, u)
    last, seq = Scan<num_scan_inputs = 2, body = step (float[8] h, float[8] dt, float[8] v)
        => (float[8] next, float[8] o) {
        n = Mul(dt, a)  decay = Exp(n)  kept = Mul(h, decay)  more = Mul(dt, v)
        next = Add(kept, more)  o = Tanh(next) }>(zeros, delta, x)
    gate = Sigmoid(z)  gated = Mul(z, gate)  mixed = Mul(seq, gated)  y = MatMul(mixed, w) }""",
    {"x": (5, 8)},
    w=_half(8, 8),
    u=_half(8, 8),
    a=(8, lambda array: -np.abs(array)),
    zeros=np.zeros(8, np.float32),
)
ROTATED = _of(
    """rotated (float[4,8] x) => (float[4,8] y) {
    [dense] q = MatMul(x, v)  [angle] s = Tanh(x)  [wide] e = Mul(q, s)
    [front] f, b = Split<axis = 1, num_outputs = 2>(q)  [turned] n = Neg(b)
    [joined] r = Concat<axis = 1>(n, f)  [across] g = Mul(r, s)  [sum] a = Add(e, g)
    [share] h = Softmax(a)  [last] y = MatMul(h, w) }""",
    {"x": (4, 8)},
    v=(8, 8),
    w=(8, 8),
)
SQUARED = _of(
    """squared (float[4,16] x) => (float[4,16] y) {
    [square] s = Pow(x, two)  [share] h = Softmax(s)  [product] p = MatMul(h, w)  [curve] y = Tanh(p) }""",
    {"x": ((4, 16), np.abs)},
    two=np.array(2, np.float32),
    w=(16, 16),
)


def _axis(model):
    model.graph.node[1].attribute[0].i = 0


def _turned(model):
    model.graph.node[1].attribute[0].ints[:] = [0, 1]


def _swapped(model):
    model.graph.node[0].input[:] = ["two", "x"]


_EDGE = float(
    np.quantile(np.abs(SCORES.feeds["x"] @ numpy_helper.to_array(SCORES.model.graph.initializer[0])), 0.8)
)
OVERFLOW = Fault(
    "overflow",
    "",
    frozenset({"product"}),
    frozenset({"nonfinite"}),
    wrong={"product": overflowing(70000 / _EDGE)},
)
ERROR = Fault("error", "", frozenset({"sum"}), frozenset({"own"}), wrong={"sum": scaled(0.1)})

COMPILED = [mode for mode in MODES if mode.name.startswith("O2")]
ON_CPU = [(mode, CPU) for mode in MODES]
PAIRS = [*ON_CPU, *((mode, mode) for mode in COMPILED)]
COMPILED_ON_CPU = [(mode, CPU) for mode in COMPILED]
COMPILED_PAIRS = [*COMPILED_ON_CPU, *((mode, mode) for mode in COMPILED)]

# Each claim: network, faults of each trial, pairs of modes, checks.
CLAIMS = {
    "what a loop begins with is no weight of later passes": (ROUTING, [()], ON_CPU, BOTH),
    "kernels that read pieces have their counterparts": (
        COUPLING, [(), (_left_out("c"),)], ON_CPU[4:6], BOTH,
    ),
    "a wrong axis is told behind an overflow by the finite elements": (
        SCORES, [(OVERFLOW, _edited("attribute", "shares", {"own", "replaced"}, _axis))], ON_CPU, ("model",),
    ),
    "kernels behind a changed operator, whose numbers moved, are not taken for others": (
        BLOCKS,
        [(_retyped("scaled0", "Add"),), (_retyped("moved1", "Sub"),), (_left_out("curve0"),)],
        ON_CPU,
        BOTH,
    ),
    "the reader of what a dropped part read is innocent": (
        SAMPLED, [(_left_out("moved"),)], [each for each in PAIRS if each[0].name != "O1"], BOTH,
    ),
    "the reader of what replaces a fused part is innocent": (
        MIXED, [(_retyped("moved", "Max"),), (_retyped("moved1", "Max"),)], PAIRS, BOTH,
    ),
    "what replaces a fused part is told behind another fault": (
        MIXED, [(ERROR, _retyped("moved1", "Sub"))], COMPILED_ON_CPU, BOTH,
    ),
    "the only stranger in a body stands for what the body lacks": (
        SCANNED,
        [
            (_scaled("u", "product"), _retyped("grown", "Max")),
            (_scaled("a", "decayed"), _retyped("curve", "Softsign")),
        ],
        COMPILED_PAIRS,
        ("model",),
    ),
    "weights without names are compared though it is not quite sure who reads them": (
        CELL, [(_flipped(weight, "cell"),) for weight in "wrb"], COMPILED_PAIRS, BOTH,
    ),
    "a part that the only fused kernel lacks is told": (SCALED, [(_left_out("bias"),)], PAIRS, BOTH),
    "a kernel that is fused otherwise behind what was dropped is innocent": (
        SQUEEZED, [(_left_out("dense1"), _scaled("w1", "second"))], PAIRS, BOTH,
    ),
    "the reader of a constant that the compiler made wrongly is told": (
        FOLDED, [(_edited("attribute", "product", {"weight"}, _turned),)], COMPILED_PAIRS, BOTH,
    ),
    "readers of pieces are not missing": (PIECES, [(_retyped("gate", "Add"),)], PAIRS, BOTH),
    "what a scan cuts and puts together is no weight": (RECURRENT, [()], PAIRS, BOTH),
    "what a concat put together is no weight": (ROTATED, [(_scaled("v", "dense"),)], PAIRS, ("model",)),
    "inputs and weights in another order are no errors that an operator inherits": (
        SQUARED, [(_edited("swapped", "square", {"own", "replaced", "weight"}, _swapped),)], ON_CPU[:4], BOTH,
    ),  # the others have no file of a graph
}  # fmt: skip
NAMES_ALONE = {
    *(
        ("kernels behind a changed operator, whose numbers moved, are not taken for others", n)
        for n in range(3)
    ),
    *(("the only stranger in a body stands for what the body lacks", number) for number in range(2)),
    ("a kernel that is fused otherwise behind what was dropped is innocent", 0),
    ("a part that the only fused kernel lacks is told", 0),
    ("kernels that read pieces have their counterparts", 1),
    ("readers of pieces are not missing", 0),
    ("the reader of a constant that the compiler made wrongly is told", 0),
    ("the reader of what a dropped part read is innocent", 0),
    ("the reader of what replaces a fused part is innocent", 1),
}
"""Claims that do not hold under O2: its dumps have no graph file, and names that moved pair others."""
TRIALS = [
    pytest.param(
        trials.Case(net, faults, pair), checks, id=f"{claim}, {number}, {pair[0].name}, {pair[1].name}"
    )
    for claim, (net, alternatives, pairs, checks) in CLAIMS.items()
    for number, faults in enumerate(alternatives)
    for pair in pairs
    if (claim, number) not in NAMES_ALONE or not pair[0].name.startswith("O2")
]


@pytest.mark.parametrize(("trial", "checks"), TRIALS)
def test_claims_on_small_networks(tmp_path, trial, checks):
    """Each claim of the table holds: its faults are named, and no other operator is accused."""
    assert told(trial, tmp_path, checks) is None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_trials(capsys):
    """Of a hundred trials every answer is right."""
    wrong = run.run(BOTH, range(100), (), None)

    assert 0 == wrong, capsys.readouterr().out
