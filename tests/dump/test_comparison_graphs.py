"""Comparisons of networks with other names, fusion or graphs of branches: operators are paired by graphs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser

from msdump.cli import main
from tests.dump import o2
from tests.dump.compared import accused, command, document, table
from tests.dump.nets import with_weight, without

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


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_levels_without_a_model(door, level):
    """Dumps of a fused network and of one that is not fused agree without a model."""
    mine, golden = (
        door.aside(each, MODEL, BERT, context={"device_target": "Ascend", "jit_level": each})
        for each in (level, "O1" if level == "O0" else "O0")
    )

    code, lines, rows = table(mine, golden)

    assert [0, "nothing differs"] == [code, lines["first"]]
    assert "missing" not in lines
    assert 100 < sum(row["Verdict"] == "equal" for row in rows)


@pytest.mark.parametrize("levels", [("O1", "O0"), ("O0", "O1")], ids="-".join)
@pytest.mark.parametrize(
    "node",
    ["embeddings/Add_node_6", "layers/0/attention/Mul_node_22", "layers/0/attention_output/Add_node_30"],
)
def test_a_dropped_operator_beside_fused_ones(door, node, levels):
    """An operator that a network lacks is missing, alone or in its kernel, where one side fuses."""
    model = onnx.load(MODEL)
    mine, golden = (
        door.aside(name, each, BERT, context={"device_target": "Ascend", "jit_level": level})
        for name, each, level in zip(("mine", "golden"), (without(model, node), model), levels, strict=True)
    )

    code, told = document(mine, golden)

    missing = [each["onnx_name"].split("+") for each in told["operators"] if each["verdict"] == "missing"]
    assert [1, 1, True] == [code, len(missing), node in missing[0]]
    assert not {"own", "weight", "shape", "replaced"} & {each["verdict"] for each in told["operators"]}


@pytest.mark.parametrize("golden_level", ["O2", "O0"])
def test_compiled_networks_are_paired_by_what_they_wrote(door, golden_level):
    """Dumps of Ascend O2 have no graph: tensors tell it, and a dropped operator shifts no others."""
    mine = o2.aside(door, "mine", without(onnx.load(MODEL), "layers/0/attention_output/Add_node_30"), BERT)
    if golden_level == "O2":
        golden = o2.aside(door, "golden", MODEL, BERT)
    else:
        context = {"device_target": "Ascend", "jit_level": golden_level}
        golden = door.aside("golden", MODEL, BERT, context=context, trans_flag=True)

    code, lines, _ = table(mine, golden)

    assert [1, True] == [code, lines["first"].startswith(f"{OUTPUT.partition('_attention_output')[0]}")]
    assert lines["missing"].startswith("1 operator ")


HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
MLP = f"""{HEAD} mlp (float[1, 1, 2, 2] x) => (float[1, 2] y)
  <float[4, 3] a = {{1,-2,3,4,5,-6,7,8,9,1,2,3}}, float[3] b = {{1,2,-3}}, float[3, 2] c = {{2,4,-6,8,1,3}},
   float[2] d = {{5,6}}>
  {{ flat = Flatten(x) m = MatMul(flat, a) n = Add(m, b) r = Relu(n) o = MatMul(r, c) y = Add(o, d) }}"""
CNN = f"""{HEAD} cnn (float[1, 1, 2, 2] x) => (float[1, 8] y)
  <float[2, 1, 1, 1] w = {{0.5, 1.5}}, float[2, 2, 1, 1] v = {{0.1, 0.2, 0.3, 0.4}}>
  {{ p = Conv(x, w) q = Relu(p) s = Conv(q, v) t = Sigmoid(s) u = Mul(s, t) y = Flatten(u) }}"""
IMAGE = {"x": np.float32([[[[1, 2], [3, 4]]]])}
TWO = "they are two networks: "


@pytest.fixture
def two_networks(door):
    """Return a function that gives the dumps and the models of an MLP and of a CNN."""

    def make(**changes):
        models = {name: parser.parse_model(text) for name, text in (("mlp", MLP), ("cnn", CNN))}
        return *(door.aside(name, model, IMAGE, **changes) for name, model in models.items()), door.folder

    return make


@pytest.mark.parametrize("options", [[], ["--model", "mlp.onnx"], ["--json"]], ids=str)
@pytest.mark.parametrize(
    "changes",
    [{}, {"saved_data": "statistic", "context": {"device_target": "GPU"}}],
    ids=["tensors", "statistics"],
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

    done = CliRunner().invoke(main, ["diff", f"{folder}/mlp.onnx", f"{folder}/cnn.onnx"])

    assert 2 == done.exit_code, done.output
    assert TWO in done.stderr
    assert "error: nothing was compared" in done.stderr
    assert "output    y: " in done.stdout


def test_report_of_two_networks(two_networks):
    """A report on a dump beside one of another network says so."""
    mine, golden, folder = two_networks()

    done = CliRunner().invoke(main, ["report", str(mine), str(golden), "-o", f"{folder}/page.html"])

    assert TWO in done.stderr, done.output


def test_a_part_of_a_kernel_that_was_replaced(door):
    """A compiled kernel one part of which is another operator than golden's replaces that operator."""
    text = f"""{HEAD} net (float[1, 1, 2, 2] x) => (float[1, 2, 2, 2] y) <float[2, 1, 1, 1] w = {{0.5, -1.5}}>
      {{ p = Conv(x, w) q = Act(p) s = Sin(q) t = Tanh(s) y = Sigmoid(t) }}"""
    models = [parser.parse_model(text.replace("Act", kind)) for kind in ("Relu", "LeakyRelu")]
    mine = o2.aside(door, "mine", models[0], IMAGE)
    golden = door.aside("golden", models[1], IMAGE)

    _, told = document(mine, golden)

    assert ("replaced", "Default/Conv2D-op0ReLU-op0") == (told["verdict"], told["first"])
    notes = [each["note"] for each in told["operators"] if each["verdict"] == "replaced"]
    assert ["in place of Default_LeakyRelu-op0"] == [note.partition(";")[0] for note in notes]


LOOP = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x, int64 n, bool flag) => (float[4,8] y)
  <float[8,8] w0, float[8,8] w1, float[8] b1> {
    start = MatMul(x, w0)
    last = Loop(n, , start) <body = round (int64 i, bool go, float[4,8] v) => (bool go, float[4,8] w) {
        p = MatMul(v, w1)
        q = Add(p, b1)
        r = Tanh(q)
        w = Sub(v, r) }>
    chosen = If(flag) <then_branch = yes () => (float[4,8] a) {
        s = Sigmoid(last)
        a = Mul(s, last)
      }, else_branch = no () => (float[4,8] b) { b = Neg(last) }>
    y = MatMul(chosen, w0) }"""
NESTED = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x, int64 n) => (float[4,8] y)
  <float[8,8] w0, float[8,8] w1, float[8] b1> {
    start = MatMul(x, w0)
    last = Loop(n, , start) <body = round (int64 i, bool go, float[4,8] v) => (bool go, float[4,8] w) {
        one = Constant<value_int = 1>()
        late = Less(one, i)
        w = If(late) <then_branch = yes () => (float[4,8] a) {
            p = MatMul(v, w1)
            q = Add(p, b1)
            a = Tanh(q)
          }, else_branch = no () => (float[4,8] b) { b = Sin(v) }> }>
    y = MatMul(last, w0) }"""
PASSES = 3
MODES = {"npy": {"file_format": "npy"}, "bin": {}}


def model_of(source):
    """Return a model with weights, some of them in a loop."""
    chance = np.random.default_rng(0)
    model = parser.parse_model(source)
    for name, shape in (("w0", (8, 8)), ("w1", (8, 8)), ("b1", (8,))):
        array = chance.normal(0, 0.4, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    declared = [each for each in model.graph.value_info if each.name not in {"w0", "w1", "b1"}]
    del model.graph.value_info[:]
    model.graph.value_info.extend(declared)
    return model


@pytest.fixture
def dump(door):
    """Return a function that dumps a model into a directory of its own and returns that."""

    def run(name, model, changes=None):
        feeds = {"x": np.random.default_rng(1).normal(size=(4, 8)).astype("f4"), "n": np.array(PASSES)}
        if "flag" in {each.name for each in model.graph.input}:
            feeds["flag"] = np.array(True)
        if changes is None:
            return door.aside(name, model, feeds, context={"device_target": "CPU"})
        return o2.aside(door, name, model, feeds, **changes)

    return run


@pytest.mark.parametrize("form", MODES)
@pytest.mark.parametrize(
    ("source", "passes"),
    [
        (LOOP, {"MatMul-op2BiasAdd-op0Tanh-op0": 3, "Sub-op0": 3, "Sigmoid-op0Mul-op0": 1}),
        (NESTED, {"MatMul-op2BiasAdd-op0Tanh-op0": 1, "Sin-op0": 2}),
    ],
    ids=["loop", "nested"],
)
def test_every_pass_is_compared(dump, form, source, passes):
    """Kernels of branches and loops agree pass by pass, inputs and outputs, in both directions."""
    compiled, single = dump("compiled", model_of(source), MODES[form]), dump("single", model_of(source))

    code, told = document(compiled, single)
    turned_code, turned = document(single, compiled)

    agreeing = Counter(
        each["operator"].rpartition("/")[2]
        for each in told["operators"]
        if {"agrees", "equal"} >= {tensor["verdict"] for tensor in (*each["inputs"], *each["outputs"])}
    )
    assert [(0, "agrees")] * 2 == [(code, told["verdict"]), (turned_code, turned["verdict"])]
    assert passes == {name: agreeing[name] for name in passes}
    assert "differs" not in str(turned["operators"])
    assert [] == [path for path in (*told["alone"], *turned["alone"]) if Path(path).name.isdecimal()]


@pytest.mark.parametrize("form", MODES)
@pytest.mark.parametrize(("source", "passes"), [(LOOP, 3), (NESTED, 1)], ids=["loop", "nested"])
def test_a_bit_of_a_weight_in_a_loop(dump, form, source, passes):
    """The kernel of a loop that reads a changed bias is accused in its passes, and no other operator."""

    def flip(bias):
        bias.view(np.uint32)[3] ^= np.uint32(1 << 22)
        return bias

    model = model_of(source)
    mine, golden = dump("mine", with_weight(model, "b1", flip), MODES[form]), dump("golden", model)

    found = [each for each in accused(mine, golden) if each[0] != "unchecked"]
    assert [("weight", "MatMul-op2BiasAdd-op0Tanh-op0")] * passes == found


def test_a_later_pass_that_went_wrong(dump):
    """An element of a file of the second pass that changed accuses that pass, and no pass before it."""
    mine, golden = dump("mine", model_of(LOOP), MODES["npy"]), dump("golden", model_of(LOOP))
    path = sorted(mine.rglob("Sub.*.output.0.*.npy"))[1]
    array = np.load(path)
    array[0, 0] += 5
    np.save(path, array)

    _, told = document(mine, golden)

    first = next(each for each in told["operators"] if each["verdict"] == "own")
    assert ("Default/Sub-op0", 1) == (first["operator"], first["pass_number"])
