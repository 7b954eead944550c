"""Operators that one side computes in another way: folded, merged, or one for several."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from msdump.cli import main
from tests.dump.conftest import opened
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


@pytest.fixture
def models(tmp_path):
    """Return a function that writes a network with BatchNorm apart, and one with it folded into weights."""
    shared = {"w3": W3, "s": SCALE, "t": SHIFT, "m": MEAN, "v": VARIANCE}

    def write(factor=1.0):
        gain, bias = GAIN[:, None, None, None], SHIFT - MEAN * GAIN
        onnx.save(parsed(APART, w1=W1, w2=W2, **shared), tmp_path / "apart.onnx")
        folded = {"w1": W1 * gain, "b1": bias, "w2": W2 * gain * np.float32(factor), "b2": bias}
        onnx.save(parsed(FOLDED, w3=W3, **folded), tmp_path / "folded.onnx")
        return tmp_path / "apart.onnx", tmp_path / "folded.onnx"

    return write


def judged(tmp_path, mine, golden, road):
    """Return the exit code, and the accused operators, of two models or of dumps of them."""
    if road == "files":
        for name, model in (("mine", mine), ("golden", golden)):
            (tmp_path / name).mkdir()
            with opened(tmp_path / name) as door:
                door.dump(onnx.load(model), {"x": X})
        arguments = ["compare", *(tmp_path / name / "dump" for name in ("mine", "golden")), "-out", tmp_path]
    else:
        arguments = ["diff", mine, golden]
    done = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    accused = {"own", "weight", "missing", "extra", "replaced", "shape", "accumulated"}
    document = json.loads(done.stdout)
    return done.exit_code, [each["onnx_name"] for each in document["operators"] if each["verdict"] in accused]


@pytest.mark.parametrize("road", ["files", "diff"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_folded_batch_norm_is_compared_at_its_borders(models, tmp_path, monkeypatch, road, is_turned):
    """Weights of a convolution into which a BatchNorm is folded are compared with none, and nothing lacks."""
    monkeypatch.chdir(tmp_path)
    mine, golden = models()[:: -1 if is_turned else 1]

    assert (0, []) == judged(tmp_path, mine, golden, road)


@pytest.mark.parametrize("road", ["files", "diff"])
def test_a_wrong_weight_of_a_folded_convolution_is_named(models, tmp_path, monkeypatch, road):
    """The one convolution with a wrong weight inside is named, and nothing else."""
    monkeypatch.chdir(tmp_path)
    golden, mine = models(factor=1.5)

    assert (1, ["second"]) == judged(tmp_path, mine, golden, road)


MERGED = (
    """g (float[2,3,4] x) => (float[3,4,2] y) { a = Relu(x) [t] b = Transpose<perm = [1, 2, 0]>(a)
    y = Abs(b) }""",
    """g (float[2,3,4] x) => (float[3,4,2] y) { a = Relu(x) [t] b = Transpose<perm = [1, 0, 2]>(a)
    [u] c = Transpose<perm = [0, 2, 1]>(b) y = Abs(c) }""",
)


@pytest.mark.parametrize("is_turned", [False, True])
def test_two_transposes_are_compared_with_the_one_that_does_their_work(tmp_path, is_turned):
    """One Transpose in the place of two is no fault."""
    for name, text in zip(("one", "two"), MERGED, strict=True):
        onnx.save(parsed(text), tmp_path / f"{name}.onnx")
    paths = [tmp_path / "one.onnx", tmp_path / "two.onnx"][:: -1 if is_turned else 1]

    assert (0, []) == judged(tmp_path, *paths, "diff")
