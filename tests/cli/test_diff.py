"""``msdump diff``: text, exit codes, and no files."""

import json

import numpy as np
import pytest
from onnx import parser, save

from msdump.cli import diff as diff_command
from msdump.cli import documents
from msdump.judge.diff import LockstepComparison
from tests.texts import parsed
from tests.world import GRAPHS, cli, completed

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
OVERFLOWING = """
net (float[N] x) => (float[N] y) <float k = {300.0}>
{ big = Mul(x, k) square = Mul(big, big) root = Sqrt(square) y = Div(root, k) }
"""

DRAWING = """
net (float[64] x) => (float[1,64] y) <float ratio = {{0.5}}, bool trains = {{1}},
    float[1,4] scores = {{1,2,3,4}}>
{{ p = Sigmoid(x) b = Bernoulli(p) n = RandomNormalLike(x) u = RandomUniform <shape = [64]>()
   m = Multinomial <sample_size = 64>(scores) i = Cast <to = 1>(m) s = Sum(i, b, n, u)
   d = Dropout(s, ratio, trains) y = Selu <gamma = {gamma}>(d) }}
"""


@pytest.fixture
def diff(fresh, tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder; it writes nothing there."""
    monkeypatch.chdir(tmp_path)
    save(parser.parse_model(f"{HEAD} {OVERFLOWING}"), tmp_path / "net.onnx")
    for name, gamma in (("drawing", 1.0), ("wrong", 1.5)):
        save(parser.parse_model(f"{HEAD} {DRAWING.format(gamma=gamma)}"), tmp_path / f"{name}.onnx")
    for name, scale in (("small", 0.5), ("large", 2.0)):
        np.savez(tmp_path / f"{name}.npz", x=np.full(3, scale, np.float32))
    before = sorted(tmp_path.iterdir())

    def run(*arguments):
        result = cli("diff", *arguments)
        assert before == sorted(tmp_path.iterdir())
        return result

    return run


def test_sides_that_agree(diff):
    """The first line says how far the outputs are apart, and the exit code is 0; -v lists every operator."""
    result = diff(str(GRAPHS / "lenet.onnx"), "-v")

    assert 0 == result.exit_code, result.output
    assert result.stdout.startswith("verdict   agrees: the outputs agree (error ")
    assert "Default/conv1-Conv2d/Conv2D-op0" in result.stdout
    assert "on Ascend against float32" in result.stdout
    assert "output    output: distance 0.000" in result.stdout


def test_the_operator_at_fault_is_named(diff):
    """Of two inputs one overflows in float16: that operator is named, with its run; exit code 1."""
    result = diff("net.onnx", "--mine", "Ascend:force_fp16", "--inputs", "small.npz", "--inputs", "large.npz")

    assert 1 == result.exit_code, result.output
    assert "Default_Mul-op1" in result.stdout
    assert "NaN or infinities differ at 3 elements in run 1" in result.stdout


def test_made_up_inputs_take_sizes_and_seeds(diff):
    """The same seed gives the same numbers, and a dimension its size."""
    half = ("net.onnx", "--mine", "Ascend:force_fp16")
    first, again, other = (
        diff(*half, "--dim", "N=5", "--seed", seed, "--steps", "2").stdout.partition(" s\n")[2]
        for seed in ("3", "3", "4")
    )

    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "options",
    [(), ("--golden", "float64", "--steps", "2"), ("--mine", "Ascend:O2"), ("drawing.onnx", "--seed", "9")],
    ids=" ".join,
)
def test_both_sides_draw_the_same_numbers(diff, options):
    """Operators without a seed draw equal numbers on both sides, and all that reads them is compared."""
    result = diff("drawing.onnx", *options)

    assert 0 == result.exit_code, result.output
    assert " 0 differ, 0 failed" in result.stdout
    assert "without a counterpart" not in result.stdout


def test_a_fault_behind_random_numbers_is_named(diff):
    """A wrong attribute of an operator that reads random numbers is found."""
    result = diff("wrong.onnx", "drawing.onnx")

    assert 1 == result.exit_code, result.output
    assert "fault     Default/SeLU-op0 (SeLU): " in result.stdout


REFUSALS = {
    "no model": (("nowhere.onnx",), "cannot be read"),
    "no variant": (("net.onnx", "--mine", "Ascent"), "did you mean 'Ascend'"),
    "no GPU": (("net.onnx", "--golden", "GPU"), "no CUDA provider"),
    "no training": (("net.onnx", "--train"), "describes no training"),
    "no optimised training": (
        ("net.onnx", "--train", "--mine", "onnxruntime"),
        "cannot optimise training steps",
    ),
    "no file": (("net.onnx", "--inputs", "nowhere.npz"), "nowhere.npz"),
    "two ways of inputs": (("net.onnx", "--inputs", "small.npz", "--seed", "1"), "--inputs excludes"),
    "no dimension": (("net.onnx", "--dim", "M=3"), "no dynamic dimension 'M'"),
}


@pytest.mark.parametrize(("arguments", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_wrong_arguments_are_refused(diff, arguments, expected):
    """The message has the fault, the exit code is 2, and no result is printed."""
    result = diff(*arguments)

    assert 2 == result.exit_code
    assert expected in result.stderr
    assert "" == result.stdout


def test_ctrl_c_prints_what_is_known(diff, monkeypatch):
    """An interruption ends with 130, and the table has the operators until then."""
    run = LockstepComparison.run

    def interrupted(self, inputs, advance, **options):
        ran = []

        def after_two():
            ran.append(1)
            if len(ran) == 2:
                raise KeyboardInterrupt
            advance()

        return run(self, inputs, after_two, **options)

    monkeypatch.setattr(LockstepComparison, "run", interrupted)
    result = diff(str(GRAPHS / "lenet.onnx"), "-v")

    assert 130 == result.exit_code
    assert "Default/relu-ReLU/ReLU-op0" in result.stdout
    assert "interrupted in run 0" in result.stderr
    assert "MaxPool" not in result.stdout


def test_a_failing_operator_is_told(diff, tmp_path):
    """Operators before it are compared all the same; the exit code is 1."""
    wide = "net (float[N] x, float[M] z) => (float[K] y) { a = Abs(x) y = Mul(a, z) }"
    (tmp_path / "net.onnx").write_bytes(parser.parse_model(f"{HEAD} {wide}").SerializeToString())
    result = diff("net.onnx", "--dim", "N=2", "--dim", "M=3", "-v")

    assert 1 == result.exit_code
    assert "Default/Abs-op0" in result.stdout
    assert "mine (Ascend): operator Default/Mul-op0 failed" in result.stderr
    assert "golden (float32): operator Default/Mul-op0 failed" in result.stderr


@pytest.mark.parametrize(
    ("models", "stopped", "agree", "sides"),
    [
        ((3,), "both sides", 2, ("mine (Ascend)", "golden (float32)")),
        ((3, 2), "mine (float32)", 2, ("mine (float32)",)),
        ((2, 3), "golden (float32)", 3, ("golden (float32)",)),  # the third: the input a of Mul
    ],
)
def test_the_verdict_after_a_stop(diff, tmp_path, models, stopped, agree, sides):
    """A run that an error ends is the verdict: which sides stopped, where and why; the exit code is 1."""
    paths = [tmp_path / "net.onnx", tmp_path.parent / f"{tmp_path.name}.onnx"][: len(models)]
    for size, path in zip(models, paths, strict=True):
        text = f"""net (float[2] x) => (float[K] y) <float[{size}] w = {{{", ".join("2" * size)}}}>
        {{ a = Abs(x) y = Mul(a, w) }}"""
        save(parser.parse_model(f"{HEAD} {text}"), path)

    result = diff(*map(str, paths))
    document = json.loads(diff(*map(str, paths), "--json").stdout)

    assert 1 == result.exit_code
    verdict, means = result.stdout.splitlines()[:2]
    assert (
        f"verdict   stopped: {stopped} stopped at Default/Mul-op0; {agree} of {agree} tensors agree"
        == verdict
    )
    assert means.startswith("means     operator Default/Mul-op0 failed: ")
    assert "stopped" == document["verdict"]
    assert sides == tuple(each.partition(": ")[0] for each in document["failures"] if "failed" in each)


def test_two_models(diff, tmp_path):
    """The first model is compared with another one; both run in float32."""
    changed = OVERFLOWING.replace("Sqrt(square)", "Abs(square)")
    other = tmp_path.parent / f"{tmp_path.name}.onnx"
    save(parser.parse_model(f"{HEAD} {changed}"), other)
    result = diff("net.onnx", str(other))

    assert 1 == result.exit_code, result.output
    assert f"net.onnx on float32 against {other} on float32" in result.stdout
    assert "Default_Sqrt-op0" in result.stdout


def test_integers_that_a_rounded_scale_explains_are_nobodys_fault(diff, tmp_path):
    """float16 holds a scale as another number, so that values between two integers round to the other one."""
    text = """net (float[8] x) => (float[8] y) <float scale = {0.03}, int8 zero = {0}>
    { a = Abs(x) q = QuantizeLinear(a, scale, zero) y = DequantizeLinear(q, scale, zero) }"""
    save(parser.parse_model(f"{HEAD} {text}"), tmp_path / "net.onnx")
    np.savez(tmp_path / "small.npz", x=np.array([0.375, *range(7)], np.float32))
    result = diff("net.onnx", "--mine", "Ascend:force_fp16", "--inputs", "small.npz", "--json")

    printed = json.loads(result.stdout)
    assert [] == printed["accused"]
    assert "accumulated" in {each["verdict"] for each in printed["operators"]}
    assert printed["first"] is None


def test_json_has_the_verdicts_of_both_sides(diff):
    """Standard output is one document: the sides, the operators, and the outputs of each run."""
    result = diff("net.onnx", "--mine", "Ascend:force_fp16", "--inputs", "large.npz", "--json")

    printed = json.loads(result.stdout)
    assert 1 == result.exit_code
    assert ({"model": "net.onnx", "variant": "Ascend:force_fp16"}, "float32") == (
        printed["mine"],
        printed["golden"]["variant"],
    )
    assert ["Default/Mul-op1"] == printed["accused"]
    assert ["Mul", "Mul", "Sqrt", "Div"] == [each["op_type"] for each in printed["operators"]]
    assert [("y", 3)] == [(each["name"], each["error"]["misplaced"]) for each in printed["outputs"]]
    assert documents.model(diff_command.DOCUMENT).model_validate_json(result.stdout)


def test_bisect_finds_the_part_and_writes_it(diff, tmp_path):
    """The operator that was changed is the part; its folder has a script."""
    other, report = tmp_path.parent / f"{tmp_path.name}.onnx", tmp_path.parent / f"{tmp_path.name}_report"
    save(parser.parse_model(f"{HEAD} {OVERFLOWING.replace('Sqrt(square)', 'Abs(square)')}"), other)
    result = diff("net.onnx", str(other), "--bisect", "-o", str(report), "--json")

    printed = json.loads(result.stdout)
    assert (["Default/Sqrt-op0"], ["Default/Abs-op0"]) == (printed["part"]["mine"], printed["part"]["golden"])
    assert ["golden.onnx", "inputs.npz", "mine.onnx", "run.py"] == sorted(
        each.name for each in report.iterdir()
    )
    assert 1 == result.exit_code


BISECTED_VARIANTS = {
    "golden in float64": ("Ascend:force_fp16", "float64"),
    "mine in float64": ("float64", "Ascend:force_fp16"),
    "fused chains": ("Ascend:O1:force_fp16", "float32"),
    "compiled graph": ("Ascend:O2:force_fp16", "Ascend:O2:must_keep_origin_dtype"),
    "golden optimised": ("Ascend:force_fp16", "onnxruntime"),
    "mine optimised": ("onnxruntime:basic", "Ascend:force_fp16"),
    "Ascend:force_fp16": ("Ascend:force_fp16", "float32"),
    "golden in bfloat16": ("float32", "Ascend:allow_fp32_to_bf16"),
    "two devices": ("Ascend:allow_fp32_to_bf16", "Ascend:must_keep_origin_dtype"),
}


@pytest.mark.parametrize(("mine", "golden"), BISECTED_VARIANTS.values(), ids=BISECTED_VARIANTS)
def test_bisect_exchanges_arithmetic(diff, tmp_path, forks, mine, golden):
    """Of two variants of a model the operator is found that makes the difference by its arithmetic."""
    rng = np.random.default_rng(4)
    network = tmp_path.parent / f"{tmp_path.name}_cancels.onnx"
    # the second product cancels to the rounding errors
    whole, part = np.full((8, 8), 10, np.float32), (rng.standard_normal((8, 8)) / 8).astype(np.float32)
    weights = {"w0": np.eye(8, dtype=np.float32), "w1": np.vstack([whole + part, part - whole])}
    text = """g (float[4,8] x) => (y) {
        [first] a = MatMul(x, w0) [relu] b = Relu(a)
        [both] c = Concat<axis = 1>(b, b) [second] y = MatMul(c, w1)
    }"""
    save(parsed(text, **weights), network)
    report = tmp_path.parent / f"{tmp_path.name}_report"

    options = ["--mine", mine, "--golden", golden, "--bisect", "-o", str(report), "--json"]
    printed = json.loads(diff(str(network), *options).stdout)

    part = printed["part"]
    assert (["Default/MatMul-op1"], ["Default/MatMul-op1"]) == (part["mine"], part["golden"])
    assert part["whole"] == pytest.approx(printed["outputs"][0]["error"]["distance"], rel=1e-3)
    done = completed(forks / "python", report / "run.py", check=True)
    assert part["difference"] == pytest.approx(float(done.stdout.split()[-1]), rel=0.05)


BISECTED_BODIES = [
    (network, *variants)
    for network in ("if", "loop", "scan")
    for variants in (
        ("Ascend:force_fp16", "float32"),
        ("float32", "Ascend:force_fp16"),
        ("Ascend:O2:force_fp16", "onnxruntime"),
    )
]


@pytest.mark.parametrize(("network", "mine", "golden"), BISECTED_BODIES)
def test_bisect_exchanges_control_flow(diff, tmp_path, forks, network, mine, golden):
    """A branch or loop takes the arithmetic of the operators in it along, and its report runs."""
    path, report = GRAPHS / f"{network}.onnx", tmp_path.parent / f"{tmp_path.name}_report"

    options = ["--mine", mine, "--golden", golden, "--bisect", "-o", str(report), "--json"]
    part = json.loads(diff(str(path), *options).stdout)["part"]

    assert [f"Default/{network.title()}-op0"] == part["mine"] == part["golden"]
    assert part["difference"] == pytest.approx(part["whole"], rel=1e-3)
    done = completed(forks / "python", report / "run.py", check=True)
    assert part["difference"] == pytest.approx(float(done.stdout.split()[-1]), rel=0.1)


@pytest.mark.parametrize("options", [("--train",), ("--golden", "GPU")])
def test_bisect_refuses_what_it_cannot_exchange(diff, options):
    """Training and another device are refused, and reported."""
    result = diff("net.onnx", "--bisect", *options)

    assert (2, True) == (result.exit_code, "--bisect exchanges operators of inference" in result.stderr)
