"""Operators that one side computes in another way: folded, merged, or one for several."""

import re

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


GROUPS = {
    "two transposes": (
        "{ a = Relu(x) [t] b = Transpose<perm = [1, 3, 2, 0]>(a) y = Abs(b) }",
        """{ a = Relu(x) [t] b = Transpose<perm = [1, 0, 2, 3]>(a) [u] c = Transpose<perm = [0, 3, 2, 1]>(b)
        y = Abs(c) }""",
    ),
    "transposed by the reader": (
        """{ t = Reshape(x, m1) q = Gather(t, zero) k = Gather(t, one) l = Transpose<perm = [1, 0]>(k)
        s = MatMul(q, l) y = Softmax(s) }""",
        """{ t = Reshape(x, m1) q = Gather(t, zero) j = Slice(t, from, to, axis) k = Squeeze(j, axis)
        s = Gemm<transB = 1>(q, k) y = Softmax(s) }""",
    ),
    "reshaped twice": (
        "{ t = Reshape(x, m2) a = Gemm(t, w, b) c = Reshape(a, m3) d = Reshape(c, m4) y = Softmax(d) }",
        "{ t = Reshape(x, m2) a = MatMul(t, w) c = Add(a, b) d = Reshape(c, m4) y = Softmax(d) }",
    ),
}
GROUPS["written in another way"] = (
    "{ a = Relu(x) c = Reshape(a, m1) y = Softmax(c) }",
    "{ a = Relu(x) m = Constant<value = int64[3] {4, -1, 4}>() c = Reshape(a, m) y = Softmax(c) }",
)
SHAPES = {"m1": [4, 16, 4], "m2": [64, 4], "m3": [4, 16, 6], "m4": [4, 2, 8, 6]}
PLACES = {"zero": 0, "one": 1, "from": [1], "to": [2], "axis": [0]}
CONSTANTS = {name: np.int64(each) for name, each in (SHAPES | PLACES).items()}
CONSTANTS |= {"w": W3[:4, :6], "b": W3[5, :6]}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_operators_are_compared_with_the_ones_that_do_their_work(tmp_path, group, is_turned, road):
    """Operators that other ones stand for, and values that one side alone moves, are no fault."""
    models = []
    for text in group[:: -1 if is_turned else 1]:
        read = {name: each for name, each in CONSTANTS.items() if re.search(rf", {name}[,)]", text)}
        models.append(parsed(f"g (float[1,4,8,8] x) => (float[] y) {text}", **read))

    assert (0, []) == judged(tmp_path, *models, road, x=X)[:2]


FRAME = """g (float[2,3,4] x) => (float[{}] y)
    {{ p = MatMul(x, v) s = Softmax(p) a = Tanh(s) {} e = Sigmoid(m) f = Abs(e) y = Sqrt(f) }}"""
FORMS = {  # shape of the output, and two ways to compute m from a
    "joined axes": (
        *("2,3,4", "r = Reshape(a, rows) g = Gemm(r, w, b) m = Reshape(g, apart)"),
        "g = MatMul(a, w) m = Add(g, b)",
    ),
    "axes in another form": ("2,12", "m = Reshape(a, two)", "m = Reshape<allowzero = 1>(a, flat)"),
    "fewer axes": ("1,1,2,3,4", "m = Unsqueeze(a, both)", "q = Unsqueeze(a, first) m = Unsqueeze(q, second)"),
    "a sum with zeros": ("2,3,4", "m = MatMul(a, w)", "g = MatMul(a, w) m = Add(g, zeros)"),
    "a Transpose behind": (
        *("3,2,4", "n = Neg(a) t = Transpose<perm = [1, 0, 2]>(n) m = MatMul(t, w)"),
        "t = Transpose<perm = [1, 0, 2]>(a) n = Neg(t) m = MatMul(n, w)",
    ),
    "a rounded weight": ("2,3,4", "m = MatMul(a, rounded)", "m = MatMul(a, w)"),
}
V, W = RANDOM.standard_normal((2, 4, 4)).astype(np.float32)
READ = {"v": V, "w": W, "rounded": np.nextafter(W, np.float32(9)), "b": W[0], "zeros": np.zeros(4, "f4")}
READ |= {"rows": [6, 4], "apart": [2, 3, 4], "two": [2, -1], "flat": [2, 12]}
READ |= {"both": [0, 1], "first": [0], "second": [1]}


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(("shape", "one", "two"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("road", ROADS)
def test_forms_of_one_network_agree(shape, one, two, is_turned, road, tmp_path):
    """Where the values around operators agree, other operators, shapes and arguments are no fault."""
    x = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
    models = [
        parsed(
            FRAME.format(shape, each),
            **{
                name: np.asarray(array)
                for name, array in READ.items()
                if re.search(rf"\b{name}\b", f"v {each}")
            },
        )
        for each in (one, two)[:: -1 if is_turned else 1]
    ]

    code, accused, told = judged(tmp_path, *models, road, x=x)

    assert (0, []) == (code, accused)
    assert [] == [each for each in told["operators"] if each["verdict"] in {"missing", "extra"}]
