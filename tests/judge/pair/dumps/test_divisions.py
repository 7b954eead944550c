"""Networks that one dump divides into more graphs than the other one: each operator finds its counterpart."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import parser

import msdump
from msdump.cli import main

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
WHOLE = """
ctrl (float[3] x, int32 n) => (float[3] y)
  <float[3] w = {1, 1, 1}, int32 zero = {0}, int32 one = {-1}, int64 most = {99}, float two = {2}>
{
  go = Less(zero, n)
  i, h = Loop(most, go, zero, x) <body = step (int64 t, bool c, int32 k, float[3] v)
    => (bool again, int32 k2, float[3] v2)
    { s = Sin(v) v2 = Add(s, w) k2 = Sub(k, one) same = Equal(k2, n) again = Not(same) }>
  sum = ReduceSum <keepdims = 0> (h)
  big = Greater(sum, two)
  y = If(big) <then_branch = a () => (float[3] e) { e = Exp(h) }, else_branch = b () => (float[3] f)
    { t1 = Tanh(h) f = Mul(t1, two) }>
}
"""
PARTS = {
    "condition": "(int32 k, int32 n) => (bool again) { [head] again = Less(k, n) }",
    "body": """(float[3] v, int32 k) => (float[3] v2, int32 k2) <float[3] w = {1, 1, 1}, int32 one = {-1}>
        { [body_sin] s = Sin(v) [body_add] v2 = Add(s, w) [body_sub] k2 = Sub(k, one) }""",
    "middle": """(float[3] h) => (bool big) <float two = {2}>
        { [total] sum = ReduceSum <keepdims = 0> (h) [choice] big = Greater(sum, two) }""",
    "then": "(float[3] h) => (float[3] e) { [branch] e = Exp(h) }",
    "otherwise": """(float[3] h) => (float[3] f) <float two = {2}>
        { [flat] t1 = Tanh(h) [twice] f = Mul(t1, two) }""",
}
"""The network as MindSpore's compiler divides it: five graphs, none of which names its caller."""

X, N = np.float32([1, 2, 3]), np.int32(1)
H = np.sin(X) + np.float32(1)


def dumped(root, text, *feeds, saved="tensor", device="CPU"):
    """Dump one run of a model; return the directory of the rank."""
    common = {"dump_mode": 0, "path": str(root), "net_name": "Net", "iteration": "all", "input_output": 0}
    common |= {"kernels": [], "support_device": [0], "op_debug_mode": 0, "saved_data": saved}
    config = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
    path = root.parent / f"{root.name}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    model = parser.parse_model(f"{HEAD} {text}")
    network = msdump.load(model, config=str(path), context={"device_target": device})
    if feeds:
        network(*feeds)
    return root / "rank_0"


@pytest.fixture
def dumps(fresh, tmp_path):
    """Return the dump of the whole network, and one of its parts, a graph each."""
    whole = dumped(tmp_path / "whole", WHOLE, X, N).parent
    feeds = {"condition": (np.int32(0), N), "body": (X, np.int32(0)), "middle": (H,), "then": (H,)}
    together = tmp_path / "divided" / "rank_0"
    for number, (name, text) in enumerate(PARTS.items()):
        rank = dumped(tmp_path / name, f"{name} {text}", *feeds.get(name, ()))
        for path in rank.rglob("*_graph_*.*"):
            target = together / path.relative_to(rank).parent / re.sub(r"\d+\.", f"{number}.", path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        for folder in rank.glob("Net/*/*"):
            shutil.copytree(folder, together / "Net" / str(number) / "0")
    return whole, together.parent


def compared(mine, golden, out):
    """Return the verdict of each operator of a comparison by its type, and how they were paired."""
    arguments = ["compare", str(mine), str(golden), "-out", str(out), "--json"]
    document = json.loads(CliRunner().invoke(main, arguments).stdout)
    return {each["op_type"]: each["verdict"] for each in document["operators"]}, document


OPERATORS = {"Less", "Sin", "Add", "Sub", "ReduceSum", "Greater", "Exp"}


@pytest.mark.parametrize("is_turned", [False, True])
def test_each_operator_has_a_verdict(dumps, tmp_path, is_turned):
    """All but the loop's own condition, which one side alone has, agree; it is listed."""
    mine, golden = reversed(dumps) if is_turned else dumps

    verdicts, document = compared(mine, golden, tmp_path)

    assert {verdicts[each] for each in OPERATORS} == {"equal"}, document
    assert "unchecked" == verdicts["Equal"] == verdicts["LogicalNot"]
    assert is_turned == ("golden alone has it, and no value shows it" in str(document["operators"]))


@pytest.mark.parametrize("name", ["Sin", "Greater", "Exp"])
def test_a_fault_is_named(dumps, tmp_path, name):
    """An operator with a wrong output is accused in a body, in the main graph, and in a branch."""
    (path,) = dumps[0].rglob(f"{name}.*.output.0.*.npy")
    array = np.load(path)
    path.chmod(0o600)
    np.save(path, ~array if array.dtype == bool else array * np.float32(1.5))

    verdicts, document = compared(*dumps, tmp_path)

    assert "own" == verdicts[name], document
    assert {"own"} == {verdict for each, verdict in verdicts.items() if each in OPERATORS} - {
        *("equal", "inherited", "amplified", "healed")
    }


OTHER = "other (float[2] a) => (float[2] b) { b = Exp(a) }"
SCAN = """scan (float[3] s, float[2, 3] rows) => (float[3] last, float[2, 3] all)
  { last, all = Scan <num_scan_inputs = 1, body = add (float[3] v, float[3] row)
    => (float[3] v2, float[3] seen) { v2 = Add(v, row) seen = Sin(v2) }> (s, rows) }"""
NETWORKS = {"loop_and_if": (WHOLE, X, N), "scan": (SCAN, X, np.float32([[1, 2, 3], [4, 5, 6]]))}


@pytest.fixture(params=["tensor", "statistic"])
def beside_others(fresh, tmp_path, request):
    """Return a function that dumps a network twice, once where the process ran another network before."""

    def dump(name):
        options = {"saved": request.param, "device": "GPU"}
        mine, golden = tmp_path / "mine", tmp_path / "golden"
        dumped(mine, *NETWORKS[name], **options)
        dumped(golden, OTHER, np.float32([1, 2]), **options)
        dumped(golden, *NETWORKS[name], **options)
        return mine, golden

    return dump


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_have_other_numbers(beside_others, tmp_path, name, is_turned):
    """Graphs and bodies are paired by their operators where another network took their numbers."""
    mine, golden = reversed(beside_others(name)) if is_turned else beside_others(name)

    _, document = compared(mine, golden, tmp_path)

    assert {"equal"} == {each["verdict"] for each in document["operators"]}, document
    assert ({"Sin", "Add"} | (OPERATORS if name == "loop_and_if" else set())) <= {
        each["op_type"] for each in document["operators"]
    }
    assert not any("Exp" == each["op_type"] for each in document["operators"] if name == "scan")
