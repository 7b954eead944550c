"""Comparisons of networks with other names, fusion or graphs of branches: operators are paired by graphs."""

import numpy as np
import onnx
import pytest

from tests.dump.compared import command, document, faults, table
from tests.dump.nets import without
from tests.texts import parsed
from tests.world import GPU, O0, O1, O2, cli

pytestmark = pytest.mark.usefixtures("quiet")

MODEL = "graphs/transformer.onnx"
EXPORTS = "tests/judge/pair/exports"
ATTENTION = "Default_layers-CellList_0-BertEncoderCell_attention-BertSelfAttention"
OUTPUT = "Default_layers-CellList_0-BertEncoderCell_attention_output-BertOutput"
FEEDS = {
    "transformer": {"given": np.arange(12).reshape(2, 6) % 20},
    "cnn": {"given": np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)},
}
BERT = {
    "input_ids": np.arange(16).reshape(2, 8),
    "attention_mask": np.ones((2, 8), np.int64),
    "token_type_ids": np.zeros((2, 8), np.int64),
}


@pytest.mark.parametrize("network", FEEDS)
def test_two_exporters(door, network):
    """Dumps of a network that two exporters exported agree, operator by operator."""
    mine, golden = (
        door.aside(exporter, onnx.load(f"{EXPORTS}/{network}_{exporter}.onnx"), FEEDS[network])
        for exporter in ("torchscript", "dynamo")
    )

    code, lines, rows = table(mine, golden)

    outputs = [row for row in rows if row["Tensor"].startswith("output")]
    compared = [row for row in outputs if row["Verdict"] != "unchecked"]
    assert [0, "nothing differs"] == [code, lines["first"]]
    assert {"equal", "agrees"} >= {row["Verdict"] for row in compared}
    assert len(compared) >= len(outputs) * 3 // 4


@pytest.mark.parametrize(
    ("node", "missing"),
    [
        ("embeddings/Add_node_6", "Default_embeddings-BertEmbeddings_Add-op0"),
        ("layers/0/attention/Mul_node_22", f"{ATTENTION}_Mul-op0"),
        ("layers/0/attention_output/Add_node_30", f"{OUTPUT}_Add-op0"),
    ],
)
def test_a_dropped_operator_shifts_no_others(door, node, missing):
    """An operator that a network lacks is missing; its renumbered siblings keep their partners."""
    model = onnx.load(MODEL)
    mine, golden = door.aside("mine", without(model, node), BERT), door.aside("golden", model, BERT)

    code, lines, rows = table(mine, golden)

    assert [1, True] == [code, missing in lines["missing"]]
    assert lines["missing"].startswith("1 operator ")
    assert "unchecked" not in {row["Verdict"] for row in rows}


LEVELS = pytest.mark.parametrize("levels", [(O1, O0), (O0, O1)], ids=["O1-O0", "O0-O1"])


@LEVELS
def test_levels_without_a_model(door, levels):
    """Dumps of a fused network and of one that is not fused agree without a model."""
    mine, golden = (
        door.aside(name, MODEL, BERT, context=level)
        for name, level in zip(("mine", "golden"), levels, strict=True)
    )

    code, lines, rows = table(mine, golden)

    assert [0, "nothing differs"] == [code, lines["first"]]
    assert "missing" not in lines
    assert 100 < sum(row["Verdict"] == "equal" for row in rows)


@LEVELS
@pytest.mark.parametrize(
    "node",
    ["embeddings/Add_node_6", "layers/0/attention/Mul_node_22", "layers/0/attention_output/Add_node_30"],
)
def test_a_dropped_operator_beside_fused_ones(door, node, levels):
    """An operator that a network lacks is missing, alone or in its kernel, where one side fuses."""
    model = onnx.load(MODEL)
    mine, golden = (
        door.aside(name, each, BERT, context=level)
        for name, each, level in zip(("mine", "golden"), (without(model, node), model), levels, strict=True)
    )

    code, told = document(mine, golden)

    missing = [each["onnx_name"].split("+") for each in told["operators"] if each["verdict"] == "missing"]
    assert [1, 1, True] == [code, len(missing), node in missing[0]]
    assert not {"own", "weight", "shape", "replaced"} & {each["verdict"] for each in told["operators"]}


DENSE = """net (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>
    { a = MatMul(x, w) c = Add(a, b) d = Relu(c) e = MatMul(d, v) f = Neg(e) y = Sigmoid(f) }"""
WITHOUT_GRAPH = {
    "sound": (DENSE, 1.0, 0, []),
    "weight of a kernel": (DENSE, 1.5, 1, [("weight", "Default_MatMul-op0BiasAdd-op0ReLU-op0")]),
    "dropped operator": (
        DENSE.replace("f = Neg(e) y = Sigmoid(f)", "y = Sigmoid(e)"),
        1.0,
        1,
        [("missing", "Default/Neg-op0")],
    ),
}


@pytest.mark.parametrize(("text", "factor", "expected", "accused"), WITHOUT_GRAPH.values(), ids=WITHOUT_GRAPH)
def test_kernels_without_a_graph(door, text, factor, expected, accused):
    """Without a graph file the names of kernels give their operators, and golden's graph their inputs."""
    draw = np.random.default_rng(3)
    weights = {name: draw.standard_normal((8, 8)).astype(np.float32) for name in "wv"}
    feeds = {"x": draw.standard_normal((2, 8)).astype(np.float32)}
    golden = door.aside("golden", parsed(DENSE, **weights), feeds)
    wrong = weights | {"w": weights["w"] * np.float32(factor)}
    mine = door.aside("mine", parsed(text, **wrong), feeds, context=O2, file_format="bin")

    code, told = document(mine, golden)

    found = [*zip(faults(told, "verdict"), faults(told), strict=True)]
    assert (expected, accused) == (code, found)


def test_numbers_that_an_odd_operator_moves(door):
    """Behind an operator in another one's place, a kernel with the next number is still the model's."""
    text = """net (float[2,8] x) => (float[2,8] y)
        { a = Softmax(x) b = MatMul(a, w) c = Softmax(b) d = MatMul(c, v) y = Softmax(d) }"""
    draw = np.random.default_rng(3)
    weights = {name: draw.standard_normal((8, 8)).astype(np.float32) for name in "wv"}
    feeds = {"x": draw.standard_normal((2, 8)).astype(np.float32)}
    model = door.folder / "golden.onnx"
    onnx.save(parsed(text, **weights), model)
    wrong = parsed(text.replace("Softmax(x)", "LogSoftmax(x)"), **weights)
    golden = door.aside("golden", parsed(text, **weights), feeds, context=O2)
    mine = door.aside("mine", wrong, feeds, context=O2)

    _, told = document(mine, golden, "--model", str(model))

    assert ["Default_LogSoftmax-op0"] == faults(told)
    assert ["replaced"] == faults(told, "verdict")


MLP = """mlp (float[1, 1, 2, 2] x) => (float[1, 2] y)
  <float[4, 3] a = {1,-2,3,4,5,-6,7,8,9,1,2,3}, float[3] b = {1,2,-3}, float[3, 2] c = {2,4,-6,8,1,3},
   float[2] d = {5,6}>
  { flat = Flatten(x) m = MatMul(flat, a) n = Add(m, b) r = Relu(n) o = MatMul(r, c) y = Add(o, d) }"""
CNN = """cnn (float[1, 1, 2, 2] x) => (float[1, 8] y)
  <float[2, 1, 1, 1] w = {0.5, 1.5}, float[2, 2, 1, 1] v = {0.1, 0.2, 0.3, 0.4}>
  { p = Conv(x, w) q = Relu(p) s = Conv(q, v) t = Sigmoid(s) u = Mul(s, t) y = Flatten(u) }"""
IMAGE = {"x": np.float32([[[[1, 2], [3, 4]]]])}
TWO = "they are two networks: "


@pytest.fixture
def two_networks(door):
    """Return a function that gives the dumps and the models of an MLP and of a CNN."""

    def make(**changes):
        models = {name: parsed(text) for name, text in (("mlp", MLP), ("cnn", CNN))}
        return *(door.aside(name, model, IMAGE, **changes) for name, model in models.items()), door.folder

    return make


@pytest.mark.parametrize("options", [[], ["--model", "mlp.onnx"], ["--json"]], ids=str)
@pytest.mark.parametrize(
    "changes", [{}, {"saved_data": "statistic", "context": GPU}], ids=["tensors", "statistics"]
)
def test_dumps_of_two_networks(two_networks, monkeypatch, options, changes):
    """Dumps of two networks are reported as such, with the number of pairs; no operator is accused."""
    *dumps, folder = two_networks(**changes)
    monkeypatch.chdir(folder)

    for mine, golden in (dumps, dumps[::-1]):
        done = command(mine, golden, *(options if mine is dumps[0] else []))

        assert 2 == done.exit_code, done.output
        assert TWO in done.stderr, done.output
        assert "of 6 operators of mine are paired with" in done.stderr


def test_models_of_two_networks(two_networks):
    """Two models of two networks are reported as such; only outputs are compared, no operator is accused."""
    *_, folder = two_networks()

    done = cli("diff", f"{folder}/mlp.onnx", f"{folder}/cnn.onnx")

    assert 2 == done.exit_code, done.output
    assert TWO in done.stderr
    assert "error: nothing was compared" in done.stderr
    assert "output    y: " in done.stdout


def test_report_of_two_networks(two_networks):
    """A report on a dump beside one of another network says so."""
    mine, golden, folder = two_networks()

    done = cli("report", mine, golden, "-o", f"{folder}/page.html")

    assert TWO in done.stderr, done.output
