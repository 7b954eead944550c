"""The sample networks: shapes, names, source lines, weights and inputs."""

import ast
import functools
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from msdump.graph.loader import load
from sample_nets import data
from sample_nets.build import NETWORKS, build
from tests.world import ROOT, completed

# Network: number of operators, parameters, output shape for a batch of two.
EXPECTED = {
    "alexnet": (22, 58_320_938, (2, 10)),
    "bert": (373, 109_187_328, (2, 768)),
    "lenet": (15, 61_684, (2, 10)),
    "mini": (5, 117, (2, 3)),
    "mobilenetv2": (153, 3_538_984, (2, 1000)),
    "overflow": (12, 16_707, (2, 3)),
    "resnet50": (176, 25_610_152, (2, 1000)),
}
DEEP = ("alexnet", "bert", "mobilenetv2", "resnet50")
FEEDS = {
    "alexnet": lambda: {"x": data.photos(0, 2, 227)},
    "bert": lambda: data.texts(0, 2, 128, 30522),
    "lenet": lambda: {"x": data.digits(0, 2, 32)},
    "mini": lambda: {"x": data.digits(0, 2, 6)},
    "mobilenetv2": lambda: {"x": data.photos(0, 2, 224)},
    "overflow": lambda: {"x": data.digits(0, 2, 16)},
    "resnet50": lambda: {"x": data.photos(0, 2, 224)},
}
LARGEST_DEVIATION = {"overflow": 1e5}  # beyond float16, as its name says; all others stay below 100
FRAME = re.compile(
    r'^(?:  )?File "(?P<file>[^"]+)", line (?P<line>\d+), in forward\n    (?P<code>.+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function that builds a network once for this module; the big files go at the end."""
    directory = tmp_path_factory.mktemp("sample_nets")
    yield lambda name: build(name, directory, batch="N")
    shutil.rmtree(directory)


@pytest.fixture(scope="module", params=NETWORKS)
def name(request):
    """Let the tests of a network run one after the other, so that one worker builds it."""
    return request.param


@pytest.fixture(scope="module")
def described(models):
    """Return a function that gives a network without the values of its weights, read once."""

    @functools.cache
    def read(name):
        model = onnx.load(models(name))
        for weight in model.graph.initializer:
            weight.ClearField("raw_data")
        return model

    return read


def metadata(node):
    """Return the metadata of a node as a dictionary."""
    return {entry.key: entry.value for entry in node.metadata_props}


def scoped_names(model):
    """Return the module path, its classes and the operator of each node."""
    names = []
    for node in model.graph.node:
        scopes = ast.literal_eval(metadata(node)["pkg.onnxscript.name_scopes"])
        classes = ast.literal_eval(metadata(node)["pkg.onnxscript.class_hierarchy"])
        parts = [f"{scope}-{cell}" for scope, cell in zip(scopes[1:], classes[1:], strict=True)]
        names.append("/".join([*parts, node.op_type]))
    return names


def test_network_has_its_known_size(described, name):
    """Each network has the operators and the parameters that its architecture says."""
    model = described(name)

    weights = [w for w in model.graph.initializer if "." in w.name and not w.name.startswith("const_")]
    parameters = sum(int(np.prod(weight.dims)) for weight in weights)

    operators, expected_parameters, _ = EXPECTED[name]
    assert operators == len(model.graph.node)
    assert expected_parameters == parameters


def test_activations_stay_alive(models, described, name):
    """Every value is finite and varies, from the first operator to the last, on real inputs."""
    model = described(name)
    outputs = [output.name for output in model.graph.output]
    inner = [value for node in model.graph.node for value in node.output if value not in outputs]
    # Every nth value of a deep network is enough, and keeps the run small.
    watched = inner[:: max(1, len(inner) // 20)]
    # The bytes of two messages one after the other are their union.
    shown = onnx.ModelProto(graph={"output": [{"name": value} for value in watched]})
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        models(name).read_bytes() + shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    names = [*watched, *outputs]

    values = session.run(names, FEEDS[name]())

    assert all(np.isfinite(value).all() for value in values)
    deviations = {value: float(array.std()) for value, array in zip(names, values, strict=True)}
    largest = LARGEST_DEVIATION.get(name, 100)
    assert not {value: deviation for value, deviation in deviations.items() if not 1e-3 < deviation < largest}
    assert EXPECTED[name][2] == values[-1].shape
    assert float(np.abs(values[-1][0] - values[-1][1]).max()) > 1e-2


def test_every_operator_knows_its_modules_and_lines(described, name):
    """Each node's metadata holds its scopes and real lines of the repository, without absolute paths."""
    model = described(name)

    for node in model.graph.node:
        frames = [frame.groupdict() for frame in FRAME.finditer(metadata(node)["pkg.onnxscript.stack_trace"])]
        assert f"sample_nets/{name}/net.py" == frames[0]["file"]
        for frame in frames:
            lines = (ROOT / frame["file"]).read_text(encoding="utf-8").splitlines()
            assert frame["code"] == lines[int(frame["line"]) - 1].strip()
    assert str(ROOT) not in repr(model.graph.node)


def test_alexnet_is_the_documented_one(described):
    """AlexNet runs the documented layers in the documented order, one ReLU and one pooling shared."""
    names = scoped_names(described("alexnet"))

    relu, pool = "relu-ReLU/Relu", "max_pool2d-MaxPool2d/MaxPool"
    convolutions = [f"conv{number}-Conv2d/Conv" for number in range(1, 6)]
    dense = [[f"fc{number}-Dense/MatMul", f"fc{number}-Dense/Add"] for number in range(1, 4)]
    expected = [
        *(convolutions[0], relu, pool),
        *(convolutions[1], relu, pool),
        *(convolutions[2], relu),
        *(convolutions[3], relu),
        *(convolutions[4], relu, pool),
        "flatten-Flatten/Flatten",
        *(*dense[0], relu),
        *(*dense[1], relu),
        *dense[2],
    ]
    assert expected == names


@pytest.mark.parametrize(
    ("name", "position", "expected"),
    [
        ("alexnet", 6, "Default/conv3-Conv2d/Conv2D-op0"),
        ("alexnet", 19, "Default/relu-ReLU/ReLU-op6"),
        ("alexnet", 21, "Default/fc3-Dense/BiasAdd-op0"),
        ("mini", 3, "Default/fc-Dense/MatMul-op0"),
        ("resnet50", 4, "Default/layer1-SequentialCell/0-ResidualBlock/conv1-Conv2d/Conv2D-op0"),
        ("resnet50", 172, "Default/ReduceMean-op0"),
    ],
)
def test_operators_have_mindspore_names(models, name, position, expected):
    """Msdump gives the operators the full names that MindSpore gives the same network's."""
    graph = load(models(name))

    assert expected == graph.nodes[position].operator.full_name


def test_source_lines_reach_the_graph(models):
    """The call of the third convolution and the line of the layer itself are known to msdump."""
    graph = load(models("alexnet"))

    call, layer = graph.nodes[6].source
    assert (call.file, call.code) == ("sample_nets/alexnet/net.py", "x = self.conv3(op, x)")
    assert layer.file == "sample_nets/layers.py"
    assert layer.code.startswith("return op.Conv(x, self.weight")


def test_stale_model_is_built_again(tmp_path):
    """A model older than its network's source is built again."""
    path = build("mini", tmp_path)
    path.write_bytes(b"old")
    os.utime(path, (0, 0))

    assert build("mini", tmp_path).read_bytes() != b"old"


def test_command_builds_into_a_folder(tmp_path):
    """The command builds the network with the wanted batch and prints where it lies."""
    command = [sys.executable, ROOT / "sample_nets" / "build.py", "mini", "--out", tmp_path, "--batch", "N"]

    done = completed(*command, check=True)

    path = Path(done.stdout.strip())
    assert path == tmp_path / "mini_bN_s0.onnx"
    assert onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"


@pytest.mark.parametrize(
    "name", ["mini", "lenet", "overflow", *(pytest.param(n, marks=pytest.mark.slow) for n in DEEP)]
)
def test_run_script_runs_step_by_step(name, tmp_path, forks):
    """Each run script builds its network, runs the steps and reports every one of them."""
    script = ROOT / "sample_nets" / name / "run.py"
    command = [forks / "python", script, "--steps", "2", "--batch", "2", "--cache", tmp_path]

    done = completed(*command, check=True)

    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 0", "step 1"]
    assert all(f"output float32 {EXPECTED[name][2]}" in line for line in lines)
    assert lines[0].partition(":")[2] != lines[1].partition(":")[2]
    shutil.rmtree(tmp_path)


def test_acl_program_dumps_as_configured(tmp_path, forks):
    """The pyACL program runs its executions and dumps below the working directory, as its acl.json says."""
    folder = ROOT / "sample_nets" / "lenet"
    command = [forks / "python", folder / "run_acl.py", "--config", folder / "acl.json", "--cache", tmp_path]
    (tmp_path / "output").mkdir()

    done = completed(*command, cwd=tmp_path, check=True)

    shape = (1, *EXPECTED["lenet"][2][1:])
    lines = done.stdout.splitlines()
    assert [f"step {step}: output float32 {shape}" for step in range(2)] == [
        line.split(", largest")[0] for line in lines
    ]
    found = [path for path in tmp_path.glob("output/*/0/lenet/1/[01]/*") if path.is_file()]
    assert 34 == len(found)


def test_acl_program_says_which_call_failed(tmp_path, forks):
    """Where the dump path is missing, the program ends with the call's code after the log's reason."""
    folder = ROOT / "sample_nets" / "lenet"
    command = [forks / "python", folder / "run_acl.py", "--config", folder / "acl.json", "--cache", tmp_path]

    done = completed(*command, cwd=tmp_path)

    assert (1, "acl.mdl.set_dump returned 100009\n") == (done.returncode, done.stderr)
    assert "dump_path" in done.stdout


def test_texts_are_masked():
    """Token ids are within the vocabulary and the empty fifth of each row is masked."""
    feed = data.texts(3, 2, 20, 50)

    assert feed["input_ids"].max() < 50
    assert feed["attention_mask"].tolist() == [[1] * 16 + [0] * 4] * 2
    assert (feed["input_ids"][:, 16:] == 0).all()


@pytest.mark.slow
def test_lenet_learns_digits(tmp_path):
    """A training of LeNet ends above 95 % on digits that it has not seen."""
    command = [sys.executable, ROOT / "sample_nets/lenet/train_lenet.py", "--cache", tmp_path]

    done = completed(*command)

    assert (0, "") == (done.returncode, done.stderr)
    assert 95 < float(re.search(r"test accuracy ([\d.]+) %", done.stdout)[1])


@pytest.mark.slow
def test_alexnet_learns_photographs(tmp_path):
    """The loss of AlexNet on two photographs falls."""
    folder = ROOT / "sample_nets/alexnet"
    command = [sys.executable, folder / "train_alexnet.py", "--steps", "6", "--cache", tmp_path]

    done = completed(*command)

    losses = [float(loss) for loss in re.findall(r"loss is (\S+)", done.stdout)]
    assert (0, "", 6) == (done.returncode, done.stderr, len(losses))
    assert losses[-1] < losses[0] / 2
