"""``msdump compare --model``: each operator runs again, and those with errors of their own are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

from msdump.cli import main

pytestmark = pytest.mark.usefixtures("quiet")

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
TOKENS = np.arange(16).reshape(2, 8)
FEEDS = {
    "lenet": {"x": np.random.default_rng(7).standard_normal((1, 1, 32, 32)).astype("f4")},
    "transformer": {
        "input_ids": TOKENS,
        "attention_mask": TOKENS % 8 // 5,
        "token_type_ids": TOKENS % 2,
    },
}
MODES = {
    "cpu": {},
    "o0": {"context": {"device_target": "Ascend", "jit_level": "O0"}},
    "o0-device": {
        "context": {"device_target": "Ascend", "jit_level": "O0"},
        "enable": False,
        "trans_flag": False,
    },
    "o0-force": {"context": {"device_target": "Ascend", "jit_level": "O0"}, "precision_mode": "force_fp16"},
    "o1": {"context": {"device_target": "Ascend", "jit_level": "O1"}},
    "o2-npy": {"context": {"device_target": "Ascend", "jit_level": "O2"}, "file_format": "npy"},
    "o2-bin": {"context": {"device_target": "Ascend", "jit_level": "O2"}, "file_format": "bin"},
}
ACCUSING = {"own", "weight", "nonfinite", "replaced", "shape", "dtype", "missing"}


def accused(mine, golden, model, *options):
    """Return verdict and last component of the name of each accused operator, in order."""
    out = str(Path(mine).parent / "out")
    command = ["compare", str(mine), str(golden), "--model", str(model), "--json", "-out", out, *options]
    done = CliRunner().invoke(main, command)
    assert done.exit_code in {0, 1}, done.output
    operators = json.loads(done.stdout)["operators"]
    return [
        (each["verdict"], each["operator"].replace("_", "/").rpartition("/")[2])
        for each in operators
        if each["verdict"] in ACCUSING
    ]


def weight(model, name, change):
    """Change an initializer."""
    tensor = next(each for each in model.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))


def node(model, op, number):
    """Return a node of a type."""
    return [each for each in model.graph.node if each.op_type == op][number]


def noisy(model):
    """Give 2 % of noise to the weight of a dense layer."""
    generator = np.random.default_rng(0)

    def change(array):
        return array * (1 + 0.02 * generator.standard_normal(array.shape).astype("f4"))

    weight(model, "fc3.weight", change)


def one_value(model):
    """Change one value of a convolution's kernel."""

    def change(array):
        array.flat[3] += 0.5
        return array

    weight(model, "conv2.weight", change)


def several(model):
    """Change two weights."""
    noisy(model)
    one_value(model)


def epsilon(model):
    """Change the epsilon of a normalization."""
    norm = node(model, "LayerNormalization", 1)
    kept = [each for each in norm.attribute if each.name != "epsilon"]
    del norm.attribute[:]
    norm.attribute.extend([*kept, helper.make_attribute("epsilon", 0.01)])


FAULTS = [
    ("lenet", one_value, [("weight", "Conv2D-op0")]),
    ("lenet", noisy, [("weight", "MatMul-op0")]),
    ("lenet", several, [("weight", "Conv2D-op0"), ("weight", "MatMul-op0")]),
    ("transformer", epsilon, [("own", "LayerNorm-op0")]),
]


@pytest.fixture
def golden(door):
    """Return a function that dumps a network of the graphs folder on the CPU, and returns the directory."""

    def dump(name):
        door.dump(GRAPHS / f"{name}.onnx", FEEDS[name])
        return door.path.rename(door.folder / "golden")

    return dump


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["lenet", "transformer"])
def test_no_sound_operator_is_accused(door, golden, name, mode):
    """A network on another device, in another arithmetic and in other formats has no fault."""
    theirs = golden(name)
    door.again()
    door.dump(GRAPHS / f"{name}.onnx", FEEDS[name], **MODES[mode])
    assert [] == accused(door.path, theirs, GRAPHS / f"{name}.onnx")


@pytest.mark.parametrize("mode", ["cpu", "o0", "o0-device", "o2-bin"])
@pytest.mark.parametrize(
    ("name", "fault", "expected"), FAULTS, ids=lambda item: getattr(item, "__name__", "")
)
def test_every_fault_is_named_and_nothing_else(door, golden, name, fault, expected, mode):
    """Weights are named by bits, kernels by what float64 leaves of their errors, in all modes."""
    theirs = golden(name)
    model = onnx.load(GRAPHS / f"{name}.onnx")
    fault(model)
    onnx.save(model, door.folder / "faulty.onnx")
    door.again()
    door.dump(door.folder / "faulty.onnx", FEEDS[name], **MODES[mode])
    found = accused(door.path, theirs, GRAPHS / f"{name}.onnx")
    # a kernel of the compiled graph is called after all of its parts
    assert [verdict for verdict, _ in expected] == [verdict for verdict, _ in found]
    assert all(own.startswith(part) for (_, part), (_, own) in zip(expected, found, strict=True))
