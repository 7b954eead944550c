"""``msdump train-graph``: its files, and its refusals."""

import json

import numpy as np
import onnx.parser
import pytest

import msdump
from msdump.training import write_step
from msdump.training.optimizers import Momentum
from msdump.training.rules import RULES
from tests.training.mlp import batch, mlp
from tests.world import cli, write_config

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def model(tmp_path):
    """Return the path of a model."""
    path = tmp_path / "mlp.onnx"
    onnx.save(mlp(), path)
    return str(path)


def call(*arguments):
    """Run the command in this process."""
    return cli("train-graph", *arguments)


def test_written_step_trains(tmp_path, model):
    """The file is the graph that step_graph returns; its losses fall on one batch."""
    output = tmp_path / "out" / "step.onnx"

    done = call(model, "-o", output, "--optimizer", "momentum:0.1,0.9", "--trainable", "fc2.weight")

    assert (0, f"{output}\n", "") == (done.exit_code, done.stdout, done.stderr)
    written = msdump.training.step_graph(model, optimizer="momentum:0.1,0.9", trainable=["fc2.weight"])
    assert written.SerializeToString() == output.read_bytes()
    network = msdump.load(str(output))
    losses = [float(network.train_step(*batch(0))) for _ in range(4)]
    assert sorted(losses, reverse=True) == losses


def test_options_reach_the_graph(tmp_path, model):
    """Types, scale, size, device, ranks, accumulation and clipping decide about operators and shapes."""
    output = tmp_path / "step.onnx"

    options = ["--precision", "fc1=float16", "--loss-scale", "dynamic:1024", "--dim", "N=3"]
    options += ["--device-target", "Ascend", "--data-parallel", "2"]
    options += ["--accumulate", "4", "--clip-gradients", "value:-1,1"]
    done = call(model, "-o", output, *options)

    assert done.exit_code == 0, done.output
    graph = onnx.load(output).graph
    assert {"Cast", "AllFinite", "AllReduce", "If"} <= {node.op_type for node in graph.node}
    assert [3, 8] == [size.dim_value for size in graph.input[0].type.tensor_type.shape.dim]
    assert {"scale_sense", "counter_"} <= {tensor.name for tensor in graph.initializer}
    (skipping,) = (node for node in graph.node if node.op_type == "If")
    (due,) = (node for node in _branch(skipping, "else_branch") if node.op_type == "If")
    assert {"Max", "Min", "ApplyMomentum"} <= {node.op_type for node in _branch(due, "then_branch")}


def _branch(node, name):
    """Return the operators of a branch."""
    return next(attribute.g.node for attribute in node.attribute if attribute.name == name)


def test_optimizers_and_groups_by_patterns(tmp_path, model):
    """Patterns stand in front of an optimizer or of a group's options; the one without takes the others."""
    output = tmp_path / "step.onnx"

    optimizers = ["--optimizer", "momentum:learning_rate=0.1 0.2", "--optimizer", "fc1*=sgd:0.1"]
    groups = ["--group", "*.bias=weight_decay=0,learning_rate=0.5"]
    done = call(model, "-o", output, *optimizers, *groups)

    assert done.exit_code == 0, done.output
    written = msdump.training.step_graph(
        model,
        optimizer={"": Momentum([0.1, 0.2]), "fc1*": "sgd:0.1"},
        groups={"*.bias": {"weight_decay": 0, "learning_rate": 0.5}},
    )
    assert written.SerializeToString() == output.read_bytes()
    network = msdump.load(str(output))
    losses = [float(network.train_step(*batch(0))) for _ in range(2)]
    assert losses[1] < losses[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--loss", "mze"], "unknown loss 'mze'"),
        (["--optimizer", "momentun"], "unknown optimizer 'momentun': must be one of"),
        (["--optimizer", "momentum:fast"], "learning_rate is 'fast'; must be a number"),
        (["--optimizer", "fc9*=sgd", "--optimizer", "adam"], "optimizer 'fc9*': no trained parameter has"),
        (
            ["--optimizer", "fc1*=sgd"],
            "no optimizer for fc2.weight, fc2.bias; add an optimizer without a pattern",
        ),
        (["--optimizer", "sgd", "--optimizer", "adam"], "--optimizer: the network is given twice"),
        (["--group", "*.bias"], "group '': learning_rate is '*.bias'; must be a number; the options are"),
        (["--group", "*.bias=lr=1"], "group '*.bias': unknown option 'lr'"),
        (["--group", "*.bias=", "--group", "*.bias="], "--group: *.bias is given twice"),
        (["--trainable", "fc9.weight"], "no such parameters: fc9.weight; there are fc1.weight"),
        (["--dim", "N"], "'N' is not NAME=SIZE"),
        (["--precision", "fc1=int8"], "unknown precision 'int8'"),
        (["--precision", "float16", "--precision", "float16"], "--precision: the network is given twice"),
        (["--loss-scale", "-1"], "value is -1.0; must be more than 0"),
        (["--accumulate", "mean"], "steps is 0; must be a whole number from 1"),
        (["--clip-gradients", "norm:1"], "unknown clipping 'norm': must be one of global_norm, value"),
        (["--device-target", "TPU"], "unknown device 'TPU'"),
        (["--output", "step.txt"], "the name must end in .onnx"),
    ],
)
def test_wrong_options_are_refused(tmp_path, model, arguments, words):
    """The fault is named, exit code 2, and nothing is written."""
    output = [] if "--output" in arguments else ["-o", str(tmp_path / "step.onnx")]

    done = call(model, *output, *arguments)

    assert done.exit_code == 2
    assert words in done.stderr
    assert [tmp_path / "mlp.onnx"] == list(tmp_path.iterdir())


def test_operator_without_gradient_is_named(tmp_path, model, monkeypatch):
    """An operator without a gradient rule is reported with its scope."""
    monkeypatch.delitem(RULES, ("", "Relu"))

    done = call(model, "-o", tmp_path / "step.onnx")

    assert done.exit_code == 2
    assert "_backbone-MLP/relu-ReLU/ReLU: ai.onnx.Relu has no gradient rule" in done.stderr


def test_model_without_parameters_is_warned_of(tmp_path):
    """A loss that depends on no parameter gives a step that trains nothing, which is said."""
    done = call("graphs/quantized.onnx", "-o", tmp_path / "step.onnx")

    assert done.exit_code == 0
    warning = "msdump: warning: graphs/quantized.onnx: nothing is trained: the loss depends on no parameter\n"
    assert warning == done.stderr


def test_file_that_cannot_be_written_is_told(tmp_path, model):
    """A folder in the way is a failure of the run, exit code 1."""
    (tmp_path / "step.onnx").mkdir()

    done = call(model, "-o", tmp_path / "step.onnx")

    assert (1, True) == (done.exit_code, "cannot write" in done.stderr)


def test_weights_that_no_message_holds_have_a_file_of_their_own(tmp_path):
    """Above a size, large weights go to a second file; the step trains as from one file."""
    steps = [msdump.training.step_graph(mlp(features=300)) for _ in range(2)]

    assert (f"{tmp_path}/one.onnx",) == write_step(steps[0], f"{tmp_path}/one.onnx")
    paths = write_step(steps[1], f"{tmp_path}/two.onnx", most_bytes=10_000)

    assert (f"{tmp_path}/two.onnx", f"{tmp_path}/two.onnx.data") == paths
    one, two = (msdump.load(f"{tmp_path}/{name}.onnx") for name in ("one", "two"))
    for step in range(2):
        assert one.train_step(*batch(step, 300)) == two.train_step(*batch(step, 300))
    for name, array in one.state().items():
        np.testing.assert_array_equal(array, two.state()[name])


@pytest.mark.parametrize("opset", [13, 20])
def test_messages_name_the_file(tmp_path, caplog, opset):
    """Messages on a model name its file, also where it is converted to a newer opset."""
    path = tmp_path / "model.onnx"
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3] x) => (float[2,3] y)'
    onnx.save(onnx.parser.parse_model(f"{head} {{ y = Relu (x) }}"), path)

    with caplog.at_level("WARNING"):
        assert call(path, "-o", tmp_path / "step.onnx").exit_code == 0
    refused = call(path, "-o", tmp_path / "step.onnx", "--trainable", "weight")

    assert f"{path}: nothing is trained" in caplog.text
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"msdump: error: {path}: no such parameters: weight")


def test_models_that_cannot_be_converted_are_named(tmp_path):
    """A model of an old opset that ONNX cannot convert is reported with its file."""
    path = tmp_path / "model.onnx"
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { y = Nothing (x) }'
    onnx.save(onnx.parser.parse_model(text), path)

    done = call(path, "-o", tmp_path / "step.onnx")

    assert done.exit_code == 2
    assert done.stderr.startswith(f"msdump: error: {path}: the model has opset 13 and cannot be converted")


def test_losses_without_a_reduction(tmp_path, model, monkeypatch):
    """The losses of elements are shown by their mean, and are the loss to rules, in a run and in its dump."""
    step, dump, saved, rules = (tmp_path / name for name in ("step.onnx", "dump", "last.npz", "rules.json"))
    # every loss is above a thousandth of the one before
    watched = {"watch": [{"condition": "loss_spike", "after": 1, "growth_gt": 1e-3}]}
    rules.write_text(json.dumps(watched), encoding="utf-8")
    config = write_config(tmp_path / "dump.json", dump, own=watched)
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(config))
    call(model, "-o", step, "--loss", "l1:none", "--loss-scale", "dynamic:8", "--dim", "N=3")

    run = cli("run", step, "--train", "--steps", "4", "--save-outputs", saved)
    found = cli("watch", dump, "--rules", rules, "-j", "1")

    assert run.exit_code == 0, run.output
    (line,) = (line for line in run.stdout.splitlines() if line.startswith("loss "))
    losses = next(array for array in np.load(saved).values() if array.shape == (3, 4))
    assert pytest.approx(losses.mean(), rel=1e-6) == float(line.split()[-1])
    assert "_loss_fn-L1Loss/Abs-op0 output.0" in run.stderr
    assert "_loss_fn-L1Loss/Abs-op0 output.0" in found.stdout
