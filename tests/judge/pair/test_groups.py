"""Operators that one side computes in another way: folded, merged, or one for several."""

import numpy as np
import pytest

from tests.judge.roads import ROADS, judged
from tests.texts import parsed

RANDOM = np.random.default_rng(5)
W1, W2 = (RANDOM.standard_normal((4, 4, 3, 3)).astype(np.float32) / 6 for _ in range(2))
SCALE, SHIFT, MEAN = (RANDOM.uniform(0.5, 1.5, 4).astype(np.float32) for _ in range(3))
X = RANDOM.standard_normal((1, 4, 8, 8)).astype(np.float32)
VARIANCE = np.float32([1, 2, 3, 4])
GAIN = SCALE / np.sqrt(VARIANCE)
W3 = RANDOM.standard_normal((64, 10)).astype(np.float32)
HEAD = """f = Add({}, c) h = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(f) i = Flatten(h)
    j = MatMul(i, w3) k = Relu(j) y = Softmax(k) }}"""
APART = """g (float[1,4,8,8] x) => (float[1,10] y) {
    [first] a = Conv<pads = [1, 1, 1, 1]>(x, w1) [norm] b = BatchNormalization<epsilon = 0.0>(a, s, t, m, v)
    c = Relu(b)
    [second] d = Conv<pads = [1, 1, 1, 1]>(c, w2) [norm2] e = BatchNormalization<epsilon = 0.0>(d, s, t, m, v)
    """ + HEAD.format("e")
FOLDED = """g (float[1,4,8,8] x) => (float[1,10] y) {
    [first] a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1) c = Relu(a)
    [second] d = Conv<pads = [1, 1, 1, 1]>(c, w2, b2)
    """ + HEAD.format("d")


SHARED = {"w3": W3, "s": SCALE, "t": SHIFT, "m": MEAN, "v": VARIANCE}


def folded(*, is_apart, factor=1.0):
    """Return a network with two BatchNorms apart, or folded into weights; the second weight scaled."""
    factor = np.float32(factor)
    if is_apart:
        return parsed(APART, w1=W1, w2=W2 * factor, **SHARED)
    gain, bias = GAIN[:, None, None, None], SHIFT - MEAN * GAIN
    return parsed(FOLDED, w3=W3, w1=W1 * gain, b1=bias, w2=W2 * gain * factor, b2=bias)


@pytest.mark.parametrize(
    ("is_apart", "factor", "node"),
    [(False, 1, None), (True, 1, None), (False, 1.1, "second"), (True, 1.1, "norm2")],
    ids=["folded", "apart", "wrong folded", "wrong apart"],
)
@pytest.mark.parametrize("road", ROADS)
def test_a_folded_batch_norm_is_compared_at_its_borders(is_apart, factor, node, road, tmp_path):
    """Weights with a BatchNorm folded in have no counterpart; a wrong result alone is accused."""
    mine, golden = folded(is_apart=is_apart, factor=factor), folded(is_apart=not is_apart)

    code, accused, told = judged(tmp_path, mine, golden, road, x=X)

    assert (int(bool(node)), [node] * bool(node), []) == (code, accused, told["facts"])


MERGED = (
    """g (float[2,3,4] x) => (float[3,4,2] y) { a = Relu(x) [t] b = Transpose<perm = [1, 2, 0]>(a)
    y = Abs(b) }""",
    """g (float[2,3,4] x) => (float[3,4,2] y) { a = Relu(x) [t] b = Transpose<perm = [1, 0, 2]>(a)
    [u] c = Transpose<perm = [0, 2, 1]>(b) y = Abs(c) }""",
)


@pytest.mark.parametrize("is_turned", [False, True])
def test_two_transposes_are_compared_with_the_one_that_does_their_work(tmp_path, is_turned):
    """One Transpose in the place of two is no fault."""
    models = [*map(parsed, MERGED)][:: -1 if is_turned else 1]
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)

    assert (0, []) == judged(tmp_path, *models, "diff", x=x)[:2]
