"""Faults of branches and loops, which have no files of their own, and of operators inside."""

import numpy as np
import pytest

from tests.judge.roads import ROADS, judged
from tests.texts import parsed

LOOPS = """g (float[2,4] x) => (float[2,4] y)
    <int64 n = {4}, bool yes = {1}, float edge = {0.1}, float half = {0.5}> {
    [in] r = Relu(x)
    [loop] last, all = Loop(n, yes, h) < body = again
        (int64 number, bool before, float[2,4] value) => (bool more, float[2,4] next, float[2,4] scanned) {
            [product] p = MatMul(value, w) [sum] s = Add(p, r) [act] a = Tanh(s)
            [mean] m = ReduceMean<keepdims = 0>(a) [greater] g = Greater(m, edge)
            [branch] i = If(g) <
                then_branch = one () => (float[2,4] t) { [mt] t0 = MatMul(a, u) [tt] t = Tanh(t0) },
                else_branch = two () => (float[2,4] e) { [me] e0 = MatMul(a, v) [se] e = Sigmoid(e0) } >
            [rest] c = Add(i, a) [halved] next = Mul(c, half)
            [cond] more = Identity(before) [neg] scanned = Neg(a)
        } >
    [mid] b = Sigmoid(last)
    [scan] state, rows = Scan<num_scan_inputs = 1, body = steps (float[2,4] before, float[2,4] row)
        => (float[2,4] after, float[2,4] seen) {
            [ms] q = MatMul(before, z) [as] o = Add(q, row) [ts] after = Tanh(o) [abs] seen = Abs(after)
        }>(b, all)
    [total] d = ReduceSum<keepdims = 0>(rows) [end] y = Mul(state, d) }"""
RANDOM = np.random.default_rng(5)
WEIGHTS = {name: RANDOM.standard_normal((4, 4)).astype(np.float32) / 2 for name in "wuvz"}
WEIGHTS |= {name: np.full((2, 4), value, np.float32) for name, value in {"h": 0.3, "s0": 0.1}.items()}
X = RANDOM.standard_normal((2, 4)).astype(np.float32)

FAULTS = {  # text in LOOPS and its replacement, or a weight and its factor; the node at fault
    "sound": ("", "", None),
    "start value": ("h", 1.5, "loop"),
    "zeroed state": ("h", 0, "loop"),
    "one pass too many": ("n = {4}", "n = {5}", "loop"),
    "start of a Scan": (">(b, all)", ">(s0, all)", "scan"),
    "operator of the body": ("a = Tanh(s)", "a = Sigmoid(s)", "act"),
    "weight of the body": ("w", 1.05, "product"),
    "weight of a branch": ("u", 1.2, "mt"),
    "operator of a branch": ("t = Tanh(t0)", "t = Sigmoid(t0)", "tt"),
    "operator of a Scan": ("seen = Abs(after)", "seen = Neg(after)", "abs"),
    "another value in the body": ("Add(i, a)", "Add(i, value)", "rest"),
}


@pytest.mark.parametrize(("old", "new", "node"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("road", ROADS)
def test_the_fault_in_a_loop_is_named(old, new, node, road, tmp_path):
    """A wrong input of a branch or loop is its fault, a wrong operator inside that of the operator."""
    scaled = {old: WEIGHTS[old] * np.float32(new)} if old in WEIGHTS else {}
    text = LOOPS if scaled else LOOPS.replace(old, new)
    golden = parsed(LOOPS, **WEIGHTS)

    code, accused, _ = judged(tmp_path, parsed(text, **{**WEIGHTS, **scaled}), golden, road, x=X)

    assert (int(bool(node)), [node] * bool(node)) == (code, [*dict.fromkeys(accused)])


STARTED = """g (float[2,4] x) => (float[2,4] y) <int64 n = {2}, bool yes = {1}> {
    [start] first = Exp(x)
    [loop] y = Loop(n, yes, first) < body = again
        (int64 number, bool before, float[2,4] value) => (bool more, float[2,4] next) {
            [product] p = MatMul(value, w) [act] next = Tanh(p) [cond] more = Identity(before)
        } > }"""


def test_an_operator_that_is_lost_before_a_compiled_loop_is_named(tmp_path):
    """Kernels of a body that read its state behind casts show that its start lacks golden's operator."""
    lost = STARTED.replace("[start] first = Exp(x)", "").replace("first)", "x)")
    mine, golden = (parsed(text, w=WEIGHTS["w"]) for text in (lost, STARTED))

    code, accused, told = judged(tmp_path, mine, golden, "diff", "--mine", "Ascend:O2", x=X)

    assert (1, "missing", ["start"]) == (code, told["verdict"], accused)
