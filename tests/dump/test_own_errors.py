"""Own errors with ``compare --model`` and ``diff``: rounding of any type is none, wrong kernels are."""

import json
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from scripts.faults import kernels
from tests.dump.compared import document
from tests.texts import parsed
from tests.world import O0, O2, cli, opened

pytestmark = pytest.mark.usefixtures("quiet")

RNG = np.random.default_rng(0)
MODES = {
    "CPU": {},
    "Ascend:allow_fp32_to_fp16": {"context": O0},
    "Ascend:O2:allow_fp32_to_fp16": {"context": O2, "file_format": "npy", "e2e_dump_settings": None},
    "Ascend:force_fp16": {"context": {"device_target": "Ascend"}, "precision_mode": "force_fp16"},
    "Ascend:allow_fp32_to_bf16": {
        "context": {"device_target": "Ascend"},
        "precision_mode": "allow_fp32_to_bf16",
    },
}


def normal(*shape):
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def block(axis=-1):
    """Return the model of a residual block with a softmax."""
    text = f"""g (float[8,64] x) => (float[8,64] y) {{
        [m0] a = MatMul(x, w0) [r0] b = Relu(a) [m1] c = MatMul(b, w1) [add] d = Add(c, b)
        [sm] e = Softmax<axis = {axis}>(d) [m2] f = MatMul(e, w2) [add2] h = Add(f, d)
        [m3] y = MatMul(h, w3) }}"""
    return parsed(text, **WEIGHTS)


WEIGHTS = {f"w{number}": normal(64, 64) / 8 for number in range(4)}
TAIL = np.where(np.arange(8 * 64) < 500, 1, 0).reshape(8, 64).astype(np.float32)
NOISE = kernels.noisy(0.01 * normal(8, 64))
KERNELS = {
    "sound": ({}, ""),
    "tail of a product": ({"m1": (kernels.Step("Mul", (TAIL,)),)}, "MatMul-op1"),
    "tail of a sum": ({"add2": (kernels.Step("Mul", (TAIL,)),)}, "Add-op1"),
    "noise in a sum": ({"add": NOISE}, "Add-op0"),
    "noise behind a softmax": ({"add2": NOISE}, "Add-op1"),
    "noise in a softmax": ({"sm": NOISE}, "Softmax-op0"),
}


FEEDS = {"x": normal(8, 64)}


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    """Return the dump of the block on the CPU, its model beside it."""
    with opened(tmp_path_factory.mktemp("golden")) as door:
        return door.aside("golden", block(), FEEDS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("wrong", "expected"), KERNELS.values(), ids=KERNELS)
def test_wrong_kernels_are_named_by_the_model(door, golden, wrong, expected, mode):
    """A kernel that clears the tail of its output, and 1 % of noise, are named in every arithmetic."""
    with kernels.injected(wrong) if wrong else nullcontext():
        mine = door.aside("mine", block(), FEEDS, **MODES[mode])

    _, told = document(mine, golden, "--model", f"{golden}.onnx")

    assert [f"Default/{expected}"] * bool(expected) == told["accused"]


@pytest.mark.parametrize("mode", MODES)
def test_a_softmax_over_another_axis_is_named(door, golden, mode):
    """An attribute that differs shows in the results, also where a compiled graph has no attributes."""
    mine = door.aside("mine", block(axis=0), FEEDS, **MODES[mode])

    _, told = document(mine, golden, "--model", f"{golden}.onnx")

    assert ["Default/Softmax-op0"] == told["accused"]


SHIFTED = {"x": normal(8, 64)}
MEAN = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
SOUND = {
    "a difference of nearly equal numbers": (
        """g (float[8,64] x) => (float[8,64] y) {
            a = MatMul(x, w) b = Sub(a, shift)
            c = LayerNormalization<axis = -1>(b, one, zero) y = Sigmoid(c) }""",
        {
            "w": WEIGHTS["w0"],
            "shift": SHIFTED["x"] @ WEIGHTS["w0"] + normal(8, 64) / 1000,
            "one": np.ones(64, np.float32),
            "zero": np.zeros(64, np.float32),
        },
        SHIFTED,
    ),
    "a convolution that cancels": (
        "g (float[1,3,16,16] x) => (float[1,8,14,14] y) { a = Conv(x, k) y = Relu(a) }",
        {"k": MEAN - MEAN.mean(axis=(1, 2, 3), keepdims=True)},
        {"x": 100 + normal(1, 3, 16, 16) / 100},
    ),
    "boxes that are rounded": (
        """g (float[1,64,4] x) => (float[N,4] y) <int64 most = {20}, float iou = {0.5}, float least = {0.1}> {
            t = Mul(x, k) i = NonMaxSuppression(t, score, most, iou, least) j = Gather<axis = 1>(i, two)
            b = Squeeze(t, zero) y = Gather(b, j) }""",
        {
            "k": np.float32(37.123),
            "score": RNG.random((1, 1, 64)).astype(np.float32),
            "two": np.int64(2),
            "zero": np.array([0]),
        },
        {
            "x": np.concatenate([RNG.random((1, 64, 2)) * 4, 5 + RNG.random((1, 64, 2))], -1).astype(
                np.float32
            )
        },
    ),
    "a convolution of one dimension": (
        """g (float[2,16,400] x) => (float[2,16,398] y) {
            a = Conv<pads = [1, 1]>(x, k) b = Tanh(a) y = Conv(b, k) }""",
        {"k": normal(16, 16, 3) / 7},
        {"x": normal(2, 16, 400)},
    ),
}


@pytest.mark.parametrize(
    ("other", "mode"),
    [
        *(("CPU", mode) for mode in MODES if mode != "CPU"),
        # without a graph file nothing says that float16 and bfloat16 round one weight: not beside O2
        *(("Ascend:allow_fp32_to_bf16", mode) for mode in MODES if mode != "CPU" and "O2" not in mode),
    ],
)
@pytest.mark.parametrize("case", SOUND)
def test_rounding_in_the_type_that_computed_is_no_own_error(door, case, other, mode):
    """Sums that cancel and ties that rounding moves accuse nothing, in any type that golden computed in."""
    text, arrays, feeds = SOUND[case]
    model = parsed(text, **arrays)
    golden, mine = (
        door.aside(name, model, feeds, **MODES[each]) for name, each in (("golden", other), ("mine", mode))
    )
    np.savez(door.folder / "inputs.npz", **feeds)

    _, told = document(mine, golden, "--model", f"{golden}.onnx")
    options = ["--mine", mode, "--golden", other, "--inputs", f"{door.folder}/inputs.npz", "--json"]
    done = cli("diff", f"{golden}.onnx", *options)

    assert ([], []) == (told["accused"], json.loads(done.stdout)["accused"])


def test_saturation_is_an_overflow(door):
    """65504 in place of a larger number is an infinity, though the device's arithmetic makes it again."""
    text = """g (float[4,16] x) => (float[4,16] y) <float k = {300.0}, float s = {0.001}>
        { a = Mul(x, k) b = Mul(a, k) c = Mul(b, s) y = Tanh(c) }"""
    feeds = {"x": normal(4, 16)}
    golden = door.aside("golden", parsed(text), feeds)
    door.monkeypatch.setenv("MS_ASCEND_CHECK_OVERFLOW_MODE", "SATURATION_MODE")
    mine = door.aside("mine", parsed(text), feeds, **MODES["Ascend:force_fp16"])
    np.savez(door.folder / "inputs.npz", **feeds)

    found = [document(mine, golden)[1], document(mine, golden, "--model", f"{golden}.onnx")[1]]
    options = [
        "--mine",
        "Ascend:force_fp16:SATURATION_MODE",
        "--inputs",
        f"{door.folder}/inputs.npz",
        "--json",
    ]
    found.append(json.loads(cli("diff", f"{golden}.onnx", *options).stdout))

    assert [("nonfinite", ["Default/Mul-op1"])] * 3 == [(each["verdict"], each["accused"]) for each in found]


def test_integers_have_no_rounding(door):
    """A cast that gives another id is named, though the numbers that it reads are near golden's."""
    text = """g (float[2,32] x) => (float[2,8] y) { a = Mul(x, k) [cast] i = Cast<to = 7>(a)
        j = Clip(i, least, most) e = Gather(table, j) y = ReduceMean<keepdims = 0>(e, axis) }"""
    arrays = {"k": np.float32(20), "table": normal(200, 8), "axis": np.array([1])}
    model = parsed(text, **arrays, least=np.int64(0), most=np.int64(199))
    feeds = {"x": np.abs(normal(2, 32))}
    golden = door.aside("golden", model, feeds)
    half = MODES["Ascend:force_fp16"]
    sound = door.aside("sound", model, feeds, **half)
    wrong = (kernels.Step("Sub", ((np.arange(64).reshape(2, 32) == 5).astype(np.int64),)),)
    with kernels.injected({"cast": wrong}):
        mine = door.aside("mine", model, feeds, **half)

    accused = [document(each, golden, "--model", f"{golden}.onnx")[1]["accused"] for each in (sound, mine)]

    assert [[], ["Default/Cast-op0"]] == accused


def test_equal_bits_are_no_own_error(door):
    """A tensor with golden's bits is not accused, though the model given is another one."""
    feeds, other = {"x": normal(8, 64)}, block()
    golden = door.aside("golden", block(), feeds)
    with kernels.injected({"add2": NOISE}):
        mine = door.aside("mine", block(), feeds)
    (weight,) = [each for each in other.graph.initializer if each.name == "w1"]
    weight.CopyFrom(numpy_helper.from_array(2 * WEIGHTS["w1"], "w1"))
    onnx.save(other, door.folder / "other.onnx")

    _, told = document(mine, golden, "--model", door.folder / "other.onnx")

    assert ["Default/Add-op1"] == told["accused"]
