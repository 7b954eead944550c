"""Dumps of statistics with operators of other names: rows are paired by the graphs beside the dumps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli.program import main
from tests.dump import nets
from tests.world import opened

RNG = np.random.default_rng(5)
WEIGHTS = {f"w{n}": (RNG.standard_normal((6, 6)) / 2).astype(np.float32) for n in range(4)}
X = RNG.standard_normal((3, 6)).astype(np.float32)
O0 = {"device_target": "Ascend", "jit_level": "O0"}
MODES = {"O0": O0, "O1": O0 | {"jit_level": "O1"}, "GPU": {"device_target": "GPU"}}
LAYERS = ("MatMul w0", "Relu", "MatMul w1", "Sigmoid", "MatMul w2", "Tanh", "MatMul w3", "Neg")


def network(layers=LAYERS, *, style="module", fault=None, weights="w"):
    """Return a chain of operators.

    Args:
        layers: Operators, each with the weight that it reads.
        style: "module": names of modules; "flat": names that count operators.
        fault: A weight that is made wrong.
        weights: Name of weights, in front of their numbers.
    """
    nodes, value, used = [], "x", {}
    for number, layer in enumerate(layers):
        op_type, *read = layer.split()
        result = "y" if number == len(layers) - 1 else f"{style}_{number}"
        name = f"layer{number}/{op_type}" if style == "module" else f"node_{number}"
        inputs = [value, *(weights + each[1:] for each in read)]
        used |= {weights + each[1:]: WEIGHTS[each] * (1.3 if each == fault else 1) for each in read}
        nodes.append(nets.node(op_type, " ".join(inputs), result, name))
        value = result
    return nets.model(nodes, [nets.value("x", [3, 6])], ["y"], {k: np.float32(v) for k, v in used.items()})


@pytest.fixture
def compared(tmp_path):
    """Return a function that dumps two networks and compares them; it returns exit code and document."""

    def compare(mine, golden):
        for name, (model, context, changes) in {"mine": mine, "golden": golden}.items():
            (tmp_path / name).mkdir()
            with opened(tmp_path / name) as door:
                door.dump(model, {"x": X}, context=context, **changes)
        sides = [f"{tmp_path}/{side}/dump" for side in ("mine", "golden")]
        done = CliRunner().invoke(main, ["compare", *sides, "-out", str(tmp_path), "--json"])
        return done.exit_code, json.loads(done.stdout)

    return compare


STATISTIC = {"saved_data": "statistic"}
TENSOR = {"saved_data": "tensor"}


def operators(document, *verdicts):
    """Return the operators with one of some verdicts, without slashes."""
    return [each["operator"] for each in document["operators"] if each["verdict"] in verdicts]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("saved", [STATISTIC, TENSOR], ids=["statistic", "tensor"])
def test_renamed_operators_are_paired(mode, saved, compared):
    """The same network under other names agrees in all rows, with rows and with tensors alike."""
    code, document = compared(
        (network(style="flat"), MODES[mode], STATISTIC), (network(), MODES[mode], saved)
    )

    assert (0, "equal") == (code, document["verdict"])
    assert len(LAYERS) == sum(each.startswith("Default") for each in operators(document, "equal"))


def test_fault_under_other_names_is_found(compared):
    """A wrong weight is the first that differs, and its operator's note says who is beside it, and how."""
    code, document = compared((network(style="flat", fault="w1"), O0, STATISTIC), (network(), O0, STATISTIC))

    accused = operators(document, "own", "weight", "inherited", "amplified")
    assert (1, "Default/MatMul-op1") == (code, accused[0])
    (first,) = [each for each in document["operators"] if each["operator"] == accused[0]]
    assert "paired with Default/layer2/MatMul-op0" in json.dumps(first)


def test_weights_of_other_names_are_known_by_what_was_measured(compared):
    """Weights that an exporter calls otherwise are recognised by their statistics."""
    code, document = compared(
        (network(style="flat", weights="onnx::MatMul_"), O0, STATISTIC), (network(), O0, STATISTIC)
    )

    assert (0, "equal") == (code, document["verdict"])


def test_fused_kernels_are_compared_by_what_leaves_them(compared):
    """A fused kernel is compared with the last of its parts, whatever these are called."""
    layers = ("MatMul w0", "Relu", "Neg", "Sigmoid", "MatMul w1")
    code, document = compared(
        (network(layers, style="flat"), MODES["O1"], STATISTIC), (network(layers), O0, STATISTIC)
    )

    assert (0, []) == (code, operators(document, "missing"))
    assert 3 <= len(document["operators"]) < len(layers) + 1
    assert all(each["verdict"] in {"equal", "agrees"} for each in document["operators"])


def test_baseline_of_other_names(compared, tmp_path):
    """A baseline keeps the graph, so that a network which was exported anew can be compared with it."""
    compared((network(style="flat"), O0, STATISTIC), (network(fault="w2"), O0, TENSOR))
    dumps = {side: f"{tmp_path}/{side}/dump" for side in ("mine", "golden")}
    kept = CliRunner().invoke(main, ["baseline", dumps["golden"], "-out", f"{tmp_path}/base"])
    assert 0 == kept.exit_code, kept.output

    done = CliRunner().invoke(
        main, ["compare", dumps["mine"], f"{tmp_path}/base", "-out", str(tmp_path), "--json"]
    )

    document = json.loads(done.stdout)
    assert (1, "Default/MatMul-op2") == (done.exit_code, document["first"])


def test_operators_without_partner_are_listed(compared):
    """An operator that only golden has is missing, one that only mine has has no golden."""
    longer = (*LAYERS[:4], "Exp", *LAYERS[4:])
    _, document = compared((network(style="flat"), O0, STATISTIC), (network(longer), O0, STATISTIC))

    assert ["Default/layer4/Exp-op0"] == operators(document, "missing")
