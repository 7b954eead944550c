"""``msdump run --train``: steps of training from the command line, their losses, and states in files."""

import numpy as np
import onnx
import pytest

from msdump.graph import loader
from msdump.judge import inputs
from tests import steps
from tests.world import cli, write_config

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture
def model(tmp_path):
    """Return the path of a model with training_info."""
    path = tmp_path / "step.onnx"
    onnx.save(steps.with_training_info(), path)
    return path


@pytest.fixture
def batch(tmp_path):
    """Return the path of a file with a batch."""
    path = tmp_path / "batch.npz"
    np.savez(path, x=steps.X, t=steps.T)
    return path


def call(*arguments):
    """Run the program in this process."""
    return cli("run", *arguments)


def losses(done):
    """Return the texts of the line of losses."""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("loss ")]
    return line.split()[1:]


def test_the_loss_of_each_step_is_printed(model, batch):
    """The losses of a few steps stand in one line."""
    done = call(model, "--train", "--inputs", batch, "--steps", 3)

    assert 0 == done.exit_code, done.stderr
    expected, _ = steps.expected(3)
    np.testing.assert_allclose(expected, [float(text) for text in losses(done)], rtol=1e-5)
    assert done.stdout.startswith("ran      3 iterations (0-2) of ")


def test_of_many_losses_the_ends_are_printed(model, batch):
    """Of more than ten steps the first and the last five, with -v all."""
    short, full = (call(model, "--train", "--inputs", batch, "--steps", 12, *more) for more in ([], ["-v"]))

    assert [11, 12] == [len(losses(short)), len(losses(full))]
    assert "..." == losses(short)[5]
    assert losses(full)[:5] == losses(short)[:5]
    assert losses(full)[-5:] == losses(short)[-5:]


def test_made_up_batches_are_one(model):
    """Without inputs every step trains on the same made-up batch: the loss falls."""
    done = call(model, "--train", "--steps", 4, "--dim", "n=8")

    numbers = [float(text) for text in losses(done)]
    assert numbers[-1] < numbers[0]


def test_a_saved_state_goes_on(model, batch, tmp_path):
    """Two runs, the second from the state of the first, lose as one run of all steps."""
    whole = call(model, "--train", "--inputs", batch, "--steps", 4)

    first = call(model, "--train", "--inputs", batch, "--steps", 2, "--save-state", tmp_path / "state.npz")
    second = call(model, "--train", "--inputs", batch, "--steps", 2, "--load-state", tmp_path / "state.npz")

    assert losses(whole) == losses(first) + losses(second)
    with np.load(tmp_path / "state.npz") as archive:
        assert {"w", "m", "step"} == set(archive)


def test_a_state_is_loaded_for_inference(model, batch, tmp_path):
    """A run without --train computes with the weights of the state, and dumps them."""
    state = {
        "w": np.zeros((3, 2), np.float32),
        "m": np.zeros((3, 2), np.float32),
        "step": np.zeros(1, np.int32),
    }
    np.savez(tmp_path / "state.npz", **state)
    write_config(tmp_path / "dump.json", tmp_path / "dump")

    files = ["--inputs", batch, "--load-state", tmp_path / "state.npz", "--config", tmp_path / "dump.json"]
    done = call(model, *files)

    assert 0 == done.exit_code, done.stderr
    (weight,) = (tmp_path / "dump").rglob("Parameter.w.*.npy")
    assert not np.load(weight).any()


def test_the_state_of_a_run_that_fails_is_saved(tmp_path):
    """Where a later step fails, the state of the last complete one is in the file."""
    text = steps.PLAIN.replace("(float loss,", "(float loss, float gathered,")
    text = text.replace("g, mu)\n}", "g, mu)\n last = Squeeze(step_new)\n gathered = Gather(table, last)\n}")
    model = steps.message(text.replace("int32 one = {1}", "int32 one = {1}, float[3] table = {1, 1, 1}"))
    steps.bind(model.training_info.add().update_binding, steps.BINDING)
    onnx.save(model, tmp_path / "m.onnx")

    done = call(tmp_path / "m.onnx", "--train", "--steps", 5, "--save-state", tmp_path / "state.npz")

    assert 1 == done.exit_code
    assert "Gather-op0 failed" in done.stderr
    with np.load(tmp_path / "state.npz") as archive:
        assert [2] == archive["step"].tolist()


REFUSED = {
    "no training": (["--train"], "the model describes no training"),
    "state without training": (["--save-state", "s.npz"], "--save-state needs --train"),
    "no such state": (["--train", "--load-state", "none.npz"], "none.npz: cannot be read"),
}


@pytest.mark.parametrize(("options", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_run_is_refused(tmp_path, options, expected):
    """A fault is reported in a line, before anything runs."""
    onnx.save(steps.message(steps.PLAIN), tmp_path / "m.onnx")

    done = call(tmp_path / "m.onnx", *options)

    assert 2 == done.exit_code
    assert expected in done.stderr


def test_a_state_that_does_not_fit_is_refused(model, tmp_path):
    """A state of another network is reported with every fault, and nothing runs."""
    np.savez(tmp_path / "state.npz", w=np.zeros(2, np.float32), other=np.zeros(1))

    done = call(model, "--train", "--load-state", tmp_path / "state.npz")

    assert 2 == done.exit_code
    assert "there is no variable 'other'" in done.stderr
    assert "variable 'w' is float32[3, 2], float32[2] is given" in done.stderr


CLASSIFIER = """
<ir_version: 10, opset_import: ["": 20, "mindspore.ops": 1]>
net (float[8,3] x, int32[8] labels, int64[8] other) => (float loss, float[3,5] w_new, int64[8] same)
<float[3,5] w = {WEIGHTS}> {
  logits = MatMul(x, w)
  loss = LOSS
  w_new = Add(w, w)
  same = Abs(other)
}
<domain: "mindspore.ops", opset_import: ["": 20]>
SparseSoftmaxCrossEntropyWithLogits (a, b) => (c) { d = Cast<to=7>(b) c = SoftmaxCrossEntropyLoss(a, d) }
""".replace("WEIGHTS", ", ".join(["0.5"] * 15))

LOSSES = {
    "MindSpore's": "loss = mindspore.ops.SparseSoftmaxCrossEntropyWithLogits(logits, labels)",
    "of ONNX": "loss = SoftmaxCrossEntropyLoss(logits, labels)",
    "of converted labels": "cast = Cast<to=7>(labels)\n loss = SoftmaxCrossEntropyLoss(logits, cast)",
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_made_up_labels_are_class_indices(loss):
    """Labels take every class of the loss, and no other number; other integers stay 0 or 1."""
    model = steps.message(CLASSIFIER.replace("loss = LOSS", loss))
    graph = loader.load(model, update_binding={"w": "w_new"})

    drawn = [inputs.made_up(graph, {}, 0, step) for step in range(20)]
    assert set(range(5)) == set(np.concatenate([each["labels"] for each in drawn]).tolist())
    assert {0, 1} == set(np.concatenate([each["other"] for each in drawn]).tolist())


def test_made_up_labels_of_inference_are_class_indices():
    """A model that computes its loss gets class indices without training, too."""
    model = steps.message(CLASSIFIER.replace("loss = LOSS", LOSSES["of ONNX"]))
    plain, trained = (loader.load(model, update_binding=bound) for bound in (None, {"w": "w_new"}))

    drawn = [inputs.made_up(graph, {}, 0, 0)["labels"].tolist() for graph in (plain, trained)]
    assert 1 < max(drawn[0])
    assert drawn[0] == drawn[1]


def test_check_previews_the_training_step(model, tmp_path):
    """``check --train`` lists the operators of the step, without it of inference."""
    path = write_config(tmp_path / "dump.json", tmp_path / "dump")

    inference, training = (cli("check", path, "--model", model, *options) for options in ([], ["--train"]))

    assert [0, 0] == [inference.exit_code, training.exit_code], training.stderr
    assert "ApplyMomentum" not in inference.stdout
    assert "Default/ApplyMomentum-op0" in training.stdout
