"""Faults that a comparison of dumps must find: noise, another operator, what was not dumped."""

from __future__ import annotations

import csv
import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser
from onnxscript import nn

from msdump.cli import main
from msdump.graph import loader
from msdump.tools.compare.pairing import dump_folder
from sample_nets.bert import net as bert
from sample_nets.layers import Dense, Flatten, SequentialCell
from sample_nets.mobilenetv2.net import ConvBNReLU, InvertedResidual
from sample_nets.tracing import trace
from tests.dump import nets

pytestmark = pytest.mark.usefixtures("quiet")

RNG = np.random.default_rng(11)
OUTPUTS = 2
"""``input_output``: outputs only."""

SMALL = bert.BertConfig(vocabulary=40, sequence=8, hidden=16, heads=2, layers=1)


class _Mobile(nn.Module):
    """A stem, an inverted residual and a classifier, as MobileNetV2 has them."""

    def __init__(self):
        super().__init__()
        self.features = SequentialCell(
            ConvBNReLU(3, 8, 3, stride=2),
            InvertedResidual(8, 8, stride=1, expansion=2),
        )
        self.flatten = Flatten()
        self.head = Dense(8, 5)

    def forward(self, op, x):
        """Map images (1, 3, 16, 16) to five scores."""
        x = op.ReduceMean(self.features(op, x), [2, 3], keepdims=1)
        return self.head(op, self.flatten(op, x))


def mobile():
    """Return a small MobileNetV2 and its input."""
    image = ir.val("x", ir.DataType.FLOAT, [1, 3, 16, 16])
    model = trace(_Mobile(), [image], name="mobile")
    return ir.to_proto(model), {"x": RNG.standard_normal((1, 3, 16, 16)).astype("f4")}


def transformer():
    """Return a small BERT and its inputs."""
    model = trace(bert.network(SMALL), bert.inputs(1, SMALL), name="bert", outputs=bert.OUTPUTS)
    ids = RNG.integers(0, 40, (1, 8))
    return ir.to_proto(model), {
        "input_ids": ids,
        "attention_mask": np.ones((1, 8), "i8"),
        "token_type_ids": np.zeros((1, 8), "i8"),
    }


NETWORKS = {"mobile": mobile, "transformer": transformer}


@pytest.fixture
def dump(door):
    """Return a function that dumps a run of a model into a directory of its own and returns that."""

    def run(name, model, feeds, **changes):
        path = door.folder / name
        onnx.save(model, door.folder / f"{name}.onnx")
        door.dump(door.folder / f"{name}.onnx", feeds, path=str(path), **changes)
        door.again()
        return path

    return run


def compare(mine, golden):
    """Run ``msdump compare``; return what it printed, its line of the first operator, and the table."""
    out = mine.parent / "out"
    done = CliRunner().invoke(main, ["compare", str(mine), str(golden), "-out", str(out)])
    text = max(out.glob("compare_*.csv")).read_text(encoding="utf-8")
    first = next(line for line in done.stdout.splitlines() if line.startswith("first"))
    return done, first, list(csv.DictReader(text.splitlines()))


def noisy(model, name):
    """Return a model with 2 % of noise on a weight."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    weight = next(each for each in changed.graph.initializer if each.name == name)
    array = numpy_helper.to_array(weight)
    noise = 1 + 0.02 * np.random.default_rng(5).standard_normal(array.shape)
    weight.CopyFrom(numpy_helper.from_array((array * noise).astype("f4"), name))
    return changed


def readers(path, name):
    """Return the operators that read a value, as the names of files have them."""
    nodes = loader.load(str(path)).nodes
    return {dump_folder.key(node.operator.full_name) for node in nodes if name in node.inputs}


@pytest.mark.parametrize("network", NETWORKS)
def test_noise_on_any_weight_is_found(dump, door, network):
    """2 % of noise on any one weight is a difference, and the first operator is one that reads the weight."""
    model, feeds = NETWORKS[network]()
    golden = dump("golden", model, feeds, input_output=OUTPUTS, kernels=[])
    arrays = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    weights = [
        name for name, array in arrays.items() if array.size > 4 and array.any() and array.dtype == "f4"
    ]

    for number, name in enumerate(weights):
        mine = dump(f"mine{number}", noisy(model, name), feeds, input_output=OUTPUTS)
        done, first, _ = compare(mine, golden)

        assert 1 == done.exit_code, name
        assert first.split()[1] in readers(door.folder / f"mine{number}.onnx", name)


@pytest.mark.parametrize("network", NETWORKS)
def test_two_runs_agree(dump, network):
    """Two runs of a network are the same bit for bit."""
    model, feeds = NETWORKS[network]()

    done, first, rows = compare(dump("mine", model, feeds), dump("golden", model, feeds))

    assert (0, "first     nothing differs") == (done.exit_code, first)
    assert {"equal"} == {row["Verdict"] for row in rows}


def test_bias_of_an_operator_that_was_not_dumped(dump):
    """An input that differs is found where the output hides it, and what feeds it is said to be outside."""

    def model(bias):
        nodes = [nets.node("Add", "x b", "s"), nets.node("Relu", "s", "y")]
        return nets.model(nodes, [nets.value("x", [4])], ["y"], {"b": np.float32([bias] * 4)})

    feeds = {"x": np.arange(4, dtype="f4")}
    mine, golden = (
        dump(f"b{-bias}", model(bias), feeds, dump_mode=1, kernels=["ReLU"]) for bias in (-100, -50)
    )

    done, first, rows = compare(mine, golden)

    assert 1 == done.exit_code
    assert (
        "first     Default_ReLU-op0 (ReLU), operator 1 of 1: input 0 differs already, its outputs agree"
        == first
    )
    assert "what feeds input 0 differs and lies outside the dump\n" in done.stdout
    assert {"input:0": "differs", "output:0": "equal"} == {row["Tensor"]: row["Verdict"] for row in rows}


def test_log_in_the_place_of_abs(dump):
    """An operator in the place of another one is the first, not its successor."""

    def model(op_type):
        nodes = [
            nets.node("Exp", "x", "e"),
            nets.node(op_type, "e", "a"),
            nets.node("Relu", "a", "y"),
        ]
        return nets.model(nodes, [nets.value("x", [4])], ["y"])

    feeds = {"x": np.arange(4, dtype="f4")}

    done, first, _ = compare(dump("log", model("Log"), feeds), dump("abs", model("Abs"), feeds))

    assert 1 == done.exit_code
    assert first.startswith("first     Default_Log-op0 (Log), operator 2 of ")
    assert first.endswith("output 0 differs, its inputs agree")
    assert "in the place of Default_Abs-op0" in done.stdout


@pytest.mark.parametrize("target", ["CPU", "Ascend"])
def test_pass_of_a_loop_is_named(dump, target):
    """The pass of a loop in which the first difference arises is told."""

    def model(at):
        text = """<ir_version: 10, opset_import: ["" : 20]> g (float[3] x, int64 n) => (float[3] y) {
            y = Loop(n, , x) <body = round (int64 i, bool go, float[3] v) => (bool go, float[3] w) {
                special = Constant<value = int64 {AT}>()
                hit = Equal(i, special)
                bump = Cast<to = 1>(hit)
                w = Add(v, bump) }> }"""
        return parser.parse_model(text.replace("AT", str(at)))

    feeds = {"x": np.float32([1, 2, 3]), "n": np.array(3)}
    settings = {
        "context": {"device_target": target},
        "input_output": OUTPUTS,
        "dump_mode": 1,
        "kernels": ["Add"],
    }

    done, first, rows = compare(
        dump("mine", model(1), feeds, **settings), dump("golden", model(9), feeds, **settings)
    )

    adds = [
        (row["Pass"], row["Verdict"]) for row in rows if row["Type"] == "Add" and row["Tensor"] == "output:0"
    ]
    assert 1 == done.exit_code
    assert [("0", "equal"), ("1", "differs"), ("2", "differs")] == adds
    assert ", pass 1, operator " in first


@pytest.mark.parametrize(("types", "accused"), [((1, 10), ["Default/Cast-op1"]), ((10, 10), [])])
def test_operators_in_another_type(dump, types, accused):
    """The first operator that writes another type is named; a network that was converted has none."""

    def model(wide, narrow):
        source = f"""<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y) {{
            a = Cast<to = {wide}>(x)
            b = Exp(a)
            c = Cast<to = {narrow}>(b)
            d = Sin(c)
            e = Abs(d)
            f = Cast<to = {wide}>(e)
            g = Tanh(f)
            y = Cast<to = 1>(g) }}"""
        return parser.parse_model(source)

    feeds = {"x": np.float32([0.1, 0.2, 0.3, 0.4])}
    mine = dump("mine", model(*types), feeds)

    golden = dump("golden", model(1, 1), feeds)

    done = CliRunner().invoke(main, ["compare", str(mine), str(golden), "-out", str(mine.parent), "--json"])

    found = [row for row in json.loads(done.stdout)["operators"] if row["verdict"] in {"dtype", "own"}]
    assert accused == [row["operator"] for row in found]


KERNEL = """<ir_version: 10, opset_import: ["" : 20]> g (float[4,8] x) => (float[4,8] y) {
        a = MatMul(x, w)
        CHAIN
        b = MatMul(f, v)
        c = Tanh(b)
        y = Softmax(c) }"""
RELU = "f = Relu(a)"
NARROW_RELU = "h = Cast<to = 10>(a) r = Relu(h) f = Cast<to = 1>(r)"
NARROW_PAIR = "h = Cast<to = 10>(a) r = Relu(h) s = Abs(r) f = Cast<to = 1>(s)"


@pytest.mark.parametrize(
    ("chains", "levels", "accused"),
    [
        ((NARROW_RELU, RELU), ("O1", "O1"), [("CastReLUCast", "dtype")]),
        ((NARROW_RELU, RELU), ("O1", "CPU"), [("CastReLUCast", "dtype")]),
        ((RELU, NARROW_RELU), ("CPU", "O1"), [("ReLU", "dtype")]),
        ((NARROW_RELU, RELU), ("CPU", "CPU"), [("ReLU", "dtype")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "O1"), [("CastReLUAbsCast", "dtype")]),
        ((NARROW_PAIR, "r = Relu(a) f = Abs(r)"), ("O1", "CPU"), [("CastReLUAbsCast", "dtype")]),
        ((NARROW_RELU, NARROW_RELU), ("O1", "CPU"), []),
        ((NARROW_PAIR, NARROW_PAIR), ("CPU", "O1"), []),
    ],
)
def test_casts_inside_of_a_kernel(dump, chains, levels, accused):
    """A kernel that computes in float16 inside is named though its tensors agree; its readers are not."""
    contexts = {"CPU": {"device_target": "CPU"}, "O1": {"device_target": "Ascend", "jit_level": "O1"}}
    generator = np.random.default_rng(3)
    weights = {name: generator.standard_normal((8, 8)).astype("f4") for name in ("w", "v")}

    def model(chain):
        made = parser.parse_model(KERNEL.replace("CHAIN", chain))
        made.graph.initializer.extend(numpy_helper.from_array(*each[::-1]) for each in weights.items())
        return made

    feeds = {"x": generator.standard_normal((4, 8)).astype("f4")}
    mine, golden = (
        dump(name, model(chain), feeds, context=contexts[level])
        for name, chain, level in zip(("mine", "golden"), chains, levels, strict=True)
    )

    done = CliRunner().invoke(main, ["compare", str(mine), str(golden), "-out", str(mine.parent), "--json"])

    rows = json.loads(done.stdout)["operators"]
    innocent = {"equal", "agrees", "inherited", "accumulated", "unchecked", "healed"}
    assert accused == [(row["op_type"], row["verdict"]) for row in rows if row["verdict"] not in innocent]
