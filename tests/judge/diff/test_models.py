"""Two models in lockstep: other exporters, other weights, other types, operators that one of them lacks."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from msdump.cli import main
from msdump.errors import InputError
from msdump.execute import WeightCopies, values
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.diff import LockstepComparison, make_side, models, pair_sides, sharing_weights
from msdump.judge.verdict import Limits, Verdict
from tests.judge.diff.conftest import GRAPHS, HEAD

EXPORTS = Path(__file__).resolve().parents[1] / "pair" / "exports"

NET = """
net (float[2,4] x) => (float[2,4] y) <float[4,4] w = {WEIGHT}, float[4] b = {0.5, -1.0, 2.0, 0.25}>
{ product = MatMul(x, w) sum = Add(product, b) active = Relu(sum) scaled = Mul(active, b) y = Sub(scaled, x) }
"""
WEIGHT = [1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 0.25, 3.0, 1.5, 2.5, -3.5, 1.0, 0.1, 0.2, 0.3, 0.4]


def net(weight=WEIGHT, **changed):
    """Return a model with a changed text."""
    text = NET.replace("{WEIGHT}", "{" + ", ".join(map(str, weight)) + "}")
    for old, new in changed.values():
        assert old in text
        text = text.replace(old, new)
    return parser.parse_model(f"{HEAD} {text}")


def compared(mine, golden, fed=None, *, limits=None, names=("float32", "float32")):
    """Return the comparison of two models."""
    first = loader.load(mine)
    second = sharing_weights(loader.load(golden), first)
    sides = [
        make_side(graph, models.parse(name), WeightCopies(), trains=False)
        for graph, name in zip((first, second), names, strict=True)
    ]
    both = LockstepComparison(*sides, pair_sides(*sides, is_one_model=False), limits or Limits())
    both.run(values.bind_inputs(first, (), fed or inputs.made_up(first, {}, 0, 0)))
    return both


def accused(both):
    """Return verdict and type of the operators at fault."""
    return [(each.verdict, each.place.op_type) for each in both.report.accused]


@pytest.mark.parametrize("names", [("float32", "float32"), ("Ascend:O1", "float32"), ("CPU", "Ascend:O2")])
@pytest.mark.parametrize("network", ["cnn", "transformer"])
def test_exports_of_one_network_agree(network, names):
    """TorchScript and dynamo share no name, and yet all visible operators are compared."""
    limits = Limits(precision=models.precision(*map(models.parse, names)))
    both = compared(
        EXPORTS / f"{network}_dynamo.onnx",
        EXPORTS / f"{network}_torchscript.onnx",
        limits=limits,
        names=names,
    )

    compared_ones = [each for each in both.report.findings if each.verdict is not Verdict.UNCHECKED]
    assert both.report.agrees
    assert [] == both.failures
    assert len(compared_ones) > len(both.report.findings) / 4
    assert all(output.evidence.error is not None for output in both.outputs)


@pytest.mark.parametrize("model", ["lenet", "transformer", "loop", "if", "scan", "quantized"])
def test_a_model_equals_itself(model):
    """Every operator has its counterpart, in branches and loops, too."""
    both = compared(GRAPHS / f"{model}.onnx", GRAPHS / f"{model}.onnx")

    assert {Verdict.EQUAL} == {each.verdict for each in both.report.findings}
    assert [] == both.report.missing


LEAVING = """
net (float[2,4] x) => (float[2,N] y) <int64[1] k = {{3}}>
{{ sharp = {op}(x) {line} y = Cast <to = 1> (kept) }}
"""
TWO = ["omitted, kept = TopK(sharp, k)", "values, kept = TopK(sharp, k)"]
UP_TO_TWO = ["kept = Dropout(sharp)", "kept, omitted = Dropout(sharp)", "kept, mask = Dropout(sharp)"]


@pytest.mark.parametrize(("mine", "golden"), [*product(TWO, TWO), *product(UP_TO_TWO, UP_TO_TWO)])
def test_an_output_that_is_left_out_has_no_counterpart(tmp_path, mine, golden):
    """An output that one model lacks is compared with nothing, and the operator at fault is found."""
    for name, op, line in (("mine", "Neg", mine), ("same", "Exp", mine), ("golden", "Exp", golden)):
        model = parser.parse_model(f"{HEAD} {LEAVING.format(op=op, line=line)}")
        outputs = model.graph.node[1].output
        outputs[:] = ["" if output == "omitted" else output for output in outputs]
        onnx.save(model, tmp_path / f"{name}.onnx")
    paths = {name: str(tmp_path / f"{name}.onnx") for name in ("mine", "same", "golden")}

    both = compared(paths["same"], paths["golden"])
    found = CliRunner().invoke(main, ["diff", paths["mine"], paths["golden"], "--bisect"])

    assert {Verdict.EQUAL} == {each.verdict for each in both.report.findings}
    assert 1 == found.exit_code, found.output
    assert "explains" in found.stdout


def test_a_weight_that_differs_is_named():
    """Its readers inherit the error."""
    both = compared(net([2.0, *WEIGHT[1:]]), net())
    assert both.mine.graph.weights["b"] is both.golden.graph.weights["b"]  # the memory of one

    assert [(Verdict.WEIGHT, "MatMul")] == accused(both)
    assert "w" in both.report.accused[0].note


@pytest.mark.parametrize("text", ["LeakyRelu <alpha = 0.2> (sum)", "HardSwish(sum)", "Sigmoid(sum)"])
def test_an_operator_in_place_of_another_is_replaced(text):
    """An operator of another type is replaced, although its error is its own."""
    report = compared(net(other=("Relu(sum)", text)), net()).report

    assert [Verdict.REPLACED] == [each.verdict for each in report.accused]
    assert "in place of ReLU-op0 (ReLU)" in report.accused[0].note.replace("Default/", "")


def test_an_operator_that_is_missing_is_listed():
    """Operators that the examined model lacks stand in the report, by name."""
    both = compared(
        net(dropped=("active = Relu(sum) scaled = Mul(active, b)", "scaled = Mul(sum, b)")), net()
    )

    assert ["ReLU"] == [place.op_type for place in both.report.missing]


def test_inputs_of_other_names_and_types_are_fed_by_place():
    """A network in float16 with another name for its input gets the same numbers."""
    small = net(
        x=("(float[2,4] x) => (float[2,4] y)", "(float16[2,4] data) => (float16[2,4] z)"),
        body=(
            "product = MatMul(x, w)",
            "wide = Cast <to = 1> (data) product = MatMul(wide, w)",
        ),
        end=("y = Sub(scaled, x)", "last = Sub(scaled, wide) z = Cast <to = 10> (last)"),
    )
    both = compared(net(), small, {"x": np.ones((2, 4), np.float32)}, limits=Limits(precision="float16"))

    assert [] == both.failures
    assert both.report.agrees
    assert ["y"] == [output.evidence.name for output in both.outputs]


def test_an_input_that_only_golden_has_is_refused():
    """Nothing can be fed to it."""
    more = net(x=("(float[2,4] x)", "(float[2,4] x, float[2,4] mask)"), body=("Relu(sum)", "Mul(sum, mask)"))

    with pytest.raises(InputError, match="input 'mask' has no value"):
        compared(net(), more)


@pytest.mark.parametrize("level", ["CPU", "Ascend", "Ascend:O1", "Ascend:O2"])
def test_a_part_in_float16_is_named_on_every_level(tmp_path, level):
    """Operators between two casts that golden lacks are named, inside of a kernel, too."""
    narrow = ("active = Relu(sum)", "h = Cast <to = 10> (sum) r = Relu(h) active = Cast <to = 1> (r)")
    for name, graph in (("mine", net(narrow=narrow)), ("golden", net())):
        onnx.save(graph, tmp_path / f"{name}.onnx")
    paths = [str(tmp_path / f"{name}.onnx") for name in ("mine", "golden")]

    done = CliRunner().invoke(main, ["diff", *paths, "--mine", level, "--json"])

    rows = json.loads(done.stdout)["operators"]
    named = [row["operator"] for row in rows if row["verdict"] == "dtype"]
    assert [1, 1] == [done.exit_code, len(named)]
    assert "ReLU" in named[0]
    assert {"equal", "agrees", "unchecked", "dtype"} >= {row["verdict"] for row in rows}


@pytest.mark.parametrize("level", ["Ascend:O0", "Ascend:O1", "Ascend:O2"])
def test_a_kernel_that_is_fused_otherwise_runs_again_on_its_own_inputs(level):
    """Where an operator reads past another one, kernels have other parts, and none of them is accused."""
    text = """net (float[2,4] x) => (float[2,4] y) <float[4,4] w = {WEIGHT}>
    { a = Abs(x) b = Neg(a) c = Relu(b) d = MatMul(READ, w) e = Add(c, d) y = Relu(e) }"""
    weight = ", ".join(map(str, WEIGHT))
    mine, golden = (
        parser.parse_model(f"{HEAD} {text.replace('WEIGHT', weight).replace('READ', read)}") for read in "bc"
    )

    both = compared(mine, golden, names=(level, "float32"), limits=Limits(precision="float16"))

    assert {"MatMul"} == {op_type for _, op_type in accused(both)}
