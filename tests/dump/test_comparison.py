"""Dumps of a network compared with onnxruntime's tensors and with each other: the first fault is named."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from msdump.judge.compare import DumpComparison
from msdump.judge.pair import pair_folders
from msdump.judge.verdict import Limits
from tests.dump import nets
from tests.dump.compared import table
from tests.texts import parsed
from tests.world import GRAPHS, O0, O2, cli

pytestmark = pytest.mark.usefixtures("quiet")

LENET = GRAPHS / "lenet.onnx"
FEEDS = {"x": np.random.default_rng(7).standard_normal((1, 1, 32, 32)).astype("f4")}
EXACT = {"precision_mode": "must_keep_origin_dtype"}


@pytest.fixture
def golden(tmp_path):
    """Return a directory of every tensor of a whole-graph run of LeNet."""
    return whole_run(LENET, FEEDS, tmp_path / "golden")


def whole_run(path, feeds, folder):
    """Write every tensor of a whole-graph run, named as an offline dump names them; return the directory."""
    model = onnx.load(path)
    taken = {value.name for value in model.graph.output}
    values = [(node.name, slot, name) for node in model.graph.node for slot, name in enumerate(node.output)]
    model.graph.output.extend(
        onnx.helper.make_empty_tensor_value_info(name) for *_, name in values if name not in taken
    )
    found = onnxruntime.InferenceSession(model.SerializeToString()).run([name for *_, name in values], feeds)
    folder.mkdir()
    for time, ((node, slot, _), array) in enumerate(zip(values, found, strict=True)):
        np.save(folder / f"{node.replace('/', '_')}.{slot}.{1700000000000000 + time}.npy", array)
    return folder


@pytest.fixture
def faulty():
    """Return the model with one kernel of the second convolution turned over."""
    return nets.with_weight(onnx.load(LENET), "conv2.weight", turned)


def turned(array):
    """Turn a kernel over."""
    array[3] *= -1
    return array


@pytest.mark.parametrize("file_format", ["npy", "bin"])
@pytest.mark.parametrize("precision", [EXACT, {}], ids=["exact", "float16"])
def test_o2_dump_agrees_with_onnxruntime(door, golden, file_format, precision):
    """Each output of an O2 dump that the original network has is similar to onnxruntime's."""
    door.dump(LENET, FEEDS, context=O2, file_format=file_format, **precision)

    code, _, rows = table(door.path, golden, "--graph", LENET, "--cosine", 0.999)

    found = [row for row in rows if row["Tensor"].startswith("output") and row["Verdict"] != "unchecked"]
    assert 0 == code
    assert {"Conv2D", "MaxPool", "MatMul"} <= {row["Type"] for row in found}
    assert {True} == {float(row["CosineSimilarity"]) >= 0.999 for row in found}


def test_masked_attention_agrees_with_onnxruntime_by_the_graph_file(door, tmp_path):
    """Casts that kernels begin with harm no comparison by GE's graph."""
    tokens = np.arange(16).reshape(2, 8)
    feeds = {"input_ids": tokens, "attention_mask": tokens % 8 // 5, "token_type_ids": tokens % 2}
    model, rules = GRAPHS / "transformer.onnx", tmp_path / "graph.json"
    golden = whole_run(model, feeds, tmp_path / "golden")
    door.dump(model, feeds, context=O2, file_format="bin", **EXACT)
    cli("compile", model, "-o", rules, "--precision-mode", *EXACT.values())

    code, _, rows = table(door.path, golden, "--graph", rules)

    cosines = [float(row["CosineSimilarity"] or "nan") for row in rows]
    assert 50 < len([cosine for cosine in cosines if cosine >= 0.99])
    assert [] == [row for row, cosine in zip(rows, cosines, strict=True) if cosine < 0.99]
    assert 0 == code


@pytest.mark.parametrize("file_format", ["npy", "bin"])
def test_injected_fault_is_named_first(door, golden, faulty, file_format):
    """A network with a wrong weight parts from onnxruntime's tensors at the operator that reads it."""
    door.dump(faulty, FEEDS, context=O2, file_format=file_format, **EXACT)

    code, lines, rows = table(door.path, golden, "--graph", LENET)

    assert 1 == code
    assert "conv2" in lines["first"]
    assert "(Conv2D)" in lines["first"]
    wrong = [row["Operator"] for row in rows if row["Verdict"] == "differs"]
    assert {True} == {"conv1" not in name for name in wrong}


FIVE = """net (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>
    { a = Add(x, b) c = Mul(a, b) d = Relu(c) e = Sub(d, b) y = Sigmoid(e) }"""


@pytest.mark.parametrize(("context", "most"), [(O0, 7_300), (O2, 4_000)], ids=["O0", "O2"])
def test_calls_of_a_comparison(door, context, most):
    """Two dumps of five operators are compared in few calls of Python, most of them for the graph files."""
    model = parsed(FIVE)
    mine, golden = map(str, door.twice(model, {"x": np.ones((2, 8), "f4")}, context=context))
    pairs = pair_folders(mine, golden).pairs

    def compare():
        comparison = DumpComparison(mine, golden, Limits())
        comparison.measure([comparison.add(pair) for pair in pairs])
        return comparison.report()

    assert compare().agrees
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        compare()
    finally:
        sys.setprofile(before)
    assert calls <= most
