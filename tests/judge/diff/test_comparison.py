"""Two variants of a model in lockstep: verdicts, loops and branches, failures, training."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from msdump import dtypes
from msdump.execute import Runtime, runner, values
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.diff import pair_models, rounded_to
from msdump.judge.verdict import Verdict
from msdump.record import IO
from tests.judge.diff.conftest import comparison, load
from tests.texts import parsed

OVERFLOWING = """
net (float[4] x) => (float[4] y) <float[4] k = {300.0, 300.0, 300.0, 300.0}>
{ big = Mul(x, k) square = Mul(big, big) root = Sqrt(square) y = Div(root, k) }
"""

HIDING = """
net (float[4] x) => (float[4] y) <float k = {300.0}, float small = {0.00000095367431640625}>
{ big = Mul(x, k) square = Mul(big, big) scaled = Mul(square, small) y = Tanh(scaled) }
"""

BRANCHES = """
net (float[1] x) => (float[1] y) <float[1] edge = {2051.0}>
{
  large = Add(x, x)
  above = Greater(large, edge)
  scalar = Squeeze(above)
  y = If(scalar) <
    then_branch = above_edge () => (float[1] kept) { half = Abs(large) kept = Neg(half) },
    else_branch = below_edge () => (float[1] moved) { moved = Exp(edge) }
  >
}
"""

PASSES = """
net (float[1] x) => (float[1] y) <int64 most = {9}, bool yes = {1}, float[1] edge = {2051.5}>
{
  y = Loop(most, yes, x) <
    body = again (int64 number, bool before, float[1] value) => (bool more, float[1] next)
    { next = Add(value, value) below = Less(next, edge) more = Squeeze(below) }
  >
}
"""

WIDE = "net (float[N] x, float[M] z) => (float[K] y) { a = Abs(x) y = Mul(a, z) }"


@pytest.mark.parametrize("model", ["lenet", "transformer", "loop", "scan", "if", "optional", "quantized"])
@pytest.mark.parametrize("golden", ["float32", "Ascend:O1", "Ascend:O2"])
def test_equal_sides_are_equal(compared, model, golden):
    """Levels change no bit in the mode that keeps float32, whatever they fuse."""
    both = compared(model, "Ascend:force_fp32", golden.replace("Ascend", "Ascend:force_fp32"))

    assert [] == both.report.accused
    assert {Verdict.EQUAL, Verdict.UNCHECKED} >= {each.verdict for each in both.report.findings}
    assert both.report.agrees
    assert both.report.compared
    assert [] == both.failures
    assert all(output.evidence.error.is_same for output in both.outputs)


@pytest.mark.parametrize("golden", ["float32", "Ascend:O0", "Ascend:allow_fp32_to_bf16"])
@pytest.mark.parametrize("mine", ["Ascend:O1", "Ascend:O2", "Ascend:force_fp16:O2"])
@pytest.mark.parametrize("model", ["lenet", "transformer", "torch_export", "loop"])
def test_sound_precision_agrees(compared, model, mine, golden):
    """Rounding alone accuses no operator, on any level, beside other modes; inserted casts are no weights."""
    both = compared(model, mine, golden)

    assert both.report.agrees
    assert [] == both.report.accused


@pytest.mark.parametrize("golden", ["float64", "onnxruntime:none", "onnxruntime:basic", "onnxruntime"])
@pytest.mark.parametrize(
    "model", ["lenet", "transformer", "loop", "scan", "sequences", "functions", "float16"]
)
def test_float32_is_near_float64_and_what_onnxruntime_optimises(compared, model, golden):
    """The plain network agrees with itself in float64, and with its optimised forms."""
    both = compared(model, "CPU", golden)

    assert both.report.agrees
    assert [] == both.failures
    assert all(output.evidence.error.distance < 1e-3 for output in both.outputs)
    tensors = [value.name for value in both.mine.graph.outputs if value.type.kind == "tensor"]
    assert tensors == [output.evidence.name for output in both.outputs]


def test_optimised_weights_stay_shared():
    """A weight that the optimiser left as it was is one array on both sides."""
    both = comparison(load("lenet"), "CPU", "onnxruntime:basic")

    shared = [name for name, array in both.mine.graph.weights.items() if array.ndim == 4]
    assert shared
    assert all(both.golden.graph.weights[name] is both.mine.graph.weights[name] for name in shared)


def test_every_operator_of_the_examined_side_has_a_finding(compared):
    """Operators come once, in the order of execution; an input shows the error of the output it reads."""
    both = compared("lenet")

    names = [node.operator.full_name for node in both.mine.graph.nodes]
    assert [*enumerate(names, 1)] == [
        (each.place.order, each.place.full_name) for each in both.report.findings
    ]
    first, second = both.report.findings[:2]
    written = next(tensor.error for tensor in first.tensors if tensor.io is IO.OUTPUT)
    assert written == next(tensor.error for tensor in second.tensors if tensor.io is IO.INPUT)


FED = {"x": np.array([0.5, 0.25, 2.0, 0.125], np.float32)}


@pytest.mark.parametrize(
    ("text", "level"),
    [*((OVERFLOWING, level) for level in ("O0", "O1", "O2")), (HIDING, "O1"), (HIDING, "O2")],
)
def test_the_operator_that_overflows_is_named(compared, text, level):
    """In float16 the square is infinite; Tanh, in the same kernel, hides that."""
    both = compared(text, f"Ascend:force_fp16:{level}", "float32", FED)

    (accused,) = both.report.accused
    assert ("Mul" in accused.place.full_name, Verdict.NONFINITE) == (True, accused.verdict)
    assert text is OVERFLOWING or "Mul-op1 in the kernel overflows" in accused.note
    assert text is HIDING or not both.report.agrees


def test_own_errors_are_measured_on_the_inputs_of_the_examined_side(compared):
    """An operator behind the overflow treats its inputs as the golden one does."""
    both = compared(OVERFLOWING, "Ascend:force_fp16", "float32", FED)

    _, _, root, _ = both.report.findings
    assert Verdict.INHERITED is root.verdict
    assert [True] == [own.is_explained for own in root.own]


def test_what_a_kernel_hides_is_unchecked(compared):
    """The golden side fused two operators: the first one's result is nowhere."""
    both = compared(OVERFLOWING, "CPU", "Ascend:force_fp32:O1", {"x": np.ones(4, np.float32)})

    assert [Verdict.UNCHECKED] * 3 + [Verdict.EQUAL] == [each.verdict for each in both.report.findings]
    assert "inside of golden's kernel" in both.report.findings[0].note


def test_passes_of_a_loop_are_compared_one_by_one(compared):
    """Each operator of a body has a finding for each pass, with its number, behind the loop's inputs."""
    both = compared(PASSES, "CPU", "float32", {"x": np.array([513.0], np.float32)})

    assert [
        (None, "Loop"),
        (0, "Add"),
        (0, "Less"),
        (0, "Squeeze"),
        (1, "Add"),
        (1, "Less"),
        (1, "Squeeze"),
    ] == [(each.place.pass_number, each.place.op_type) for each in both.report.findings]
    assert both.report.agrees


def test_sides_that_take_other_branches_are_told(compared):
    """2051.2 lies above 2051, and is as much in float16; operators of both branches count."""
    fed = {"x": np.array([1025.6], np.float32)}
    both = compared(BRANCHES, "Ascend:force_fp16", "float32", fed)

    unchecked = [each for each in both.report.findings if each.verdict is Verdict.UNCHECKED]
    assert ["golden did not run it"] == [each.note for each in unchecked]
    assert {(1, 0), (0, 1)} == {(each.dumped, each.golden) for each in both.report.uneven}
    assert not both.report.agrees


@pytest.mark.parametrize(
    ("mine", "golden", "expected"),
    [("Ascend:force_fp16", "float32", (1, 2)), ("float32", "Ascend:force_fp16", (2, 1))],
)
def test_loops_that_end_sooner_are_told(compared, mine, golden, expected):
    """2051 lies below 2051.5, and in float16 both are 2052: one side has another pass."""
    both = compared(PASSES, mine, golden, {"x": np.array([1025.5], np.float32)})

    assert not both.report.agrees
    assert {expected} == {(each.dumped, each.golden) for each in both.report.uneven}


def test_a_side_that_fails_loses_nothing(compared):
    """The operators before the failure are compared, and both sides report it."""
    fed = {"x": np.ones(3, np.float32), "z": np.ones(2, np.float32)}
    both = compared(WIDE, "Ascend:force_fp32", "CPU", fed)

    assert [Verdict.EQUAL] == [each.verdict for each in both.report.findings]
    assert ["mine (Ascend:force_fp32)", "golden (CPU)"] == [
        failure.partition(": operator")[0] for failure in both.failures
    ]


def test_an_interruption_keeps_what_was_found():
    """Ctrl-C in the middle of a run leaves the verdicts so far in the report, and no thread behind."""
    both = comparison(load("lenet"))
    seen = Counter()

    def interrupt():
        seen["operators"] += 1
        if seen["operators"] == 3:
            raise KeyboardInterrupt

    fed = values.bind_inputs(both.mine.model, (), {"x": np.ones((1, 1, 32, 32), np.float32)})
    with pytest.raises(KeyboardInterrupt):
        both.run(fed, interrupt)

    assert 3 == len(both.report.findings)


STEP = """
net (float[4,3] x) => (float[] loss, float[3,2] new) <float[3,2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>
{
  out = MatMul(x, w)
  square = Mul(out, out)
  loss = ReduceMean <keepdims = 0> (square)
  half = Constant <value_float = 0.5> ()
  new = Mul(w, half)
}
"""


@pytest.mark.parametrize(
    ("mine", "golden"), [("CPU", "float32"), ("CPU", "float64"), ("Ascend", "float64"), ("float64", "CPU")]
)
def test_steps_of_training_go_on_from_their_own_variables(compared, mine, golden):
    """Each side updates variables of its own, in its own type, and the next step begins with them."""
    fed = [{"x": np.ones((4, 3), np.float32)}] * 3
    both = compared(STEP, mine, golden, *fed, trains=True, update_binding={"w": "new"})

    assert [] == both.failures
    assert both.report.agrees
    assert 3 == both.runs
    assert {0, 1, 2} == {output.iteration for output in both.outputs}
    for side in (both.mine, both.golden):
        held = side.state.arrays()["w"]
        assert ("float64" if "float64" == side.variant.text else "float32") == held.dtype.name
        assert 0.125 == held[0, 0]
    np.testing.assert_array_equal(*(side.state.arrays()["w"] for side in (both.mine, both.golden)))


PRODUCT = """
net (float[2,3] x) => (float[2,3] y) <float[3,3] w = {0, 0, 0, 300, 300, 300, -300, -300, -300}>
{
  square = Mul(x, x)
  y = MatMul(square, w)
}
"""


@pytest.mark.parametrize(("most_bytes", "sessions"), [(runner.MOST_PACKED, 0), (0, 1)])
def test_a_further_run_makes_no_sessions_of_what_ran_again(monkeypatch, most_bytes, sessions):
    """Kernels of suspects stay up to a bound of the bytes that they read; the numbers are the same."""
    monkeypatch.setattr(runner, "MOST_PACKED", most_bytes)
    both = comparison(load(PRODUCT), "Ascend:force_fp16", "float32")
    fed = values.bind_inputs(both.mine.model, (), {"x": np.float32([[1.01, 1.03, 1.031]] * 2)})
    both.run(fed)
    made, create = [], Runtime._create
    monkeypatch.setattr(Runtime, "_create", lambda *given: made.append(1) or create(*given))
    both.run(fed)

    first, second = (own for finding in both.report.findings for own in finding.own)
    assert first == second
    assert sessions == len(made)


WEIGHTY = ("lenet", "transformer")


@pytest.mark.parametrize("model", [*WEIGHTY, "loop", "if", "quantized", OVERFLOWING])
def test_the_last_run_keeps_no_session(monkeypatch, model):
    """Its verdicts are as in any other run; the sessions end, and are made anew should a run follow."""
    made, create = [], Runtime._create
    monkeypatch.setattr(Runtime, "_create", lambda *given: made.append(1) or create(*given))
    graph = load(model)
    fed = values.bind_inputs(graph, (), inputs.made_up(graph, {}, 0, 0))
    kept, forgotten = comparison(graph), comparison(graph)
    counts = []
    for both, is_last in ((kept, False), (forgotten, True)):
        for _ in range(2):
            made.clear()
            assert both.run(fed, is_last=is_last)
            counts.append(len(made))

    assert kept.report.findings == forgotten.report.findings
    assert 0 == counts[1]
    assert counts[3] or model not in WEIGHTY  # kernels without weights are shared with other runs


@pytest.mark.parametrize("mode", ["Ascend:force_fp16", "Ascend:O1:force_fp16", "Ascend:O2:force_fp16"])
def test_a_weight_that_rounding_makes_infinite_is_named(compared, mode):
    """A variance beyond float16 is named as not finite, though a quotient by it is finite."""
    text = """net (float[1,2,3] x) => (float[1,2,3] y)
    <float[2] one = {1, 1}, float[2] zero = {0, 0}, float[2] variance = {1, 10000000}>
    { a = Abs(x) y = BatchNormalization(a, one, zero, zero, variance) }"""

    accused = compared(text, mode).report.accused

    assert [("BatchNorm", "nonfinite")] == [(each.place.op_type, each.verdict) for each in accused]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_that_are_rounded_widen_the_limits(dtype):
    """The type that most differing weights are rounded to is found; one wrong weight has none."""
    rng = np.random.default_rng(0)
    weights = {f"w{number}": rng.standard_normal((4, 4)).astype(np.float32) for number in range(3)}
    for name in ("w1", "w2"):  # numbers of the type already, in either model
        weights[name] = weights[name].astype(dtypes.from_name(dtype).numpy).astype(np.float32)
    held = dtypes.from_name(dtype).numpy
    rounded = {name: array.astype(held).astype(np.float32) for name, array in weights.items()}
    text = "g (float[4,4] x) => (float[4,4] y) { a = MatMul(x, w0) b = MatMul(a, w1) y = MatMul(b, w2) }"
    golden, mine, wrong = (
        loader.load(parsed(text, **each)) for each in (weights, rounded, weights | {"w0": weights["w1"]})
    )

    assert dtype == rounded_to(pair_models(mine, golden))
    assert "" == rounded_to(pair_models(wrong, golden))


@pytest.mark.parametrize(("seed", "verdict"), [("", "unchecked"), ("<seed = 3>", "equal")])
def test_what_chance_makes_is_not_judged(compared, seed, verdict):
    """Dropout without a seed, and its readers, are not judged; with one seed they are compared."""
    text = f"""net (float[64] x) => (float[64] y) <float ratio = {{0.5}}, bool trains = {{1}}>
    {{ d = Dropout {seed}(x, ratio, trains) y = Abs(d) }}"""

    findings = compared(text, "CPU").report.findings

    assert [verdict] * 2 == [each.verdict for each in findings]


MASKS = {
    "mask": ("", "keep, zero, low", "", "agrees"),
    "views": (
        "u = Unsqueeze(m, axis) v = Cast<to = 1>(u) w = Squeeze(v, axis)",
        "keep, zero, low",
        "w",
        "agrees",
    ),
    "another reader": ("z = Exp(m)", "keep, zero, low", "", "Select"),
    "a branch reads it": (
        """z = If (c) <then_branch = g1 () => (float[4,4] a) { a = Exp(m) },
           else_branch = g2 () => (float[4,4] b) { b = Identity(zeros) }>""",
        *("keep, zero, low", "", "Select"),
    ),
    "a whole row": ("", "none, zero, low", "", "Softmax"),
    "positive": ("", "keep, zero, large", "", "Select"),
}


@pytest.mark.parametrize(("more", "selected", "mask", "expected"), MASKS.values(), ids=MASKS)
def test_masks_of_attention(compared, more, selected, mask, expected):
    """Infinities in masks count if another operator than Softmax reads them, or if a whole row is masked."""
    text = f"""g (float[4,4] s, bool c) => (float[4,4] y{", float[4,4] z" * ("z =" in more)})
        <float[1] zero = {{0}}, float[1] low = {{-3.4e38}}, float[1] large = {{1e5}}, int64[1] axis = {{0}},
         float[4,4] zeros = {{0,0,0,0, 0,0,0,0, 0,0,0,0, 0,0,0,0}},
         bool[4,4] keep = {{1,0,0,0, 1,1,0,0, 1,1,1,0, 1,1,1,1}},
         bool[4,4] none = {{1,0,0,0, 0,0,0,0, 1,1,1,0, 1,1,1,1}}>
        {{ m = Where({selected}) {more} scores = Add(s, {mask or "m"}) y = Softmax(scores) }}"""
    report = compared(text, "Ascend:force_fp16").report

    found = [each.place.op_type for each in report.accused] or [report.verdict]
    assert [expected] == found
