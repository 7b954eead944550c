"""Training steps: variables take new values, runs in between see them, a failed step changes nothing."""

import logging

import numpy as np
import pytest
from onnx import parser

import msdump
from msdump.errors import ExecutionError, InputError, NotAvailableError, ReentryError
from msdump.record import IO
from tests import steps
from tests.world import O1, O2

ONES = np.ones((3, 2), np.float32)


TWOS = """
start () => (float[3,2] first) {
  two = Constant<value_float=2.0>()
  shape = Constant<value_ints=[3,2]>()
  first = Expand(two, shape)
}
"""


def initialised():
    """Return a model with an initialization that sets its weights to 2."""
    model = steps.with_training_info(TWOS)
    steps.bind(model.training_info[0].initialization_binding, {"w": "first"})
    return model


def networks():
    """Return a network of each form of a training step."""
    return {
        "plain form": steps.plain,
        "algorithm": lambda: msdump.load(steps.with_training_info()),
        "O1": lambda: steps.plain(context=O1),
        "O2": lambda: steps.plain(context=O2),
        "algorithm, O2": lambda: msdump.load(steps.with_training_info(), context=O2),
    }


@pytest.mark.parametrize("load", networks().values(), ids=networks())
def test_steps_compute_what_numpy_does(load):
    """Losses and variables of three steps are numpy's, with float16 operands of matrix products on Ascend."""
    network = load()
    losses, states = steps.expected(3)

    for loss, state in zip(losses, states, strict=True):
        np.testing.assert_allclose(loss, network.train_step(steps.X, steps.T), rtol=5e-3)
        actual = network.state()
        assert ["m", "step", "w"] == sorted(actual)
        for name, array in state.items():
            np.testing.assert_allclose(array, actual[name], rtol=1e-2, atol=2e-2, err_msg=name)
    assert 3 == network.training.runs


@pytest.mark.parametrize("load", networks().values(), ids=networks())
def test_inference_reads_the_variables_and_changes_none(load):
    """A call between steps computes with the weights of then; only ``train_step`` writes them."""
    network = load()
    network.train_step(steps.X, steps.T)
    before = network.state()

    outputs = network.run({"x": steps.X, "t": steps.T})

    assert outputs["loss"] == network.train_step(steps.X, steps.T)
    assert outputs["loss"] != network.train_step(steps.X, steps.T)
    np.testing.assert_array_equal([1], before["step"])


def test_outputs_that_are_bound_are_not_returned():
    """``train_step`` returns outputs that are no new values: here the loss; a call returns every output."""
    plain, algorithm = steps.plain(), msdump.load(steps.with_training_info())

    assert [4, ()] == [len(plain(steps.X, steps.T)), plain.train_step(steps.X, steps.T).shape]
    assert [(), ()] == [algorithm(steps.X, steps.T).shape, algorithm.train_step(steps.X, steps.T).shape]


def test_a_network_without_training_says_what_to_do():
    """A model that binds nothing cannot train; the message names both ways to bind."""
    network = steps.plain(update_binding=None)

    with pytest.raises(NotAvailableError, match=r"update_binding.*training_info"):
        network.train_step(steps.X, steps.T)
    assert {} == network.state()


def test_a_saved_state_is_restored():
    """Steps from a saved state repeat the steps that followed it, bit by bit."""
    network = steps.plain()
    network.train_step(steps.X, steps.T)
    saved = network.state()
    losses = [network.train_step(steps.X, steps.T) for _ in range(2)]

    network.load_state(saved)

    assert losses == [network.train_step(steps.X, steps.T) for _ in range(2)]
    other = msdump.load(steps.with_training_info())
    other.load_state(saved)
    assert losses == [other.train_step(steps.X, steps.T) for _ in range(2)]


def test_a_state_is_the_callers_own():
    """Changing the result of ``state``, or the argument of ``load_state``, changes no variable."""
    network = steps.plain()
    state = network.state()
    network.load_state(state)

    state["w"][:] = 7

    assert 7 not in network.state()["w"]


def test_masks_are_refused():
    """A masked array is no value of a variable, and no input of a step: its mask would be lost."""
    network = steps.plain()
    masked = np.ma.masked_equal(ONES, 1)

    with pytest.raises(InputError, match=r"load_state: variable 'w': masked elements: 6; .*\.filled"):
        network.load_state(network.state() | {"w": masked})
    with pytest.raises(InputError, match=r"input '.*': masked elements: 6; .*\.filled"):
        network.train_step(masked)


def test_every_fault_of_a_state_is_told():
    """An unknown name, a missing one, another shape and another type are one error; nothing changes."""
    network = steps.plain()
    state = {"ww": ONES, "w": ONES.T, "m": ONES.astype(np.float64)}

    with pytest.raises(InputError) as caught:
        network.load_state(state)

    message = str(caught.value)
    assert "there is no variable 'ww' (did you mean 'w'?)" in message
    assert "variable 'w' is Float32[3, 2], Float32[2, 3] is given" in message.replace("float32", "Float32")
    assert "float64[3, 2] is given" in message
    assert "variable 'step' is missing" in message
    np.testing.assert_array_equal(0, network.state()["m"])


def test_a_step_that_fails_leaves_the_state():
    """Where an operator fails behind an update, every variable is as before the step."""
    text = steps.PLAIN.replace("(float loss,", "(float loss, float[k,2] reshaped,")
    text = text.replace("float[n,2] t)", "float[n,2] t, int64[2] shape)")
    network = steps.plain(text.replace("g, mu)\n}", "g, mu)\n reshaped = Reshape(w_new, shape)\n}"))
    network.train_step(steps.X, steps.T, np.array([3, 2]))
    before = network.state()

    with pytest.raises(ExecutionError, match="Reshape"):
        network.train_step(steps.X, steps.T, np.array([5, 2]))

    assert all((before[name] == array).all() for name, array in network.state().items())
    assert 2 == network.runs


def test_a_batch_of_another_size():
    """The free dimension of a batch may change between steps; a fixed one may not, and changes no state."""
    network = steps.plain()
    network.train_step(steps.X, steps.T)
    network.train_step(steps.X[:2], steps.T[:2])
    before = network.state()

    with pytest.raises(InputError, match=r"shape \(4, 2\) given, \(n, 3\) expected"):
        network.train_step(steps.X[:, :2], steps.T)

    assert (before["w"] == network.state()["w"]).all()
    assert [2] == network.state()["step"].tolist()


def test_a_value_of_another_shape_that_only_the_run_tells():
    """A bound output that turns out to have another shape than its initializer is refused by name."""
    text = steps.PLAIN.replace("float[3,2] w_new", "float[a,2] w_new")
    text = text.replace("float[n,2] t)", "float[n,2] t, int64[1] zero, int64[1] end)")
    text = text.replace("[update] w_new,", "[update] whole,").replace(
        "g, mu)\n}", "g, mu)\n w_new = Slice(whole, zero, end)\n}"
    )
    network = steps.plain(text)
    network.train_step(steps.X, steps.T, np.array([0]), np.array([3]))
    before = network.state()

    with pytest.raises(InputError, match=r"'w' is float32\[3, 2\], its new value float32\[1, 2\]"):
        network.train_step(steps.X, steps.T, np.array([0]), np.array([1]))

    assert (before["w"] == network.state()["w"]).all()


def test_an_input_that_is_bound_is_copied():
    """A variable that takes a graph's input keeps its own copy: the caller's array may change."""
    model = steps.message(
        '<ir_version: 10, opset_import: ["": 20]> net (float[2] x) => (float[2] y, float[2] x)'
        " <float[2] last = {0, 0}> { y = Add(x, last) }"
    )
    network = msdump.load(model, update_binding={"last": "x"})
    x = np.array([1, 2], np.float32)

    network.train_step(x)
    x[:] = 9

    assert [1, 2] == network.state()["last"].tolist()


def test_a_loss_that_is_not_finite_is_told_once(caplog):
    """The first such loss names the operator that made it of finite inputs; later ones say nothing."""
    network = steps.plain(steps.PLAIN.replace("Mul(d, d)", "Log(d)"))

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert np.isnan(network.train_step(steps.X, steps.T))

    assert 1 == len(caplog.records)
    assert "the loss is not finite: Default/Log-op0 has finite inputs" in caplog.text
    assert 3 == network.runs


def test_a_state_is_not_loaded_within_a_step():
    """A function that a step calls, as a handler of log records, cannot change the step's variables."""
    network = steps.plain(steps.PLAIN.replace("Mul(d, d)", "Log(d)"))
    refused = []

    class Handler(logging.Handler):
        def emit(self, _record):
            with pytest.raises(ReentryError) as caught:
                network.load_state(network.state())
            refused.append(str(caught.value))

    log = logging.getLogger("msdump.session")
    log.addHandler(handler := Handler())
    try:
        network.train_step(steps.X, steps.T)
    finally:
        log.removeHandler(handler)

    assert 1 == len(refused)
    assert "called during its own run" in refused[0]
    assert [1] == network.state()["step"].tolist()


def test_a_state_that_is_not_finite_is_told(caplog):
    """Where the weights themselves are at fault, the warning names them."""
    network = steps.plain()
    network.load_state(network.state() | {"w": ONES * np.inf})

    network.train_step(steps.X, steps.T)

    assert "the loss is not finite: 'w' held NaN or infinity before the step" in caplog.text


BATCHES = {
    "a batch with NaN": (np.nan, "t", "'t' held NaN or infinity before the step"),
    "an infinity that makes the loss": (np.inf, "t", "'t' held NaN or infinity before the step"),
    "a mask of infinities": (
        -np.inf,
        "mask",
        "Default/Log-op0 has finite inputs and the first output with NaN or infinity",
    ),
}


@pytest.mark.parametrize(("number", "name", "expected"), BATCHES.values(), ids=BATCHES)
def test_a_batch_that_is_not_finite(caplog, number, name, expected):
    """A faulty batch is named; infinities on purpose do not hide an operator's fault."""
    text = steps.PLAIN.replace(
        "(float[n,3] x, float[n,2] t)", "(float[n,3] x, float[n,2] t, float[n,2] mask)"
    )
    text = text.replace("[sub] d = Sub(y, t)", "ignored = Exp(mask) z = Add(y, ignored) [sub] d = Sub(z, t)")
    if name == "mask":
        text = text.replace("Mul(d, d)", "Log(d)")
    batch = {"x": steps.X, "t": steps.T, "mask": np.zeros_like(steps.T)}
    network = steps.plain(text)

    network.train_step(**batch | {name: np.full_like(steps.T, number)})

    assert f"the loss is not finite: {expected}" in caplog.text


def test_initial_values_are_computed_when_training_begins():
    """Inference has the file's weights; the first step begins with the initialization's, once."""
    network = msdump.load(initialised())
    w = {"w": 2 * ONES, "m": 0 * ONES}

    losses, _ = steps.expected(2, w)
    inferred = network(steps.X, steps.T)

    np.testing.assert_allclose(steps.expected(1)[0][0], inferred, rtol=1e-5)
    np.testing.assert_allclose(losses, [network.train_step(steps.X, steps.T) for _ in range(2)], rtol=1e-5)


def test_a_loaded_state_is_not_initialised():
    """Training goes on from a state that was loaded before the first step."""
    network = msdump.load(initialised())

    network.load_state({"w": ONES, "m": 0 * ONES, "step": np.array([5], np.int32)})

    np.testing.assert_array_equal(ONES, network.state()["w"])


OPTIMIZERS = {
    "Momentum": ('alpha=0.9, beta=1.0, norm_coefficient=0.0, mode="standard"', 1),
    "Adagrad": ("decay_factor=0.0, epsilon=0.000001, norm_coefficient=0.0", 1),
    "Adam": ("alpha=0.9, beta=0.999, epsilon=0.00001, norm_coefficient=0.0", 2),
}


@pytest.mark.parametrize("device", ["CPU", "Ascend"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_of_onnx_run(optimizer, device):
    """ONNX's preview optimizers, for which the runtime has no kernel, train in an algorithm."""
    attributes, count = OPTIMIZERS[optimizer]
    old, new = ([f"s{number}{end}" for number in range(count)] for end in ("", "_new"))
    update = f"w_new, {', '.join(new)} = ai.onnx.preview.training.{optimizer}<{attributes}>"
    states = ", ".join(f"float[3,2] {name} = {{0, 0, 0, 0, 0, 0}}" for name in old)
    outputs = ", ".join(f"float[3,2] {name}" for name in new)
    algorithm = f"""
        algorithm () => (float[3,2] w_new, int64 n_new, {outputs})
        <{states}, float rate = {{0.1}}, int64 n = {{0}}, int64 one = {{1}}> {{
          g = mindspore.ops.MatMul:ta(x, d, yes, no)
          n_new = Add(n, one)
          {update}(rate, n, w, g, {", ".join(old)})
        }}"""
    model = steps.with_training_info()
    model.opset_import.add(domain="ai.onnx.preview.training", version=1)
    info = model.training_info[0]
    info.algorithm.CopyFrom(parser.parse_graph(algorithm))
    info.ClearField("update_binding")
    steps.bind(info.update_binding, {"w": "w_new", "n": "n_new", **dict(zip(old, new, strict=True))})
    network = msdump.load(model, context={"device_target": device})

    losses = [network.train_step(steps.X, steps.T) for _ in range(3)]

    assert losses == sorted(losses, reverse=True)
    assert {"float32", "int64"} == {array.dtype.name for array in network.state().values()}
    assert [3] == [network.state()["n"].item()]


def test_a_branch_reads_the_variables_of_then():
    """A variable that only a branch reads is neither folded nor packed: each step sees its new value."""
    model = steps.message(
        """
        <ir_version: 10, opset_import: ["": 20]>
        net (float[2,2] x, bool c) => (float[2,2] y, float[2,2] w_new) <float[2,2] w = {1, 0, 0, 1}> {
          y = If (c) <
            then_branch = then () => (float[2,2] a) { a = MatMul(x, w) },
            else_branch = other () => (float[2,2] b) { b = Neg(w) }
          >
          w_new = Add(w, w)
        }"""
    )
    x = np.ones((2, 2), np.float32)
    for context in ({}, O2):
        network = msdump.load(model, update_binding={"w": "w_new"}, context=context)

        results = [network.train_step(x, np.array(taken)) for taken in (True, True, False)]

        assert [1, 2, -4] == [result[0, 0] for result in results]


def test_folding_keeps_what_is_computed_of_variables():
    """Ascend O2 folds operators of constants alone: one that reads a variable runs in each step."""
    model = steps.message(
        """
        <ir_version: 10, opset_import: ["": 20]>
        net (float[2] x) => (float[2] y, float[2] w_new) <float[2] w = {1, 1}, float[2] k = {2, 2}> {
          double = Mul(k, k)
          scaled = Mul(w, double)
          y = Add(x, scaled)
          w_new = Add(w, w)
        }"""
    )
    network = msdump.load(model, update_binding={"w": "w_new"}, context=O2)

    assert [4, 8, 16] == [network.train_step(np.zeros(2, np.float32))[0] for _ in range(3)]


def test_a_new_value_has_the_memory_of_the_old_one():
    """On the emulated Ascend an operator writes its input where it lies: a step needs no second copy."""
    limited = {"device_target": "Ascend", "jit_level": "O0", "max_device_memory": "1GB"}
    network = steps.plain(context=limited)
    network.train_step(steps.X, steps.T)

    memory = network.device_memory
    (position,) = [
        number for number, node in enumerate(network.graph.nodes) if node.op_type == "ApplyMomentum"
    ]
    assert memory.blocks["w"] == memory.block(position, IO.INPUT, 0) == memory.block(position, IO.OUTPUT, 0)
    assert memory.blocks["m"] == memory.block(position, IO.INPUT, 1)
    assert memory.blocks.get("m_new", memory.blocks["m"]) == memory.blocks["m"]
