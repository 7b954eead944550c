"""Branches and loops in ``msdump compare``, with a model or without, and ``diff``: inputs, states, passes."""

import json

import numpy as np
import pytest

from tests.dump.compared import document
from tests.texts import parsed
from tests.world import cli

pytestmark = pytest.mark.usefixtures("quiet")

START = "0.1, 0.2, 0.3, 0.4"
MODES = {
    "CPU": {},
    "Ascend:force_fp16": {"context": {"device_target": "Ascend"}, "precision_mode": "force_fp16"},
}


def loop(start=START, most=4, state="value"):
    """Return a model of a Loop that adds and scales, and keeps the exponential of each pass."""
    text = f"""net (float[4] x) => (float[4] y)
    <int64 most = {{{most}}}, bool yes = {{1}}, float[4] start = {{{start}}},
     float[4] k = {{0.9, 1.1, 0.8, 1.2}}>
    {{ a = Tanh(x)
      last, all = Loop(most, yes, start) <body = again
        (int64 number, bool before, float[4] value) => (bool more, float[4] next, float[4] kept)
        {{ t = Add({state}, a) next = Mul(t, k) kept = Exp(next) more = Identity(before) }}>
      s = ReduceSum<keepdims = 0>(all, zero) y = Add(s, last) }}"""
    return parsed(text, zero=np.array([0]))


def scan(start=START):
    """Return a model of a Scan over the rows of a tensor."""
    text = f"""net (float[5,4] x) => (float[4] y)
    <float[4] start = {{{start}}}, float[4] k = {{0.9, 1.1, 0.8, 1.2}}>
    {{ a = Tanh(x)
      last, all = Scan<num_scan_inputs = 1, body = each
        (float[4] state, float[4] item) => (float[4] next, float[4] out)
        {{ m = Mul(state, k) next = Add(m, item) out = Exp(next) }}>(start, a)
      s = ReduceSum<keepdims = 0>(all, zero) y = Add(s, last) }}"""
    return parsed(text, zero=np.array([0]))


def branches(edge="0.1"):
    """Return a model of an If in a branch of another one."""
    text = f"""net (float[4] x) => (float[4] y) <float[4] k = {{0.9, 1.1, 0.8, 1.2}}, float edge = {{{edge}}}>
    {{ a = Tanh(x) m = ReduceMax<keepdims = 0>(a) above = Greater(m, edge)
      b = If(above) <
        then_branch = g1 () => (float[4] o) {{
          t = Mul(a, k) n = ReduceMin<keepdims = 0>(t) all = Greater(n, edge)
          o = If(all) <
            then_branch = g3 () => (float[4] p) {{ p = Exp(t) }},
            else_branch = g4 () => (float[4] q) {{ r = Add(t, a) q = Sigmoid(r) }}> }},
        else_branch = g2 () => (float[4] u) {{ u = Neg(a) }}>
      y = Add(b, a) }}"""
    return parsed(text)


def fed(model):
    """Return inputs of a model."""
    shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


ZEROS = "0, 0, 0, 0"
CASES = {
    "loop": (loop(), loop(), []),
    "scan": (scan(), scan(), []),
    "branches": (branches(), branches(), []),
    "start of a loop": (loop(), loop("0.1, 0.2, 0.35, 0.4"), ["Default/Loop-op0"]),
    "start of a loop is zero": (loop(), loop(ZEROS), ["Default/Loop-op0"]),
    "start of a scan": (scan(), scan("0.1, 0.2, 0.35, 0.4"), ["Default/Scan-op0"]),
    "start of a scan is zero": (scan(), scan(ZEROS), ["Default/Scan-op0"]),
    "one pass too many": (loop(), loop(most=5), ["Default/Loop-op0"]),
    "edge": (branches(), branches("0.999"), ["Default/Greater-op0"]),
}
"""Golden's model, the examined one, and the accused operator."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_inputs_of_branches_and_loops(door, case, mode):
    """A wrong start of a state, a condition and a pass too many are named; sound ones accuse nothing."""
    golden, mine, expected = CASES[case]
    folders = door.aside("golden", golden, fed(golden)), door.aside("mine", mine, fed(golden), **MODES[mode])
    np.savez(door.folder / "inputs.npz", **fed(golden))

    found = [
        document(folders[1], folders[0]),
        document(folders[1], folders[0], "--model", f"{folders[0]}.onnx"),
    ]
    options = ["--mine", mode, "--inputs", f"{door.folder}/inputs.npz", "--json"]
    done = cli("diff", f"{folders[1]}.onnx", f"{folders[0]}.onnx", *options)
    found.append((done.exit_code, json.loads(done.stdout)))

    assert [(bool(expected), expected)] * 3 == [(bool(code), told["accused"]) for code, told in found]


@pytest.mark.parametrize(
    ("model", "operator", "slot"), [(loop(), "Add", 1), (scan(), "Mul", 0)], ids=["Loop", "Scan"]
)
def test_a_state_that_changes_between_passes_is_named(door, model, operator, slot):
    """The state that a pass reads is the one that the pass before wrote."""
    mine, golden = door.twice(model, fed(model))
    files = sorted(
        mine.rglob(f"{operator}.*-op{slot}.*input.0.*.npy"), key=lambda file: file.name.split(".")[4]
    )
    assert 4 <= len(files), sorted(file.name for file in mine.rglob("*.npy"))
    np.save(files[2], np.zeros_like(np.load(files[2])))

    code, told = document(mine, golden, "--model", f"{golden}.onnx")

    accused = [each for each in told["operators"] if each["verdict"] == "own"]
    assert (1, [f"Default/{operator}-op{slot}"]) == (code, told["accused"])
    assert "input 0 is not output 0 of" in accused[0]["note"]


@pytest.mark.parametrize(
    ("model", "slot", "expected"),
    [(loop(), "Add.*-op1*input.0", "Loop-op0"), (scan(), "Add.*-op1*input.1", "Scan-op0")],
    ids=["state", "scanned"],
)
def test_memory_that_changes_before_a_loop_is_named(door, model, slot, expected):
    """A loop that reads something else than its producer wrote is named, though the producer agrees."""
    mine, golden = door.twice(model, fed(model))
    files = sorted(mine.rglob(f"{slot}.*.npy"), key=lambda file: file.name.split(".")[4])
    np.save(files[0], np.zeros_like(np.load(files[0])))

    code, told = document(mine, golden)

    assert (1, [f"Default/{expected}"]) == (code, told["accused"])
