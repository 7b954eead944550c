"""``msdump compare --model``: each operator runs again, and those with errors of their own are named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper, parser

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


def epsilon(model, value=0.01):
    """Change the epsilon of a normalization."""
    norm = node(model, "LayerNormalization", 1)
    kept = [each for each in norm.attribute if each.name != "epsilon"]
    del norm.attribute[:]
    norm.attribute.extend([*kept, helper.make_attribute("epsilon", value)])


def average(model):
    """Take the average where the largest element was taken; what follows changes the shape alone."""
    pool = node(model, "MaxPool", 1)
    pool.op_type = "AveragePool"


def dropped(model):
    """Leave out the product of attention with the values: who reads it reads its first input."""
    gone = node(model, "MatMul", 4)
    model.graph.node.remove(gone)
    for each in model.graph.node:
        for slot, name in enumerate(each.input):
            if name == gone.output[0]:
                each.input[slot] = gone.input[0]


FAULTS = [
    ("lenet", one_value, [("weight", "Conv2D-op0")]),
    ("lenet", noisy, [("weight", "MatMul-op0")]),
    ("lenet", several, [("weight", "Conv2D-op0"), ("weight", "MatMul-op0")]),
    ("lenet", average, [("replaced", "AvgPool")]),
    ("transformer", epsilon, [("own", "LayerNorm-op0")]),
    ("transformer", dropped, [("missing", "BatchMatMul-op1")]),
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


@pytest.mark.parametrize("mode", ["cpu", "o0", "o0-device", "o2-npy", "o2-bin"])
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


TABLE = """<ir_version: 10, opset_import: ["" : 20]>
table (float[4,8] x) => (float[4,8] y) <float[9,8] table, int64[8] rows> {
    c = Tanh(x)
    g = Gather(table, rows)
    t = Transpose(g)
    p = MatMul(c, t)
    y = Softmax(p)
}"""


@pytest.mark.parametrize("mode", ["o2-npy", "o2-bin"])
def test_a_folded_constant_is_told_by_its_weights(door, mode):
    """Who reads a constant that the compiler made of a wrong weight is told with the weight's name."""
    model, draw = parser.parse_model(TABLE), np.random.default_rng(0)
    arrays = {"table": draw.standard_normal((9, 8), np.float32), "rows": np.arange(8)[::-1].copy()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    del model.graph.value_info[:]
    feeds, sides = {"x": draw.standard_normal((4, 8), np.float32)}, []
    for name in ("golden", "mine"):
        onnx.save(model, door.folder / f"{name}.onnx")
        door.dump(door.folder / f"{name}.onnx", feeds, **(MODES[mode] if name == "mine" else {}))
        sides.append(str(door.path.rename(door.folder / name)))
        door.again()
        weight(model, "table", lambda array: array * np.float32(1.01))

    command = ["compare", *sides[::-1], "--model", str(door.folder / "golden.onnx"), "--json"]
    done = CliRunner().invoke(main, [*command, "-out", str(door.folder / "out")])

    told = [each for each in json.loads(done.stdout)["operators"] if each["verdict"] in ACCUSING]
    assert [("weight", True)] == [(each["verdict"], "(folded of table)" in each["note"]) for each in told]


@pytest.mark.parametrize("mode", ["cpu", "o0-device", "o2-npy"])
def test_a_patch_shows_the_cure(door, golden, mode):
    """With golden's output in the place of a faulty operator little of the outputs' error is left."""
    theirs = golden("transformer")
    model = onnx.load(GRAPHS / "transformer.onnx")
    epsilon(model, 0.5)
    onnx.save(model, door.folder / "faulty.onnx")
    door.again()
    door.dump(door.folder / "faulty.onnx", FEEDS["transformer"], **MODES[mode])
    name = node(model, "LayerNormalization", 1).name
    out = str(door.folder / "out")
    options = ["--model", str(GRAPHS / "transformer.onnx"), "--patch", name, "-out", out]
    done = CliRunner().invoke(main, ["compare", str(door.path), str(theirs), *options])
    errors = [
        tuple(map(float, re.findall(r"error (\S+) without, (\S+) with", line)[0]))
        for line in done.stdout.splitlines()
        if line.startswith("patch")
    ]
    assert errors, done.output
    assert [] == [pair for pair in errors if pair[1] >= pair[0] / 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "mini"], "is not the model of the dump"),
        (["--model", "lenet", "--patch", "nowhere"], "the main graph has no such operator"),
        (["--model", "lenet", "--arithmetic", "float64"], "operators run again on CPU, GPU or Ascend"),
        (["--patch", "nowhere"], "give its --model"),
    ],
)
def test_what_cannot_run_again_is_told(door, golden, options, message):
    """Another network's model, an operator that is nowhere and another arithmetic are refused."""
    theirs = golden("lenet")
    door.again()
    door.dump(GRAPHS / "lenet.onnx", FEEDS["lenet"])
    options = [str(GRAPHS / f"{each}.onnx") if each in {"mini", "lenet"} else each for each in options]
    done = CliRunner().invoke(main, ["compare", str(door.path), str(theirs), *options])
    assert 2 == done.exit_code
    assert message in done.output


@pytest.mark.parametrize("mode", MODES)
def test_training_steps_run_again(door, mode):
    """Operators that write variables in place run again on the values that these had before."""
    step = str(door.folder / "step.onnx")
    CliRunner().invoke(
        main, ["train-graph", str(GRAPHS / "lenet.onnx"), "-o", step, "--optimizer", "adam:0.01"]
    )
    folders = []
    for number, each in enumerate(("cpu", mode)):
        settings = dict(MODES[each])
        context = settings.pop("context", {"device_target": "CPU"})
        file = door.configure(**settings)
        device = [text for key, item in context.items() for text in (f"--{key.replace('_', '-')}", item)]
        command = ["run", step, "--train", "--steps", "2", "--config", str(file), *device]
        assert 0 == CliRunner().invoke(main, command).exit_code
        folders.append(door.path.rename(door.folder / f"side{number}"))
    assert [] == accused(folders[1], folders[0], step)
